//! The libibverbs functions added after rdma-core 44.

use core::ffi::{c_int, c_void};

use super::types::*;
use crate::bindings::verbs::*;
use crate::load::ibverbs::IbverbsTable;
use crate::load::symbols::symbols;

pub use super::buffers::{ibv_alloc_buf, ibv_alloc_user_buf, ibv_free_buf, ibv_free_user_buf};

symbols! {
    list: ibverbs_since_v44_functions of rdma_mummy_sys::since_v44::ibverbs;

    /// The libibverbs functions added after rdma-core 44.
    pub struct IbverbsSinceV44 for IbverbsTable;

    fn ibv_alloc_dmah(context: *mut ibv_context, attr: *mut ibv_dmah_init_attr) -> *mut ibv_dmah = null, by context, by_name;
    fn ibv_dealloc_dmah(dmah: *mut ibv_dmah) -> c_int = code, by dmah, by_name;
    fn ibv_reg_mr_ex(pd: *mut ibv_pd, mr_init_attr: *mut ibv_mr_init_attr) -> *mut ibv_mr = null, by pd, by_name;

    fn ibv_query_port_speed(context: *mut ibv_context, port_num: u32, port_speed: *mut u64) -> c_int = code, by context, by_name;
    fn ibv_dm_export_dmabuf_fd(dm: *mut ibv_dm) -> c_int = minus_one, by dm, by_name;

    fn ibv_alloc_buf(pd: *mut ibv_pd, size: usize, buf: *mut *mut ibv_buf) -> *mut c_void, by_name;
    fn ibv_free_buf(buf: *mut ibv_buf) -> (), by_name;
    fn ibv_reg_buf_mr(pd: *mut ibv_pd, buf: *mut ibv_buf, addr: *mut c_void, length: usize, access: c_int) -> *mut ibv_mr = null, by pd, by_name;
    fn ibv_alloc_user_buf(pd: *mut ibv_pd, addr: *mut c_void, size: usize, dmabuf_fd: c_int) -> *mut ibv_buf, by_name;
    fn ibv_free_user_buf(buf: *mut ibv_buf) -> (), by_name;
    fn ibv_export_buf_dmabuf_fd(buf: *mut ibv_buf) -> c_int = minus_one, by buf, by_name;

    fn _ibv_query_comp_cntr_caps(context: *mut ibv_context, caps: *mut ibv_comp_cntr_caps, caps_size: usize) -> c_int = code, by context, by_name;
    fn ibv_create_comp_cntr(context: *mut ibv_context, cc_attr: *mut ibv_comp_cntr_init_attr) -> *mut ibv_comp_cntr = null, by context, by_name;
    fn ibv_destroy_comp_cntr(comp_cntr: *mut ibv_comp_cntr) -> c_int = code, by comp_cntr, by_name;
    fn ibv_set_comp_cntr(comp_cntr: *mut ibv_comp_cntr, value: u64) -> c_int = code, by comp_cntr, by_name;
    fn ibv_set_err_comp_cntr(comp_cntr: *mut ibv_comp_cntr, value: u64) -> c_int = code, by comp_cntr, by_name;
    fn ibv_inc_comp_cntr(comp_cntr: *mut ibv_comp_cntr, amount: u64) -> c_int = code, by comp_cntr, by_name;
    fn ibv_inc_err_comp_cntr(comp_cntr: *mut ibv_comp_cntr, amount: u64) -> c_int = code, by comp_cntr, by_name;
    fn ibv_read_comp_cntr(comp_cntr: *mut ibv_comp_cntr, value: *mut u64) -> c_int = code, by comp_cntr, by_name;
    fn ibv_read_err_comp_cntr(comp_cntr: *mut ibv_comp_cntr, value: *mut u64) -> c_int = code, by comp_cntr, by_name;
    fn ibv_qp_attach_comp_cntr(qp: *mut ibv_qp, comp_cntr: *mut ibv_comp_cntr, attr: *mut ibv_qp_attach_comp_cntr_attr) -> c_int = code, by qp, by_name;
}
