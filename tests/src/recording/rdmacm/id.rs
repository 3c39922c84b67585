//! Identifiers: making, moving, ending, and what is set on them.

use std::ptr;
use std::time::Duration;

use libc::{c_int, c_void};
use rdma_mummy_sys as ffi;
use rdma_mummy_sys::{ibv_qp_type as pair_type, rdma_port_space as space};

use super::address::Address;
use super::calls::{Access, On, answer, begin, belongs, device_of, end, on_device, on_id, own_device};
use super::channel;
use super::devices;
use super::memory::overwrite_id;
use super::multicast::Group;
use super::peer;
use crate::recording::calls::Kind;
use crate::recording::objects::forever;
use crate::recording::state::{Device, Inner};

/// How long anything waits before it is a violation.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

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
    /// Was connected, or refused.
    Over,
}

/// An identifier.
pub(super) struct Identifier {
    pub(super) c: *mut ffi::rdma_cm_id,
    pub(super) state: State,
    pub(super) channel: usize,
    /// Whether the channel is its own, and calls wait for what comes of them.
    pub(super) sync: bool,
    /// Whether it has a reference to the device.
    pub(super) attached: bool,
    pub(super) reuses: bool,
    /// Whether its port is its own, and not that of who listens.
    pub(super) holds_port: bool,
    pub(super) source: Option<Address>,
    pub(super) destination: Option<Address>,
    /// Events that were taken, and acknowledged.
    pub(super) reported: u32,
    pub(super) completed: u32,
    pub(super) readers: Vec<&'static str>,
    pub(super) writer: Option<&'static str>,
    /// The queue pair that stands in the C struct.
    pub(super) qp: usize,
    pub(super) peer: Option<usize>,
    pub(super) initiator_depth: u8,
    pub(super) responder_resources: u8,
    /// The other side's queue pair, once it is known.
    pub(super) remote_qp: u32,
    pub(super) connect_error: bool,
    /// Private data that `rdma_create_ep` got.
    pub(super) connect_data: Vec<u8>,
    /// What `rdma_get_request` makes queue pairs with.
    pub(super) qp_init_attr: Option<ffi::ibv_qp_init_attr>,
    pub(super) groups: Vec<Group>,
    /// What `rdma_resolve_addrinfo` found, or null.
    pub(super) information: *mut ffi::rdma_addrinfo,
    pub(super) local_ece: ffi::ibv_ece,
    pub(super) remote_ece: ffi::ibv_ece,
}

const NO_ECE: ffi::ibv_ece = ffi::ibv_ece { vendor_id: 0, options: 0, comp_mask: 0 };

/// A new identifier on a channel, or with one of its own.
pub(super) fn make(
    device: &'static Device,
    inner: &mut Inner,
    channel: Option<*mut ffi::rdma_event_channel>,
    context: *mut c_void,
    (ps, qp_type): (space, pair_type),
) -> *mut ffi::rdma_cm_id {
    let sync = channel.is_none();
    let channel = channel.unwrap_or_else(|| channel::make(device, inner, true));
    let id = forever::<ffi::rdma_cm_id>();
    // SAFETY: the identifier is new.
    unsafe {
        (*id).channel = channel;
        (*id).context = context;
        (*id).ps = ps;
        (*id).qp_type = qp_type;
    }
    belongs(id, device);
    inner.made(Kind::Identifier, id, &[]);
    let identifier = Identifier {
        c: id,
        state: State::Idle,
        channel: channel.addr(),
        sync,
        attached: false,
        reuses: false,
        holds_port: false,
        source: None,
        destination: None,
        reported: 0,
        completed: 0,
        readers: Vec::new(),
        writer: None,
        qp: 0,
        peer: None,
        initiator_depth: 0,
        responder_resources: 0,
        remote_qp: 0,
        connect_error: false,
        connect_data: Vec::new(),
        qp_init_attr: None,
        groups: Vec::new(),
        information: ptr::null_mut(),
        local_ece: NO_ECE,
        remote_ece: NO_ECE,
    };
    inner.manager.ids.insert(id.addr(), identifier);
    id
}

/// The type of queue pair of a port space, or `EINVAL`; that of InfiniBand leaves it to the program.
pub(super) fn type_of(ps: space, asked: pair_type) -> Result<pair_type, c_int> {
    match ps {
        space::RDMA_PS_TCP => Ok(pair_type::IBV_QPT_RC),
        space::RDMA_PS_UDP | space::RDMA_PS_IPOIB => Ok(pair_type::IBV_QPT_UD),
        space::RDMA_PS_IB => Ok(asked),
        _ => Err(libc::EINVAL),
    }
}

