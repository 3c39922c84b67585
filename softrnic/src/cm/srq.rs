//! `rdma_create_srq` and `rdma_destroy_srq`: the shared receive queue of an identifier.

use std::ffi::c_int;
use std::mem;
use std::ptr;

use rdma_mummy_sys::{
    ibv_pd, ibv_qp_type, ibv_srq_init_attr, ibv_srq_init_attr_ex, ibv_srq_init_attr_mask as part, ibv_srq_type,
    rdma_cm_id,
};

use super::calls::{made, return_code};
use super::qp::{create_cqs, destroy_cqs};
use super::{device, world};
use crate::sys::errno::Errno;
use crate::verbs::shared_receive_queue as queue;

/// `rdma_create_srq(id, pd, attr)`.
///
/// # Safety
///
/// As in C: the identifier is alive, the domain is null or alive, and the attributes are readable and writable.
pub(super) unsafe extern "C" fn create_srq(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_srq_init_attr,
) -> c_int {
    // SAFETY: guaranteed by the caller; for the extended attributes, zero is valid.
    unsafe {
        let mut extended: ibv_srq_init_attr_ex = mem::zeroed();
        (extended.srq_context, extended.attr) = ((*attr).srq_context, (*attr).attr);
        extended.comp_mask = part::IBV_SRQ_INIT_ATTR_TYPE.0 | part::IBV_SRQ_INIT_ATTR_PD.0;
        let receives = (*id).qp_type == ibv_qp_type::IBV_QPT_XRC_RECV;
        extended.srq_type = if receives { ibv_srq_type::IBV_SRQT_XRC } else { ibv_srq_type::IBV_SRQT_BASIC };
        extended.pd = pd;
        let result = create(id, &mut extended);
        (*attr).attr = extended.attr;
        return_code(result)
    }
}

/// `rdma_create_srq_ex(id, attr)`.
///
/// # Safety
///
/// As in C: the identifier is alive, and the attributes are readable and writable.
pub(super) unsafe extern "C" fn create_srq_ex(id: *mut rdma_cm_id, attr: *mut ibv_srq_init_attr_ex) -> c_int {
    // SAFETY: guaranteed by the caller.
    return_code(unsafe { create(id, &mut *attr) })
}

/// Creates a queue.
///
/// # Safety
///
/// The identifier is alive, and so are the objects of the attributes.
unsafe fn create(id: *mut rdma_cm_id, attr: &mut ibv_srq_init_attr_ex) -> Result<(), Errno> {
    let has = |attr: &ibv_srq_init_attr_ex, what: part| attr.comp_mask & what.0 != 0;
    world().id(id.addr())?;
    // SAFETY: guaranteed by the caller for all objects.
    unsafe {
        if !has(attr, part::IBV_SRQ_INIT_ATTR_TYPE) || (*id).verbs.is_null() || !(*id).srq.is_null() {
            return Err(Errno::INVALID);
        }
        if !has(attr, part::IBV_SRQ_INIT_ATTR_PD) || attr.pd.is_null() {
            attr.pd = (*id).pd;
            attr.comp_mask |= part::IBV_SRQ_INIT_ATTR_PD.0;
        }
        if attr.srq_type == ibv_srq_type::IBV_SRQT_XRC {
            if !has(attr, part::IBV_SRQ_INIT_ATTR_XRCD) || attr.xrcd.is_null() {
                attr.xrcd = device::xrc_domain((*id).verbs)?;
            }
            if !has(attr, part::IBV_SRQ_INIT_ATTR_CQ) || attr.cq.is_null() {
                create_cqs(id, 0, attr.attr.max_wr)?;
                attr.cq = (*id).recv_cq;
            }
            attr.comp_mask |= part::IBV_SRQ_INIT_ATTR_XRCD.0 | part::IBV_SRQ_INIT_ATTR_CQ.0;
        }
        (*id).srq = made(queue::create_srq_ex((*id).verbs, attr)).inspect_err(|_| destroy_cqs(id))?;
    }
    Ok(())
}

/// `rdma_destroy_srq(id)`.
///
/// # Safety
///
/// As in C: the identifier is alive, and its queue is not used.
pub(super) unsafe extern "C" fn destroy_srq(id: *mut rdma_cm_id) {
    if world().id(id.addr()).is_err() {
        return;
    }
    // SAFETY: guaranteed by the caller.
    unsafe {
        let srq = mem::replace(&mut (*id).srq, ptr::null_mut());
        if !srq.is_null() {
            queue::destroy_srq(srq);
        }
        if (*id).qp.is_null() {
            destroy_cqs(id);
        }
    }
}
