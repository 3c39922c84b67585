//! Which function stands for which verb: those of libibverbs, and those that programs find in a context.

use rdma_mummy_sys::later::IbverbsLater;
use rdma_mummy_sys::load::ibverbs::IbverbsTable;
use rdma_mummy_sys::verbs_context;

use super::{
    address_handle, async_event, completion_channel, completion_queue, context, device, device_memory, gid, import,
    memory_region, memory_window, multicast, port, protection_domain, query_device, queue_pair, shared_receive_queue,
    thread_domain, xrc_domain,
};

/// The functions of the library.
pub(crate) fn table() -> IbverbsTable {
    IbverbsTable {
        ibv_get_device_list: Some(device::get_device_list),
        ibv_free_device_list: Some(device::free_device_list),
        ibv_get_device_name: Some(device::get_device_name),
        ibv_get_device_index: Some(device::get_device_index),
        ibv_get_device_guid: Some(device::get_device_guid),
        ibv_open_device: Some(context::open_device),
        ibv_close_device: Some(context::close_device),
        ibv_query_device: Some(query_device::query_device),
        ibv_query_port: Some(port::query_port_compat),
        ibv_query_gid: Some(gid::query_gid),
        _ibv_query_gid_ex: Some(gid::query_gid_ex),
        _ibv_query_gid_table: Some(gid::query_gid_table),
        ibv_query_gid_type: Some(gid::query_gid_type),
        ibv_query_pkey: Some(port::query_pkey),
        ibv_get_pkey_index: Some(port::get_pkey_index),
        ibv_alloc_pd: Some(protection_domain::alloc_pd),
        ibv_dealloc_pd: Some(protection_domain::dealloc_pd),
        ibv_import_pd: Some(protection_domain::import_pd),
        ibv_unimport_pd: Some(protection_domain::unimport_pd),
        ibv_import_mr: Some(import::import_mr),
        ibv_unimport_mr: Some(import::unimport_mr),
        ibv_import_dm: Some(import::import_dm),
        ibv_unimport_dm: Some(import::unimport_dm),
        ibv_reg_mr: Some(memory_region::reg_mr),
        ibv_reg_mr_iova: Some(memory_region::reg_mr_iova),
        ibv_reg_mr_iova2: Some(memory_region::reg_mr_iova2),
        ibv_reg_dmabuf_mr: Some(memory_region::reg_dmabuf_mr),
        ibv_rereg_mr: Some(memory_region::rereg_mr),
        ibv_dereg_mr: Some(memory_region::dereg_mr),
        ibv_get_async_event: Some(async_event::get_async_event),
        ibv_ack_async_event: Some(async_event::ack_async_event),
        ibv_create_comp_channel: Some(completion_channel::create_comp_channel),
        ibv_destroy_comp_channel: Some(completion_channel::destroy_comp_channel),
        ibv_get_cq_event: Some(completion_channel::get_cq_event),
        ibv_ack_cq_events: Some(completion_channel::ack_cq_events),
        ibv_create_cq: Some(completion_queue::create_cq),
        ibv_resize_cq: Some(completion_queue::resize_cq),
        ibv_destroy_cq: Some(completion_queue::destroy_cq),
        ibv_create_srq: Some(shared_receive_queue::create_srq),
        ibv_modify_srq: Some(shared_receive_queue::modify_srq),
        ibv_query_srq: Some(shared_receive_queue::query_srq),
        ibv_destroy_srq: Some(shared_receive_queue::destroy_srq),
        ibv_create_qp: Some(queue_pair::create_qp),
        ibv_qp_to_qp_ex: Some(queue_pair::qp_to_qp_ex),
        ibv_modify_qp: Some(queue_pair::modify_qp),
        ibv_query_qp: Some(queue_pair::query_qp),
        ibv_query_qp_data_in_order: Some(queue_pair::query_qp_data_in_order),
        ibv_destroy_qp: Some(queue_pair::destroy_qp),
        ibv_set_ece: Some(queue_pair::set_ece),
        ibv_query_ece: Some(queue_pair::query_ece),
        ibv_create_ah: Some(address_handle::create_ah),
        ibv_init_ah_from_wc: Some(address_handle::init_ah_from_wc),
        ibv_create_ah_from_wc: Some(address_handle::create_ah_from_wc),
        ibv_destroy_ah: Some(address_handle::destroy_ah),
        ibv_resolve_eth_l2_from_gid: Some(address_handle::resolve_eth_l2_from_gid),
        ibv_attach_mcast: Some(multicast::attach_mcast),
        ibv_detach_mcast: Some(multicast::detach_mcast),
        later: IbverbsLater { ibv_query_port_speed: Some(port::query_port_speed), ..Default::default() },
        ..Default::default()
    }
}

/// Fills in the functions of a context. What has no function here is not supported, which programs tell by the null pointer.
pub(super) fn fill(verbs: &mut verbs_context) {
    verbs.query_port = Some(port::query_port);
    verbs.query_device_ex = Some(query_device::query_device_ex);
    verbs.query_rt_values = Some(query_device::query_rt_values);
    verbs.alloc_td = Some(thread_domain::alloc_td);
    verbs.dealloc_td = Some(thread_domain::dealloc_td);
    verbs.alloc_parent_domain = Some(protection_domain::alloc_parent_domain);
    verbs.alloc_null_mr = Some(memory_region::alloc_null_mr);
    verbs.advise_mr = Some(memory_region::advise_mr);
    verbs.alloc_dm = Some(device_memory::alloc_dm);
    verbs.free_dm = Some(device_memory::free_dm);
    verbs.reg_dm_mr = Some(device_memory::reg_dm_mr);
    verbs.context.ops.alloc_mw = Some(memory_window::alloc_mw);
    verbs.context.ops.dealloc_mw = Some(memory_window::dealloc_mw);
    verbs.create_qp_ex = Some(queue_pair::create_qp_ex);
    verbs.open_qp = Some(queue_pair::open_qp);
    verbs.context.ops.bind_mw = Some(queue_pair::bind_mw);
    verbs.context.ops.post_send = Some(queue_pair::post_send);
    verbs.context.ops.post_recv = Some(queue_pair::post_recv);
    verbs.create_cq_ex = Some(completion_queue::create_cq_ex);
    verbs.modify_cq = Some(completion_queue::modify_cq);
    verbs.context.ops.poll_cq = Some(completion_queue::poll_cq);
    verbs.context.ops.req_notify_cq = Some(completion_queue::req_notify_cq);
    verbs.create_srq_ex = Some(shared_receive_queue::create_srq_ex);
    verbs.get_srq_num = Some(shared_receive_queue::get_srq_num);
    verbs.open_xrcd = Some(xrc_domain::open_xrcd);
    verbs.close_xrcd = Some(xrc_domain::close_xrcd);
    verbs.context.ops.post_srq_recv = Some(shared_receive_queue::post_srq_recv);
}
