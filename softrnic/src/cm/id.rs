//! `struct rdma_cm_id`: how identifiers are created, moved to another channel, and destroyed.

use std::ffi::{c_int, c_void};
use std::mem;
use std::net::SocketAddr;
use std::ptr;
use std::sync::Arc;
use std::time::Instant;

use rdma_mummy_sys::{
    ibv_ece, ibv_qp_init_attr, ibv_qp_type, ibv_sa_path_rec, rdma_cm_id, rdma_event_channel, rdma_port_space,
};

use super::calls::{random, return_code};
use super::channel::Watched;
use super::events::{acknowledge, is_datagram};
use super::info::List;
use super::iwarp::Setup;
use super::listen::NewConnection;
use super::messages::{Kind, Message};
use super::multicast::Group;
use super::option::Options;
use super::peer::Reason;
use super::port::Port;
use super::roce::Attached;
use super::{World, unknown, world, world_after};
use crate::sys::errno::Errno;
use crate::wire::packet::MAX_NUMBER;
use crate::wire::transport::Fabric;

pub(super) const NO_ECE: ibv_ece = ibv_ece { vendor_id: 0, options: 0, comp_mask: 0 };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Idle,
    Bound,
    AddressResolved,
    RouteResolved,
    Listening,
    /// The identifier has sent a request.
    Connecting,
    /// The identifier has received a reply.
    Responded,
    /// The identifier was created for a request of a peer.
    Requested,
    /// The identifier has accepted the request with a reply.
    Accepted,
    Connected,
    /// The identifier has sent a disconnect request.
    Disconnecting,
    /// The peer has disconnected, or its process has exited.
    PeerDisconnected,
    /// The identifier was connected or rejected earlier.
    Closed,
    /// The identifier is being destroyed.
    Destroyed,
}

/// An identifier.
pub(super) struct Identifier {
    pub(super) c: *mut rdma_cm_id,
    pub(super) state: State,
    /// The address of the identifier's channel.
    pub(super) channel: usize,
    /// Whether the identifier owns its channel. If it does, its calls are synchronous.
    pub(super) sync: bool,
    pub(super) options: Options,
    pub(super) port: Option<Arc<Port>>,
    pub(super) source: Option<SocketAddr>,
    pub(super) destination: Option<SocketAddr>,
    /// The listening socket.
    pub(super) listener: Option<Watched>,
    pub(super) new_connections: Vec<NewConnection>,
    pub(super) backlog: usize,
    /// The listening TCP socket.
    pub(super) stream_listener: Option<Watched>,
    /// The socket of the connection.
    pub(super) link: Option<Watched>,
    /// The fabric of the connection. On iWARP, `setup` is the progress of the connection.
    pub(super) fabric: Fabric,
    pub(super) setup: Option<Setup>,
    /// The connection on RoCE.
    pub(super) roce: Option<Attached>,
    /// The request that is retried until this time.
    pub(super) waiting: Option<(Message, Instant)>,
    pub(super) deadline: Option<Instant>,
    /// The numbers of reported and acknowledged events.
    pub(super) reported: u32,
    pub(super) completed: u32,
    pub(super) initiator_depth: u8,
    pub(super) responder_resources: u8,
    pub(super) retry_count: u8,
    pub(super) rnr_retry_count: u8,
    /// The starting PSNs of this side and of the peer. On RoCE, each side has selected those of its peer.
    pub(super) psn: u32,
    pub(super) remote_psn: u32,
    pub(super) remote_qp: u32,
    /// Whether this side has failed after the reply of the peer. It has then sent no ready-to-use packet, and the end
    /// of its connection is not reported.
    pub(super) failed: bool,
    /// The private data that was passed to `rdma_create_ep`.
    pub(super) connect_data: Vec<u8>,
    /// The attributes of the QPs that `rdma_get_request` creates.
    pub(super) qp_init_attr: Option<ibv_qp_init_attr>,
    pub(super) groups: Vec<Group>,
    /// The result of `rdma_resolve_addrinfo`.
    pub(super) information: Option<List>,
    /// The packets that are sent when the port is up again.
    pub(super) unsent: Vec<Message>,
    pub(super) local_ece: ibv_ece,
    pub(super) remote_ece: ibv_ece,
}

// SAFETY: the pointers refer to C structs, which are not bound to a thread.
unsafe impl Send for Identifier {}

/// The number of bytes after the fields that rsockets read first, in all known versions of librdmacm.
const OTHERS: usize = 512;

/// An identifier in memory.
///
/// The rsockets of rdma-core's librdmacm also work with the identifiers of softrnic, because librdmacm calls the
/// functions that it exports through the dynamic loader. They read two of the fields that librdmacm itself has after
/// the C struct.
#[repr(C)]
struct Memory {
    id: rdma_cm_id,
    /// The device in librdmacm's list of devices. If it is null, rsockets use the limits of all devices.
    device: *mut c_void,
    /// One of these fields is set if the calls of the identifier are synchronous, as those of rsockets are. Its offset
    /// depends on the version of librdmacm, so all bytes are set.
    others: [u8; OTHERS],
}

