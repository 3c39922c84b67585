//! The basic verbs, which copy completions to the program.

use std::ffi::{c_int, c_void};
use std::ptr;

use rdma_mummy_sys::{ibv_comp_channel, ibv_context, ibv_cq, ibv_wc, ibv_wc__bindgen_ty_1};

use super::{Options, Queue};
use crate::cq::{Armed, Completion, CompletionQueue};
use crate::qp::registry::QpRegistry;
use crate::sys::errno::Errno;
use crate::verbs::failure;
use crate::verbs::object::Object;

/// `ibv_create_cq(context, cqe, cq_context, channel, comp_vector)`: null and errno on failure.
pub(crate) unsafe extern "C" fn create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    let (Ok(entries), Ok(vector)) = (u32::try_from(cqe), u32::try_from(comp_vector)) else {
        return failure::null(Errno::INVALID);
    };
    let options =
        Options { entries, cq_context, channel, vector, fields: 0, ignores_overrun: false, domain: ptr::null_mut() };
    // SAFETY: required by the C API: the context is open, and the channel is alive unless null.
    unsafe { Queue::create(context, &options, |_| {}) }.unwrap_or_else(failure::null)
}

/// `ibv_poll_cq(cq, num_entries, wc)`: returns the number of completions, or -1 if a completion was lost and all
/// earlier ones were polled.
pub(crate) unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: required by the C API: the queue is alive.
    let queue = unsafe { Queue::of(cq) };
    let most = usize::try_from(num_entries).unwrap_or(0);
    if queue.queue.is_empty() && !QpRegistry::of_process().progress() {
        return none_in(&queue.queue);
    }
    let taken = queue.queue.drain(most, |at, completion| {
        // SAFETY: required by the C API: `num_entries` elements are writable, and `at` is less than that.
        unsafe { wc.add(at).write(as_c(&completion)) };
    });
    // The conversion is lossless, because the value is at most `num_entries`.
    if taken == 0 { none_in(&queue.queue) } else { taken as c_int }
}

/// Returns the result of a poll that found no completion.
fn none_in(queue: &CompletionQueue) -> c_int {
    if queue.is_broken() { -1 } else { 0 }
}

fn as_c(completion: &Completion) -> ibv_wc {
    ibv_wc {
        wr_id: completion.wr_id,
        status: completion.status,
        opcode: completion.opcode,
        vendor_err: 0,
        byte_len: completion.byte_len,
        // In the union, `imm_data` and `invalidated_rkey` are the same bytes.
        __bindgen_anon_1: ibv_wc__bindgen_ty_1 { imm_data: completion.immediate },
        qp_num: completion.number,
        src_qp: completion.source_number,
        wc_flags: completion.flags,
        pkey_index: 0,
        slid: 0,
        sl: completion.service_level,
        dlid_path_bits: 0,
    }
}

/// `ibv_req_notify_cq(cq, solicited_only)`: returns zero. If the queue has no channel, the call has no effect.
pub(crate) unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: required by the C API: the queue is alive.
    let queue = unsafe { Queue::of(cq) };
    QpRegistry::of_process().armed();
    queue.queue.arm(if solicited_only == 0 { Armed::Next } else { Armed::Solicited });
    0
}
