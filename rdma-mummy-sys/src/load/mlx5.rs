//! libmlx5: extensions of mlx5 devices.
//!
//! These functions support only mlx5 devices. On an object of a provider in this process they fail with `EOPNOTSUPP`,
//! and `mlx5dv_is_supported` returns `false` without reading the device, whose layout differs.

use core::ffi::{c_int, c_void};

use libc::FILE;

use super::Known;
use super::symbols::{symbols, system_library};
use crate::bindings::mlx5dv::*;
use crate::bindings::verbs::*;

system_library! {
    /// The loaded libmlx5.
    pub type Mlx5 = Mlx5Table;
    known: Known {
        soname: "libmlx5.so.1",
        variable: "RDMA_MUMMY_LIBMLX5",
        packages: "Debian, Ubuntu: ibverbs-providers; Fedora, RHEL: libibverbs; SUSE: libmlx5-1; Arch: rdma-core",
    };
    first: "mlx5dv_is_supported";
    of: |_| None;
}

symbols! {
    /// The functions of libmlx5.
    pub struct Mlx5Table for Mlx5Table;

    fn mlx5dv_create_cq(context: *mut ibv_context, cq_attr: *mut ibv_cq_init_attr_ex, mlx5_cq_attr: *mut mlx5dv_cq_init_attr) -> *mut ibv_cq_ex = null, by context;
    fn mlx5dv_create_mkey(mkey_init_attr: *mut mlx5dv_mkey_init_attr) -> *mut mlx5dv_mkey = null, by system;
    fn mlx5dv_destroy_mkey(mkey: *mut mlx5dv_mkey) -> c_int = code, by system;
    fn mlx5dv_create_qp(context: *mut ibv_context, qp_attr: *mut ibv_qp_init_attr_ex, mlx5_qp_attr: *mut mlx5dv_qp_init_attr) -> *mut ibv_qp = null, by context;
    fn mlx5dv_qp_ex_from_ibv_qp_ex(qp: *mut ibv_qp_ex) -> *mut mlx5dv_qp_ex = null, by qp;
    fn _mlx5dv_mkey_check(mkey: *mut mlx5dv_mkey, err_info: *mut mlx5dv_mkey_err, err_info_size: usize) -> c_int = code, by system;
    fn mlx5dv_qp_cancel_posted_send_wrs(mqp: *mut mlx5dv_qp_ex, wr_id: u64) -> c_int = negative_code, by system;
    fn mlx5dv_crypto_login(context: *mut ibv_context, login_attr: *mut mlx5dv_crypto_login_attr) -> c_int = code, by context;
    fn mlx5dv_crypto_login_query_state(context: *mut ibv_context, state: *mut mlx5dv_crypto_login_state) -> c_int = code, by context;
    fn mlx5dv_crypto_logout(context: *mut ibv_context) -> c_int = code, by context;
    fn mlx5dv_crypto_login_create(context: *mut ibv_context, login_attr: *mut mlx5dv_crypto_login_attr_ex) -> *mut mlx5dv_crypto_login_obj = null, by context;
    fn mlx5dv_crypto_login_query(crypto_login: *mut mlx5dv_crypto_login_obj, query_attr: *mut mlx5dv_crypto_login_query_attr) -> c_int = code, by system;
    fn mlx5dv_crypto_login_destroy(crypto_login: *mut mlx5dv_crypto_login_obj) -> c_int = code, by system;
    fn mlx5dv_dek_create(context: *mut ibv_context, init_attr: *mut mlx5dv_dek_init_attr) -> *mut mlx5dv_dek = null, by context;
    fn mlx5dv_dek_query(dek: *mut mlx5dv_dek, attr: *mut mlx5dv_dek_attr) -> c_int = code, by system;
    fn mlx5dv_dek_destroy(dek: *mut mlx5dv_dek) -> c_int = code, by system;
    fn mlx5dv_create_flow_matcher(context: *mut ibv_context, matcher_attr: *mut mlx5dv_flow_matcher_attr) -> *mut mlx5dv_flow_matcher = null, by context;
    fn mlx5dv_destroy_flow_matcher(matcher: *mut mlx5dv_flow_matcher) -> c_int = code, by system;
    fn mlx5dv_create_steering_anchor(context: *mut ibv_context, attr: *mut mlx5dv_steering_anchor_attr) -> *mut mlx5dv_steering_anchor = null, by context;
    fn mlx5dv_destroy_steering_anchor(sa: *mut mlx5dv_steering_anchor) -> c_int = code, by system;
    fn mlx5dv_create_flow(matcher: *mut mlx5dv_flow_matcher, match_value: *mut mlx5dv_flow_match_parameters, num_actions: usize, actions_attr: *mut mlx5dv_flow_action_attr) -> *mut ibv_flow = null, by system;
    fn mlx5dv_create_flow_action_esp(ctx: *mut ibv_context, esp: *mut ibv_flow_action_esp_attr, mlx5_attr: *mut mlx5dv_flow_action_esp) -> *mut ibv_flow_action = null, by ctx;
    fn mlx5dv_create_flow_action_modify_header(ctx: *mut ibv_context, actions_sz: usize, actions: *mut u64, ft_type: mlx5_ib_uapi_flow_table_type) -> *mut ibv_flow_action = null, by ctx;
    fn mlx5dv_create_flow_action_packet_reformat(ctx: *mut ibv_context, data_sz: usize, data: *mut c_void, reformat_type: mlx5_ib_uapi_flow_action_packet_reformat_type, ft_type: mlx5_ib_uapi_flow_table_type) -> *mut ibv_flow_action = null, by ctx;
    fn mlx5dv_query_device(ctx_in: *mut ibv_context, attrs_out: *mut mlx5dv_context) -> c_int = code, by ctx_in;
    fn mlx5dv_map_ah_to_qp(ah: *mut ibv_ah, qp_num: u32) -> c_int = code, by ah;
    fn mlx5dv_alloc_dm(context: *mut ibv_context, dm_attr: *mut ibv_alloc_dm_attr, mlx5_dm_attr: *mut mlx5dv_alloc_dm_attr) -> *mut ibv_dm = null, by context;
    fn mlx5dv_dm_map_op_addr(dm: *mut ibv_dm, op: u8) -> *mut c_void = null, by dm;
    fn mlx5dv_create_wq(context: *mut ibv_context, wq_init_attr: *mut ibv_wq_init_attr, mlx5_wq_attr: *mut mlx5dv_wq_init_attr) -> *mut ibv_wq = null, by context;
    fn mlx5dv_init_obj(obj: *mut mlx5dv_obj, obj_type: u64) -> c_int = code, by system;
    fn mlx5dv_set_context_attr(context: *mut ibv_context, type_: mlx5dv_set_ctx_attr_type, attr: *mut c_void) -> c_int = code, by context;
    fn mlx5dv_get_clock_info(context: *mut ibv_context, clock_info: *mut mlx5dv_clock_info) -> c_int = code, by context;
    fn mlx5dv_is_supported(device: *mut ibv_device) -> bool = no, by device;
    fn mlx5dv_get_vfio_device_list(attr: *mut mlx5dv_vfio_context_attr) -> *mut *mut ibv_device = null, by system;
    fn mlx5dv_vfio_get_events_fd(ibctx: *mut ibv_context) -> c_int = negative_code, by ibctx;
    fn mlx5dv_vfio_process_events(context: *mut ibv_context) -> c_int = code, by context;
    fn mlx5dv_open_device(device: *mut ibv_device, attr: *mut mlx5dv_context_attr) -> *mut ibv_context = null, by device;
    fn mlx5dv_devx_obj_create(context: *mut ibv_context, in_: *const c_void, inlen: usize, out: *mut c_void, outlen: usize) -> *mut mlx5dv_devx_obj = null, by context;
    fn mlx5dv_devx_obj_query(obj: *mut mlx5dv_devx_obj, in_: *const c_void, inlen: usize, out: *mut c_void, outlen: usize) -> c_int = code, by system;
    fn mlx5dv_devx_obj_modify(obj: *mut mlx5dv_devx_obj, in_: *const c_void, inlen: usize, out: *mut c_void, outlen: usize) -> c_int = code, by system;
    fn mlx5dv_devx_obj_destroy(obj: *mut mlx5dv_devx_obj) -> c_int = code, by system;
    fn mlx5dv_devx_general_cmd(context: *mut ibv_context, in_: *const c_void, inlen: usize, out: *mut c_void, outlen: usize) -> c_int = code, by context;
    fn _mlx5dv_query_port(context: *mut ibv_context, port_num: u32, info: *mut mlx5_ib_uapi_query_port, info_len: usize) -> c_int = code, by context;
    fn mlx5dv_devx_umem_reg(ctx: *mut ibv_context, addr: *mut c_void, size: usize, access: u32) -> *mut mlx5dv_devx_umem = null, by ctx;
    fn mlx5dv_devx_umem_reg_ex(ctx: *mut ibv_context, umem_in: *mut mlx5dv_devx_umem_in) -> *mut mlx5dv_devx_umem = null, by ctx;
    fn mlx5dv_devx_umem_dereg(umem: *mut mlx5dv_devx_umem) -> c_int = code, by system;
    fn mlx5dv_devx_alloc_uar(context: *mut ibv_context, flags: u32) -> *mut mlx5dv_devx_uar = null, by context;
    fn mlx5dv_devx_free_uar(devx_uar: *mut mlx5dv_devx_uar) -> () = nothing, by system;
    fn mlx5dv_alloc_var(context: *mut ibv_context, flags: u32) -> *mut mlx5dv_var = null, by context;
    fn mlx5dv_free_var(dv_var: *mut mlx5dv_var) -> () = nothing, by system;
    fn mlx5dv_devx_query_eqn(context: *mut ibv_context, vector: u32, eqn: *mut u32) -> c_int = code, by context;
    fn mlx5dv_devx_cq_query(cq: *mut ibv_cq, in_: *const c_void, inlen: usize, out: *mut c_void, outlen: usize) -> c_int = code, by cq;
    fn mlx5dv_devx_cq_modify(cq: *mut ibv_cq, in_: *const c_void, inlen: usize, out: *mut c_void, outlen: usize) -> c_int = code, by cq;
    fn mlx5dv_devx_qp_query(qp: *mut ibv_qp, in_: *const c_void, inlen: usize, out: *mut c_void, outlen: usize) -> c_int = code, by qp;
    fn mlx5dv_devx_qp_modify(qp: *mut ibv_qp, in_: *const c_void, inlen: usize, out: *mut c_void, outlen: usize) -> c_int = code, by qp;
    fn mlx5dv_devx_srq_query(srq: *mut ibv_srq, in_: *const c_void, inlen: usize, out: *mut c_void, outlen: usize) -> c_int = code, by srq;
    fn mlx5dv_devx_srq_modify(srq: *mut ibv_srq, in_: *const c_void, inlen: usize, out: *mut c_void, outlen: usize) -> c_int = code, by srq;
    fn mlx5dv_devx_wq_query(wq: *mut ibv_wq, in_: *const c_void, inlen: usize, out: *mut c_void, outlen: usize) -> c_int = code, by wq;
    fn mlx5dv_devx_wq_modify(wq: *mut ibv_wq, in_: *const c_void, inlen: usize, out: *mut c_void, outlen: usize) -> c_int = code, by wq;
    fn mlx5dv_devx_ind_tbl_query(ind_tbl: *mut ibv_rwq_ind_table, in_: *const c_void, inlen: usize, out: *mut c_void, outlen: usize) -> c_int = code, by ind_tbl;
    fn mlx5dv_devx_ind_tbl_modify(ind_tbl: *mut ibv_rwq_ind_table, in_: *const c_void, inlen: usize, out: *mut c_void, outlen: usize) -> c_int = code, by ind_tbl;
    fn mlx5dv_devx_create_cmd_comp(context: *mut ibv_context) -> *mut mlx5dv_devx_cmd_comp = null, by context;
    fn mlx5dv_devx_destroy_cmd_comp(cmd_comp: *mut mlx5dv_devx_cmd_comp) -> () = nothing, by system;
    fn mlx5dv_devx_obj_query_async(obj: *mut mlx5dv_devx_obj, in_: *const c_void, inlen: usize, outlen: usize, wr_id: u64, cmd_comp: *mut mlx5dv_devx_cmd_comp) -> c_int = code, by system;
    fn mlx5dv_devx_get_async_cmd_comp(cmd_comp: *mut mlx5dv_devx_cmd_comp, cmd_resp: *mut mlx5_ib_uapi_devx_async_cmd_hdr, cmd_resp_len: usize) -> c_int = code, by system;
    fn mlx5dv_devx_create_event_channel(context: *mut ibv_context, flags: mlx5_ib_uapi_devx_create_event_channel_flags) -> *mut mlx5dv_devx_event_channel = null, by context;
    fn mlx5dv_devx_destroy_event_channel(event_channel: *mut mlx5dv_devx_event_channel) -> () = nothing, by system;
    fn mlx5dv_devx_subscribe_devx_event(event_channel: *mut mlx5dv_devx_event_channel, obj: *mut mlx5dv_devx_obj, events_sz: u16, events_num: *mut u16, cookie: u64) -> c_int = code, by system;
    fn mlx5dv_devx_subscribe_devx_event_fd(event_channel: *mut mlx5dv_devx_event_channel, fd: c_int, obj: *mut mlx5dv_devx_obj, event_num: u16) -> c_int = code, by system;
    fn mlx5dv_devx_get_event(event_channel: *mut mlx5dv_devx_event_channel, event_data: *mut mlx5_ib_uapi_devx_async_event_hdr, event_resp_len: usize) -> isize = minus_one_bytes, by system;
    fn mlx5dv_dr_domain_create(ctx: *mut ibv_context, type_: mlx5dv_dr_domain_type) -> *mut mlx5dv_dr_domain = null, by ctx;
    fn mlx5dv_dr_domain_destroy(domain: *mut mlx5dv_dr_domain) -> c_int = code, by system;
    fn mlx5dv_dr_domain_sync(domain: *mut mlx5dv_dr_domain, flags: u32) -> c_int = code, by system;
    fn mlx5dv_dr_domain_set_reclaim_device_memory(dmn: *mut mlx5dv_dr_domain, enable: bool) -> () = nothing, by system;
    fn mlx5dv_dr_domain_allow_duplicate_rules(domain: *mut mlx5dv_dr_domain, allow: bool) -> () = nothing, by system;
    fn mlx5dv_dr_table_create(domain: *mut mlx5dv_dr_domain, level: u32) -> *mut mlx5dv_dr_table = null, by system;
    fn mlx5dv_dr_table_destroy(table: *mut mlx5dv_dr_table) -> c_int = code, by system;
    fn mlx5dv_dr_matcher_create(table: *mut mlx5dv_dr_table, priority: u16, match_criteria_enable: u8, mask: *mut mlx5dv_flow_match_parameters) -> *mut mlx5dv_dr_matcher = null, by system;
    fn mlx5dv_dr_matcher_destroy(matcher: *mut mlx5dv_dr_matcher) -> c_int = code, by system;
    fn mlx5dv_dr_matcher_set_layout(matcher: *mut mlx5dv_dr_matcher, layout: *mut mlx5dv_dr_matcher_layout) -> c_int = code, by system;
    fn mlx5dv_dr_rule_create(matcher: *mut mlx5dv_dr_matcher, value: *mut mlx5dv_flow_match_parameters, num_actions: usize, actions: *mut *mut mlx5dv_dr_action) -> *mut mlx5dv_dr_rule = null, by system;
    fn mlx5dv_dr_rule_destroy(rule: *mut mlx5dv_dr_rule) -> c_int = code, by system;
    fn mlx5dv_dr_action_create_dest_ibv_qp(ibqp: *mut ibv_qp) -> *mut mlx5dv_dr_action = null, by ibqp;
    fn mlx5dv_dr_action_create_dest_table(table: *mut mlx5dv_dr_table) -> *mut mlx5dv_dr_action = null, by system;
    fn mlx5dv_dr_action_create_dest_vport(domain: *mut mlx5dv_dr_domain, vport: u32) -> *mut mlx5dv_dr_action = null, by system;
    fn mlx5dv_dr_action_create_dest_ib_port(domain: *mut mlx5dv_dr_domain, ib_port: u32) -> *mut mlx5dv_dr_action = null, by system;
    fn mlx5dv_dr_action_create_dest_devx_tir(devx_obj: *mut mlx5dv_devx_obj) -> *mut mlx5dv_dr_action = null, by system;
    fn mlx5dv_dr_action_create_dest_array(domain: *mut mlx5dv_dr_domain, num_dest: usize, dests: *mut *mut mlx5dv_dr_action_dest_attr) -> *mut mlx5dv_dr_action = null, by system;
    fn mlx5dv_dr_action_create_drop() -> *mut mlx5dv_dr_action = null, by system;
    fn mlx5dv_dr_action_create_default_miss() -> *mut mlx5dv_dr_action = null, by system;
    fn mlx5dv_dr_action_create_tag(tag_value: u32) -> *mut mlx5dv_dr_action = null, by system;
    fn mlx5dv_dr_action_create_flow_counter(devx_obj: *mut mlx5dv_devx_obj, offset: u32) -> *mut mlx5dv_dr_action = null, by system;
    fn mlx5dv_dr_action_create_aso(domain: *mut mlx5dv_dr_domain, devx_obj: *mut mlx5dv_devx_obj, offset: u32, flags: u32, return_reg_c: u8) -> *mut mlx5dv_dr_action = null, by system;
    fn mlx5dv_dr_action_modify_aso(action: *mut mlx5dv_dr_action, offset: u32, flags: u32, return_reg_c: u8) -> c_int = code, by system;
    fn mlx5dv_dr_action_create_packet_reformat(domain: *mut mlx5dv_dr_domain, flags: u32, reformat_type: mlx5_ib_uapi_flow_action_packet_reformat_type, data_sz: usize, data: *mut c_void) -> *mut mlx5dv_dr_action = null, by system;
    fn mlx5dv_dr_action_create_modify_header(domain: *mut mlx5dv_dr_domain, flags: u32, actions_sz: usize, actions: *mut __be64) -> *mut mlx5dv_dr_action = null, by system;
    fn mlx5dv_dr_action_create_flow_meter(attr: *mut mlx5dv_dr_flow_meter_attr) -> *mut mlx5dv_dr_action = null, by system;
    fn mlx5dv_dr_action_modify_flow_meter(action: *mut mlx5dv_dr_action, attr: *mut mlx5dv_dr_flow_meter_attr, modify_field_select: __be64) -> c_int = code, by system;
    fn mlx5dv_dr_action_create_flow_sampler(attr: *mut mlx5dv_dr_flow_sampler_attr) -> *mut mlx5dv_dr_action = null, by system;
    fn mlx5dv_dr_action_create_pop_vlan() -> *mut mlx5dv_dr_action = null, by system;
    fn mlx5dv_dr_action_create_push_vlan(domain: *mut mlx5dv_dr_domain, vlan_hdr: __be32) -> *mut mlx5dv_dr_action = null, by system;
    fn mlx5dv_dr_action_create_dest_root_table(table: *mut mlx5dv_dr_table, priority: u16) -> *mut mlx5dv_dr_action = null, by system;
    fn mlx5dv_dr_action_destroy(action: *mut mlx5dv_dr_action) -> c_int = code, by system;
    fn mlx5dv_dump_dr_domain(fout: *mut FILE, domain: *mut mlx5dv_dr_domain) -> c_int = code, by system;
    fn mlx5dv_dump_dr_table(fout: *mut FILE, table: *mut mlx5dv_dr_table) -> c_int = code, by system;
    fn mlx5dv_dump_dr_matcher(fout: *mut FILE, matcher: *mut mlx5dv_dr_matcher) -> c_int = code, by system;
    fn mlx5dv_dump_dr_rule(fout: *mut FILE, rule: *mut mlx5dv_dr_rule) -> c_int = code, by system;
    fn mlx5dv_pp_alloc(context: *mut ibv_context, pp_context_sz: usize, pp_context: *const c_void, flags: u32) -> *mut mlx5dv_pp = null, by context;
    fn mlx5dv_pp_free(pp: *mut mlx5dv_pp) -> () = nothing, by system;
    fn mlx5dv_query_qp_lag_port(qp: *mut ibv_qp, port_num: *mut u8, active_port_num: *mut u8) -> c_int = code, by qp;
    fn mlx5dv_modify_qp_lag_port(qp: *mut ibv_qp, port_num: u8) -> c_int = code, by qp;
    fn mlx5dv_modify_qp_udp_sport(qp: *mut ibv_qp, udp_sport: u16) -> c_int = code, by qp;
    fn mlx5dv_dci_stream_id_reset(qp: *mut ibv_qp, stream_id: u16) -> c_int = code, by qp;
    fn mlx5dv_sched_node_create(context: *mut ibv_context, sched_attr: *const mlx5dv_sched_attr) -> *mut mlx5dv_sched_node = null, by context;
    fn mlx5dv_sched_leaf_create(context: *mut ibv_context, sched_attr: *const mlx5dv_sched_attr) -> *mut mlx5dv_sched_leaf = null, by context;
    fn mlx5dv_sched_node_modify(node: *mut mlx5dv_sched_node, sched_attr: *const mlx5dv_sched_attr) -> c_int = code, by system;
    fn mlx5dv_sched_leaf_modify(leaf: *mut mlx5dv_sched_leaf, sched_attr: *const mlx5dv_sched_attr) -> c_int = code, by system;
    fn mlx5dv_sched_node_destroy(node: *mut mlx5dv_sched_node) -> c_int = code, by system;
    fn mlx5dv_sched_leaf_destroy(leaf: *mut mlx5dv_sched_leaf) -> c_int = code, by system;
    fn mlx5dv_modify_qp_sched_elem(qp: *mut ibv_qp, requestor: *const mlx5dv_sched_leaf, responder: *const mlx5dv_sched_leaf) -> c_int = code, by qp;
    fn mlx5dv_reserved_qpn_alloc(ctx: *mut ibv_context, qpn: *mut u32) -> c_int = code, by ctx;
    fn mlx5dv_reserved_qpn_dealloc(ctx: *mut ibv_context, qpn: u32) -> c_int = code, by ctx;
    fn mlx5dv_dr_aso_other_domain_link(devx_obj: *mut mlx5dv_devx_obj, peer_dmn: *mut mlx5dv_dr_domain, dmn: *mut mlx5dv_dr_domain, flags: u32, return_reg_c: u8) -> c_int = code, by system;
    fn mlx5dv_dr_aso_other_domain_unlink(devx_obj: *mut mlx5dv_devx_obj, dmn: *mut mlx5dv_dr_domain) -> c_int = code, by system;
    fn mlx5dv_devx_alloc_msi_vector(ibctx: *mut ibv_context) -> *mut mlx5dv_devx_msi_vector = null, by ibctx;
    fn mlx5dv_devx_free_msi_vector(msi: *mut mlx5dv_devx_msi_vector) -> c_int = code, by system;
    fn mlx5dv_devx_create_eq(ibctx: *mut ibv_context, in_: *const c_void, inlen: usize, out: *mut c_void, outlen: usize) -> *mut mlx5dv_devx_eq = null, by ibctx;
    fn mlx5dv_devx_destroy_eq(eq: *mut mlx5dv_devx_eq) -> c_int = code, by system;
}
