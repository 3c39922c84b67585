//! The table of the functions of libibverbs. For most functions, the table contains the function of the same name in
//! `guard`.

use rdma_mummy_sys::load::ibverbs::IbverbsTable;
use rdma_mummy_sys::since_v44::IbverbsSinceV44;

use super::{async_event_verbs, buffer, device, guard, open};

/// Returns the functions of the library.
pub(crate) fn table() -> IbverbsTable {
    IbverbsTable {
        ibv_get_device_list: Some(device::get_device_list),
        ibv_free_device_list: Some(device::free_device_list),
        ibv_get_device_name: Some(device::get_device_name),
        ibv_get_device_index: Some(device::get_device_index),
        ibv_get_device_guid: Some(device::get_device_guid),
        ibv_fork_init: Some(device::fork_init),
        ibv_is_fork_initialized: Some(device::is_fork_initialized),
        ibv_open_device: Some(open::open_device),
        ibv_close_device: Some(guard::close_device),
        ibv_query_device: Some(guard::query_device),
        ibv_query_port: Some(guard::query_port_compat),
        ibv_query_gid: Some(guard::query_gid),
        _ibv_query_gid_ex: Some(guard::query_gid_ex),
        _ibv_query_gid_table: Some(guard::query_gid_table),
        ibv_query_gid_type: Some(guard::query_gid_type),
        ibv_query_pkey: Some(guard::query_pkey),
        ibv_get_pkey_index: Some(guard::get_pkey_index),
        ibv_alloc_pd: Some(guard::alloc_pd),
        ibv_dealloc_pd: Some(guard::dealloc_pd),
        ibv_import_pd: Some(guard::import_pd),
        ibv_unimport_pd: Some(guard::unimport_pd),
        ibv_import_mr: Some(guard::import_mr),
        ibv_unimport_mr: Some(guard::unimport_mr),
        ibv_import_dm: Some(guard::import_dm),
        ibv_unimport_dm: Some(guard::unimport_dm),
        ibv_reg_mr: Some(guard::reg_mr),
        ibv_reg_mr_iova: Some(guard::reg_mr_iova),
        ibv_reg_mr_iova2: Some(guard::reg_mr_iova2),
        ibv_reg_dmabuf_mr: Some(guard::reg_dmabuf_mr),
        ibv_rereg_mr: Some(guard::rereg_mr),
        ibv_dereg_mr: Some(guard::dereg_mr),
        ibv_get_async_event: Some(guard::get_async_event),
        ibv_ack_async_event: Some(async_event_verbs::ack_async_event),
        ibv_create_comp_channel: Some(guard::create_comp_channel),
        ibv_destroy_comp_channel: Some(guard::destroy_comp_channel),
        ibv_get_cq_event: Some(guard::get_cq_event),
        ibv_ack_cq_events: Some(guard::ack_cq_events),
        ibv_create_cq: Some(guard::create_cq),
        ibv_resize_cq: Some(guard::resize_cq),
        ibv_destroy_cq: Some(guard::destroy_cq),
        ibv_create_srq: Some(guard::create_srq),
        ibv_modify_srq: Some(guard::modify_srq),
        ibv_query_srq: Some(guard::query_srq),
        ibv_destroy_srq: Some(guard::destroy_srq),
        ibv_create_qp: Some(guard::create_qp),
        ibv_qp_to_qp_ex: Some(guard::qp_to_qp_ex),
        ibv_modify_qp: Some(guard::modify_qp),
        ibv_query_qp: Some(guard::query_qp),
        ibv_query_qp_data_in_order: Some(guard::query_qp_data_in_order),
        ibv_destroy_qp: Some(guard::destroy_qp),
        ibv_create_ah: Some(guard::create_ah),
        ibv_init_ah_from_wc: Some(guard::init_ah_from_wc),
        ibv_create_ah_from_wc: Some(guard::create_ah_from_wc),
        ibv_destroy_ah: Some(guard::destroy_ah),
        ibv_resolve_eth_l2_from_gid: Some(guard::resolve_eth_l2_from_gid),
        ibv_attach_mcast: Some(guard::attach_mcast),
        ibv_detach_mcast: Some(guard::detach_mcast),
        since_v44: IbverbsSinceV44 {
            ibv_query_port_speed: Some(guard::query_port_speed),
            ibv_reg_mr_ex: Some(guard::reg_mr_ex),
            ibv_alloc_buf: Some(guard::alloc_buf),
            ibv_free_buf: Some(buffer::free_buf),
            ibv_reg_buf_mr: Some(guard::reg_buf_mr),
            ibv_export_buf_dmabuf_fd: Some(buffer::export_buf_dmabuf_fd),
            ..Default::default()
        },
        ..Default::default()
    }
}
