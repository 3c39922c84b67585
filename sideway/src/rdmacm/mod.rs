//! librdmacm: connections by address, as with sockets. Only the address of the other side has to be known: the library finds the
//! device and the way, and moves the queue pairs.
//!
//! # Quick start
//!
//! One side listens and the other connects. In between, each makes its queue pair *through the identifier*, on the device that
//! the connection goes over, and from then on it is a queue pair like any other.
//!
//! ```no_run
//! use std::error::Error;
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use sideway::ibverbs::completion::GenericCompletionQueue;
//! use sideway::ibverbs::queue_pair::GenericQueuePair;
//! use sideway::rdmacm::{ConnectionParameter, Connector, Identifier, Listener, Request};
//!
//! fn queue_pair(id: &Arc<Identifier>) -> Result<(GenericQueuePair, GenericCompletionQueue), Box<dyn Error>> {
//!     let device = id.get_device_context().ok_or("no device")?;
//!     let pd = device.alloc_pd()?;
//!     let cq = device.create_cq_builder().build_generic()?;
//!     let qp = id.create_qp_generic(pd.create_qp_builder().setup_send_cq(&cq).setup_recv_cq(&cq))?;
//!     Ok((qp, cq))
//! }
//!
//! fn server() -> Result<(), Box<dyn Error>> {
//!     let listener = Listener::bind("0.0.0.0:7174")?;
//!     loop {
//!         // A peer that gives up half-way ends its own connection, and not the server.
//!         if let Err(error) = serve(listener.accept(None)?) {
//!             eprintln!("{error}");
//!         }
//!     }
//! }
//!
//! fn serve(request: Request) -> Result<(), Box<dyn Error>> {
//!     let (qp, cq) = queue_pair(request.identifier())?;
//!     // Receives are posted here: the peer may send as soon as it is accepted.
//!     let connection = request.accept(&ConnectionParameter::default())?;
//!     // Data goes over `qp`, and completes on `cq`.
//!     connection.wait(None)?;
//!     connection.disconnect(Some(Duration::from_secs(5)))?;
//!     Ok(())
//! }
//!
//! fn client() -> Result<(), Box<dyn Error>> {
//!     let resolved = Connector::new().resolve(("server", 7174))?;
//!     let (qp, cq) = queue_pair(resolved.identifier())?;
//!     let mut parameter = ConnectionParameter::default();
//!     let connection = resolved.connect(parameter.setup_private_data(b"protocol 1"))?;
//!     // Data goes over `qp`, and completes on `cq`.
//!     connection.disconnect(Some(Duration::from_secs(5)))?;
//!     Ok(())
//! }
//! ```
//!
//! - How data goes is told by [memory regions](crate::ibverbs::memory_region), [requests](crate::ibverbs::work_request) and
//!   [completions](crate::ibverbs::completion).
//! - Each wait ends: within ten seconds unless set ([`Connector::setup_timeout`], [`ListenerBuilder::setup_timeout`]), or when the
//!   program says.
//! - A connection lives as long as what holds its identifier: the [`Connection`], and the queue pair that was made through it.
//! - A [`Request`] that is dropped is rejected.
//! - [`communication_manager`] has what is below, for programs that wait for events by themselves: channels, identifiers, events.
//!   All its names are here too.
//!   Each connection has a channel of its own; while calls here wait for it, the program takes no events from it, and does not
//!   [migrate](Identifier::migrate) its identifier.
//! - Both sides may say something with the request and the answer ([`PrivateData`]), such as where the other may write.
//!
//! librdmacm is opened when the first channel is made. Where it is missing, the error says so.
//!
//! # Addresses
//!
//! - The address of the peer is one of an interface *with an RDMA device*: `rdma link` shows which those are, and
//!   `ip address` their addresses. With a device of the kernel 127.0.0.1 and `::1` lead to none: a program that connects to
//!   itself takes an address of a device. softrnic's device has both, and all addresses of the host.
//! - IPv4 and IPv6 both do. Addresses of the link (`fe80::…`) need to say which: `"[fe80::7%3]:7174"` with the number of the
//!   interface, or `("fe80::7%eth0", 7174)` with its name.
//! - Names are looked up as the system does it. Where one has several addresses, each is tried until there is a way to one.
//! - `0.0.0.0` listens on all devices for IPv4, and `[::]` for both. Port 0 is any port.
//! - Ports are apart from those of TCP: both may have one by the same number. RoCE sends all in UDP to port 4791, which firewalls
//!   have to let through.
//!
//! # What errors mean
//!
//! | [`ConnectError`] | means |
//! |---|---|
//! | `rejected: nobody listens there` | the machine is right, and the port or the program is not |
//! | `rejected: the program there said no` | its program dropped or [rejected](Request::reject) the request, or failed to accept it; or a program listens at the port, and not at this address |
//! | `nobody answered within …` at `resolving the address` | nobody has the address on the local network, or the gateway is silent |
//! | `no answer within …` at `connecting`; `unreachable` | the machine is there and does not answer: UDP port 4791 is filtered, or the program there does not take the requests that wait |
//! | `rdma_resolve_addr: ENETUNREACH` | the routing table has no way there |
//! | `address error: ENODEV`, `rdma_resolve_route: ENODEV` | the way does not go over an RDMA device: see above |
//! | `rdma_bind_addr: EADDRINUSE`; `EADDRNOTAVAIL` for `0.0.0.0` or `[::]` | the port is in use |
//! | `rdma_bind_addr: ENODEV` | the address is of an interface without an RDMA device |
//! | `rdma_create_qp: EINVAL`, `rdma_accept: EINVAL`, perhaps the peer has given up | its time had passed, or it has gone |
//! | `rdma_connect: EINVAL`, `rdma_accept: EINVAL` | a depth above the device's, or more private data than there is room for; the text says |
//! | `rdma_create_event_channel: ENODEV`, `ENOENT` | there is no device; the module `rdma_ucm` is not loaded |
//!
//! # iWARP
//!
//! Devices that speak iWARP, which is RDMA over TCP, connect in this way alone, and keep these rules:
//!
//! - The side that has connected sends first. The other sends nothing before it has received something
//!   ([RFC 5044](https://www.rfc-editor.org/rfc/rfc5044), 7.1.2; devices that both have
//!   [RFC 6581](https://www.rfc-editor.org/rfc/rfc6581) may see to it by themselves).
//! - A write has no immediate data: a send after it tells the peer.
//! - The memory that a read brings data to needs [`AccessFlags::RemoteWrite`](crate::ibverbs::AccessFlags::RemoteWrite) besides
//!   `LocalWrite`: the peer's answer is a write.
//! - There are no atomics and no datagrams.
//! - Private data arrives with the length that it was sent with; on InfiniBand and RoCE it arrives with zeros behind it.
//! - A [`Rejection`] has an errno instead of a reason.
//!
//! A program that keeps to the first three runs on all three transports.
//!
//! # References
//!
//! [rdma_cm(7)](https://man7.org/linux/man-pages/man7/rdma_cm.7.html)

mod blocking;
pub mod communication_manager;

pub use self::blocking::{
    ConnectCause, ConnectError, ConnectStep, Connection, Connector, Ended, Listener, ListenerBuilder, Request, Resolved,
};
pub use self::communication_manager::{
    Address, AddressFamily, AddressInfo, AddressInfoFlags, ConnectionInfo, ConnectionParameter,
    CreateEventChannelError, Event, EventChannel, EventKind, EventStatus, EventType, GetAddressInfoError, Identifier,
    InfiniBandAddress, LookupError, MulticastFailure, MulticastJoinFlag, MulticastMembership, PathRecord, PortSpace,
    PrivateData, RejectReason, Rejection, RemoteDatagram, SidrStatus, Unreachable, devices, getaddrinfo,
};
