//! libibverbs: its table, and the C functions that are not `static inline` in its header.
//!
//! A function on an object goes to the object's provider; see [`provider`](super::provider). A function without an
//! object goes to the system's library. Exceptions: `ibv_get_device_list` and `ibv_fork_init` call all providers, and
//! conversions of values need no library.
//!
//! If no provider has the function, the call fails as its manual page documents, with errno `EOPNOTSUPP`. A null
//! object, which the C library would dereference, fails with `EINVAL`.
//!
//! Some names in the header are macros or inline functions that wrap these symbols: `ibv_get_device_list`,
//! `ibv_query_port`, `ibv_query_gid_ex`, `ibv_query_gid_table`, `ibv_reg_mr`, `ibv_reg_mr_iova`. Programs should call
//! the functions in the crate root, which do what the header's macros do.

use core::ffi::{c_char, c_int, c_uint, c_void};

use super::Known;
use super::symbols::{symbols, system_library};
use crate::bindings::verbs::*;
use crate::since_v44::IbverbsSinceV44;

pub use super::device_list::{ibv_free_device_list, ibv_get_device_list, ibv_import_device};
pub use super::events::ibv_ack_async_event;
pub use super::fork::{ibv_fork_init, ibv_is_fork_initialized};
pub use super::values::{ibv_event_type_str, ibv_node_type_str, ibv_port_state_str, ibv_wc_status_str};
pub use super::values::{ibv_rate_to_mbps, ibv_rate_to_mult, mbps_to_ibv_rate, mult_to_ibv_rate};

system_library! {
    /// The loaded libibverbs.
    pub type Ibverbs = IbverbsTable;
    known: Known {
        soname: "libibverbs.so.1",
        variable: "RDMA_MUMMY_LIBIBVERBS",
        packages: "Debian, Ubuntu: libibverbs1 ibverbs-providers; Fedora, RHEL, SUSE: libibverbs; Arch: rdma-core",
    };
    first: "ibv_get_device_list";
    of: |provider| Some(provider.ibverbs());
}

impl AsRef<IbverbsSinceV44> for IbverbsTable {
    fn as_ref(&self) -> &IbverbsSinceV44 {
        &self.since_v44
    }
}

