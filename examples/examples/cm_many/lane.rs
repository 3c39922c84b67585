//! What the connections on a device share.

use std::sync::Arc;

use anyhow::{Context, Result};
use sideway::ibverbs::completion::CompletionChannel;
use sideway::ibverbs::device_context::DeviceContext;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::rdmacm::communication_manager::Identifier;
use sideway_examples::cm::{Link, Shape, key};

/// A device that a connection is on.
#[derive(Debug)]
pub(crate) struct Lane {
    context: Arc<DeviceContext>,
    pd: Arc<ProtectionDomain>,
    /// Where the completion queues of all connections tell of completions.
    channel: Arc<CompletionChannel>,
}

/// The devices. Which ones there are comes to light with the connections.
#[derive(Debug, Default)]
pub(crate) struct Lanes(Vec<Lane>);

impl Lanes {
    /// Makes what the connection of an identifier needs, which has one message of `size` bytes in either direction.
    pub(crate) fn link(&mut self, id: &Arc<Identifier>, size: u32) -> Result<Link> {
        let context = id.get_device_context().context("the identifier is on no device")?;
        let lane = match self.0.iter().position(|lane| Arc::ptr_eq(&lane.context, &context)) {
            Some(at) => self.0.get(at),
            None => {
                let (pd, channel) = (context.alloc_pd()?, context.create_comp_channel()?);
                self.0.push(Lane { context, pd, channel });
                self.0.last()
            }
        };
        let Lane { pd, channel, .. } = lane.context("the device was not found again")?;
        // By the number that its completion events carry, the connection is found.
        Link::new(id, pd, &Shape { size, messages: 1, told: Some((channel, key(id))), shared: None })
    }

    /// The channels to look at.
    pub(crate) fn channels(&self) -> impl Iterator<Item = &Arc<CompletionChannel>> {
        self.0.iter().map(|lane| &lane.channel)
    }
}
