//! libefa, for devices of the system: scalable reliable datagrams.
//!
//! `without` accepts `efa` (the device is another vendor's), `rdma_read`, `rdma_write`, `rnr_retry` and `wc_read_sgid`.

use std::collections::BTreeMap;
use std::ptr;
use std::sync::{Mutex, Once, PoisonError};

use libc::c_int;
use rdma_mummy_sys as ffi;
use rdma_mummy_sys::efadv::{efadv_ah_attr, efadv_cq, efadv_cq_init_attr, efadv_device_attr, efadv_qp_init_attr};
use rdma_mummy_sys::load::efa::{Efa, EfaTable};

use super::device::state_of;
use super::extended_cq;
use super::extended_qp::set_functions;
use super::failure::set_errno;
use super::objects::forever;
use super::qp::{arguments, set_up};
use super::vendor;

/// EFA's own part of a queue.
static PARTS: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

/// Makes this the system's libefa.
///
/// # Panics
///
/// If another libefa has been loaded.
pub fn install_efa() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let table = EfaTable {
            efadv_query_device: Some(query_device),
            efadv_query_ah: Some(query_ah),
            efadv_create_qp_ex: Some(create_qp_ex),
            efadv_create_cq: Some(create_cq),
            efadv_cq_from_ibv_cq_ex: Some(cq_from_ibv_cq_ex),
            ..Default::default()
        };
        // SAFETY: the functions do what the manual pages of their names document.
        let installed = unsafe { Efa::from_table(table) }.install();
        assert!(installed.is_ok(), "another libefa is loaded");
    });
}

unsafe extern "C" fn query_device(context: *mut ffi::ibv_context, attr: *mut efadv_device_attr, inlen: u32) -> c_int {
    // SAFETY: the context is one of this provider's, and the attributes can be written.
    unsafe {
        let (mut inner, failure) = state_of(context).enter("efadv_query_device", &[("inlen", inlen.into())]);
        if let Some(failure) = failure {
            return failure.code();
        }
        let has = |name: &str| !inner.script.without.contains(name);
        if !has("efa") {
            return libc::EOPNOTSUPP;
        }
        (*attr).max_sq_wr = 256;
        (*attr).max_rq_wr = 512;
        (*attr).max_sq_sge = 2;
        (*attr).max_rq_sge = 3;
        (*attr).inline_buf_size = 32;
        (*attr).max_rdma_size = 1 << 30;
        (*attr).device_caps = u32::from(has("rdma_read"))
            | u32::from(has("rdma_write")) << 3
            | 1 << 20
            | u32::from(has("rnr_retry")) << 1;
        inner.output("efadv_query_device", attr);
    }
    0
}

unsafe extern "C" fn query_ah(ah: *mut ffi::ibv_ah, attr: *mut efadv_ah_attr, inlen: u32) -> c_int {
    // SAFETY: the handle is one of this provider's, and the attributes can be written.
    unsafe {
        let (mut inner, failure) = state_of((*ah).context).enter("efadv_query_ah", &[("inlen", inlen.into())]);
        if let Some(failure) = failure {
            return failure.code();
        }
        (*attr).ahn = 0x8000 | (*ah).handle as u16;
        inner.output("efadv_query_ah", attr);
    }
    0
}

unsafe extern "C" fn create_qp_ex(
    context: *mut ffi::ibv_context,
    attr: *mut ffi::ibv_qp_init_attr_ex,
    efa: *mut efadv_qp_init_attr,
    inlen: u32,
) -> *mut ffi::ibv_qp {
    // SAFETY: the context is one of this provider's, both attributes can be read, and the queue pair is new. The plain
    // attributes are the first part of the extended ones.
    unsafe {
        let (attr, efa) = (&*attr, &*efa);
        let mut all = arguments(&attr.cap, attr.qp_type).to_vec();
        all.extend([
            ("comp_mask", attr.comp_mask.into()),
            ("send_ops_flags", attr.send_ops_flags),
            ("driver_qp_type", efa.driver_qp_type.into()),
            ("efa_comp_mask", efa.comp_mask),
            ("inlen", inlen.into()),
        ]);
        let (mut inner, failure) = state_of(context).enter("efadv_create_qp_ex", &all);
        if let Some(failure) = failure {
            return failure.null();
        }
        let qp = forever::<ffi::ibv_qp_ex>();
        set_up(&mut inner, qp.cast(), attr.pd, &*ptr::from_ref(attr).cast());
        set_functions(&inner, qp, attr.send_ops_flags);
        (*qp).wr_set_ud_addr = Some(wr_set_ud_addr);
        qp.cast()
    }
}