symbols! {
    list: ibverbs_functions of rdma_mummy_sys::load::ibverbs;

    /// The functions of libibverbs. A provider sets its own and leaves the rest to `..Default::default()`.
    pub struct IbverbsTable {
        /// Functions added after rdma-core 44.
        pub since_v44: IbverbsSinceV44
    } for IbverbsTable;

    fn ibv_wc_status_str(status: ibv_wc_status) -> *const c_char;
    fn ibv_rate_to_mult(rate: ibv_rate) -> c_int;
    fn mult_to_ibv_rate(mult: c_int) -> ibv_rate;
    fn ibv_rate_to_mbps(rate: ibv_rate) -> c_int;
    fn mbps_to_ibv_rate(mbps: c_int) -> ibv_rate;
    fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex = null, by qp;
    fn ibv_get_device_list(num_devices: *mut c_int) -> *mut *mut ibv_device;
    fn ibv_free_device_list(list: *mut *mut ibv_device) -> ();
    fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char = null_const, by device;
    fn ibv_get_device_index(device: *mut ibv_device) -> c_int = minus_one, by device;
    fn ibv_get_device_guid(device: *mut ibv_device) -> __be64 = zero_guid, by device;
    fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context = null, by device;
    fn ibv_close_device(context: *mut ibv_context) -> c_int = minus_one, by context;
    fn ibv_import_device(cmd_fd: c_int) -> *mut ibv_context;
    fn ibv_import_pd(context: *mut ibv_context, pd_handle: u32) -> *mut ibv_pd = null, by context;
    fn ibv_unimport_pd(pd: *mut ibv_pd) -> () = nothing, by pd;
    fn ibv_import_mr(pd: *mut ibv_pd, mr_handle: u32) -> *mut ibv_mr = null, by pd;
    fn ibv_unimport_mr(mr: *mut ibv_mr) -> () = nothing, by mr;
    fn ibv_import_dm(context: *mut ibv_context, dm_handle: u32) -> *mut ibv_dm = null, by context;
    fn ibv_unimport_dm(dm: *mut ibv_dm) -> () = nothing, by dm;
    fn ibv_get_async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int = minus_one, by context;
    fn ibv_ack_async_event(event: *mut ibv_async_event) -> ();
    fn ibv_query_device(context: *mut ibv_context, device_attr: *mut ibv_device_attr) -> c_int = code, by context;
    fn ibv_query_port(context: *mut ibv_context, port_num: u8, port_attr: *mut _compat_ibv_port_attr) -> c_int = code, by context;
    fn ibv_query_gid(context: *mut ibv_context, port_num: u8, index: c_int, gid: *mut ibv_gid) -> c_int = minus_one, by context;
    fn _ibv_query_gid_ex(context: *mut ibv_context, port_num: u32, gid_index: u32, entry: *mut ibv_gid_entry, flags: u32, entry_size: usize) -> c_int = code, by context;
    fn _ibv_query_gid_table(context: *mut ibv_context, entries: *mut ibv_gid_entry, max_entries: usize, flags: u32, entry_size: usize) -> isize = negative, by context;
    fn ibv_query_pkey(context: *mut ibv_context, port_num: u8, index: c_int, pkey: *mut __be16) -> c_int = minus_one, by context;
    fn ibv_get_pkey_index(context: *mut ibv_context, port_num: u8, pkey: __be16) -> c_int = minus_one, by context;
    fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd = null, by context;
    fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int = code, by pd;
    fn ibv_reg_mr_iova2(pd: *mut ibv_pd, addr: *mut c_void, length: usize, iova: u64, access: c_uint) -> *mut ibv_mr = null, by pd;
    fn ibv_reg_mr(pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int) -> *mut ibv_mr = null, by pd;
    fn ibv_reg_mr_iova(pd: *mut ibv_pd, addr: *mut c_void, length: usize, iova: u64, access: c_int) -> *mut ibv_mr = null, by pd;
    fn ibv_reg_dmabuf_mr(pd: *mut ibv_pd, offset: u64, length: usize, iova: u64, fd: c_int, access: c_int) -> *mut ibv_mr = null, by pd;
    fn ibv_rereg_mr(mr: *mut ibv_mr, flags: c_int, pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int) -> c_int = minus_one, by mr;
    fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int = code, by mr;
    fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel = null, by context;
    fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int = code, by channel;
    fn ibv_create_cq(context: *mut ibv_context, cqe: c_int, cq_context: *mut c_void, channel: *mut ibv_comp_channel, comp_vector: c_int) -> *mut ibv_cq = null, by context;
    fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int = code, by cq;
    fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int = code, by cq;
    fn ibv_get_cq_event(channel: *mut ibv_comp_channel, cq: *mut *mut ibv_cq, cq_context: *mut *mut c_void) -> c_int = minus_one, by channel;
    fn ibv_ack_cq_events(cq: *mut ibv_cq, nevents: c_uint) -> () = nothing, by cq;
    fn ibv_create_srq(pd: *mut ibv_pd, srq_init_attr: *mut ibv_srq_init_attr) -> *mut ibv_srq = null, by pd;
    fn ibv_modify_srq(srq: *mut ibv_srq, srq_attr: *mut ibv_srq_attr, srq_attr_mask: c_int) -> c_int = code, by srq;
    fn ibv_query_srq(srq: *mut ibv_srq, srq_attr: *mut ibv_srq_attr) -> c_int = code, by srq;
    fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int = code, by srq;
    fn ibv_create_qp(pd: *mut ibv_pd, qp_init_attr: *mut ibv_qp_init_attr) -> *mut ibv_qp = null, by pd;
    fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, attr_mask: c_int) -> c_int = code, by qp;
    fn ibv_query_qp_data_in_order(qp: *mut ibv_qp, op: ibv_wr_opcode, flags: u32) -> c_int = zero, by qp;
    fn ibv_query_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, attr_mask: c_int, init_attr: *mut ibv_qp_init_attr) -> c_int = code, by qp;
    fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int = code, by qp;
    fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah = null, by pd;
    fn ibv_init_ah_from_wc(context: *mut ibv_context, port_num: u8, wc: *mut ibv_wc, grh: *mut ibv_grh, ah_attr: *mut ibv_ah_attr) -> c_int = minus_one, by context;
    fn ibv_create_ah_from_wc(pd: *mut ibv_pd, wc: *mut ibv_wc, grh: *mut ibv_grh, port_num: u8) -> *mut ibv_ah = null, by pd;
    fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int = code, by ah;
    fn ibv_attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int = code, by qp;
    fn ibv_detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int = code, by qp;
    fn ibv_fork_init() -> c_int;
    fn ibv_is_fork_initialized() -> ibv_fork_status;
    fn ibv_node_type_str(node_type: ibv_node_type) -> *const c_char;
    fn ibv_port_state_str(port_state: ibv_port_state) -> *const c_char;
    fn ibv_event_type_str(event: ibv_event_type) -> *const c_char;
    fn ibv_resolve_eth_l2_from_gid(context: *mut ibv_context, attr: *mut ibv_ah_attr, eth_mac: *mut u8, vid: *mut u16) -> c_int = code, by context;
    fn ibv_set_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int = code, by qp;
    fn ibv_query_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int = code, by qp;

    fn ibv_query_gid_type(context: *mut ibv_context, port_num: u8, index: c_uint, gid_type: *mut c_uint) -> c_int = minus_one, by context, by_name;
    fn ibv_get_sysfs_path() -> *const c_char = null_const, by system, by_name;
    fn ibv_read_sysfs_file(dir: *const c_char, file: *const c_char, buf: *mut c_char, size: usize) -> c_int = minus_one, by system, by_name;
    fn ibv_dontfork_range(base: *mut c_void, size: usize) -> c_int = code, by system, by_name;
    fn ibv_dofork_range(base: *mut c_void, size: usize) -> c_int = code, by system, by_name;
}
