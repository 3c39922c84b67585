//! libefa: extensions of EFA devices.
//!
//! These functions support only EFA devices. On an object of a provider in this process they fail with `EOPNOTSUPP`.

use core::ffi::c_int;

use super::Known;
use super::symbols::{symbols, system_library};
use crate::bindings::efadv::*;
use crate::bindings::verbs::*;

system_library! {
    /// The loaded libefa.
    pub type Efa = EfaTable;
    known: Known {
        soname: "libefa.so.1",
        variable: "RDMA_MUMMY_LIBEFA",
        packages: "Debian, Ubuntu: ibverbs-providers; Fedora, RHEL: libibverbs; SUSE: libefa1; Arch: rdma-core",
    };
    first: "efadv_query_device";
    of: |_| None;
}

symbols! {
    /// The functions of libefa.
    pub struct EfaTable for EfaTable;

    fn efadv_create_driver_qp(ibvpd: *mut ibv_pd, attr: *mut ibv_qp_init_attr, driver_qp_type: u32) -> *mut ibv_qp = null, by ibvpd;
    fn efadv_create_qp_ex(ibvctx: *mut ibv_context, attr_ex: *mut ibv_qp_init_attr_ex, efa_attr: *mut efadv_qp_init_attr, inlen: u32) -> *mut ibv_qp = null, by ibvctx;
    fn efadv_query_device(ibvctx: *mut ibv_context, attr: *mut efadv_device_attr, inlen: u32) -> c_int = code, by ibvctx;
    fn efadv_query_ah(ibvah: *mut ibv_ah, attr: *mut efadv_ah_attr, inlen: u32) -> c_int = code, by ibvah;
    fn efadv_create_cq(ibvctx: *mut ibv_context, attr_ex: *mut ibv_cq_init_attr_ex, efa_attr: *mut efadv_cq_init_attr, inlen: u32) -> *mut ibv_cq_ex = null, by ibvctx;
    fn efadv_cq_from_ibv_cq_ex(ibvcqx: *mut ibv_cq_ex) -> *mut efadv_cq = null, by ibvcqx;
}
