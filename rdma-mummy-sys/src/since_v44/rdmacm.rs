//! The librdmacm functions added after rdma-core 44.

use core::ffi::{c_char, c_int};

use crate::bindings::rdma_cma::*;
use crate::load::rdmacm::RdmacmTable;
use crate::load::symbols::symbols;

pub use crate::load::rdmacm::rdma_query_addrinfo;

symbols! {
    list: rdmacm_since_v44_functions of rdma_mummy_sys::since_v44::rdmacm;

    /// The librdmacm functions added after rdma-core 44.
    pub struct RdmacmSinceV44 for RdmacmTable;

    fn rdma_resolve_addrinfo(id: *mut rdma_cm_id, node: *const c_char, service: *const c_char, hints: *const rdma_addrinfo) -> c_int = minus_one, by id, by_name;
    fn rdma_query_addrinfo(id: *mut rdma_cm_id, info: *mut *mut rdma_addrinfo) -> c_int, by_name;
    fn rdma_write_cm_event(id: *mut rdma_cm_id, event: rdma_cm_event_type, status: c_int, arg: u64) -> c_int = minus_one, by id, by_name;
}
