//! `rdma_create_ep` creates an identifier together with its addresses and its QP. The calls on such an identifier are
//! synchronous.

use std::ffi::c_int;
use std::mem;
use std::ptr;

use rdma_mummy_sys::{
    RAI_PASSIVE, ibv_pd, ibv_qp_init_attr, ibv_qp_type, rdma_addrinfo, rdma_cm_event, rdma_cm_event_type as event_type,
    rdma_cm_id, rdma_port_space,
};

use super::address::{self, resolve_and_wait};
use super::calls::{bytes, return_code};
use super::events::{acknowledge, take};
use super::route::resolve_route_and_wait;
use super::{id, qp, srq, world};
use crate::sys::errno::Errno;

/// Takes the next event of a synchronous identifier, and acknowledges the previous one, which is stored in the
/// identifier.
fn next(id: *mut rdma_cm_id, channel: usize) -> Result<*mut rdma_cm_event, Errno> {
    // SAFETY: the identifier is alive, and its `event` is null or a kept event.
    let event = unsafe { mem::replace(&mut (*id).event, ptr::null_mut()) };
    if !event.is_null() {
        acknowledge(event)?;
    }
    take(channel, true)
}

/// Waits for the result of a call on a synchronous identifier. The event stays stored in the identifier until the next
/// one.
pub(super) fn complete(id: *mut rdma_cm_id) -> Result<(), Errno> {
    let (sync, channel) = world().id(id.addr()).map(|id| (id.sync, id.channel))?;
    if !sync {
        return Ok(());
    }
    let event = next(id, channel)?;
    // SAFETY: the identifier is alive, and the event was just taken.
    unsafe {
        (*id).event = event;
        match ((*event).event, (*event).status) {
            (_, 0) => Ok(()),
            (event_type::RDMA_CM_EVENT_REJECTED, _) => Err(Errno(libc::ECONNREFUSED)),
            (_, status) => Err(Errno(status.saturating_abs())),
        }
    }
}

/// `rdma_create_ep(id, res, pd, qp_init_attr)`.
///
/// # Safety
///
/// As in C: the identifier is writable, the list is readable, and the domain and the attributes are null or valid.
pub(super) unsafe extern "C" fn create_ep(
    id: *mut *mut rdma_cm_id,
    res: *mut rdma_addrinfo,
    pd: *mut ibv_pd,
    qp_init_attr: *mut ibv_qp_init_attr,
) -> c_int {
    let make = || {
        // SAFETY: guaranteed by the caller.
        let info = *unsafe { res.as_ref() }.ok_or(Errno::INVALID)?;
        let ps = rdma_port_space(u32::try_from(info.ai_port_space).map_err(|_| Errno::INVALID)?);
        let kind = ibv_qp_type(u32::try_from(info.ai_qp_type).map_err(|_| Errno::INVALID)?);
        id::type_of(ps, kind)?;
        let made = world().make_id(None, ptr::null_mut(), (ps, kind))?;
        // SAFETY: guaranteed by the caller.
        match unsafe { set_up(made, &info, pd, qp_init_attr) } {
            Ok(()) => Ok(made),
            Err(errno) => {
                // SAFETY: the identifier was never returned to the program.
                unsafe { end(made) };
                Err(errno)
            }
        }
    };
    // SAFETY: guaranteed by the caller.
    return_code(make().map(|made| unsafe { id.write(made) }))
}