/// Frees an identifier.
///
/// # Safety
///
/// The identifier came from [`World::make_id`], and is no longer used.
pub(super) unsafe fn free(id: *mut rdma_cm_id) {
    // SAFETY: guaranteed by the caller: the identifier is the start of a box.
    drop(unsafe { Box::from_raw(id.cast::<Memory>()) });
}

/// Returns the QP type of a port space. For `RDMA_PS_IB`, it is the type that the program has requested.
pub(super) fn type_of(ps: rdma_port_space, requested: ibv_qp_type) -> Result<ibv_qp_type, Errno> {
    match ps {
        rdma_port_space::RDMA_PS_TCP => Ok(ibv_qp_type::IBV_QPT_RC),
        rdma_port_space::RDMA_PS_UDP | rdma_port_space::RDMA_PS_IPOIB => Ok(ibv_qp_type::IBV_QPT_UD),
        rdma_port_space::RDMA_PS_IB => Ok(requested),
        _ => Err(Errno::INVALID),
    }
}

impl World {
    /// Creates an identifier on a channel, or with a channel of its own.
    pub(super) fn make_id(
        &mut self,
        channel: Option<*mut rdma_event_channel>,
        context: *mut c_void,
        (ps, qp_type): (rdma_port_space, ibv_qp_type),
    ) -> Result<*mut rdma_cm_id, Errno> {
        let sync = channel.is_none();
        let channel = match channel {
            Some(channel) if self.channels.contains_key(&channel.addr()) => channel,
            Some(_) => return Err(unknown(Errno(libc::EBADF))),
            None => self.make_channel()?,
        };
        // SAFETY: the type has only numbers, nullable pointers and unions of these, for which zero is valid.
        let id = unsafe { mem::zeroed() };
        let memory = Memory { id, device: ptr::null_mut(), others: [1; OTHERS] };
        let c = Box::into_raw(Box::new(memory)).cast::<rdma_cm_id>();
        // SAFETY: `c` is on the heap and not yet shared.
        unsafe {
            ((*c).channel, (*c).context) = (channel, context);
            ((*c).ps, (*c).qp_type) = (ps, qp_type);
        }
        let identifier = Identifier {
            c,
            state: State::Idle,
            channel: channel.addr(),
            sync,
            options: Options::default(),
            port: None,
            source: None,
            destination: None,
            listener: None,
            new_connections: Vec::new(),
            backlog: 0,
            stream_listener: None,
            link: None,
            fabric: Fabric::Host,
            setup: None,
            roce: None,
            waiting: None,
            deadline: None,
            reported: 0,
            completed: 0,
            initiator_depth: 0,
            responder_resources: 0,
            retry_count: 7,
            rnr_retry_count: 7,
            // The conversion is lossless, because a PSN has 24 bits.
            psn: random() as u32 & MAX_NUMBER,
            remote_psn: 0,
            remote_qp: 0,
            failed: false,
            connect_data: Vec::new(),
            qp_init_attr: None,
            groups: Vec::new(),
            information: None,
            unsent: Vec::new(),
            local_ece: NO_ECE,
            remote_ece: NO_ECE,
        };
        self.ids.insert(c.addr(), identifier);
        Ok(c)
    }

    /// Ends the connection of an identifier, and removes its queued events.
    fn retire(&mut self, id: usize) -> Result<(), Errno> {
        self.current(id)?;
        self.set_deadline(id, None);
        let identifier = self.id(id)?;
        let (channel, state) = (identifier.channel, mem::replace(&mut identifier.state, State::Destroyed));
        // SAFETY: the identifier is alive.
        let (datagram, fabric) = (unsafe { is_datagram(identifier.c) }, identifier.fabric);
        match state {
            _ if fabric == Fabric::Iwarp => self.end_stream(id, &[]),
            _ if datagram && state != State::Requested => {}
            State::Connecting => self.send(id, &Message { reason: Reason::TIMEOUT.0, ..Message::new(Kind::Reject) }),
            State::Requested if datagram => {
                self.send(id, &Message { reason: Reason::DATAGRAM_REJECTED.0, ..Message::new(Kind::DatagramReply) })
            }
            State::Requested | State::Responded | State::Accepted => {
                self.send(id, &Message { reason: Reason::CONSUMER_DEFINED.0, ..Message::new(Kind::Reject) });
            }
            State::Connected => self.send(id, &Message::new(Kind::Disconnect)),
            State::PeerDisconnected => self.send(id, &Message::new(Kind::Disconnected)),
            _ => {}
        }
        self.leave_roce(id);
        self.close_link(id);
        self.stop_listening(id);
        let identifier = self.id(id)?;
        drop(identifier.port.take());
        if let Some(channel) = self.channels.get_mut(&channel) {
            for request in channel.remove(|pending| pending.owner == id).into_iter().filter_map(|one| one.request) {
                self.refuse(request);
            }
        }
        Ok(())
    }
}