pub(super) unsafe extern "C" fn create_id(
    channel: *mut ffi::rdma_event_channel,
    id: *mut *mut ffi::rdma_cm_id,
    context: *mut c_void,
    ps: space,
) -> c_int {
    let own = channel.is_null();
    let device = if own { own_device() } else { device_of(channel).ok_or(libc::EINVAL) };
    let arguments = [("channel", channel.addr() as u64), ("ps", ps.0.into())];
    let made = device.and_then(|device| {
        on_device(device, "rdma_create_id", &arguments, || {
            let mut inner = device.state.lock();
            if !own && !inner.is_live(Kind::EventChannel, channel.addr(), "rdma_create_id") {
                return Err(libc::EBADF);
            }
            let kind = type_of(ps, pair_type::IBV_QPT_RC)?;
            Ok(make(device, &mut inner, (!own).then_some(channel), context, (ps, kind)))
        })
    });
    // SAFETY: it can be written to by contract.
    answer(made.map(|made| unsafe { *id = made }))
}

pub(super) unsafe extern "C" fn destroy_id(id: *mut ffi::rdma_cm_id) -> c_int {
    let Some(device) = device_of(id) else { return answer(Err(libc::EINVAL)) };
    answer(on_device(device, "rdma_destroy_id", &[("id", id.addr() as u64)], || destroy(On { device, id })))
}

/// Ends an identifier: events that wait for it are gone, and those that were taken are waited for.
pub(super) fn destroy(on: On) -> Result<(), c_int> {
    let On { device, id } = on;
    let mut inner = on.lock();
    if !inner.is_live(Kind::Identifier, id.addr(), "rdma_destroy_id") {
        return Err(libc::EINVAL);
    }
    // SAFETY: the identifier is alive.
    if !unsafe { (*id).qp }.is_null() {
        inner.violation("an identifier was destroyed that holds a queue pair");
    }
    peer::leave(&mut inner, id.addr());
    let channel = inner.manager.id(id.addr())?.channel;
    let gone = match inner.manager.channels.get_mut(&channel) {
        Some(channel) => channel.remove(|pending| pending.owner == id.addr()),
        None => Vec::new(),
    };
    for request in gone.into_iter().filter_map(|pending| pending.request) {
        peer::refuse(&mut inner, request.peer);
    }
    drop(inner);
    device.state.acknowledged.notify_all();
    // SAFETY: the identifier is alive, and its event is null or one that it holds.
    unsafe {
        if !(*id).event.is_null() {
            super::events::acknowledge(device, (*id).event)?;
        }
    }
    wait_for_acknowledgements(on, "an identifier was destroyed with an event that was never acknowledged");
    let mut inner = on.lock();
    let Some(identifier) = inner.manager.ids.remove(&id.addr()) else { return Err(libc::EINVAL) };
    if let Some(other) = identifier.writer.or(identifier.readers.last().copied()) {
        inner.violation(format!("an identifier was destroyed while {other} ran on it"));
    }
    if !identifier.groups.is_empty() {
        inner.violation("an identifier was destroyed that is in a group, of which the library never frees what it has");
    }
    // It was there, above.
    let _ = inner.destroy(Kind::Identifier, id.addr());
    if identifier.sync {
        channel::end(&mut inner, identifier.channel);
    }
    drop(inner);
    if identifier.attached {
        devices::release(device, true);
    }
    // SAFETY: the identifier is gone, and nobody uses it any more.
    unsafe { overwrite_id(id) };
    Ok(())
}

/// Waits until the events of the identifier that were taken are acknowledged.
fn wait_for_acknowledgements(on: On, violation: &str) {
    let address = on.id.addr();
    let pending = |inner: &mut Inner| inner.manager.id(address).is_ok_and(|id| id.completed < id.reported);
    let waited = on.device.state.acknowledged.wait_timeout_while(on.lock(), PATIENCE, pending);
    let (mut inner, timeout) = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
    if timeout.timed_out() {
        inner.violation(violation);
    }
}

pub(super) unsafe extern "C" fn migrate_id(id: *mut ffi::rdma_cm_id, channel: *mut ffi::rdma_event_channel) -> c_int {
    let Some(device) = device_of(id) else { return answer(Err(libc::EINVAL)) };
    let arguments = [("id", id.addr() as u64), ("channel", channel.addr() as u64)];
    answer(on_device(device, "rdma_migrate_id", &arguments, || migrate(On { device, id }, channel)))
}

