//! Connections of `softiw0` within a host, in processes that have no other device.

use super::*;
use crate::child::is_alone;

/// Creates the QP of an identifier, with queues of `length` requests.
pub(super) fn create_qp(id: *mut rdma_cm_id, length: u32) {
    // SAFETY: the type has only numbers and pointers, for which zero is valid.
    let mut attributes: ibv_qp_init_attr = unsafe { mem::zeroed() };
    attributes.qp_type = ibv_qp_type::IBV_QPT_RC;
    (attributes.cap.max_send_wr, attributes.cap.max_recv_wr) = (length, length);
    (attributes.cap.max_send_sge, attributes.cap.max_recv_sge) = (1, 1);
    // SAFETY: the identifier is alive and has a device. Without a domain and queues, the function creates them.
    assert_eq!(unsafe { rdma_create_qp(id, ptr::null_mut(), &raw mut attributes) }, 0, "{}", errno());
}

pub(super) fn end(id: *mut rdma_cm_id) {
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
        create_qp(active, 1);
        connect(active, b"").unwrap();
        let request = passive_side.expect(event_type::RDMA_CM_EVENT_CONNECT_REQUEST);
        let passive = request.id;
        drop(request);
        create_qp(passive, 1);
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

/// When the program gets the event of the end, all messages that the peer sent before have completed.
#[test]
fn end_is_reported_after_the_messages_before_it() {
    const MESSAGES: usize = 16;
    const LENGTH: usize = 100_000;

    if !is_alone("rdmacm::stream::end_is_reported_after_the_messages_before_it") {
        return;
    }
    softrnic::Builder::new().device("softiw0").register().unwrap();
    let (active_side, passive_side) = (Channel::new(), Channel::new());
    let (listener, port) = passive_side.listen(TCP, 0);
    let mut memory = [vec![1_u8; LENGTH], vec![0; LENGTH * MESSAGES]];
    // The end arrives at different times.
    for _ in 0..20 {
        let active = active_side.resolved(TCP, port);
        create_qp(active, MESSAGES as u32);
        connect(active, b"").unwrap();
        let passive = passive_side.expect(event_type::RDMA_CM_EVENT_CONNECT_REQUEST).id;
        create_qp(passive, MESSAGES as u32);
        let mut parameters = parameters(b"");
        // SAFETY: the identifiers, their QPs and the memory are alive until the regions are deregistered.
        unsafe {
            let regions = [active, passive].map(|id| {
                let memory = &mut memory[usize::from(id == passive)];
                ibv_reg_mr(
                    (*id).pd,
                    memory.as_mut_ptr().cast(),
                    memory.len(),
                    ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0 as c_int,
                )
            });
            let part = |region: *mut ibv_mr, part: usize| ibv_sge {
                addr: (*region).addr as u64 + (part * LENGTH) as u64,
                length: LENGTH as u32,
                lkey: (*region).lkey,
            };
            for message in 0..MESSAGES {
                let mut sge = part(regions[1], message);
                let mut receive = ibv_recv_wr { sg_list: &raw mut sge, num_sge: 1, ..mem::zeroed() };
                assert_eq!(ibv_post_recv((*passive).qp, &raw mut receive, &mut ptr::null_mut()), 0);
            }
            assert_eq!(rdma_accept(passive, &raw mut parameters), 0, "{}", errno());
            active_side.expect(event_type::RDMA_CM_EVENT_ESTABLISHED);
            passive_side.expect(event_type::RDMA_CM_EVENT_ESTABLISHED);
            for _ in 0..MESSAGES {
                let mut sge = part(regions[0], 0);
                let (opcode, send_flags) = (ibv_wr_opcode::IBV_WR_SEND, ibv_send_flags::IBV_SEND_SIGNALED.0);
                let mut send = ibv_send_wr { sg_list: &raw mut sge, num_sge: 1, opcode, send_flags, ..mem::zeroed() };
                assert_eq!(ibv_post_send((*active).qp, &raw mut send, &mut ptr::null_mut()), 0);
            }
            // TCP then has all messages.
            let mut sent = 0;
            while sent < MESSAGES {
                let mut completion: ibv_wc = mem::zeroed();
                sent += ibv_poll_cq((*active).send_cq, 1, &raw mut completion) as usize;
                assert_eq!(completion.status, ibv_wc_status::IBV_WC_SUCCESS);
            }
            assert_eq!(rdma_disconnect(active), 0);
            passive_side.expect(event_type::RDMA_CM_EVENT_DISCONNECTED);
            let mut completions: [ibv_wc; MESSAGES] = mem::zeroed();
            let count = ibv_poll_cq((*passive).recv_cq, MESSAGES as c_int, completions.as_mut_ptr());
            assert_eq!(count, MESSAGES as c_int);
            for completion in completions {
                assert_eq!((completion.status, completion.byte_len), (ibv_wc_status::IBV_WC_SUCCESS, LENGTH as u32));
            }
            active_side.expect(event_type::RDMA_CM_EVENT_DISCONNECTED);
            for (id, region) in [active, passive].into_iter().zip(regions) {
                rdma_destroy_qp(id);
                assert_eq!(ibv_dereg_mr(region), 0);
                destroy(id);
            }
        }
    }
    destroy(listener);
}