unsafe extern "C" fn wr_set_ud_addr(qp: *mut ffi::ibv_qp_ex, ah: *mut ffi::ibv_ah, remote_qpn: u32, remote_qkey: u32) {
    let arguments = [("ah", ah.addr() as u64), ("qpn", remote_qpn.into()), ("qkey", remote_qkey.into())];
    // SAFETY: only queue pairs of this library have this function; the handle is alive.
    unsafe { vendor::address(qp.cast(), ah, "wr_set_ud_addr", &arguments) }
}

unsafe extern "C" fn create_cq(
    context: *mut ffi::ibv_context,
    attr: *mut ffi::ibv_cq_init_attr_ex,
    efa: *mut efadv_cq_init_attr,
    inlen: u32,
) -> *mut ffi::ibv_cq_ex {
    // SAFETY: the context is one of this provider's, both attributes can be read, and the part is new.
    unsafe {
        let all = [
            ("wc_flags", (*attr).wc_flags),
            ("efa_wc_flags", (*efa).wc_flags),
            ("efa_comp_mask", (*efa).comp_mask),
            ("inlen", inlen.into()),
        ];
        let (mut inner, failure) = state_of(context).enter("efadv_create_cq", &all);
        if let Some(failure) = failure {
            return failure.null();
        }
        if inner.script.without.contains("efa") {
            inner.failed(libc::EOPNOTSUPP);
            set_errno(libc::EOPNOTSUPP);
            return ptr::null_mut();
        }
        let has_sgid = !inner.script.without.contains("wc_read_sgid");
        drop(inner);
        let cq = extended_cq::create_cq_ex(context, attr);
        if !cq.is_null() {
            let part = forever::<efadv_cq>();
            (*part).wc_read_sgid = has_sgid.then_some(wc_read_sgid);
            let mut parts = PARTS.lock().unwrap_or_else(PoisonError::into_inner);
            parts.insert(cq.addr(), part.expose_provenance());
            parts.insert(part.addr(), cq.expose_provenance());
        }
        cq
    }
}

unsafe extern "C" fn cq_from_ibv_cq_ex(cq: *mut ffi::ibv_cq_ex) -> *mut efadv_cq {
    counterpart(cq)
}

/// Maps between a queue and its part; null if there is none.
fn counterpart<T, U>(object: *mut T) -> *mut U {
    let parts = PARTS.lock().unwrap_or_else(PoisonError::into_inner);
    parts.get(&object.addr()).map_or(ptr::null_mut(), |&other| ptr::with_exposed_provenance_mut(other))
}

/// The GID ends with the request's number. A request with an odd number has no GID.
unsafe extern "C" fn wc_read_sgid(part: *mut efadv_cq, gid: *mut ffi::ibv_gid) -> c_int {
    let cq: *mut ffi::ibv_cq_ex = counterpart(part);
    // SAFETY: objects are never freed, and the GID can be written.
    unsafe {
        let wr_id = (*cq).wr_id;
        let mut inner = state_of((*cq).context).note("wc_read_sgid", &[("wr_id", wr_id)]);
        if wr_id % 2 == 1 {
            return -libc::ENOENT;
        }
        (*gid).raw = [0xfe; 16];
        (*gid).raw[15] = wr_id as u8;
        inner.output("efadv_wc_read_sgid", gid);
    }
    0
}
