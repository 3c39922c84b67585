//! Listening.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use sideway::rdmacm::{EventKind, Identifier, PortSpace};

use crate::Error;
use crate::cm::Inbox;
use crate::core::Core;
use crate::error::NotConnected;

/// How many requests wait to be accepted. Later ones are rejected.
const BACKLOG: usize = 128;

/// Listens at an address. Dropping it rejects the requests that have not been accepted.
#[derive(Debug)]
pub struct Listener {
    inbox: Rc<Inbox>,
    address: SocketAddr,
}

impl Listener {
    pub(crate) fn new(core: &Core, address: SocketAddr) -> Result<Self, Error> {
        let manager = core.inner.manager()?;
        let id = manager.channel.create_id(PortSpace::Tcp)?;
        id.bind_addr(address)?;
        id.listen(BACKLOG as i32)?;
        let address = id.local_address().unwrap_or(address);
        Ok(Self { inbox: manager.watch(id, BACKLOG), address })
    }

    /// Returns the address, with the port that was selected.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Waits for the next request.
    ///
    /// # Errors
    ///
    /// - [`Error::Connect`]: the listener's device was removed.
    /// - [`Error::Verb`]: the events of the connection manager cannot be read any more.
    pub async fn accept(&mut self) -> Result<Request, Error> {
        loop {
            let event = self.inbox.next().await?;
            if matches!(event.kind(), EventKind::AddressChange) {
                continue;
            }
            let text = event.to_string();
            let (id, kind) = event.into_parts();
            let EventKind::ConnectRequest(info) = kind else {
                return Err(NotConnected::error(None, text));
            };
            return Ok(Request { peer: id.peer_address(), private_data: info.private_data().to_vec(), id });
        }
    }
}

/// A peer's request to connect. Send it to the thread whose core should [accept](Core::accept) it. Dropping it rejects
/// the peer.
#[derive(Debug)]
#[must_use = "the peer waits for an answer; dropping the request rejects it"]
pub struct Request {
    id: Arc<Identifier>,
    peer: Option<SocketAddr>,
    private_data: Vec<u8>,
}

impl Request {
    /// Returns the peer's address.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Returns the private data of the peer. InfiniBand and RoCE append zeros.
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    pub(super) fn into_parts(self) -> (Arc<Identifier>, Option<SocketAddr>, Vec<u8>) {
        (self.id, self.peer, self.private_data)
    }
}
