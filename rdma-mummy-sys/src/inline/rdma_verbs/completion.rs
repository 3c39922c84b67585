//! Waiting for the completions of an identifier.

use core::ffi::c_int;
use core::ptr::null_mut;

use super::rdma_seterrno;
use crate::bindings::{rdma_cma::*, verbs::*};
use crate::inline::library;
use crate::inline::{ibv_poll_cq, ibv_req_notify_cq};

/// Waits for one completion of the send queue. Returns one, or -1 and sets errno. See `rdma_get_send_comp(3)`.
///
/// # Safety
///
/// `id` is live and librdmacm made its completion queues; `wc` can be written.
#[inline]
pub unsafe fn rdma_get_send_comp(id: *mut rdma_cm_id, wc: *mut ibv_wc) -> c_int {
    // SAFETY: by contract the identifier is live, with its queue and the queue's channel.
    unsafe { wait(id, (*id).send_cq, (*id).send_cq_channel, wc) }
}

/// Waits for one completion of the receive queue. Returns one, or -1 and sets errno. See `rdma_get_recv_comp(3)`.
///
/// # Safety
///
/// `id` is live and librdmacm made its completion queues; `wc` can be written.
#[inline]
pub unsafe fn rdma_get_recv_comp(id: *mut rdma_cm_id, wc: *mut ibv_wc) -> c_int {
    // SAFETY: by contract the identifier is live, with its queue and the queue's channel.
    unsafe { wait(id, (*id).recv_cq, (*id).recv_cq_channel, wc) }
}

/// Polls, arms the queue and polls again before sleeping on the channel, so that no completion is missed.
unsafe fn wait(id: *mut rdma_cm_id, cq: *mut ibv_cq, channel: *mut ibv_comp_channel, wc: *mut ibv_wc) -> c_int {
    // SAFETY: by the callers' contract the queue and its channel are live and `wc` is writable.
    unsafe {
        loop {
            let mut polled = ibv_poll_cq(cq, 1, wc);
            if polled == 0 {
                let code = ibv_req_notify_cq(cq, 0);
                if code != 0 {
                    return rdma_seterrno(code);
                }
                polled = ibv_poll_cq(cq, 1, wc);
            }
            if polled != 0 {
                return if polled < 0 { rdma_seterrno(polled) } else { polled };
            }
            let (mut event_cq, mut context) = (null_mut(), null_mut());
            let code = library::ibv_get_cq_event(channel, &raw mut event_cq, &raw mut context);
            if code != 0 {
                return code;
            }
            debug_assert!(event_cq == cq && context == id.cast(), "the channel reported an event of another queue");
            library::ibv_ack_cq_events(cq, 1);
        }
    }
}
