//! The active side of connections: resolving the address of a peer and connecting to it.

use std::fmt;
use std::net::{IpAddr, SocketAddr, SocketAddrV6, ToSocketAddrs};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::deadline::Deadline;
use super::watch::await_event;
use super::{ConnectCause, ConnectError, ConnectStep, Resolved};
use crate::rdmacm::communication_manager::{EventChannel, EventKind, Identifier, PortSpace};

/// The time limit of the first attempt to resolve an address. Each further attempt has twice the time of the one before.
/// If a neighbor replies before the kernel has queued the request, the kernel notices this only when the limit expires.
const FIRST_ATTEMPT: Duration = Duration::from_millis(500);

/// Settings for connecting to peers. One connector can be used for any number of connections, from any thread.
///
/// ```no_run
/// use std::time::Duration;
///
/// use sideway::ibverbs::device::DeviceInfo;
/// use sideway::rdmacm::Connector;
///
/// let mut connector = Connector::new();
/// connector.setup_timeout(Duration::from_secs(3));
/// let resolved = connector.resolve(("server", 7174))?;
/// println!("{} leads to {}", resolved.device_context().name(), resolved.peer_address());
/// # Ok::<(), sideway::rdmacm::ConnectError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Connector {
    port_space: PortSpace,
    source: Option<IpAddr>,
    type_of_service: Option<u8>,
    timeout: Duration,
}

impl Connector {
    /// Creates a connector for reliable connections. The routing table selects the source address, and the time limit
    /// is ten seconds.
    pub fn new() -> Self {
        Self { port_space: PortSpace::Tcp, source: None, type_of_service: None, timeout: super::TIMEOUT }
    }

    /// Sets the port space. Use [`PortSpace::Udp`] to [look up](Resolved::lookup) queue pairs for datagrams.
    pub fn setup_port_space(&mut self, port_space: PortSpace) -> &mut Self {
        self.port_space = port_space;
        self
    }

    /// Sets the local address of connections, which also determines the device.
    pub fn setup_source(&mut self, source: IpAddr) -> &mut Self {
        self.source = Some(source);
        self
    }

    /// Sets the type of service of the packets; see [`Identifier::set_type_of_service`].
    pub fn setup_type_of_service(&mut self, type_of_service: u8) -> &mut Self {
        self.type_of_service = Some(type_of_service);
        self
    }

    /// Sets the time limit for the whole connection setup; the default is ten seconds. [`Duration::MAX`] means no
    /// limit.
    ///
    /// The time that the program spends between [`resolve`](Self::resolve) and [`Resolved::connect`] does not count
    /// towards the limit. The time of the system's name lookup counts, but the lookup itself is not interrupted when
    /// the limit expires.
    pub fn setup_timeout(&mut self, timeout: Duration) -> &mut Self {
        self.timeout = timeout;
        self
    }

    /// `rdma_resolve_addr`, `rdma_resolve_route` — resolves the address and the route of a peer. `peer` is an address,
    /// or a name and a port as in `"server:7174"` or `("server", 7174)`. If a name has several addresses, they are
    /// tried one after the other until one succeeds. All attempts share the time limit.
    ///
    /// # Errors
    ///
    /// The [step](ConnectError::step) is the one at which the last address failed: `LookUpName`, `OpenChannel`,
    /// `ResolveAddress` or `ResolveRoute`.
    ///
    /// - [`ConnectCause::TimedOut`]: there was no reply from the address.
    /// - [`ConnectCause::Verb`] with `ENETUNREACH`: there is no route to the address. With `ENODEV` (in the step
    ///   `ResolveRoute`, or as an event in the step `ResolveAddress`): the route does not use an RDMA device, as for
    ///   127.0.0.1.
    pub fn resolve(&self, peer: impl ToSocketAddrs + fmt::Debug) -> Result<Resolved, ConnectError> {
        let deadline = Deadline::within(Some(self.timeout));
        let addresses = look_up(&peer)?;
        let channel = EventChannel::new().map_err(|error| ConnectError::new(ConnectStep::OpenChannel, None, error))?;
        let mut errors = Vec::new();
        for (tried, &address) in addresses.iter().enumerate() {
            let share = deadline.share(addresses.len() - tried);
            match self.resolve_one(&channel, address, &share) {
                Ok(id) => return Resolved::new(id, address, self.timeout, deadline.left()),
                Err(error) => errors.push(error),
            }
        }
        Err(ConnectError::of_all(&peer, errors))
    }

    fn resolve_one(
        &self,
        channel: &Arc<EventChannel>,
        address: SocketAddr,
        deadline: &Deadline,
    ) -> Result<Arc<Identifier>, ConnectError> {
        self.resolve_address(channel, address, deadline)
            .map_err(|cause| ConnectError::new(ConnectStep::ResolveAddress, Some(address), cause))
            .and_then(|id| match resolve_route(&id, deadline) {
                Ok(()) => Ok(id),
                Err(cause) => Err(ConnectError::new(ConnectStep::ResolveRoute, Some(address), cause)),
            })
    }

    fn resolve_address(
        &self,
        channel: &Arc<EventChannel>,
        address: SocketAddr,
        deadline: &Deadline,
    ) -> Result<Arc<Identifier>, ConnectCause> {
        let source = self.source.map(|source| source_for(source, address));
        let mut limit = FIRST_ATTEMPT;
        loop {
            deadline.check()?;
            let id = channel.create_id(self.port_space)?;
            if let Some(type_of_service) = self.type_of_service {
                id.set_type_of_service(type_of_service)?;
            }
            let attempt = Deadline::within(Some(deadline.left_or_max().min(limit)));
            id.resolve_addr(source, address, attempt.left_or_max())?;
            let resolved = await_event(&id, deadline, |kind| match kind {
                EventKind::AddressResolved => Ok(()),
                other => Err(other),
            });
            match resolved {
                Ok(()) => return Ok(id),
                Err(ConnectCause::TimedOut { .. }) => {
                    // A device may report this before the time has passed. It must not be asked again without a pause.
                    thread::sleep(attempt.left_or_max());
                    limit = limit.saturating_mul(2);
                }
                Err(cause) => return Err(cause),
            }
        }
    }
}

fn resolve_route(id: &Arc<Identifier>, deadline: &Deadline) -> Result<(), ConnectCause> {
    deadline.check()?;
    id.resolve_route(deadline.left_or_max())?;
    await_event(id, deadline, |kind| match kind {
        EventKind::RouteResolved => Ok(()),
        other => Err(other),
    })
}

/// Returns the addresses of a name.
pub(super) fn look_up(name: &(impl ToSocketAddrs + fmt::Debug)) -> Result<Vec<SocketAddr>, ConnectError> {
    match name.to_socket_addrs() {
        Ok(addresses) => Ok(addresses.collect()),
        Err(error) => Err(ConnectError::of_name(name, ConnectCause::Name(error))),
    }
}

/// Returns the source address with port 0. A link-local address gets the interface of the destination.
fn source_for(source: IpAddr, destination: SocketAddr) -> SocketAddr {
    match (source, destination) {
        (IpAddr::V6(source), SocketAddr::V6(destination)) if source.is_unicast_link_local() => {
            SocketAddrV6::new(source, 0, 0, destination.scope_id()).into()
        }
        _ => SocketAddr::new(source, 0),
    }
}

/// The default connector is the one that [`new`](Connector::new) returns.
impl Default for Connector {
    fn default() -> Self {
        Self::new()
    }
}
