//! Connections by address: connecting and accepting.

mod listener;

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use sideway::error::VerbError;
use sideway::ibverbs::device::DeviceInfo;
use sideway::rdmacm::{ConnectionParameter, EventKind, EventType, Identifier, PortSpace};

pub use self::listener::{Listener, Request};
use crate::Error;
use crate::cm::{EVENTS, Inbox};
use crate::connection::Connection;
use crate::core::Core;
use crate::error::NotConnected;

/// The limit of each lookup.
const STEP: Duration = Duration::from_secs(10);

impl Core {
    /// Connects with a [`Listener`] at an address, by the connection manager. `private_data`, at most 56 bytes, is for
    /// the peer. Dropping the future ends the attempt.
    ///
    /// # Errors
    ///
    /// - [`Error::Connect`]: no device leads to the address, or another one than that of the core; no program listens
    ///   there, the peer refused or did not answer, or there is too much private data.
    /// - [`Error::Connections`]: the core has as many connections as it can serve.
    pub async fn connect(&self, peer: SocketAddr, private_data: &[u8]) -> Result<Connection, Error> {
        connect(self, peer, private_data).await
    }

    /// Listens at an address. Port 0 selects a free port.
    ///
    /// # Errors
    ///
    /// [`Error::Verb`]: the port is in use, or the address belongs to no device.
    pub fn listen(&self, address: SocketAddr) -> Result<Listener, Error> {
        Listener::new(self, address)
    }

    /// Accepts a request of a [`Listener`], also of one of another core. `private_data`, at most 196 bytes (InfiniBand
    /// and RoCE), is for the peer.
    ///
    /// An error concerns this peer only: a server logs it and goes on. To answer several peers at a time, accept each in
    /// a task.
    ///
    /// # Errors
    ///
    /// As for [`connect`](Self::connect).
    pub async fn accept(&self, request: Request, private_data: &[u8]) -> Result<Connection, Error> {
        accept(self, request, private_data).await
    }
}

/// Connects with a listener.
async fn connect(core: &Core, peer: SocketAddr, private_data: &[u8]) -> Result<Connection, Error> {
    let manager = core.inner.manager()?;
    let inbox = manager.watch(manager.channel.create_id(PortSpace::Tcp)?, EVENTS);
    let id = Arc::clone(&inbox.id);
    let failed = |error: VerbError| NotConnected::error(Some(peer), error.to_string());
    id.resolve_addr(None, peer, STEP).map_err(failed)?;
    inbox.expect(EventType::AddressResolved, Some(peer)).await?;
    id.resolve_route(STEP).map_err(failed)?;
    inbox.expect(EventType::RouteResolved, Some(peer)).await?;
    check_device(core, &id, peer)?;
    let connection = begin(core, &inbox)?;
    id.connect(&parameter(private_data)).map_err(|error| {
        let length = private_data.len();
        let hint =
            if length > 56 { format!("; 56 bytes of private data are safe, not {length}") } else { String::new() };
        NotConnected::error(Some(peer), format!("{error}{hint}"))
    })?;
    let event = within(core, Some(peer), inbox.expect(EventType::Established, Some(peer))).await?;
    let reply = match event.kind() {
        EventKind::Established(info) => info.private_data().to_vec(),
        _ => Vec::new(),
    };
    Ok(connection.established(reply))
}

/// Accepts a request.
async fn accept(core: &Core, request: Request, private_data: &[u8]) -> Result<Connection, Error> {
    let manager = core.inner.manager()?;
    let (id, peer, asked) = request.into_parts();
    if let Some(peer) = peer {
        check_device(core, &id, peer)?;
    }
    // The request may be that of a listener of another core.
    id.migrate(&manager.channel)?;
    let inbox = manager.watch(id, EVENTS);
    let connection = begin(core, &inbox).map_err(|error| match error {
        Error::Verb(verb) => NotConnected::error(peer, format!("the peer may have given up: {verb}")),
        other => other,
    })?;
    inbox.id.accept(&parameter(private_data)).map_err(|error| NotConnected::error(peer, error.to_string()))?;
    within(core, peer, inbox.confirmed(peer)).await?;
    Ok(connection.established(asked))
}

/// As many reads as the devices permit.
fn parameter(private_data: &[u8]) -> ConnectionParameter {
    let mut parameter = ConnectionParameter::default();
    parameter.setup_responder_resources(ConnectionParameter::MAX_DEPTH);
    parameter.setup_initiator_depth(ConnectionParameter::MAX_DEPTH).setup_private_data(private_data);
    parameter
}

/// Waits for the peer, with the limit of the core.
async fn within<T>(
    core: &Core,
    peer: Option<SocketAddr>,
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let limit = core.inner.handshake;
    core.timeout(limit, answer).await.unwrap_or_else(|_| {
        Err(NotConnected::error(peer, format!("no answer within {} s; see Builder::handshake", limit.as_secs_f64())))
    })
}

fn begin(core: &Core, inbox: &Rc<Inbox>) -> Result<Connection, Error> {
    let qp = core.inner.queue_pair(|builder| inbox.id.create_qp_generic(builder))?;
    Ok(Connection::new(core, qp, Some(Rc::clone(inbox))))
}

fn check_device(core: &Core, id: &Arc<Identifier>, peer: SocketAddr) -> Result<(), Error> {
    let (own, found) = (&core.inner.context, id.get_device_context());
    match found {
        Some(found) if Arc::ptr_eq(&found, own) => Ok(()),
        found => {
            let found = found.map_or_else(|| "none".to_owned(), |found| found.name());
            let own = own.name();
            let cause = if found == own {
                format!("the core was built on a {own} that is not of the connection manager; see Core::builder_on")
            } else {
                format!("the route uses the device {found}, and the core has {own}; use a core on {found}")
            };
            Err(NotConnected::error(Some(peer), cause))
        }
    }
}
