//! The table of the functions of librdmacm that soft devices support, which are all except rsockets.

use rdma_mummy_sys::load::rdmacm::RdmacmTable;
use rdma_mummy_sys::since_v44::RdmacmSinceV44;

use super::{
    address, channel, connect, device, endpoint, events, id, info, listen, multicast, option, qp, route, srq,
    transition,
};

pub(crate) fn table() -> RdmacmTable {
    RdmacmTable {
        rdma_create_event_channel: Some(channel::create_event_channel),
        rdma_destroy_event_channel: Some(channel::destroy_event_channel),
        rdma_create_id: Some(id::create_id),
        rdma_destroy_id: Some(id::destroy_id),
        rdma_migrate_id: Some(id::migrate_id),
        rdma_create_ep: Some(endpoint::create_ep),
        rdma_destroy_ep: Some(endpoint::destroy_ep),
        rdma_get_request: Some(endpoint::get_request),
        rdma_bind_addr: Some(address::bind_addr),
        rdma_resolve_addr: Some(address::resolve_addr),
        rdma_get_src_port: Some(address::get_src_port),
        rdma_get_dst_port: Some(address::get_dst_port),
        rdma_resolve_route: Some(route::resolve_route),
        rdma_listen: Some(listen::listen),
        rdma_create_qp: Some(qp::create_qp),
        rdma_create_qp_ex: Some(qp::create_qp_ex),
        rdma_destroy_qp: Some(qp::destroy_qp),
        rdma_create_srq: Some(srq::create_srq),
        rdma_create_srq_ex: Some(srq::create_srq_ex),
        rdma_destroy_srq: Some(srq::destroy_srq),
        rdma_init_qp_attr: Some(transition::init_qp_attr),
        rdma_connect: Some(connect::connect),
        rdma_accept: Some(connect::accept),
        rdma_establish: Some(connect::establish),
        rdma_reject: Some(connect::reject),
        rdma_reject_ece: Some(connect::reject_ece),
        rdma_disconnect: Some(connect::disconnect),
        rdma_notify: Some(connect::notify),
        rdma_set_option: Some(option::set_option),
        rdma_set_local_ece: Some(option::set_local_ece),
        rdma_get_remote_ece: Some(option::get_remote_ece),
        rdma_join_multicast: Some(multicast::join_multicast),
        rdma_join_multicast_ex: Some(multicast::join_multicast_ex),
        rdma_leave_multicast: Some(multicast::leave_multicast),
        rdma_get_cm_event: Some(events::get_cm_event),
        rdma_ack_cm_event: Some(events::ack_cm_event),
        rdma_event_str: Some(rdma_mummy_sys::rdma_event_str),
        rdma_getaddrinfo: Some(info::getaddrinfo),
        rdma_freeaddrinfo: Some(info::freeaddrinfo),
        rdma_get_devices: Some(device::get_devices),
        rdma_free_devices: Some(device::free_devices),
        since_v44: RdmacmSinceV44 {
            rdma_resolve_addrinfo: Some(info::resolve_addrinfo),
            rdma_query_addrinfo: Some(info::query_addrinfo),
            rdma_write_cm_event: Some(events::write_cm_event),
        },
    }
}
