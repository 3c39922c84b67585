//! Both ends of a connection by address, on one channel or two, on the device of the tests.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use sideway::error::VerbError;
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::address::{AddressHandleAttribute, GidType};
use sideway::ibverbs::completion::{GenericCompletionQueue, WorkCompletionStatus};
use sideway::ibverbs::device_context::DeviceContext;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{Datagram, GenericQueuePair, PostSendGuard, QueuePair};
use sideway::ibverbs::work_request::WorkRequestFlags;
use sideway::rdmacm::communication_manager::{
    ConnectionParameter, Event, EventChannel, EventType, Identifier, PortSpace,
};

use crate::loopback::{Give, Memory};
use crate::{datagrams, device, loopback, waiting};

/// The deadline for any event.
pub const LONG: Duration = Duration::from_secs(60);

/// The IP address of the test device, from its GID.
///
/// # Panics
///
/// If the device has no IP address.
#[track_caller]
pub fn address() -> IpAddr {
    let gid = device::gid(&device::open()).unwrap_or_else(|| panic!("the device has no IP address"));
    // The GID of an iWARP device is not an IP address.
    let is_iwarp = gid.gid_type() != GidType::RoceV2 && !gid.gid().is_ipv4_mapped();
    if is_iwarp { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::from(gid.gid()).to_canonical() }
}

/// Creates a channel.
///
/// # Panics
///
/// If the channel cannot be created.
#[track_caller]
pub fn channel() -> Arc<EventChannel> {
    // If the tests use the soft device, connections use it from now on.
    device::name();
    EventChannel::new().unwrap_or_else(|error| panic!("{error}"))
}

/// An identifier that listens on a free port of the test device, and its address.
///
/// # Panics
///
/// If the identifier cannot listen.
#[track_caller]
pub fn listen(channel: &Arc<EventChannel>, port_space: PortSpace) -> (Arc<Identifier>, SocketAddr) {
    listen_at(channel, port_space, (address(), 0).into())
}

/// An identifier that listens on this address, and the address. If its port is 0, the device chooses one.
///
/// # Panics
///
/// If the identifier cannot listen.
#[track_caller]
pub fn listen_at(
    channel: &Arc<EventChannel>,
    port_space: PortSpace,
    address: SocketAddr,
) -> (Arc<Identifier>, SocketAddr) {
    let id = channel.create_id(port_space).unwrap_or_else(|error| panic!("{error}"));
    id.bind_addr(address).unwrap_or_else(|error| panic!("{error}"));
    id.listen(0).unwrap_or_else(|error| panic!("{error}"));
    let address = SocketAddr::new(address.ip(), id.port());
    (id, address)
}

/// The next event, which has this type.
///
/// # Panics
///
/// If no event arrives, or if the event has another type.
#[track_caller]
pub fn expect(channel: &Arc<EventChannel>, event_type: EventType) -> Event {
    let event = channel.get_cm_event(Some(LONG)).unwrap_or_else(|error| panic!("{event_type:?}: {error}"));
    assert_eq!(event.event_type(), event_type, "{event}");
    event
}

/// An identifier with a route to the address.
///
/// # Panics
///
/// If there is no route.
#[track_caller]
pub fn resolve(channel: &Arc<EventChannel>, port_space: PortSpace, address: SocketAddr) -> Arc<Identifier> {
    let id = channel.create_id(port_space).unwrap_or_else(|error| panic!("{error}"));
    id.resolve_addr(None, address, LONG).unwrap_or_else(|error| panic!("{error}"));
    expect(channel, EventType::AddressResolved);
    id.resolve_route(LONG).unwrap_or_else(|error| panic!("{error}"));
    expect(channel, EventType::RouteResolved);
    id
}

/// The resources of one end of a connection.
#[derive(Debug)]
pub struct End {
    /// The queue pair, which holds the identifier.
    pub qp: GenericQueuePair,
    /// The completion queue of its requests.
    pub cq: GenericCompletionQueue,
    /// The protection domain.
    pub pd: Arc<ProtectionDomain>,
    /// The device.
    pub context: Arc<DeviceContext>,
    /// The identifier.
    pub id: Arc<Identifier>,
}

