//! Connections of `softiw0` within a host, in processes that have no other device.

use super::*;
use crate::child::is_alone;

/// Creates the QP of an identifier.
fn create_qp(id: *mut rdma_cm_id) {
    // SAFETY: the type has only numbers and pointers, for which zero is valid.
    let mut attributes: ibv_qp_init_attr = unsafe { mem::zeroed() };
    attributes.qp_type = ibv_qp_type::IBV_QPT_RC;
    (attributes.cap.max_send_wr, attributes.cap.max_recv_wr) = (1, 1);
    // SAFETY: the identifier is alive and has a device. Without a domain and queues, the function creates them.
    assert_eq!(unsafe { rdma_create_qp(id, ptr::null_mut(), &raw mut attributes) }, 0, "{}", errno());
}

fn end(id: *mut rdma_cm_id) {
    // SAFETY: the identifier is alive, and its QP is no longer used.
    unsafe { rdma_destroy_qp(id) };
    destroy(id);
}

/// The passive side accepts and disconnects before the active side reads its event.
#[test]
fn peer_that_disconnects_at_once_was_connected() {
    if !is_alone("rdmacm::stream::peer_that_disconnects_at_once_was_connected") {
        return;
    }
    softrnic::Builder::new().device("softiw0").register().unwrap();
    let (active_side, passive_side) = (Channel::new(), Channel::new());
    let (listener, port) = passive_side.listen(TCP, 0);
    // The disconnect arrives at different times.
    for _ in 0..50 {
        let active = active_side.resolved(TCP, port);
        create_qp(active);
        connect(active, b"").unwrap();
        let request = passive_side.expect(event_type::RDMA_CM_EVENT_CONNECT_REQUEST);
        let passive = request.id;
        drop(request);
        create_qp(passive);
        let mut parameters = parameters(b"");
        // SAFETY: the identifier is alive, and so is its QP.
        unsafe {
            assert_eq!(rdma_accept(passive, &raw mut parameters), 0, "{}", errno());
            passive_side.expect(event_type::RDMA_CM_EVENT_ESTABLISHED);
            assert_eq!(rdma_disconnect(passive), 0);
        }
        active_side.expect(event_type::RDMA_CM_EVENT_ESTABLISHED);
        active_side.expect(event_type::RDMA_CM_EVENT_DISCONNECTED);
        end(active);
        passive_side.expect(event_type::RDMA_CM_EVENT_DISCONNECTED);
        end(passive);
    }
    destroy(listener);
}