/// Moves an identifier, with the events that wait for it, to another channel or to one of its own.
pub(super) fn migrate(on: On, target: *mut ffi::rdma_event_channel) -> Result<(), c_int> {
    let On { device, id } = on;
    let mut inner = on.lock();
    begin(&mut inner, id.addr(), "rdma_migrate_id", Access::Writes)?;
    let moved = move_to(device, &mut inner, id, target);
    end(&mut inner, id.addr(), Access::Writes);
    let old = moved?;
    drop(inner);
    device.state.acknowledged.notify_all();
    if let Some(old) = old {
        // SAFETY: the identifier is alive, and its event is null or one that it holds.
        unsafe {
            let event = std::mem::replace(&mut (*id).event, ptr::null_mut());
            if !event.is_null() {
                super::events::acknowledge(device, event)?;
            }
        }
        channel::end(&mut on.lock(), old);
    }
    wait_for_acknowledgements(on, "an identifier was moved with an event that was never acknowledged");
    Ok(())
}

/// Gives the old channel, if that was its own.
fn move_to(
    device: &'static Device,
    inner: &mut Inner,
    id: *mut ffi::rdma_cm_id,
    target: *mut ffi::rdma_event_channel,
) -> Result<Option<usize>, c_int> {
    let (was_own, old) = inner.manager.id(id.addr()).map(|id| (id.sync, id.channel))?;
    let own = target.is_null();
    if own && was_own {
        return Err(libc::EINVAL);
    }
    if !own && !inner.is_live(Kind::EventChannel, target.addr(), "rdma_migrate_id") {
        return Err(libc::EBADF);
    }
    let target = if own { channel::make(device, inner, true) } else { target };
    let events = match inner.manager.channels.get_mut(&old) {
        Some(old) => old.remove(|pending| pending.owner == id.addr()),
        None => Vec::new(),
    };
    if let Some(target) = inner.manager.channels.get_mut(&target.addr()) {
        events.into_iter().for_each(|pending| target.put(pending));
    }
    let identifier = inner.manager.id(id.addr())?;
    (identifier.sync, identifier.channel) = (own, target.addr());
    // SAFETY: the identifier is alive.
    unsafe { (*id).channel = target };
    Ok(was_own.then_some(old))
}

pub(super) unsafe extern "C" fn set_option(
    id: *mut ffi::rdma_cm_id,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: usize,
) -> c_int {
    let first = if value.is_null() || length == 0 {
        0
    } else {
        // SAFETY: the value has so many bytes by contract.
        unsafe { value.cast::<u8>().read() }
    };
    let arguments =
        [("level", level as u64), ("name", name as u64), ("length", length as u64), ("first", first.into())];
    answer(on_id("rdma_set_option", id, Access::Reads, &arguments, |on| match (level as u32, name as u32, length) {
        (ffi::RDMA_OPTION_ID, ffi::RDMA_OPTION_ID_TOS | ffi::RDMA_OPTION_ID_ACK_TIMEOUT, 1) => Ok(()),
        (ffi::RDMA_OPTION_ID, ffi::RDMA_OPTION_ID_REUSEADDR, 4) => on.with(|id| id.reuses = first != 0),
        (ffi::RDMA_OPTION_ID, ffi::RDMA_OPTION_ID_AFONLY, 4) => Ok(()),
        (ffi::RDMA_OPTION_IB, ffi::RDMA_OPTION_IB_PATH, 1..) => {
            if !length.is_multiple_of(size_of::<ffi::ibv_path_data>()) {
                return Err(libc::EINVAL);
            }
            super::address::route_resolved(on)
        }
        (ffi::RDMA_OPTION_ID, ..) => Err(libc::EINVAL),
        _ => Err(libc::ENOSYS),
    }))
}

pub(super) unsafe extern "C" fn set_local_ece(id: *mut ffi::rdma_cm_id, ece: *mut ffi::ibv_ece) -> c_int {
    answer(on_id("rdma_set_local_ece", id, Access::Writes, &[], |on| {
        // SAFETY: null, or it can be read by contract.
        let ece = *unsafe { ece.as_ref() }.ok_or(libc::EINVAL)?;
        on.with(|id| {
            if id.qp != 0 || ece.vendor_id == 0 || ece.comp_mask != 0 {
                return Err(libc::EINVAL);
            }
            id.local_ece = ece;
            Ok(())
        })?
    }))
}

pub(super) unsafe extern "C" fn get_remote_ece(id: *mut ffi::rdma_cm_id, ece: *mut ffi::ibv_ece) -> c_int {
    answer(on_id("rdma_get_remote_ece", id, Access::Reads, &[], |on| {
        if ece.is_null() {
            return Err(libc::EINVAL);
        }
        let remote = on.with(|id| (id.qp == 0).then_some(id.remote_ece))?;
        // SAFETY: it can be written to by contract.
        unsafe {
            *ece = remote.ok_or(libc::EINVAL)?;
            on.lock().output("rdma_get_remote_ece", ece);
        }
        Ok(())
    }))
}
