//! libmlx5, for devices of the system: dynamic connections and the clock.
//!
//! `without` accepts the names of libmlx5's functions, `mlx5dv_is_supported` (the device is another vendor's),
//! `atomics`, and `dci_streams` (not reported).

use std::collections::BTreeMap;
use std::ptr;
use std::sync::{Mutex, Once, PoisonError};

use libc::c_int;
use rdma_mummy_sys as ffi;
use rdma_mummy_sys::load::mlx5::{Mlx5, Mlx5Table};
use rdma_mummy_sys::mlx5dv::{
    mlx5dv_clock_info, mlx5dv_context, mlx5dv_context_comp_mask, mlx5dv_dc_type, mlx5dv_qp_ex, mlx5dv_qp_init_attr,
    mlx5dv_qp_init_attr_mask as mask,
};

use super::device::state_of;
use super::extended_qp::set_functions;
use super::failure::set_errno;
use super::objects::forever;
use super::qp::{arguments, set_up};
use super::state::Device;
use super::vendor;

/// Maps between a queue pair and mlx5's part of it. The parts are allocated separately, because their layout is opaque.
static PARTS: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

/// Makes this the system's libmlx5.
///
/// # Panics
///
/// If another libmlx5 has been loaded.
pub fn install_mlx5() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let table = Mlx5Table {
            mlx5dv_is_supported: Some(is_supported),
            mlx5dv_query_device: Some(query_device),
            mlx5dv_get_clock_info: Some(get_clock_info),
            mlx5dv_create_qp: Some(create_qp),
            mlx5dv_qp_ex_from_ibv_qp_ex: Some(qp_ex_from_ibv_qp_ex),
            ..Default::default()
        };
        // SAFETY: the functions do what the manual pages of their names document.
        let installed = unsafe { Mlx5::from_table(table) }.install();
        assert!(installed.is_ok(), "another libmlx5 is loaded");
    });
}

unsafe extern "C" fn is_supported(device: *mut ffi::ibv_device) -> bool {
    // SAFETY: the device is one of this provider's, which are never freed.
    let state = unsafe { &(*device.cast::<Device>()).state };
    !state.lock().script.without.contains("mlx5dv_is_supported")
}

unsafe extern "C" fn query_device(context: *mut ffi::ibv_context, attrs: *mut mlx5dv_context) -> c_int {
    // SAFETY: the context is one of this provider's, and the attributes can be written.
    unsafe {
        let arguments = [("comp_mask", (*attrs).comp_mask)];
        let (mut inner, failure) = state_of(context).enter("mlx5dv_query_device", &arguments);
        if let Some(failure) = failure {
            return failure.code();
        }
        if inner.script.without.contains("mlx5dv_is_supported") {
            return libc::EOPNOTSUPP;
        }
        if inner.script.without.contains("dci_streams") {
            (*attrs).comp_mask &= !u64::from(mlx5dv_context_comp_mask::MLX5DV_CONTEXT_MASK_DCI_STREAMS.0);
        }
        (*attrs).version = 1;
        (*attrs).flags = 1 | 1 << 40;
        (*attrs).max_clock_info_update_nsec = 5_000;
        (*attrs).num_lag_ports = 2;
        (*attrs).dci_streams_caps.max_log_num_concurent = 8;
        (*attrs).dci_streams_caps.max_log_num_errored = 4;
        inner.output("mlx5dv_query_device: flags", &raw mut (*attrs).flags);
        inner.output("mlx5dv_query_device: mask", &raw mut (*attrs).comp_mask);
        inner.output("mlx5dv_query_device: lag", &raw mut (*attrs).num_lag_ports);
        inner.output("mlx5dv_query_device: dci_streams", &raw mut (*attrs).dci_streams_caps);
    }
    0
}

unsafe extern "C" fn get_clock_info(context: *mut ffi::ibv_context, info: *mut mlx5dv_clock_info) -> c_int {
    // SAFETY: the context is one of this provider's, and the information can be written.
    unsafe {
        let (mut inner, failure) = state_of(context).enter("mlx5dv_get_clock_info", &[]);
        if let Some(failure) = failure {
            return failure.code();
        }
        // Each cycle takes two nanoseconds; cycle 1000 was at 5000000.
        *info = mlx5dv_clock_info {
            nsec: 5_000_000,
            last_cycles: 1000,
            frac: 0,
            mult: 2 << 10,
            shift: 10,
            mask: (1 << 48) - 1,
        };
        inner.output("mlx5dv_get_clock_info", info);
    }
    0
}

