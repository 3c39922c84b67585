//! librdmacm: connections by address, as with sockets. A program needs only the peer's address: the library finds the
//! device and the route, and moves the queue pairs through their states.
//!
//! # Quick start
//!
//! One side listens and its peer connects. Before accepting or connecting, each side creates its queue pair
//! *through the identifier*, on the connection's device. From then on, it is used like any other queue pair.
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
//!         // A failure here concerns only this peer; the server continues.
//!         if let Err(error) = serve(listener.accept(None)?) {
//!             eprintln!("{error}");
//!         }
//!     }
//! }
//!
//! fn serve(request: Request) -> Result<(), Box<dyn Error>> {
//!     let (qp, cq) = queue_pair(request.identifier())?;
//!     // Post receives here: the peer may send as soon as its request is accepted.
//!     let connection = request.accept(&ConnectionParameter::default())?;
//!     // Use `qp` to transfer data; it completes on `cq`.
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
//!     // Use `qp` to transfer data; it completes on `cq`.
//!     connection.disconnect(Some(Duration::from_secs(5)))?;
//!     Ok(())
//! }
//! ```
//!
//! - For data transfer see [memory regions](crate::ibverbs::memory_region), [requests](crate::ibverbs::work_request)
//!   and [completions](crate::ibverbs::completion).
//! - Each wait has a time limit. It is ten seconds by default ([`Connector::setup_timeout`],
//!   [`ListenerBuilder::setup_timeout`]), or an argument of the call.
//! - A connection lives as long as its identifier. The [`Connection`] keeps the identifier alive, and so does the queue
//!   pair created through it.
//! - Dropping a [`Request`] rejects it.
//! - [`communication_manager`] is the layer below, with channels, identifiers and events. It is for programs that
//!   handle events themselves. All its names are also in this module. Each connection has its own channel. While a call
//!   of this module waits, the program must not take events from that channel or [migrate](Identifier::migrate) the
//!   identifier.
//! - Both sides can send [private data](PrivateData) with the request and the reply, for example the address and key of
//!   a buffer.
//!
//! Creating the first channel loads librdmacm, and returns an error if librdmacm is not installed.
//!
//! # Addresses
//!
//! - The peer's address must belong to an interface *with an RDMA device*: `rdma link` lists these interfaces, and `ip
//!   address` their addresses. Over a device of the kernel, 127.0.0.1 and `::1` are unreachable. So to connect to its
//!   own machine, a program must use an address of a device. The device `soft0` of softrnic has 127.0.0.1, `::1` and
//!   all addresses of the host.
//! - IPv4 and IPv6 both work. Link-local addresses (`fe80::…`) must contain their interface, either as a number
//!   (`"[fe80::7%3]:7174"`) or as a name (`("fe80::7%eth0", 7174)`).
//! - The system resolves names. If a name has several addresses, they are tried one after the other until one can be
//!   reached.
//! - A listener on `0.0.0.0` accepts IPv4 on all devices, and a listener on `[::]` accepts IPv4 and IPv6. Port 0
//!   selects a free port.
//! - RDMA ports are separate from TCP ports, so the same number can be used for both. RoCE sends all packets to UDP
//!   port 4791, which firewalls must permit.
//!
//! # Errors
//!
//! | [`ConnectError`] | cause |
//! |---|---|
//! | `rejected: no listener on that port` | the machine is reachable, but no program listens on the port |
//! | `rejected: the program there declined the request` | the program dropped or [rejected](Request::reject) the request, or failed to accept it; or it listens on the port, but on another address |
//! | `no reply within …` at `resolving the address` | no machine on the local network has the address, or the gateway does not respond |
//! | `no response within …` at `connecting`; `unreachable` | the machine exists but does not respond: UDP port 4791 is filtered, or the program does not take its pending requests |
//! | `rdma_resolve_addr: ENETUNREACH` | the routing table has no route to the address |
//! | `address error: ENODEV`, `rdma_resolve_route: ENODEV` | the route does not use an RDMA device: see above |
//! | `rdma_bind_addr: EADDRINUSE`; `EADDRNOTAVAIL` for `0.0.0.0` or `[::]` | the port is in use |
//! | `rdma_bind_addr: ENODEV` | the address belongs to an interface without an RDMA device |
//! | `rdma_create_qp: EINVAL`, `rdma_accept: EINVAL`, the peer may have given up | the peer's timeout expired, or it disconnected |
//! | `rdma_connect: EINVAL`, `rdma_accept: EINVAL` | a depth exceeds the device's limit, or there is too much private data; the text reports which |
//! | `rdma_create_event_channel: ENODEV`, `ENOENT` | there is no device, or the module `rdma_ucm` is not loaded |
//!
//! # iWARP
//!
//! iWARP is RDMA over TCP. iWARP devices can be connected only with librdmacm, and have the following requirements:
//!
//! - The connecting side sends first. The accepting side sends nothing before its first receive
//!   ([RFC 5044](https://www.rfc-editor.org/rfc/rfc5044), 7.1.2; two devices that both support
//!   [RFC 6581](https://www.rfc-editor.org/rfc/rfc6581) may handle this themselves).
//! - Writes have no immediate data, so notify the peer with a send after the write.
//! - The destination of a read needs [`AccessFlags::RemoteWrite`](crate::ibverbs::AccessFlags::RemoteWrite) in addition
//!   to `LocalWrite`, because the peer's response is a write.
//! - There are no atomics and no datagrams.
//! - Private data arrives with its original length, whereas InfiniBand and RoCE pad it with zeros.
//! - A [`Rejection`] has an errno instead of a reason.
//!
//! A program that follows the first three rules runs on all three transports.
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
