//! `struct rdma_cm_id`: making, moving, ending.

use std::ffi::{c_int, c_void};
use std::mem;
use std::net::SocketAddr;
use std::ptr;
use std::sync::Arc;
use std::time::Instant;

use rdma_mummy_sys::{
    ibv_ece, ibv_qp_init_attr, ibv_qp_type, ibv_sa_path_rec, rdma_cm_id, rdma_event_channel, rdma_port_space,
};

use super::calls::{answer, random};
use super::channel::Watched;
use super::events::{acknowledge, is_datagram};
use super::info::List;
use super::listen::Newcomer;
use super::messages::{Kind, Message};
use super::multicast::Group;
use super::option::Options;
use super::peer::Reason;
use super::port::Port;
use super::{ACKNOWLEDGED, World, unknown, world};
use crate::sys::errno::Errno;
use crate::sys::unpoisoned;
use crate::wire::packet::MAX_NUMBER;

pub(super) const NO_ECE: ibv_ece = ibv_ece { vendor_id: 0, options: 0, comp_mask: 0 };

/// How far an identifier has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Idle,
    Bound,
    AddressResolved,
    RouteResolved,
    Listening,
    /// Has sent a request.
    Connecting,
    /// Has got an answer to it.
    Responded,
    /// Came with a request.
    Requested,
    /// Has answered it.
    Accepted,
    Connected,
    /// Has asked the other side to part.
    Parting,
    /// The other side has asked, or is gone.
    Left,
    /// Was connected, or refused.
    Over,
    /// Is being destroyed.
    Gone,
}

/// An identifier.
pub(super) struct Identifier {
    pub(super) c: *mut rdma_cm_id,
    pub(super) state: State,
    /// The address of its channel.
    pub(super) channel: usize,
    /// Whether the channel is its own, and calls wait for what comes of them.
    pub(super) sync: bool,
    pub(super) options: Options,
    pub(super) port: Option<Arc<Port>>,
    pub(super) source: Option<SocketAddr>,
    pub(super) destination: Option<SocketAddr>,
    /// What it listens by.
    pub(super) listener: Option<Watched>,
    pub(super) newcomers: Vec<Newcomer>,
    /// What it is connected by.
    pub(super) link: Option<Watched>,
    /// A request for which there was no room where it is to go, until when it is tried again.
    pub(super) waiting: Option<(Message, Instant)>,
    pub(super) deadline: Option<Instant>,
    /// Events that were taken, and acknowledged.
    pub(super) reported: u32,
    pub(super) completed: u32,
    pub(super) initiator_depth: u8,
    pub(super) responder_resources: u8,
    pub(super) retry_count: u8,
    pub(super) rnr_retry_count: u8,
    /// The packet number that it begins with, and the other side's.
    pub(super) psn: u32,
    pub(super) remote_psn: u32,
    pub(super) remote_qp: u32,
    /// Whether an answer could not be answered, after which no end is told.
    pub(super) failed: bool,
    /// Private data that `rdma_create_ep` got.
    pub(super) connect_data: Vec<u8>,
    /// What `rdma_get_request` makes queue pairs with.
    pub(super) qp_init_attr: Option<ibv_qp_init_attr>,
    pub(super) groups: Vec<Group>,
    /// What `rdma_resolve_addrinfo` found.
    pub(super) information: Option<List>,
    pub(super) local_ece: ibv_ece,
    pub(super) remote_ece: ibv_ece,
}

// SAFETY: its pointers are those of C, which belong to no thread.
unsafe impl Send for Identifier {}

/// The type of queue pair of a port space; that of InfiniBand leaves it to the program.
pub(super) fn type_of(ps: rdma_port_space, asked: ibv_qp_type) -> Result<ibv_qp_type, Errno> {
    match ps {
        rdma_port_space::RDMA_PS_TCP => Ok(ibv_qp_type::IBV_QPT_RC),
        rdma_port_space::RDMA_PS_UDP | rdma_port_space::RDMA_PS_IPOIB => Ok(ibv_qp_type::IBV_QPT_UD),
        rdma_port_space::RDMA_PS_IB => Ok(asked),
        _ => Err(Errno::INVALID),
    }
}

impl World {
    /// A new identifier on a channel, or with one of its own.
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
        // SAFETY: numbers, nullable pointers, and unions of such.
        let c = Box::into_raw(Box::new(unsafe { mem::zeroed::<rdma_cm_id>() }));
        // SAFETY: it is on the heap since now.
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
            newcomers: Vec::new(),
            link: None,
            waiting: None,
            deadline: None,
            reported: 0,
            completed: 0,
            initiator_depth: 0,
            responder_resources: 0,
            retry_count: 7,
            rnr_retry_count: 7,
            // Lossless: it has 24 bits.
            psn: random() as u32 & MAX_NUMBER,
            remote_psn: 0,
            remote_qp: 0,
            failed: false,
            connect_data: Vec::new(),
            qp_init_attr: None,
            groups: Vec::new(),
            information: None,
            local_ece: NO_ECE,
            remote_ece: NO_ECE,
        };
        self.ids.insert(c.addr(), identifier);
        Ok(c)
    }

    /// Ends what an identifier has to do with others, and takes out the events that wait for it.
    fn retire(&mut self, id: usize) -> Result<(), Errno> {
        self.set_deadline(id, None);
        let identifier = self.id(id)?;
        let (channel, state) = (identifier.channel, mem::replace(&mut identifier.state, State::Gone));
        // SAFETY: the identifier is alive.
        let datagram = unsafe { is_datagram(identifier.c) };
        match state {
            _ if datagram && state != State::Requested => {}
            State::Connecting => self.say(id, &Message { reason: Reason::TIMEOUT.0, ..Message::new(Kind::Reject) }),
            State::Requested if datagram => {
                self.say(id, &Message { reason: Reason::DATAGRAM_REJECTED.0, ..Message::new(Kind::DatagramReply) })
            }
            State::Requested | State::Responded | State::Accepted => {
                self.say(id, &Message { reason: Reason::CONSUMER_DEFINED.0, ..Message::new(Kind::Reject) });
            }
            State::Connected => self.say(id, &Message::new(Kind::Disconnect)),
            State::Left => self.say(id, &Message::new(Kind::Disconnected)),
            _ => {}
        }
        self.hang_up(id);
        self.stop_listening(id);
        let identifier = self.id(id)?;
        drop(identifier.port.take());
        if let Some(channel) = self.channels.get_mut(&channel) {
            for request in channel.remove(|pending| pending.owner == id).into_iter().filter_map(|one| one.request) {
                request.refuse();
            }
        }
        Ok(())
    }
}