unsafe extern "C" fn create_qp(
    context: *mut ffi::ibv_context,
    attr: *mut ffi::ibv_qp_init_attr_ex,
    mlx5: *mut mlx5dv_qp_init_attr,
) -> *mut ffi::ibv_qp {
    // SAFETY: the context is one of this provider's, both attributes can be read, and the queue pair is new. The plain
    // attributes are the first part of the extended ones. The key is as large as its union.
    unsafe {
        let (attr, mlx5) = (&*attr, &*mlx5);
        let mut all = arguments(&attr.cap, attr.qp_type).to_vec();
        all.extend([
            ("comp_mask", attr.comp_mask.into()),
            ("srq", attr.srq.addr() as u64),
            ("same_cq", u64::from(attr.send_cq == attr.recv_cq)),
            ("send_ops_flags", attr.send_ops_flags),
            ("mlx5_comp_mask", mlx5.comp_mask),
            ("dc_type", mlx5.dc_init_attr.dc_type.0.into()),
            ("dct_access_key", mlx5.dc_init_attr.__bindgen_anon_1.dct_access_key),
        ]);
        let (mut inner, failure) = state_of(context).enter("mlx5dv_create_qp", &all);
        if let Some(failure) = failure {
            return failure.null();
        }
        let atomics = ffi::ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP.0
            | ffi::ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD.0;
        if inner.script.without.contains("atomics") && attr.send_ops_flags & u64::from(atomics) != 0 {
            inner.failed(libc::EOPNOTSUPP);
            set_errno(libc::EOPNOTSUPP);
            return ptr::null_mut();
        }
        let qp = forever::<ffi::ibv_qp_ex>();
        set_up(&mut inner, qp.cast(), attr.pd, &*ptr::from_ref(attr).cast());
        if mlx5.dc_init_attr.dc_type == mlx5dv_dc_type::MLX5DV_DCTYPE_DCT {
            // The device assigns the number when the queue pair becomes ready.
            (*qp).qp_base.qp_num = 0;
        }
        if mlx5.dc_init_attr.dc_type == mlx5dv_dc_type::MLX5DV_DCTYPE_DCI {
            set_functions(&inner, qp, attr.send_ops_flags);
            let has = |name: &str| !inner.script.without.contains(name);
            let part = forever::<mlx5dv_qp_ex>();
            (*part).wr_set_dc_addr = has("wr_set_dc_addr").then_some(wr_set_dc_addr);
            let streams = mlx5.comp_mask & u64::from(mask::MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS.0) != 0;
            (*part).wr_set_dc_addr_stream = (streams && has("wr_set_dc_addr_stream")).then_some(wr_set_dc_addr_stream);
            let mut parts = PARTS.lock().unwrap_or_else(PoisonError::into_inner);
            parts.insert(qp.expose_provenance(), part.expose_provenance());
            parts.insert(part.addr(), qp.addr());
        }
        qp.cast()
    }
}

unsafe extern "C" fn qp_ex_from_ibv_qp_ex(qp: *mut ffi::ibv_qp_ex) -> *mut mlx5dv_qp_ex {
    counterpart(qp)
}

/// Maps between a queue pair and its part; null if there is none.
fn counterpart<T, U>(object: *mut T) -> *mut U {
    let parts = PARTS.lock().unwrap_or_else(PoisonError::into_inner);
    parts.get(&object.addr()).map_or(ptr::null_mut(), |&other| ptr::with_exposed_provenance_mut(other))
}

unsafe extern "C" fn wr_set_dc_addr(
    part: *mut mlx5dv_qp_ex,
    ah: *mut ffi::ibv_ah,
    remote_dctn: u32,
    remote_dc_key: u64,
) {
    let arguments = [("ah", ah.addr() as u64), ("dctn", remote_dctn.into()), ("dc_key", remote_dc_key)];
    // SAFETY: only parts of this library have this function; the handle is alive.
    unsafe { vendor::address(counterpart(part), ah, "wr_set_dc_addr", &arguments) }
}

unsafe extern "C" fn wr_set_dc_addr_stream(
    part: *mut mlx5dv_qp_ex,
    ah: *mut ffi::ibv_ah,
    remote_dctn: u32,
    remote_dc_key: u64,
    stream_id: u16,
) {
    let arguments = [
        ("ah", ah.addr() as u64),
        ("dctn", remote_dctn.into()),
        ("dc_key", remote_dc_key),
        ("stream", stream_id.into()),
    ];
    // SAFETY: as above.
    unsafe { vendor::address(counterpart(part), ah, "wr_set_dc_addr_stream", &arguments) }
}
