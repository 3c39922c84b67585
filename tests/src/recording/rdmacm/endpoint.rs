//! Identifiers that wait for what comes of each call, and those that come with addresses and a queue pair.

use std::ptr;

use libc::c_int;
use rdma_mummy_sys as ffi;
use rdma_mummy_sys::rdma_cm_event_type as event_type;

use super::address::{Address, bind_to, resolve, resolve_route_of};
use super::calls::{Access, On, answer, device_of, on_device, on_id, own_device};
use super::events::{acknowledge, take};
use super::qp;
use super::{address, id};

/// Waits for what comes of a call, on an identifier with a channel of its own; it holds the event until the next.
pub(super) fn complete(on: On) -> Result<(), c_int> {
    let (sync, channel) = on.with(|id| (id.sync, id.channel))?;
    if !sync {
        return Ok(());
    }
    // SAFETY: the identifier is alive, and its event is null or one that it holds.
    unsafe {
        let event = std::mem::replace(&mut (*on.id).event, ptr::null_mut());
        if !event.is_null() {
            acknowledge(on.device, event)?;
        }
        // The event's own processing is another's call on the identifier; this one only waits.
        let event = waiting(on, || take(on.device, channel, true))?;
        (*on.id).event = event;
        match ((*event).event, (*event).status) {
            (_, 0) => Ok(()),
            (event_type::RDMA_CM_EVENT_REJECTED, _) => Err(libc::ECONNREFUSED),
            (_, status) => Err(status.abs()),
        }
    }
}

/// Runs what processes events of an identifier as a part of a call on it.
fn waiting<T>(on: On, wait: impl FnOnce() -> T) -> T {
    let mut held = None;
    // It is there: the call on it has begun.
    let _ = on.with(|id| held = Some((id.writer.take(), std::mem::take(&mut id.readers))));
    let result = wait();
    let _ = on.with(|id| {
        if let Some((writer, readers)) = held {
            (id.writer, id.readers) = (writer, readers);
        }
    });
    result
}

pub(super) unsafe extern "C" fn create_ep(
    id: *mut *mut ffi::rdma_cm_id,
    list: *mut ffi::rdma_addrinfo,
    pd: *mut ffi::ibv_pd,
    attr: *mut ffi::ibv_qp_init_attr,
) -> c_int {
    // SAFETY: the list can be read by contract.
    let info = unsafe { *list };
    let arguments = [
        ("flags", info.ai_flags as u64),
        ("ps", info.ai_port_space as u64),
        ("qp_type", info.ai_qp_type as u64),
        ("connect_len", info.ai_connect_len as u64),
        ("pd", pd.addr() as u64),
    ];
    let device = device_of(list).map_or_else(own_device, Ok);
    let made = device.and_then(|device| {
        on_device(device, "rdma_create_ep", &arguments, || {
            let ps = ffi::rdma_port_space(info.ai_port_space as u32);
            // The list's type counts, even where it is not that of the port space.
            let kind = ffi::ibv_qp_type(info.ai_qp_type as u32);
            id::type_of(ps, kind)?;
            let made = id::make(device, &mut device.state.lock(), None, ptr::null_mut(), (ps, kind));
            let on = On { device, id: made };
            // SAFETY: the caller's promise.
            match unsafe { set_up(on, &info, pd, attr) } {
                Ok(()) => Ok(made),
                Err(errno) => {
                    end(on);
                    Err(errno)
                }
            }
        })
    });
    // SAFETY: it can be written to by contract.
    answer(made.map(|made| unsafe { *id = made }))
}