impl End {
    /// Creates a queue pair through the identifier.
    ///
    /// # Panics
    ///
    /// If the queue pair cannot be created.
    #[track_caller]
    pub fn of(id: Arc<Identifier>) -> Self {
        Self::try_of(id).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Creates a queue pair through the identifier; fails if the peer of a request has disconnected.
    ///
    /// # Errors
    ///
    /// If the queue pair cannot be created.
    ///
    /// # Panics
    ///
    /// If the identifier has no device.
    #[track_caller]
    pub fn try_of(id: Arc<Identifier>) -> Result<Self, VerbError> {
        let context = id.get_device_context().unwrap_or_else(|| panic!("{id:?} has no device"));
        let pd = context.alloc_pd()?;
        let cq = context.create_cq_builder().build_generic()?;
        let mut builder = pd.create_qp_builder();
        builder.setup_send_cq(&cq).setup_recv_cq(&cq);
        let qp = id.create_qp_generic(&builder)?;
        Ok(Self { qp, cq, pd, context, id })
    }

    /// Waits for the next completion, which must be a success; returns its request number.
    ///
    /// # Panics
    ///
    /// If no completion arrives, or if the request failed.
    #[track_caller]
    pub fn success(&mut self) -> u64 {
        waiting::first("a connection", || {
            waiting::take(&mut self.cq, |completion| {
                assert_eq!(completion.status(), WorkCompletionStatus::Success);
                completion.wr_id()
            })
        })
    }
}

/// Two connected ends on one channel, on the test device: client and server.
///
/// # Panics
///
/// If the ends do not connect.
#[track_caller]
pub fn connect(channel: &Arc<EventChannel>) -> (End, End) {
    connect_at(channel, address())
}

/// Two connected ends on this address.
///
/// # Panics
///
/// If the ends do not connect.
#[track_caller]
pub fn connect_at(channel: &Arc<EventChannel>, address: IpAddr) -> (End, End) {
    let (_listener, address) = listen_at(channel, PortSpace::Tcp, (address, 0).into());
    let active = End::of(resolve(channel, PortSpace::Tcp, address));
    active.id.connect(&ConnectionParameter::default()).unwrap_or_else(|error| panic!("{error}"));
    let request = expect(channel, EventType::ConnectRequest);
    let passive = End::of(Arc::clone(request.cm_id()));
    passive.id.accept(&ConnectionParameter::default()).unwrap_or_else(|error| panic!("{error}"));
    expect(channel, EventType::Established);
    expect(channel, EventType::Established);
    (active, passive)
}

/// A side that exchanges datagrams, with a queue pair created through the identifier.
#[derive(Debug)]
pub struct DatagramEnd {
    /// The queue pair, with its completion queue and memory.
    pub side: loopback::End<GenericQueuePair<Datagram>>,
    /// The protection domain.
    pub pd: Arc<ProtectionDomain>,
}

impl Deref for DatagramEnd {
    type Target = loopback::End<GenericQueuePair<Datagram>>;

    fn deref(&self) -> &Self::Target {
        &self.side
    }
}

impl DerefMut for DatagramEnd {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.side
    }
}

/// Creates a datagram end through the identifier.
///
/// # Panics
///
/// If the queue pair cannot be created.
#[track_caller]
pub fn datagram_end(id: &Arc<Identifier>) -> DatagramEnd {
    let context = id.get_device_context().unwrap_or_else(|| panic!("{id:?} has no device"));
    let pd = context.alloc_pd().unwrap_or_else(|error| panic!("{error}"));
    let cq = context.create_cq_builder().build_generic().unwrap_or_else(|error| panic!("{error}"));
    let mut builder = pd.create_ud_qp_builder();
    builder.setup_send_cq(&cq).setup_recv_cq(&cq);
    let qp = id.create_qp_generic(&builder).unwrap_or_else(|error| panic!("{error}"));
    let memory = Memory::new(&pd, datagrams::MEMORY, AccessFlags::LocalWrite);
    DatagramEnd { side: loopback::End { qp, cq, memory }, pd }
}

/// Sends some bytes to a queue pair, or to a group, and waits for the completion.
///
/// # Panics
///
/// If the bytes cannot be sent.
#[track_caller]
pub fn send_datagram(from: &mut DatagramEnd, way: &AddressHandleAttribute, (number, qkey): (u32, u32), bytes: &[u8]) {
    let way = from.pd.create_ah(way).unwrap_or_else(|error| panic!("{error}"));
    from.memory.write(0, bytes);
    let range = from.range(0, bytes.len());
    let mut batch = from.qp.start_post_send();
    let request = batch.construct_wr(7, WorkRequestFlags::Signaled).setup_send();
    request.setup_ud_addr(&way, number, qkey).give(range);
    batch.post().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(from.success().wr_id, 7);
}
