//! Outputs outside the headers' values: the output of a call is overwritten before the caller reads it. See
//! [`Spoil`](crate::recording::Spoil).

use std::ptr::with_exposed_provenance_mut;

use rdma_mummy_sys as ffi;

use crate::recording::Spoil;

/// Handles the outputs of a successful call.
pub(super) fn spoil(spoil: &mut Spoil, verb: &str, arguments: &[u64]) {
    let argument = |index: usize| arguments[index] as usize;
    // SAFETY: the arguments are those of a call that has succeeded, so its outputs can be written.
    unsafe {
        match verb {
            "rdma_get_remote_ece" => {
                spoil.output("rdma_get_remote_ece", with_exposed_provenance_mut::<ffi::ibv_ece>(argument(1)));
            }
            "rdma_init_qp_attr" => {
                spoil.output("rdma_init_qp_attr: attr", with_exposed_provenance_mut::<ffi::ibv_qp_attr>(argument(1)));
                spoil.output("rdma_init_qp_attr: mask", with_exposed_provenance_mut::<libc::c_int>(argument(2)));
            }
            "rdma_getaddrinfo" => addresses(spoil, *with_exposed_provenance_mut(argument(3))),
            "rdma_query_addrinfo" => addresses(spoil, *with_exposed_provenance_mut(argument(1))),
            _ => {}
        }
    }
}

/// # Safety
///
/// The list can be written.
unsafe fn addresses(spoil: &mut Spoil, info: *mut ffi::rdma_addrinfo) {
    // SAFETY: guaranteed by the caller. Lengths of absent data are outputs as well.
    unsafe {
        spoil.output("a list of addresses: flags", &raw mut (*info).ai_flags);
        spoil.output("a list of addresses: family", &raw mut (*info).ai_family);
        spoil.output("a list of addresses: type", &raw mut (*info).ai_qp_type);
        spoil.output("a list of addresses: port space", &raw mut (*info).ai_port_space);
        spoil.output("a list of addresses: length", &raw mut (*info).ai_src_len);
        spoil.output("a list of addresses: length", &raw mut (*info).ai_dst_len);
        spoil.output("a list of addresses: length of nothing", &raw mut (*info).ai_route_len);
        spoil.output("a list of addresses: length of nothing", &raw mut (*info).ai_connect_len);
    }
}

/// The numbers of an event.
pub(super) fn event(spoil: &mut Spoil, event: &mut ffi::rdma_cm_event) {
    use ffi::rdma_cm_event_type as event_type;
    // SAFETY: an event consists of integers, pointers that are left alone, and a union of such members.
    unsafe {
        // The type of a request implies an identifier to own.
        if event.listen_id.is_null() {
            spoil.tag("rdma_get_cm_event: type", &raw mut event.event);
        }
        spoil.output("rdma_get_cm_event: status", &raw mut event.status);
        match event.event {
            event_type::RDMA_CM_EVENT_CONNECT_REQUEST | event_type::RDMA_CM_EVENT_CONNECT_RESPONSE => {
                let conn = &raw mut event.param.conn;
                if (*conn).private_data.is_null() {
                    spoil.output("rdma_get_cm_event: length of no data", &raw mut (*conn).private_data_len);
                }
                spoil.output("rdma_get_cm_event: depths", &raw mut (*conn).responder_resources);
                spoil.output("rdma_get_cm_event: depths", &raw mut (*conn).initiator_depth);
                spoil.output("rdma_get_cm_event: flow control", &raw mut (*conn).flow_control);
                spoil.output("rdma_get_cm_event: retries", &raw mut (*conn).retry_count);
                spoil.output("rdma_get_cm_event: retries", &raw mut (*conn).rnr_retry_count);
                spoil.output("rdma_get_cm_event: srq", &raw mut (*conn).srq);
                spoil.output("rdma_get_cm_event: number", &raw mut (*conn).qp_num);
            }
            event_type::RDMA_CM_EVENT_MULTICAST_JOIN => {
                let ud = &raw mut event.param.ud;
                spoil.output("rdma_get_cm_event: way", &raw mut (*ud).ah_attr);
                spoil.output("rdma_get_cm_event: number", &raw mut (*ud).qp_num);
                spoil.output("rdma_get_cm_event: qkey", &raw mut (*ud).qkey);
            }
            _ => {}
        }
    }
}