/// Sets up an identifier from a list of addresses.
///
/// # Safety
///
/// All data of the list is readable; the attributes are null, or readable and writable.
unsafe fn set_up(
    id: *mut rdma_cm_id,
    info: &rdma_addrinfo,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> Result<(), Errno> {
    // SAFETY: guaranteed by the caller.
    let (source, destination) = unsafe { (address::read(info.ai_src_addr)?, address::read(info.ai_dst_addr)?) };
    let kind = ibv_qp_type(info.ai_qp_type as u32);
    if info.ai_flags as u32 & RAI_PASSIVE != 0 {
        let mut world = world();
        world.bind(id.addr(), source.ok_or(Errno::INVALID)?)?;
        // SAFETY: the identifier is alive; the attributes are null or readable.
        unsafe {
            if !pd.is_null() {
                (*id).pd = pd;
            }
            if let Some(&attr) = attr.as_ref() {
                world.id(id.addr())?.qp_init_attr = Some(ibv_qp_init_attr { qp_type: kind, ..attr });
            }
        }
        return Ok(());
    }
    resolve_and_wait(id, source, destination.ok_or(Errno::INVALID)?)?;
    resolve_route_and_wait(id)?;
    if !attr.is_null() {
        // SAFETY: the attributes are readable and writable.
        unsafe {
            (*attr).qp_type = kind;
            qp::create_basic(id, pd, attr)?;
        }
    }
    if !info.ai_connect.is_null() {
        // SAFETY: `ai_connect_len` bytes are readable.
        world().id(id.addr())?.connect_data = unsafe { bytes(info.ai_connect, info.ai_connect_len) };
    }
    Ok(())
}

/// `rdma_destroy_ep(id)`.
///
/// # Safety
///
/// As in C: the identifier came from `rdma_create_ep` or `rdma_get_request`, and is no longer used.
pub(super) unsafe extern "C" fn destroy_ep(id: *mut rdma_cm_id) {
    // SAFETY: guaranteed by the caller.
    unsafe { end(id) };
}

/// Destroys an identifier with its QP and SRQ.
///
/// # Safety
///
/// The identifier is alive, and no longer used.
unsafe fn end(id: *mut rdma_cm_id) {
    if world().id(id.addr()).is_err() {
        return;
    }
    // SAFETY: guaranteed by the caller.
    unsafe {
        if !(*id).qp.is_null() {
            qp::destroy_qp(id);
        }
        if !(*id).srq.is_null() {
            srq::destroy_srq(id);
        }
    }
    // `destroy` cannot fail, because the identifier exists.
    let _ = id::destroy(id);
}

/// `rdma_get_request(listen, id)`.
///
/// # Safety
///
/// As in C: the listener is alive, and the identifier is writable.
pub(super) unsafe extern "C" fn get_request(listen: *mut rdma_cm_id, id: *mut *mut rdma_cm_id) -> c_int {
    let get = || {
        let (sync, channel) = world().id(listen.addr()).map(|id| (id.sync, id.channel))?;
        if !sync {
            return Err(Errno::INVALID);
        }
        let event = next(listen, channel)?;
        // SAFETY: the event was just taken, and both identifiers are alive.
        unsafe {
            match request(listen, event) {
                Ok(made) => {
                    (*made).event = event;
                    Ok(made)
                }
                Err(errno) => {
                    (*listen).event = event;
                    Err(errno)
                }
            }
        }
    };
    // SAFETY: guaranteed by the caller.
    return_code(get().map(|made| unsafe { id.write(made) }))
}

/// Returns the identifier of a request event, with its QP.
///
/// # Safety
///
/// The event was just taken, and the listener is alive.
unsafe fn request(listener: *mut rdma_cm_id, event: *mut rdma_cm_event) -> Result<*mut rdma_cm_id, Errno> {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if (*event).status != 0 {
            return Err(Errno((*event).status.saturating_abs()));
        }
        if (*event).event != event_type::RDMA_CM_EVENT_CONNECT_REQUEST {
            return Err(Errno::INVALID);
        }
        let id = (*event).id;
        let attr = world().id(listener.addr())?.qp_init_attr;
        if let Some(mut attr) = attr {
            // A listener on all addresses has no device before a request arrives, and therefore no domain.
            let pd = (*listener).pd;
            // The request may have arrived on another device than that of the listener.
            let is_same = !pd.is_null() && (*pd).context == (*id).verbs;
            qp::create_basic(id, if is_same { pd } else { ptr::null_mut() }, &raw mut attr)?;
        }
        Ok(id)
    }
}
