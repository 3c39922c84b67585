//! `rdma_create_qp` and `rdma_destroy_qp`: the QP of an identifier and its completion queues, which are created if
//! necessary.

use std::ffi::c_int;
use std::mem;
use std::ptr;

use rdma_mummy_sys::{
    ibv_cq, ibv_pd, ibv_qp, ibv_qp_init_attr, ibv_qp_init_attr_ex, ibv_qp_init_attr_mask as mask, ibv_qp_type,
    rdma_cm_id,
};

use super::calls::{made, return_code};
use super::transition::initialise;
use super::{device, world};
use crate::sys::errno::Errno;
use crate::verbs::completion_channel::{create_comp_channel, destroy_comp_channel};
use crate::verbs::completion_queue::{create_cq, destroy_cq};
use crate::verbs::queue_pair::{create_qp as create, create_qp_ex as create_extended, destroy_qp as end};

/// `rdma_create_qp(id, pd, qp_init_attr)`.
///
/// # Safety
///
/// As in C: the identifier is alive, the domain is null or alive, and the attributes are readable and writable.
pub(super) unsafe extern "C" fn create_qp(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    qp_init_attr: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    return_code(unsafe { create_basic(id, pd, qp_init_attr) })
}

/// Creates a QP from basic attributes.
///
/// # Safety
///
/// As for `create_qp`.
pub(super) unsafe fn create_basic(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> Result<(), Errno> {
    // SAFETY: guaranteed by the caller. The basic attributes are the first part of the extended ones; zero is valid for
    // the other fields.
    unsafe {
        let mut extended: ibv_qp_init_attr_ex = mem::zeroed();
        (&raw mut extended).cast::<ibv_qp_init_attr>().write(attr.read());
        extended.comp_mask = mask::IBV_QP_INIT_ATTR_PD.0;
        extended.pd = if pd.is_null() { (*id).pd } else { pd };
        let result = create_any(id, &mut extended);
        attr.write((&raw const extended).cast::<ibv_qp_init_attr>().read());
        result
    }
}

/// `rdma_create_qp_ex(id, qp_init_attr)`.
///
/// # Safety
///
/// As in C: the identifier is alive, and the attributes are readable and writable.
pub(super) unsafe extern "C" fn create_qp_ex(id: *mut rdma_cm_id, qp_init_attr: *mut ibv_qp_init_attr_ex) -> c_int {
    // SAFETY: guaranteed by the caller.
    return_code(unsafe { create_any(id, &mut *qp_init_attr) })
}

/// Creates a QP.
///
/// # Safety
///
/// The identifier is alive, and so are the objects of the attributes.
unsafe fn create_any(id: *mut rdma_cm_id, attr: &mut ibv_qp_init_attr_ex) -> Result<(), Errno> {
    let has = |attr: &ibv_qp_init_attr_ex, what: mask| attr.comp_mask & what.0 != 0;
    world().id(id.addr())?;
    // SAFETY: guaranteed by the caller for all objects.
    unsafe {
        if !(*id).qp.is_null() || (*id).verbs.is_null() {
            return Err(Errno::INVALID);
        }
        device::present((*id).verbs)?;
        if !has(attr, mask::IBV_QP_INIT_ATTR_PD) || attr.pd.is_null() {
            attr.comp_mask |= mask::IBV_QP_INIT_ATTR_PD.0;
            attr.pd = (*id).pd;
        } else if (*id).verbs != (*attr.pd).context {
            return Err(Errno::INVALID);
        }
        let other = |own: *mut ibv_cq, asked: *mut ibv_cq| !own.is_null() && !asked.is_null() && own != asked;
        if other((*id).recv_cq, attr.recv_cq) || other((*id).send_cq, attr.send_cq) {
            return Err(Errno::INVALID);
        }
        let receives = (*id).qp_type == ibv_qp_type::IBV_QPT_XRC_RECV;
        if receives && (!has(attr, mask::IBV_QP_INIT_ATTR_XRCD) || attr.xrcd.is_null()) {
            attr.xrcd = device::xrc_domain((*id).verbs)?;
            attr.comp_mask |= mask::IBV_QP_INIT_ATTR_XRCD.0;
        }
        let sends = if attr.send_cq.is_null() && (*id).send_cq.is_null() { attr.cap.max_send_wr } else { 0 };
        let receives = if attr.recv_cq.is_null() && (*id).recv_cq.is_null() { attr.cap.max_recv_wr } else { 0 };
        create_cqs(id, sends, receives)?;
        if attr.send_cq.is_null() {
            attr.send_cq = (*id).send_cq;
        }
        if attr.recv_cq.is_null() {
            attr.recv_cq = (*id).recv_cq;
        }
        if attr.srq.is_null() {
            attr.srq = (*id).srq;
        }
        let qp = make(id, attr).inspect_err(|_| destroy_cqs(id))?;
        (*id).qp = qp;
        // An XRC queue pair that receives has no domain. The identifier keeps its own one, for `rdma_create_srq`.
        if !(*qp).pd.is_null() {
            (*id).pd = (*qp).pd;
        }
    }
    Ok(())
}

/// Creates the QP itself, and initializes it.
///
/// # Safety
///
/// As for `create_any`.
unsafe fn make(id: *mut rdma_cm_id, attr: &mut ibv_qp_init_attr_ex) -> Result<*mut ibv_qp, Errno> {
    // SAFETY: guaranteed by the caller. A QP that is destroyed on failure was not shared.
    unsafe {
        let qp = made(if attr.comp_mask == mask::IBV_QP_INIT_ATTR_PD.0 {
            create(attr.pd, ptr::from_mut(attr).cast())
        } else {
            create_extended((*id).verbs, attr)
        })?;
        if let Err(errno) = initialise(id, qp) {
            end(qp);
            return Err(errno);
        }
        Ok(qp)
    }
}

/// Creates completion queues and their channels. `sends` and `receives` are the numbers of entries, and no queue is
/// created for zero entries.
///
/// # Safety
///
/// The identifier is alive, and bound to a device.
pub(super) unsafe fn create_cqs(id: *mut rdma_cm_id, sends: u32, receives: u32) -> Result<(), Errno> {
    let entries = |count: u32| c_int::try_from(count).map_err(|_| Errno::INVALID);
    let make = || -> Result<(), Errno> {
        // SAFETY: guaranteed by the caller.
        unsafe {
            if receives > 0 {
                (*id).recv_cq_channel = made(create_comp_channel((*id).verbs))?;
                let channel = (*id).recv_cq_channel;
                (*id).recv_cq = made(create_cq((*id).verbs, entries(receives)?, id.cast(), channel, 0))?;
            }
            if sends > 0 {
                (*id).send_cq_channel = made(create_comp_channel((*id).verbs))?;
                let channel = (*id).send_cq_channel;
                (*id).send_cq = made(create_cq((*id).verbs, entries(sends)?, id.cast(), channel, 0))?;
            }
        }
        Ok(())
    };
    // SAFETY: guaranteed by the caller.
    make().inspect_err(|_| unsafe { destroy_cqs(id) })
}

/// Destroys the completion queues of the identifier and their channels. The program may have stored one queue in both
/// fields, as rdma-core's rsockets do.
///
/// # Safety
///
/// The identifier is alive, and nothing uses its completion queues.
pub(super) unsafe fn destroy_cqs(id: *mut rdma_cm_id) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if (*id).qp_type == ibv_qp_type::IBV_QPT_XRC_RECV && !(*id).srq.is_null() {
            return;
        }
        for cq in taken(&raw mut (*id).recv_cq, &raw mut (*id).send_cq) {
            destroy_cq(cq);
        }
        for channel in taken(&raw mut (*id).recv_cq_channel, &raw mut (*id).send_cq_channel) {
            destroy_comp_channel(channel);
        }
    }
}

/// Clears two fields, and returns the objects that were in them.
///
/// # Safety
///
/// The fields are readable and writable.
unsafe fn taken<T>(first: *mut *mut T, second: *mut *mut T) -> impl Iterator<Item = *mut T> {
    // SAFETY: guaranteed by the caller.
    let (first, second) = unsafe { (first.replace(ptr::null_mut()), second.replace(ptr::null_mut())) };
    let second = if second == first { ptr::null_mut() } else { second };
    [first, second].into_iter().filter(|object| !object.is_null())
}

/// `rdma_destroy_qp(id)`.
///
/// # Safety
///
/// As in C: the identifier is alive, and its QP is not used.
pub(super) unsafe extern "C" fn destroy_qp(id: *mut rdma_cm_id) {
    if world().id(id.addr()).is_err() {
        return;
    }
    // SAFETY: guaranteed by the caller.
    unsafe {
        let qp = mem::replace(&mut (*id).qp, ptr::null_mut());
        if !qp.is_null() {
            end(qp);
        }
        destroy_cqs(id);
    }
}