/// `rdma_create_id(channel, id, context, ps)`.
///
/// # Safety
///
/// As in C: the channel is null or alive, and the identifier is writable.
pub(super) unsafe extern "C" fn create_id(
    channel: *mut rdma_event_channel,
    id: *mut *mut rdma_cm_id,
    context: *mut c_void,
    ps: rdma_port_space,
) -> c_int {
    let make = || {
        if crate::verbs::device::all().next().is_none() {
            return Err(Errno(libc::ENODEV));
        }
        let kind = type_of(ps, ibv_qp_type::IBV_QPT_RC)?;
        world().make_id((!channel.is_null()).then_some(channel), context, (ps, kind))
    };
    // SAFETY: guaranteed by the caller.
    return_code(make().map(|made| unsafe { id.write(made) }))
}

/// `rdma_destroy_id(id)`: waits until all events of the identifier that were taken are acknowledged.
///
/// # Safety
///
/// As in C: the identifier is alive, is no longer used, and its QP is destroyed.
pub(super) unsafe extern "C" fn destroy_id(id: *mut rdma_cm_id) -> c_int {
    return_code(destroy(id))
}

pub(super) fn destroy(id: *mut rdma_cm_id) -> Result<(), Errno> {
    world().retire(id.addr())?;
    // SAFETY: the identifier is alive, and its event is null or was kept.
    let held = unsafe { mem::replace(&mut (*id).event, ptr::null_mut()) };
    if !held.is_null() {
        acknowledge(held)?;
    }
    wait_for_acknowledgements(id);
    let removed = {
        let mut world = world();
        let removed = world.ids.remove(&id.addr()).ok_or(Errno::INVALID)?;
        let channel = if removed.sync { world.channels.remove(&removed.channel) } else { None };
        (removed, channel)
    };
    drop(removed);
    // SAFETY: the identifier and its path came from `make_id` and `write_path`, and are no longer used.
    unsafe {
        free_path((*id).route.path_rec);
        free(id);
    }
    Ok(())
}

/// Frees a path.
///
/// # Safety
///
/// The path is null, or came from a box, and is no longer used.
pub(super) unsafe fn free_path(path: *mut ibv_sa_path_rec) {
    if !path.is_null() {
        // SAFETY: guaranteed by the caller.
        drop(unsafe { Box::from_raw(path) });
    }
}

/// Waits until the events that were taken are acknowledged, as the manual page requires.
fn wait_for_acknowledgements(id: *mut rdma_cm_id) {
    let pending = |world: &mut World| world.id(id.addr()).is_ok_and(|id| id.completed < id.reported);
    drop(world_after(pending));
}

/// `rdma_migrate_id(id, channel)`.
///
/// # Safety
///
/// As in C: the identifier is alive, and the channel is null or alive.
pub(super) unsafe extern "C" fn migrate_id(id: *mut rdma_cm_id, channel: *mut rdma_event_channel) -> c_int {
    return_code(migrate(id, channel))
}

/// Moves an identifier with its sockets and its queued events to another channel or to a channel of its own.
pub(super) fn migrate(id: *mut rdma_cm_id, target: *mut rdma_event_channel) -> Result<(), Errno> {
    let own = {
        let mut world = world();
        let (was_own, old) = world.id(id.addr()).map(|id| (id.sync, id.channel))?;
        let is_own = target.is_null();
        let target = match is_own {
            true if was_own => return Err(Errno::INVALID),
            true => world.make_channel()?,
            false if !world.channels.contains_key(&target.addr()) => return Err(unknown(Errno(libc::EBADF))),
            false => target,
        };
        if old != target.addr()
            && let Err(errno) = world.move_to(id.addr(), old, target.addr())
        {
            if is_own {
                world.channels.remove(&target.addr());
            }
            return Err(errno);
        }
        world.id(id.addr())?.sync = is_own;
        // SAFETY: the identifier is alive.
        unsafe { (*id).channel = target };
        was_own.then_some(old)
    };
    if let Some(old) = own {
        // SAFETY: the identifier is alive, and its event is null or was kept.
        let held = unsafe { mem::replace(&mut (*id).event, ptr::null_mut()) };
        if !held.is_null() {
            acknowledge(held)?;
        }
        let removed = world().channels.remove(&old);
        drop(removed);
    }
    wait_for_acknowledgements(id);
    Ok(())
}

impl World {
    /// Moves an identifier to another channel. If this fails, the identifier is unchanged.
    fn move_to(&mut self, id: usize, from: usize, to: usize) -> Result<(), Errno> {
        let identifier = self.id(id)?;
        let deadline = identifier.deadline;
        let sockets = identifier.listener.iter().chain(&identifier.stream_listener).chain(&identifier.link);
        let watched: Vec<Watched> =
            sockets.chain(identifier.new_connections.iter().map(|one| &one.watched)).cloned().collect();
        self.move_watched((from, to), &watched)?;
        self.id(id)?.channel = to;
        self.move_deadline(id, (from, deadline), (to, deadline));
        let events = self.channels.get_mut(&from).map(|old| old.remove(|pending| pending.owner == id));
        for pending in events.into_iter().flatten() {
            self.put(pending);
        }
        self.follow_port(id);
        Ok(())
    }
}
