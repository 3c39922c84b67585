//! This side, apart from its queue pairs: the port, and what the game is played with.

use std::sync::Arc;

use anyhow::Result;
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{BasicService, GenericQueuePair, QueuePair, QueuePairBuilder};

use super::{Kind, Link, Place, Play, Resources};
use crate::LocalPort;
use crate::exchange::Address;

/// This side, apart from its queue pairs.
#[derive(Debug)]
pub struct Endpoint {
    pub(super) resources: Resources,
    pub(super) place: Place,
    pub(super) port: LocalPort,
}

impl Endpoint {
    /// Makes everything that a link with `lanes` queue pairs needs, for messages of `size` bytes.
    ///
    /// # Errors
    ///
    /// A sentence for the user: options that contradict each other, a device that is not there or has not so much.
    pub fn new<L: Link>(place: &Place, play: &Play, size: u32, lanes: u32) -> Result<Self> {
        play.check()?;
        let port = LocalPort::open(place.ib_dev.as_deref(), place.ib_port, place.gid_idx, place.sl)?;
        L::check_size(port.attr(), size)?;
        let resources = Resources::new::<L>(port.context(), play, size, lanes)?;
        Ok(Self { resources, place: place.clone(), port })
    }

    /// Where queue pairs and address handles are made.
    pub fn pd(&self) -> &Arc<ProtectionDomain> {
        self.resources.pd()
    }

    /// The port that they send from.
    pub fn port(&self) -> &LocalPort {
        &self.port
    }

    /// Makes a queue pair of what the builder already says: with room for one send, and for all receives, on the completion
    /// queue of this side. With a shared receive queue, the room for receives is that one's affair.
    ///
    /// # Errors
    ///
    /// The device has not so much.
    pub fn queue_pair<T: BasicService>(&self, mut builder: QueuePairBuilder<T>) -> Result<GenericQueuePair<T>> {
        self.resources.equip(&mut builder);
        Ok(match self.resources.play.qp_kind()? {
            Kind::Basic => builder.build()?.into(),
            Kind::Extended => builder.build_ex()?.into(),
            Kind::Generic => builder.build_generic()?,
        })
    }

    /// The same for a connection: in INIT, in which receives can be posted, and with the address that the peer is to know.
    ///
    /// # Errors
    ///
    /// As [`queue_pair`](Self::queue_pair).
    pub fn connection(&self, builder: QueuePairBuilder) -> Result<(GenericQueuePair, Address)> {
        let qp = self.queue_pair(builder)?;
        // The peer only sends; it writes and reads nothing by itself.
        qp.modify(self.port.to_init().setup_access_flags(AccessFlags::empty()))?;
        let local = self.port.address(qp.qp_number());
        Ok((qp, local))
    }
}
