//! The programs: both ends of a connection, multicast groups, addresses. Each program uses all objects that it creates,
//! prints each value that it receives, and ends at the first error.

use std::error::Error;
use std::fmt;
use std::fmt::Debug;
use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sideway::ibverbs::async_event::AsyncEventType;
use sideway::ibverbs::queue_pair::{Ece, GenericQueuePair, QueuePairState};
use sideway::rdmacm::communication_manager::{
    AddressInfo, AddressInfoFlags, ConnectionParameter, Event, EventChannel, EventType, Identifier, InfiniBandAddress,
    MulticastJoinFlag, PathRecord, PortSpace, devices, getaddrinfo,
};
use sideway_tests::shim::Shim;

use crate::addresses::store;
use crate::{HERE, raw};

const SECOND: Duration = Duration::from_secs(1);

pub(crate) type Outcome = Result<(), Box<dyn Error>>;

/// A program.
#[derive(Clone, Copy)]
pub(crate) struct Act {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&Shim) -> Outcome,
}

/// All programs.
pub(crate) const ACTS: [Act; 3] = [
    Act { name: "connections", run: connected },
    Act { name: "datagrams", run: datagrams },
    Act { name: "addresses", run: addresses },
];

/// Prints a value as a program would, because every value must be printable.
fn show(value: impl Debug) {
    black_box(format!("{value:?}"));
}

/// A failure that an event reports.
#[derive(Debug)]
pub(crate) struct Unexpected(String);

impl fmt::Display for Unexpected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Unexpected {}

/// The next event except disconnects, which has this type.
fn next(channel: &Arc<EventChannel>, event_type: EventType) -> Result<Event, Box<dyn Error>> {
    loop {
        let event = channel.get_cm_event(Some(Duration::ZERO))?;
        show((&event, event.status(), event.kind(), event.to_string()));
        match event.event_type() {
            found if found == event_type => return Ok(event),
            EventType::TimewaitExit | EventType::Disconnected => {}
            _ => return Err(Unexpected(event.to_string()).into()),
        }
    }
}

/// The attributes that an identifier reports.
fn describe(id: &Identifier) {
    show((id, id.local_address(), id.peer_address(), id.port(), id.peer_port(), id.port_num(), id.paths()));
    show((id.local_gid(), id.peer_gid(), id.pkey(), id.local_ib_address(), id.peer_ib_address()));
}

/// An identifier with a route to the port.
fn resolve(channel: &Arc<EventChannel>, port: u16) -> Result<Arc<Identifier>, Box<dyn Error>> {
    let id = channel.create_id(PortSpace::Tcp)?;
    id.resolve_addr(None, (HERE, port).into(), SECOND)?;
    next(channel, EventType::AddressResolved)?;
    id.resolve_route(SECOND)?;
    next(channel, EventType::RouteResolved)?;
    describe(&id);
    Ok(id)
}

/// A queue pair with a shared receive queue, all made through the identifier.
fn queue_pair(id: &Arc<Identifier>, extended: bool) -> Result<GenericQueuePair, Box<dyn Error>> {
    let context = id.get_device_context().ok_or("no device")?;
    let pd = context.alloc_pd()?;
    let cq = context.create_cq_builder().build()?;
    let srq = id.create_srq(&pd.create_srq_builder())?;
    show(&srq);
    let mut builder = pd.create_qp_builder();
    builder.setup_send_cq(&cq).setup_recv_cq(&cq);
    Ok(if extended { id.create_qp_ex(&builder)?.into() } else { id.create_qp(&builder)?.into() })
}