/// # Safety
///
/// What the list points to can be read; the attributes are null, or can be read and written.
unsafe fn set_up(
    on: On,
    info: &ffi::rdma_addrinfo,
    pd: *mut ffi::ibv_pd,
    attr: *mut ffi::ibv_qp_init_attr,
) -> Result<(), c_int> {
    // SAFETY: the caller's promise.
    let (source, destination) = unsafe { (Address::read(info.ai_src_addr), Address::read(info.ai_dst_addr)) };
    let kind = ffi::ibv_qp_type(info.ai_qp_type as u32);
    if info.ai_flags as u32 & ffi::RAI_PASSIVE != 0 {
        bind_to(on, source.ok_or(libc::EINVAL)?)?;
        // SAFETY: the identifier is alive; the attributes are null or can be read.
        unsafe {
            if !pd.is_null() {
                (*on.id).pd = pd;
            }
            if let Some(&attr) = attr.as_ref() {
                on.with(|id| id.qp_init_attr = Some(ffi::ibv_qp_init_attr { qp_type: kind, ..attr }))?;
            }
        }
        return Ok(());
    }
    resolve(on, source, destination.ok_or(libc::EINVAL)?)?;
    if info.ai_route_len > 0 {
        address::route_resolved(on)?;
        complete(on)?;
    } else {
        resolve_route_of(on)?;
    }
    if !attr.is_null() {
        // SAFETY: the attributes can be read and written.
        unsafe {
            (*attr).qp_type = kind;
            qp::create(on, pd, attr)?;
        }
    }
    if info.ai_connect_len > 0 {
        // SAFETY: so many bytes can be read there.
        let data = unsafe { std::slice::from_raw_parts(info.ai_connect.cast::<u8>(), info.ai_connect_len) };
        on.with(|id| id.connect_data = data.to_vec())?;
    }
    Ok(())
}

pub(super) unsafe extern "C" fn destroy_ep(id: *mut ffi::rdma_cm_id) {
    let Some(device) = device_of(id) else { return };
    drop(device.state.note("rdma_destroy_ep", &[("id", id.addr() as u64)]));
    end(On { device, id });
    device.state.acknowledged.notify_all();
}

fn end(on: On) {
    if on.with(|_| ()).is_ok() {
        // SAFETY: the identifier is alive.
        let (qp, srq) = unsafe { ((*on.id).qp, (*on.id).srq) };
        if !qp.is_null() {
            qp::end_qp(on);
        }
        if !srq.is_null() {
            qp::end_srq(on);
        }
    }
    // As in C, what comes of it is of no interest; one that is not there has been written down.
    let _ = id::destroy(on);
}

pub(super) unsafe extern "C" fn get_request(listen: *mut ffi::rdma_cm_id, id: *mut *mut ffi::rdma_cm_id) -> c_int {
    let made = on_id("rdma_get_request", listen, Access::Writes, &[], |on| {
        let (sync, channel) = on.with(|id| (id.sync, id.channel))?;
        if !sync {
            return Err(libc::EINVAL);
        }
        // SAFETY: the identifier is alive, and its event is null or one that it holds.
        unsafe {
            let event = std::mem::replace(&mut (*on.id).event, ptr::null_mut());
            if !event.is_null() {
                acknowledge(on.device, event)?;
            }
            let event = waiting(on, || take(on.device, channel, true))?;
            match request(on, event) {
                Ok(made) => {
                    (*made).event = event;
                    Ok(made)
                }
                Err(errno) => {
                    (*on.id).event = event;
                    Err(errno)
                }
            }
        }
    });
    // SAFETY: it can be written to by contract.
    answer(made.map(|made| unsafe { *id = made }))
}

/// The identifier that came with an event, with its queue pair.
///
/// # Safety
///
/// The event was taken just now.
unsafe fn request(listener: On, event: *mut ffi::rdma_cm_event) -> Result<*mut ffi::rdma_cm_id, c_int> {
    // SAFETY: the caller's promise; both identifiers are alive.
    unsafe {
        if (*event).status != 0 {
            return Err((*event).status);
        }
        if (*event).event != event_type::RDMA_CM_EVENT_CONNECT_REQUEST {
            return Err(libc::EINVAL);
        }
        let id = (*event).id;
        if let Some(mut attr) = listener.with(|id| id.qp_init_attr)? {
            qp::create(On { device: listener.device, id }, (*listener.id).pd, &mut attr)?;
        }
        Ok(id)
    }
}
