//! librdmacm: its table, and the C functions that are not `static inline` in its headers.
//!
//! Creating an event channel chooses the provider, see [`choose`]; the channel's identifiers and events belong to the
//! same provider. The choice also applies to identifiers without a channel, `rdma_getaddrinfo` and `rdma_create_ep`,
//! unless an address list or protection domain argument determines the provider.
//!
//! If no provider has the function, the call fails as its manual page documents, with errno `EOPNOTSUPP`. A null
//! object, which the C library would dereference, fails with `EINVAL`.

mod calls;
mod choice;
mod devices;

use core::ffi::{c_char, c_int, c_void};

use libc::sockaddr;

use super::Known;
use super::symbols::{symbols, system_library};
use crate::bindings::rdma_cma::*;
use crate::bindings::verbs::*;
use crate::since_v44::RdmacmSinceV44;

pub use super::values::rdma_event_str;
pub use calls::{
    rdma_ack_cm_event, rdma_bind_addr, rdma_create_ep, rdma_create_event_channel, rdma_create_id, rdma_destroy_ep,
    rdma_destroy_event_channel, rdma_destroy_id, rdma_freeaddrinfo, rdma_get_cm_event, rdma_get_request,
    rdma_getaddrinfo, rdma_migrate_id, rdma_query_addrinfo, rdma_resolve_addr,
};
pub use choice::{Choice, VARIABLE, choose, serves};
pub use devices::{rdma_free_devices, rdma_get_devices};

system_library! {
    /// The loaded librdmacm.
    pub type Rdmacm = RdmacmTable;
    known: Known {
        soname: "librdmacm.so.1",
        variable: "RDMA_MUMMY_LIBRDMACM",
        packages: "Debian, Ubuntu: librdmacm1; Fedora, RHEL: librdmacm; SUSE: librdmacm1; Arch: rdma-core",
    };
    first: "rdma_create_event_channel";
    of: |provider| provider.rdmacm();
}

impl AsRef<RdmacmSinceV44> for RdmacmTable {
    fn as_ref(&self) -> &RdmacmSinceV44 {
        &self.since_v44
    }
}

symbols! {
    list: rdmacm_functions of rdma_mummy_sys::load::rdmacm;

    /// The functions of librdmacm, except rsockets. A provider sets its own and leaves the rest to
    /// `..Default::default()`.
    pub struct RdmacmTable {
        /// Functions added after rdma-core 44.
        pub since_v44: RdmacmSinceV44
    } for RdmacmTable;

    fn rdma_create_event_channel() -> *mut rdma_event_channel;
    fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) -> ();
    fn rdma_create_id(channel: *mut rdma_event_channel, id: *mut *mut rdma_cm_id, context: *mut c_void, ps: rdma_port_space) -> c_int;
    fn rdma_create_ep(id: *mut *mut rdma_cm_id, res: *mut rdma_addrinfo, pd: *mut ibv_pd, qp_init_attr: *mut ibv_qp_init_attr) -> c_int;
    fn rdma_destroy_ep(id: *mut rdma_cm_id) -> ();
    fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int;
    fn rdma_bind_addr(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int;
    fn rdma_resolve_addr(id: *mut rdma_cm_id, src_addr: *mut sockaddr, dst_addr: *mut sockaddr, timeout_ms: c_int) -> c_int;
    fn rdma_resolve_route(id: *mut rdma_cm_id, timeout_ms: c_int) -> c_int = minus_one, by id;
    fn rdma_create_qp(id: *mut rdma_cm_id, pd: *mut ibv_pd, qp_init_attr: *mut ibv_qp_init_attr) -> c_int = minus_one, by id;
    fn rdma_create_qp_ex(id: *mut rdma_cm_id, qp_init_attr: *mut ibv_qp_init_attr_ex) -> c_int = minus_one, by id;
    fn rdma_destroy_qp(id: *mut rdma_cm_id) -> () = nothing, by id;
    fn rdma_connect(id: *mut rdma_cm_id, conn_param: *mut rdma_conn_param) -> c_int = minus_one, by id;
    fn rdma_establish(id: *mut rdma_cm_id) -> c_int = minus_one, by id;
    fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int = minus_one, by id;
    fn rdma_get_request(listen: *mut rdma_cm_id, id: *mut *mut rdma_cm_id) -> c_int;
    fn rdma_accept(id: *mut rdma_cm_id, conn_param: *mut rdma_conn_param) -> c_int = minus_one, by id;
    fn rdma_reject(id: *mut rdma_cm_id, private_data: *const c_void, private_data_len: u8) -> c_int = minus_one, by id;
    fn rdma_reject_ece(id: *mut rdma_cm_id, private_data: *const c_void, private_data_len: u8) -> c_int = minus_one, by id;
    fn rdma_notify(id: *mut rdma_cm_id, event: ibv_event_type) -> c_int = minus_one, by id;
    fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int = minus_one, by id;
    fn rdma_join_multicast(id: *mut rdma_cm_id, addr: *mut sockaddr, context: *mut c_void) -> c_int = minus_one, by id;
    fn rdma_leave_multicast(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int = minus_one, by id;
    fn rdma_join_multicast_ex(id: *mut rdma_cm_id, mc_join_attr: *mut rdma_cm_join_mc_attr_ex, context: *mut c_void) -> c_int = minus_one, by id;
    fn rdma_get_cm_event(channel: *mut rdma_event_channel, event: *mut *mut rdma_cm_event) -> c_int;
    fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int;
    fn rdma_get_src_port(id: *mut rdma_cm_id) -> __be16 = zero_port, by id;
    fn rdma_get_dst_port(id: *mut rdma_cm_id) -> __be16 = zero_port, by id;
    fn rdma_get_devices(num_devices: *mut c_int) -> *mut *mut ibv_context;
    fn rdma_free_devices(list: *mut *mut ibv_context) -> ();
    fn rdma_event_str(event: rdma_cm_event_type) -> *const c_char;
    fn rdma_set_option(id: *mut rdma_cm_id, level: c_int, optname: c_int, optval: *mut c_void, optlen: usize) -> c_int = minus_one, by id;
    fn rdma_migrate_id(id: *mut rdma_cm_id, channel: *mut rdma_event_channel) -> c_int;
    fn rdma_getaddrinfo(node: *const c_char, service: *const c_char, hints: *const rdma_addrinfo, res: *mut *mut rdma_addrinfo) -> c_int;
    fn rdma_freeaddrinfo(res: *mut rdma_addrinfo) -> ();
    fn rdma_init_qp_attr(id: *mut rdma_cm_id, qp_attr: *mut ibv_qp_attr, qp_attr_mask: *mut c_int) -> c_int = minus_one, by id;
    fn rdma_set_local_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int = minus_one, by id;
    fn rdma_get_remote_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int = minus_one, by id;

    fn rdma_create_srq(id: *mut rdma_cm_id, pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> c_int = minus_one, by id;
    fn rdma_create_srq_ex(id: *mut rdma_cm_id, attr: *mut ibv_srq_init_attr_ex) -> c_int = minus_one, by id;
    fn rdma_destroy_srq(id: *mut rdma_cm_id) -> () = nothing, by id;
}