fn connected(_shim: &Shim) -> Outcome {
    let channel = EventChannel::new()?;
    let listener = channel.create_id(PortSpace::Tcp)?;
    listener.set_reuse_address(true)?;
    listener.bind_addr((HERE, 0).into())?;
    listener.listen(2)?;
    let id = resolve(&channel, listener.port())?;
    let active = queue_pair(&id, false)?;
    id.connect(ConnectionParameter::default().setup_private_data(b"hello"))?;
    let request = next(&channel, EventType::ConnectRequest)?.cm_id().clone();
    describe(&request);
    let passive = queue_pair(&request, true)?;
    request.accept(&ConnectionParameter::default())?;
    next(&channel, EventType::Established)?;
    next(&channel, EventType::Established)?;
    request.notify(AsyncEventType::CommunicationEstablished)?;
    id.disconnect()?;
    next(&channel, EventType::Disconnected)?;
    active.close()?;
    passive.close()?;

    // The same steps with queue pairs that the program creates, and whose state the program would change.
    let id = resolve(&channel, listener.port())?;
    id.set_local_ece(Ece { vendor_id: 0x15b3, options: 7, comp_mask: 0 })?;
    id.connect(ConnectionParameter::default().setup_qp_number(5))?;
    let request = next(&channel, EventType::ConnectRequest)?.cm_id().clone();
    show((request.remote_ece()?, request.get_qp_attr(QueuePairState::ReadyToReceive)?));
    request.accept(ConnectionParameter::default().setup_qp_number(6))?;
    next(&channel, EventType::ConnectResponse)?;
    id.establish()?;
    next(&channel, EventType::Established)?;
    let other = EventChannel::new()?;
    id.migrate(&other)?;

    for with_ece in [true, false] {
        let id = resolve(&channel, listener.port())?;
        id.connect(ConnectionParameter::default().setup_qp_number(5))?;
        let request = next(&channel, EventType::ConnectRequest)?.cm_id().clone();
        if with_ece {
            request.reject_ece(b"no")?
        } else {
            request.reject(b"no")?
        }
        next(&channel, EventType::Rejected)?;
    }
    Ok(())
}

fn datagrams(_shim: &Shim) -> Outcome {
    let group = |last| SocketAddr::from(([239, 1, 1, last], 0));
    let channel = EventChannel::new()?;
    let id = channel.create_id(PortSpace::Udp)?;
    id.set_type_of_service(0x20)?;
    id.bind_addr((HERE, 0).into())?;
    let context = id.get_device_context().ok_or("no device")?;
    let pd = context.alloc_pd()?;
    let cq = context.create_cq_builder().build()?;
    let qp = id.create_qp(pd.create_ud_qp_builder().setup_send_cq(&cq).setup_recv_cq(&cq))?;
    id.join_multicast(group(1))?;
    next(&channel, EventType::MulticastJoin)?;
    id.join_multicast_with(group(2), MulticastJoinFlag::SendOnlyFullMember)?;
    next(&channel, EventType::MulticastJoin)?;
    id.leave_multicast(group(1))?;
    qp.close()?;
    for context in devices()? {
        show((context.query_device()?, context.query_port(1)?));
    }
    Ok(())
}

fn addresses(shim: &Shim) -> Outcome {
    let channel = EventChannel::new()?;
    let mut hints = AddressInfo::new();
    hints.setup_flags(AddressInfoFlags::Passive | AddressInfoFlags::NumericHost).setup_port_space(PortSpace::Tcp);
    let found = getaddrinfo(Some("127.0.0.1"), None, &hints)?;
    show(&found);
    let listener = channel.create_ep(found.first().ok_or("no address")?)?;
    listener.listen(1)?;
    let port = listener.port().to_string();
    let mut found = getaddrinfo(Some("127.0.0.1"), Some(&port), &AddressInfo::new())?;
    let found = found.first_mut().ok_or("no address")?;
    show((&found, found.source(), found.destination(), found.family(), found.qp_type(), found.port_space()));
    let id = channel.create_ep(found.setup_connect_data(b"data"))?;
    describe(&id);
    id.resolve_addrinfo(Some("127.0.0.1"), Some("7"), &AddressInfo::new())?;
    next(&channel, EventType::AddressInfoResolved)?;
    show(id.query_addrinfo()?);
    id.write_cm_event(0, 7)?;
    next(&channel, EventType::User)?;

    // These calls support InfiniBand only; softrnic has no such addresses or paths.
    let mut here = InfiniBandAddress::new("fe80::7".parse()?);
    here.setup_pkey(0x8001).setup_port(PortSpace::InfiniBand, 4242);
    let there = *InfiniBandAddress::new("fe80::8".parse()?).setup_service_id(77, !0);
    let id = channel.create_id(PortSpace::InfiniBand)?;
    shim.instead("rdma_resolve_addr", |arguments| store(arguments[0], arguments[1], arguments[2]));
    id.resolve_ib_addr(Some(here), there, SECOND)?;
    describe(&id);
    let id = channel.create_id(PortSpace::Tcp)?;
    id.resolve_addr(None, (HERE, 7).into(), SECOND)?;
    next(&channel, EventType::AddressResolved)?;
    // SAFETY: no other thread uses the identifier.
    unsafe { (*raw(&channel, &id).1).port_num = 0 };
    shim.instead("rdma_set_option", |_| 0);
    id.set_path(&PathRecord::new(here.gid(), there.gid()))?;
    describe(&id);
    Ok(())
}
