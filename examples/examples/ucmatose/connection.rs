//! One of the connections.

use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use sideway::rdmacm::communication_manager::Identifier;
use sideway_examples::cm::Link;
use sideway_examples::noise;

use super::greeting::Greeting;

/// Which side a message is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Server,
    Client,
}

/// A connection, from the first step on.
#[derive(Debug)]
pub(crate) struct Connection {
    // Holds the identifier as well.
    link: Option<Link>,
    pub(crate) id: Arc<Identifier>,
    side: Side,
    /// What the peer said of itself, where it is this program.
    pub(crate) peer: Option<Greeting>,
    pub(crate) is_over: bool,
    received: u32,
    size: u32,
}

impl Connection {
    /// One that is only an identifier yet.
    pub(crate) fn new(id: Arc<Identifier>, side: Side, size: u32) -> Self {
        Self { link: None, id, side, peer: None, is_over: false, received: 0, size }
    }

    /// It can be used from here on, once it is established.
    pub(crate) fn set_link(&mut self, link: Link) {
        self.link = Some(link);
    }

    /// Sends this side's messages.
    pub(crate) fn send(&mut self, messages: u32) -> Result<()> {
        let number = self.peer.map_or(0, |peer| peer.number);
        let side = self.side;
        let mut message = vec![0; self.size as usize];
        for index in 0..messages {
            noise::fill(&mut message, seed(side, number, index));
            self.link()?.send(&message)?;
        }
        Ok(())
    }

    /// Looks at what has completed, and checks what has come.
    pub(crate) fn poll(&mut self) -> Result<()> {
        let completed = self.link()?.poll()?;
        for place in completed.received {
            let message = self.link()?.message(place)?;
            ensure!(
                message.len() == self.size as usize,
                "a message of {} bytes came instead of {}: is the peer started with the same -S?",
                message.len(),
                self.size
            );
            if let Some(peer) = self.peer {
                let mut expected = vec![0; message.len()];
                noise::fill(&mut expected, seed(self.side.other(), peer.number, self.received));
                if message != expected {
                    bail!("wrong data in message {}", self.received);
                }
            }
            self.received += 1;
        }
        Ok(())
    }

    /// Messages that came.
    pub(crate) fn received(&self) -> u32 {
        self.received
    }

    /// Whether all that was sent has arrived.
    pub(crate) fn has_sent(&self) -> bool {
        self.link.as_ref().is_some_and(Link::has_sent)
    }

    fn link(&mut self) -> Result<&mut Link> {
        self.link.as_mut().context("there is no queue pair yet")
    }
}

impl Side {
    fn other(self) -> Self {
        match self {
            Self::Server => Self::Client,
            Self::Client => Self::Server,
        }
    }
}

/// What a message is made of: each has its own.
fn seed(side: Side, number: u32, index: u32) -> u64 {
    u64::from(number) << 32 | u64::from(index) << 1 | u64::from(side == Side::Client)
}
