//! libmlx5, for devices of the system: dynamic connections and the clock.
//!
//! `without` accepts the names of libmlx5's functions, `mlx5dv_is_supported` (the device is another vendor's),
//! `atomics`, and `dci_streams` (not reported).

use std::ptr;
use std::sync::Once;

use libc::c_int;
use rdma_mummy_sys as ffi;
use rdma_mummy_sys::load::mlx5::{Mlx5, Mlx5Table};
use rdma_mummy_sys::mlx5dv::{
    mlx5dv_clock_info, mlx5dv_context, mlx5dv_context_comp_mask, mlx5dv_dc_type, mlx5dv_qp_ex, mlx5dv_qp_init_attr,
    mlx5dv_qp_init_attr_mask as mask,
};

use super::extended_qp::set_functions;
use super::qp::{arguments, set_up};
use super::state::Device;
use super::stub::{arguments, forever, stubs};
use super::vendor::{address, counterpart, join};

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
            mlx5dv_query_device: Some(mlx5dv_query_device),
            mlx5dv_get_clock_info: Some(mlx5dv_get_clock_info),
            mlx5dv_create_qp: Some(mlx5dv_create_qp),
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

stubs! {
    fn mlx5dv_query_device(context: *mut ffi::ibv_context, attrs: *mut mlx5dv_context) -> c_int
        [; @attrs: comp_mask] |inner|
    {
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
        0
    }

    /// Each cycle takes two nanoseconds; cycle 1000 was at 5000000.
    fn mlx5dv_get_clock_info(context: *mut ffi::ibv_context, info: *mut mlx5dv_clock_info) -> c_int [] |inner| {
        let (nsec, mult) = (5_000_000, 2 << 10);
        *info = mlx5dv_clock_info { nsec, last_cycles: 1000, frac: 0, mult, shift: 10, mask: (1 << 48) - 1 };
        inner.output("mlx5dv_get_clock_info", info);
        0
    }

    /// The plain attributes are the first part of the extended ones. The key is as large as its union.
    fn mlx5dv_create_qp(
        context: *mut ffi::ibv_context,
        attr: *mut ffi::ibv_qp_init_attr_ex,
        mlx5: *mut mlx5dv_qp_init_attr,
    ) -> *mut ffi::ibv_qp
        [
            ; @attr: comp_mask, srq, send_ops_flags; same_cq = (*attr).send_cq == (*attr).recv_cq,
            mlx5_comp_mask = (*mlx5).comp_mask, dc_type = (*mlx5).dc_init_attr.dc_type,
            dct_access_key = (*mlx5).dc_init_attr.__bindgen_anon_1.dct_access_key;
            ..arguments(&(*attr).cap, (*attr).qp_type)
        ] |inner|
    {
        let (attr, mlx5) = (&*attr, &*mlx5);
        let atomics = ffi::ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP.0
            | ffi::ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD.0;
        if inner.script.without.contains("atomics") && attr.send_ops_flags & u64::from(atomics) != 0 {
            return inner.refuse("mlx5dv_create_qp", libc::EOPNOTSUPP);
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
            join(qp, part);
        }
        qp.cast()
    }
}

unsafe extern "C" fn qp_ex_from_ibv_qp_ex(qp: *mut ffi::ibv_qp_ex) -> *mut mlx5dv_qp_ex {
    counterpart(qp)
}

unsafe extern "C" fn wr_set_dc_addr(part: *mut mlx5dv_qp_ex, ah: *mut ffi::ibv_ah, dctn: u32, dc_key: u64) {
    // SAFETY: only parts of this library have this function; the handle is alive.
    unsafe { address(counterpart(part), ah, "wr_set_dc_addr", &arguments!(ah, dctn, dc_key)) }
}

unsafe extern "C" fn wr_set_dc_addr_stream(
    part: *mut mlx5dv_qp_ex,
    ah: *mut ffi::ibv_ah,
    dctn: u32,
    dc_key: u64,
    stream: u16,
) {
    // SAFETY: as above.
    unsafe { address(counterpart(part), ah, "wr_set_dc_addr_stream", &arguments!(ah, dctn, dc_key, stream)) }
}