/// `rdma_create_id(channel, id, context, ps)`.
///
/// # Safety
///
/// As for C: the channel is null or alive, and the identifier can be written.
pub(super) unsafe extern "C" fn create_id(
    channel: *mut rdma_event_channel,
    id: *mut *mut rdma_cm_id,
    context: *mut c_void,
    ps: rdma_port_space,
) -> c_int {
    let make = || {
        if crate::verbs::device::all().is_empty() {
            return Err(Errno(libc::ENODEV));
        }
        let kind = type_of(ps, ibv_qp_type::IBV_QPT_RC)?;
        world().make_id((!channel.is_null()).then_some(channel), context, (ps, kind))
    };
    // SAFETY: the caller's promise.
    answer(make().map(|made| unsafe { id.write(made) }))
}

/// `rdma_destroy_id(id)`: waits until the events of it that were taken are acknowledged.
///
/// # Safety
///
/// As for C: the identifier is alive, nobody uses it any more, and its queue pair is destroyed.
pub(super) unsafe extern "C" fn destroy_id(id: *mut rdma_cm_id) -> c_int {
    answer(destroy(id))
}

pub(super) fn destroy(id: *mut rdma_cm_id) -> Result<(), Errno> {
    world().retire(id.addr())?;
    // SAFETY: the identifier is alive, and its event is null or one that it holds.
    let held = unsafe { mem::replace(&mut (*id).event, ptr::null_mut()) };
    if !held.is_null() {
        acknowledge(held)?;
    }
    wait_for_acknowledgements(id);
    let gone = {
        let mut world = world();
        let gone = world.ids.remove(&id.addr()).ok_or(Errno::INVALID)?;
        let channel = if gone.sync { world.channels.remove(&gone.channel) } else { None };
        (gone, channel)
    };
    drop(gone);
    // SAFETY: the identifier and its path came from `make_id` and `write_path`, and nobody uses them any more.
    unsafe {
        free_path((*id).route.path_rec);
        drop(Box::from_raw(id));
    }
    Ok(())
}

/// # Safety
///
/// It is null, or came from a box, and is not used any more.
pub(super) unsafe fn free_path(path: *mut ibv_sa_path_rec) {
    if !path.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(path) });
    }
}

/// Waits for who has taken events of the identifier, as the manual page says.
fn wait_for_acknowledgements(id: *mut rdma_cm_id) {
    let pending = |world: &mut World| world.id(id.addr()).is_ok_and(|id| id.completed < id.reported);
    drop(unpoisoned(ACKNOWLEDGED.wait_while(world(), pending)));
}

/// `rdma_migrate_id(id, channel)`.
///
/// # Safety
///
/// As for C: the identifier is alive, and the channel null or alive.
pub(super) unsafe extern "C" fn migrate_id(id: *mut rdma_cm_id, channel: *mut rdma_event_channel) -> c_int {
    answer(migrate(id, channel))
}

/// Moves an identifier, with its sockets and the events that wait for it, to another channel or to one of its own.
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
        // SAFETY: the identifier is alive, and its event is null or one that it holds.
        let held = unsafe { mem::replace(&mut (*id).event, ptr::null_mut()) };
        if !held.is_null() {
            acknowledge(held)?;
        }
        let gone = world().channels.remove(&old);
        drop(gone);
    }
    wait_for_acknowledgements(id);
    Ok(())
}

impl World {
    /// Moves an identifier to another channel; where that fails it stays as it was.
    fn move_to(&mut self, id: usize, from: usize, to: usize) -> Result<(), Errno> {
        let identifier = self.id(id)?;
        let deadline = identifier.deadline;
        let sockets = identifier.listener.iter().chain(&identifier.link);
        let watched: Vec<Watched> =
            sockets.chain(identifier.newcomers.iter().map(|one| &one.watched)).cloned().collect();
        self.move_watched((from, to), &watched)?;
        self.id(id)?.channel = to;
        self.move_deadline(id, (from, deadline), (to, deadline));
        let events = self.channels.get_mut(&from).map(|old| old.remove(|pending| pending.owner == id));
        for pending in events.into_iter().flatten() {
            self.put(pending);
        }
        Ok(())
    }
}
