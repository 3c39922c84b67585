//! Queue pairs and shared receive queues of an identifier, with the completion queues that it makes for them.

use std::mem::{self, MaybeUninit};
use std::{io, ptr};

use libc::c_int;
use rdma_mummy_sys as ffi;
use rdma_mummy_sys::{ibv_qp_attr_mask as mask, ibv_qp_init_attr_mask as wanted, ibv_qp_state as state};

use super::attributes::{all, extend, modify, transition};
use super::calls::{Access, On, answer, device_of, on_id};
use super::events::is_datagram;
use crate::recording::control::query_ece;
use crate::recording::{completion, extended_qp, objects, qp, srq, xrc};

/// What the call that has just given null failed with.
fn last() -> c_int {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

fn made<T>(object: *mut T) -> Result<*mut T, c_int> {
    if object.is_null() { Err(last()) } else { Ok(object) }
}

pub(super) unsafe extern "C" fn create_qp(
    id: *mut ffi::rdma_cm_id,
    pd: *mut ffi::ibv_pd,
    attr: *mut ffi::ibv_qp_init_attr,
) -> c_int {
    // SAFETY: the attributes can be read by contract.
    let arguments = unsafe { qp::arguments(&(*attr).cap, (*attr).qp_type) };
    answer(on_id("rdma_create_qp", id, Access::Writes, &arguments, |on| {
        // SAFETY: the attributes can be read and written by contract.
        unsafe { create(on, pd, attr) }
    }))
}

/// # Safety
///
/// The attributes can be read and written.
pub(super) unsafe fn create(on: On, pd: *mut ffi::ibv_pd, attr: *mut ffi::ibv_qp_init_attr) -> Result<(), c_int> {
    // SAFETY: the plain attributes are the first part of the extended ones, whose rest zero is a value of.
    unsafe {
        let mut extended: ffi::ibv_qp_init_attr_ex = mem::zeroed();
        (&raw mut extended).cast::<ffi::ibv_qp_init_attr>().write(*attr);
        extended.comp_mask = wanted::IBV_QP_INIT_ATTR_PD.0;
        extended.pd = if pd.is_null() { (*on.id).pd } else { pd };
        let result = create_ex(on, &mut extended);
        *attr = (&raw const extended).cast::<ffi::ibv_qp_init_attr>().read();
        result
    }
}

pub(super) unsafe extern "C" fn create_qp_ex(id: *mut ffi::rdma_cm_id, attr: *mut ffi::ibv_qp_init_attr_ex) -> c_int {
    // SAFETY: the attributes can be read and written by contract.
    let attr = unsafe { &mut *attr };
    let [a, b, c, d, e, f] = qp::arguments(&attr.cap, attr.qp_type);
    let arguments = [a, b, c, d, e, f, ("comp_mask", attr.comp_mask.into())];
    answer(on_id("rdma_create_qp_ex", id, Access::Writes, &arguments, |on| create_ex(on, attr)))
}

fn create_ex(on: On, attr: &mut ffi::ibv_qp_init_attr_ex) -> Result<(), c_int> {
    let id = on.id;
    let has = |attr: &ffi::ibv_qp_init_attr_ex, what: wanted| attr.comp_mask & what.0 != 0;
    // SAFETY: the identifier is alive, and so are what stands in it and, by contract, the objects in the attributes.
    unsafe {
        if !(*id).qp.is_null() {
            return Err(libc::EINVAL);
        }
        if !has(attr, wanted::IBV_QP_INIT_ATTR_PD) || attr.pd.is_null() {
            attr.comp_mask |= wanted::IBV_QP_INIT_ATTR_PD.0;
            attr.pd = (*id).pd;
        } else if (*id).verbs != (*attr.pd).context {
            return Err(libc::EINVAL);
        }
        if (*id).verbs.is_null() {
            return on.crash("a queue pair was made on an identifier without a device");
        }
        let other = |own: *mut ffi::ibv_cq, asked: *mut ffi::ibv_cq| !own.is_null() && !asked.is_null() && own != asked;
        if other((*id).recv_cq, attr.recv_cq) || other((*id).send_cq, attr.send_cq) {
            return Err(libc::EINVAL);
        }
        let receives = (*id).qp_type == ffi::ibv_qp_type::IBV_QPT_XRC_RECV;
        if receives && (!has(attr, wanted::IBV_QP_INIT_ATTR_XRCD) || attr.xrcd.is_null()) {
            attr.xrcd = xrc_domain(on)?;
            attr.comp_mask |= wanted::IBV_QP_INIT_ATTR_XRCD.0;
        }
        let sends = if attr.send_cq.is_null() && (*id).send_cq.is_null() { attr.cap.max_send_wr } else { 0 };
        let receives = if attr.recv_cq.is_null() && (*id).recv_cq.is_null() { attr.cap.max_recv_wr } else { 0 };
        create_cqs(on, sends, receives)?;
        if attr.send_cq.is_null() {
            attr.send_cq = (*id).send_cq;
        }
        if attr.recv_cq.is_null() {
            attr.recv_cq = (*id).recv_cq;
        }
        if !(*id).srq.is_null() && attr.srq.is_null() {
            attr.srq = (*id).srq;
        }
        let qp = make(on, attr).inspect_err(|_| destroy_cqs(on))?;
        (*id).pd = (*qp).pd;
        (*id).qp = qp;
        on.with(|id| id.qp = qp.addr())
    }
}

/// Makes the queue pair itself.
///
/// # Safety
///
/// The identifier has a device, and the objects in the attributes are alive.
unsafe fn make(on: On, attr: &mut ffi::ibv_qp_init_attr_ex) -> Result<*mut ffi::ibv_qp, c_int> {
    // SAFETY: the caller's promise. A queue pair that goes is nobody else's.
    unsafe {
        let qp = made(if attr.comp_mask == wanted::IBV_QP_INIT_ATTR_PD.0 {
            qp::create_qp(attr.pd, ptr::from_mut(attr).cast())
        } else {
            extended_qp::create_qp_ex((*on.id).verbs, attr)
        })?;
        if let Err(errno) = initialise(on, qp) {
            qp::destroy_qp(qp);
            return Err(errno);
        }
        Ok(qp)
    }
}

/// Takes a new queue pair as far as it goes without a peer.
fn initialise(on: On, qp: *mut ffi::ibv_qp) -> Result<(), c_int> {
    let mut ece = ffi::ibv_ece { vendor_id: 0, options: 0, comp_mask: 0 };
    // SAFETY: the queue pair is alive.
    if unsafe { query_ece(qp, &mut ece) } == 0 {
        on.with(|id| id.local_ece = ece)?;
        extend(on, qp)?;
    }
    transition(on, qp, state::IBV_QPS_INIT, |_| {})?;
    if !is_datagram(on.id) {
        return Ok(());
    }
    // SAFETY: a struct of integers.
    let mut attr: ffi::ibv_qp_attr = unsafe { mem::zeroed() };
    attr.qp_state = state::IBV_QPS_RTR;
    modify(qp, &mut attr, mask::IBV_QP_STATE.0)?;
    attr.qp_state = state::IBV_QPS_RTS;
    modify(qp, &mut attr, all(&[mask::IBV_QP_STATE, mask::IBV_QP_SQ_PSN]))
}

fn xrc_domain(on: On) -> Result<*mut ffi::ibv_xrcd, c_int> {
    let xrcd = on.lock().manager.shared.xrcd;
    if !xrcd.is_null() {
        return Ok(xrcd);
    }
    // SAFETY: a struct of integers; the context is alive, as the caller has seen.
    let xrcd = unsafe {
        let mut attr: ffi::ibv_xrcd_init_attr = mem::zeroed();
        attr.comp_mask = 3;
        attr.fd = -1;
        attr.oflags = libc::O_CREAT;
        made(xrc::open_xrcd((*on.id).verbs, &mut attr))?
    };
    let mut inner = on.lock();
    inner.hide(xrcd.addr());
    inner.manager.shared.xrcd = xrcd;
    Ok(xrcd)
}

/// Makes a completion queue with a channel for each side that has entries.
fn create_cqs(on: On, sends: u32, receives: u32) -> Result<(), c_int> {
    let make = |entries: u32| -> Result<_, c_int> {
        // SAFETY: the identifier and its context are alive.
        unsafe {
            let channel = made(objects::create_comp_channel((*on.id).verbs))?;
            let context = on.id.cast();
            let cq = completion::create_cq((*on.id).verbs, entries as c_int, context, channel, 0);
            Ok((channel, made(cq)))
        }
    };
    let each = || -> Result<(), c_int> {
        let id = on.id;
        // SAFETY: the identifier is alive.
        unsafe {
            if receives > 0 {
                let (channel, cq) = make(receives)?;
                (*id).recv_cq_channel = channel;
                (*id).recv_cq = cq?;
            }
            if sends > 0 {
                let (channel, cq) = make(sends)?;
                (*id).send_cq_channel = channel;
                (*id).send_cq = cq?;
            }
        }
        Ok(())
    };
    each().inspect_err(|_| destroy_cqs(on))
}

/// As in C: what of the receiving side is not there keeps that of the sending side, which is then lost.
fn destroy_cqs(on: On) {
    // SAFETY: the identifier is alive, and what stands in it.
    unsafe {
        let id = on.id;
        if (*id).qp_type == ffi::ibv_qp_type::IBV_QPT_XRC_RECV && !(*id).srq.is_null() {
            return;
        }
        if !(*id).recv_cq.is_null() {
            objects::destroy_cq((*id).recv_cq);
            if !(*id).send_cq.is_null() && (*id).send_cq != (*id).recv_cq {
                objects::destroy_cq((*id).send_cq);
                (*id).send_cq = ptr::null_mut();
            }
            (*id).recv_cq = ptr::null_mut();
        }
        if !(*id).recv_cq_channel.is_null() {
            objects::destroy_comp_channel((*id).recv_cq_channel);
            if !(*id).send_cq_channel.is_null() && (*id).send_cq_channel != (*id).recv_cq_channel {
                objects::destroy_comp_channel((*id).send_cq_channel);
                (*id).send_cq_channel = ptr::null_mut();
            }
            (*id).recv_cq_channel = ptr::null_mut();
        }
    }
}

pub(super) unsafe extern "C" fn destroy_qp(id: *mut ffi::rdma_cm_id) {
    let Some(device) = device_of(id) else { return };
    // Nothing comes back, so that nothing fails.
    drop(device.state.note("rdma_destroy_qp", &[("id", id.addr() as u64)]));
    end_qp(On { device, id });
}

pub(super) fn end_qp(on: On) {
    let mut inner = on.lock();
    if super::calls::begin(&mut inner, on.id.addr(), "rdma_destroy_qp", Access::Writes).is_err() {
        return;
    }
    // SAFETY: the identifier is alive.
    let qp = unsafe { mem::replace(&mut (*on.id).qp, ptr::null_mut()) };
    if let Ok(id) = inner.manager.id(on.id.addr()) {
        id.qp = 0;
    }
    if qp.is_null() {
        inner.violation("rdma_destroy_qp on an identifier without a queue pair");
    }
    drop(inner);
    // SAFETY: the queue pair is null or the identifier's.
    if !qp.is_null() && unsafe { qp::destroy_qp(qp) } != 0 {
        on.lock().violation("rdma_destroy_qp has lost a queue pair that could not be destroyed");
    }
    destroy_cqs(on);
    super::calls::end(&mut on.lock(), on.id.addr(), Access::Writes);
}

pub(super) unsafe extern "C" fn create_srq(
    id: *mut ffi::rdma_cm_id,
    pd: *mut ffi::ibv_pd,
    attr: *mut ffi::ibv_srq_init_attr,
) -> c_int {
    // SAFETY: the attributes can be read by contract.
    let arguments = [("max_wr", unsafe { (*attr).attr.max_wr }.into())];
    answer(on_id("rdma_create_srq", id, Access::Writes, &arguments, |on| {
        // SAFETY: the plain attributes are the first part of the extended ones, of whose rest zero is a value.
        unsafe {
            let mut extended: ffi::ibv_srq_init_attr_ex = MaybeUninit::zeroed().assume_init();
            extended.srq_context = (*attr).srq_context;
            extended.attr = (*attr).attr;
            extended.comp_mask = 1 | 2;
            let receives = (*on.id).qp_type == ffi::ibv_qp_type::IBV_QPT_XRC_RECV;
            let kind = if receives { ffi::ibv_srq_type::IBV_SRQT_XRC } else { ffi::ibv_srq_type::IBV_SRQT_BASIC };
            (extended.srq_type, extended.pd) = (kind, pd);
            let result = create_shared(on, &mut extended);
            (*attr).attr = extended.attr;
            result
        }
    }))
}

pub(super) unsafe extern "C" fn create_srq_ex(id: *mut ffi::rdma_cm_id, attr: *mut ffi::ibv_srq_init_attr_ex) -> c_int {
    // SAFETY: the attributes can be read and written by contract.
    let attr = unsafe { &mut *attr };
    let arguments = [("max_wr", attr.attr.max_wr.into()), ("comp_mask", attr.comp_mask.into())];
    answer(on_id("rdma_create_srq_ex", id, Access::Writes, &arguments, |on| create_shared(on, attr)))
}

fn create_shared(on: On, attr: &mut ffi::ibv_srq_init_attr_ex) -> Result<(), c_int> {
    use ffi::ibv_srq_init_attr_mask as part;
    let id = on.id;
    let has = |attr: &ffi::ibv_srq_init_attr_ex, what: part| attr.comp_mask & what.0 != 0;
    if !has(attr, part::IBV_SRQ_INIT_ATTR_TYPE) {
        return Err(libc::EINVAL);
    }
    // SAFETY: the identifier is alive, and so are by contract the objects in the attributes.
    unsafe {
        if !has(attr, part::IBV_SRQ_INIT_ATTR_PD) || attr.pd.is_null() {
            attr.pd = (*id).pd;
            attr.comp_mask |= part::IBV_SRQ_INIT_ATTR_PD.0;
        }
        if (*id).verbs.is_null() {
            return on.crash("a shared receive queue was made on an identifier without a device");
        }
        if attr.srq_type == ffi::ibv_srq_type::IBV_SRQT_XRC {
            if !has(attr, part::IBV_SRQ_INIT_ATTR_XRCD) || attr.xrcd.is_null() {
                attr.xrcd = xrc_domain(on)?;
            }
            if !has(attr, part::IBV_SRQ_INIT_ATTR_CQ) || attr.cq.is_null() {
                create_cqs(on, 0, attr.attr.max_wr)?;
                attr.cq = (*id).recv_cq;
            }
            attr.comp_mask |= part::IBV_SRQ_INIT_ATTR_XRCD.0 | part::IBV_SRQ_INIT_ATTR_CQ.0;
        }
        (*id).srq = made(srq::create_srq_ex((*id).verbs, attr)).inspect_err(|_| destroy_cqs(on))?;
    }
    Ok(())
}

pub(super) unsafe extern "C" fn destroy_srq(id: *mut ffi::rdma_cm_id) {
    let Some(device) = device_of(id) else { return };
    drop(device.state.note("rdma_destroy_srq", &[("id", id.addr() as u64)]));
    end_srq(On { device, id });
}

pub(super) fn end_srq(on: On) {
    if super::calls::begin(&mut on.lock(), on.id.addr(), "rdma_destroy_srq", Access::Writes).is_err() {
        return;
    }
    // SAFETY: the identifier is alive, and what stands in it.
    unsafe {
        let srq = mem::replace(&mut (*on.id).srq, ptr::null_mut());
        if srq.is_null() {
            on.lock().violation("rdma_destroy_srq on an identifier without a shared receive queue");
        } else if srq::destroy_srq(srq) != 0 {
            on.lock().violation("rdma_destroy_srq has lost a queue that could not be destroyed");
        }
    }
    destroy_cqs(on);
    super::calls::end(&mut on.lock(), on.id.addr(), Access::Writes);
}
