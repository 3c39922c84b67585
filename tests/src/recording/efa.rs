//! libefa, for devices of the system: scalable reliable datagrams.
//!
//! `without` accepts `efa` (the device is another vendor's), `rdma_read`, `rdma_write`, `rnr_retry` and `wc_read_sgid`.

use std::sync::Once;

use libc::c_int;
use rdma_mummy_sys as ffi;
use rdma_mummy_sys::efadv::{efadv_ah_attr, efadv_cq, efadv_cq_init_attr, efadv_device_attr, efadv_qp_init_attr};
use rdma_mummy_sys::load::efa::{Efa, EfaTable};

use super::device::state_of;
use super::extended_cq::create_cq_ex;
use super::extended_qp::set_functions;
use super::qp::{arguments, set_up};
use super::stub::{arguments, forever, stubs};
use super::vendor::{address, counterpart, join};

/// Makes this the system's libefa.
///
/// # Panics
///
/// If another libefa has been loaded.
pub fn install_efa() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let table = EfaTable {
            efadv_query_device: Some(efadv_query_device),
            efadv_query_ah: Some(efadv_query_ah),
            efadv_create_qp_ex: Some(efadv_create_qp_ex),
            efadv_create_cq: Some(efadv_create_cq),
            efadv_cq_from_ibv_cq_ex: Some(cq_from_ibv_cq_ex),
            ..Default::default()
        };
        // SAFETY: the functions do what the manual pages of their names document.
        let installed = unsafe { Efa::from_table(table) }.install();
        assert!(installed.is_ok(), "another libefa is loaded");
    });
}

stubs! {
    fn efadv_query_device(context: *mut ffi::ibv_context, attr: *mut efadv_device_attr, inlen: u32) -> c_int
        [inlen] |inner|
    {
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
        0
    }

    fn efadv_query_ah(ah: *mut ffi::ibv_ah, attr: *mut efadv_ah_attr, inlen: u32) -> c_int [inlen] |inner| {
        (*attr).ahn = 0x8000 | (*ah).handle as u16;
        inner.output("efadv_query_ah", attr);
        0
    }

    /// The plain attributes are the first part of the extended ones.
    fn efadv_create_qp_ex(
        context: *mut ffi::ibv_context,
        attr: *mut ffi::ibv_qp_init_attr_ex,
        efa: *mut efadv_qp_init_attr,
        inlen: u32,
    ) -> *mut ffi::ibv_qp
        [
            inlen; @attr: comp_mask, send_ops_flags; @efa: driver_qp_type; efa_comp_mask = (*efa).comp_mask;
            ..arguments(&(*attr).cap, (*attr).qp_type)
        ] |inner|
    {
        let qp = forever::<ffi::ibv_qp_ex>();
        set_up(&mut inner, qp.cast(), (*attr).pd, &*attr.cast());
        set_functions(&inner, qp, (*attr).send_ops_flags);
        (*qp).wr_set_ud_addr = Some(wr_set_ud_addr);
        qp.cast()
    }

    fn efadv_create_cq(
        context: *mut ffi::ibv_context,
        attr: *mut ffi::ibv_cq_init_attr_ex,
        efa: *mut efadv_cq_init_attr,
        inlen: u32,
    ) -> *mut ffi::ibv_cq_ex
        [inlen; @attr: wc_flags; efa_wc_flags = (*efa).wc_flags, efa_comp_mask = (*efa).comp_mask] |inner|
    {
        if inner.script.without.contains("efa") {
            return inner.refuse("efadv_create_cq", libc::EOPNOTSUPP);
        }
        let has_sgid = !inner.script.without.contains("wc_read_sgid");
        drop(inner);
        let cq = create_cq_ex(context, attr);
        if !cq.is_null() {
            let part = forever::<efadv_cq>();
            (*part).wc_read_sgid = has_sgid.then_some(wc_read_sgid);
            join(cq, part);
        }
        cq
    }
}

unsafe extern "C" fn wr_set_ud_addr(qp: *mut ffi::ibv_qp_ex, ah: *mut ffi::ibv_ah, qpn: u32, qkey: u32) {
    // SAFETY: only queue pairs of this library have this function; the handle is alive.
    unsafe { address(qp.cast(), ah, "wr_set_ud_addr", &arguments!(ah, qpn, qkey)) }
}

unsafe extern "C" fn cq_from_ibv_cq_ex(cq: *mut ffi::ibv_cq_ex) -> *mut efadv_cq {
    counterpart(cq)
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
