//! Completion queues of the basic verbs, and the shared handling of completions.

use std::sync::MutexGuard;
use std::sync::atomic::{AtomicI32, Ordering};

use libc::{c_int, c_void};
use rdma_mummy_sys as ffi;

use super::calls::{Completion, Kind};
use super::device::state_of;
use super::driver::Fault;
use super::semaphore;
use super::state::{Inner, Queue};
use super::stub::{forever, stubs};

/// Preallocated entries of a queue.
const ROOM: usize = 1024;

stubs! {
    /// The struct of an extended queue begins with the plain one.
    fn ibv_create_cq(
        context: *mut ffi::ibv_context,
        cqe: c_int,
        cq_context: *mut c_void,
        channel: *mut ffi::ibv_comp_channel,
        comp_vector: c_int,
    ) -> *mut ffi::ibv_cq [cqe, channel, comp_vector] |inner| {
        let cq = forever::<ffi::ibv_cq_ex>().cast::<ffi::ibv_cq>();
        set_up(&mut inner, context, cq, cqe, cq_context, channel);
        cq
    }

    fn poll_cq(cq: *mut ffi::ibv_cq, num_entries: c_int, wc: *mut ffi::ibv_wc) -> c_int [num_entries] |inner| {
        let Some(queue) = queue_of(&mut inner, cq.addr(), "poll_cq") else { return -libc::EINVAL };
        let mut taken = 0;
        while taken < num_entries
            && let Some(completion) = queue.completions.pop_front()
        {
            write_basic(wc.add(taken as usize), &completion);
            taken += 1;
        }
        if taken > 0 {
            inner.output("poll_cq", wc);
        }
        inner.number("poll_cq: count", taken)
    }

    fn req_notify_cq(cq: *mut ffi::ibv_cq, solicited_only: c_int) -> c_int [solicited_only] |inner| {
        match queue_of(&mut inner, cq.addr(), "req_notify_cq") {
            Some(queue) => queue.armed = true,
            None => return libc::EINVAL,
        }
        0
    }

    fn modify_cq(cq: *mut ffi::ibv_cq, attr: *mut ffi::ibv_modify_cq_attr) -> c_int
        [
            cq; mask = (*attr).attr_mask, count = (*attr).moderate.cq_count, period = (*attr).moderate.cq_period
        ] |inner|
    {
        if queue_of(&mut inner, cq.addr(), "modify_cq").is_none() {
            return libc::EINVAL;
        }
        let (caps, moderate) = (inner.facts.device.cq_mod_caps, (*attr).moderate);
        if moderate.cq_count > caps.max_cq_count || moderate.cq_period > caps.max_cq_period {
            return inner.refuse("modify_cq", libc::EINVAL);
        }
        0
    }
}

pub(super) unsafe extern "C" fn ibv_resize_cq(cq: *mut ffi::ibv_cq, cqe: c_int) -> c_int {
    // SAFETY: objects are never freed.
    unsafe {
        let arguments = [("cq", cq.addr() as u64), ("cqe", cqe as u64)];
        let (mut inner, failure) = state_of((*cq).context).enter("resize_cq", &arguments);
        if let Some(failure) = failure {
            let is_lost = inner.script.has(Fault::ResizeLosesQueue) && failure.errno() != libc::EINVAL;
            if let Some(queue) = queue_of(&mut inner, cq.addr(), "resize_cq") {
                queue.is_lost |= is_lost;
            }
            return failure.code();
        }
        let most = inner.facts.device.orig_attr.max_cqe;
        let Some(queue) = queue_of(&mut inner, cq.addr(), "resize_cq") else { return libc::EINVAL };
        let (polling, left) = (queue.polling, queue.completions.len());
        if polling {
            inner.violation("a queue was resized while it was polled");
        }
        if cqe > most || (cqe as usize) < left {
            return inner.refuse("resize_cq", libc::EINVAL);
        }
        // Drivers round up. The store is atomic, because another thread may read the field.
        AtomicI32::from_ptr(&raw mut (*cq).cqe).store((cqe as u32).next_power_of_two() as c_int, Ordering::Relaxed);
    }
    0
}

/// Initializes the fields of every queue.
///
/// # Safety
///
/// `cq` is new and has space for an extended queue.
pub(super) unsafe fn set_up(
    inner: &mut Inner,
    context: *mut ffi::ibv_context,
    cq: *mut ffi::ibv_cq,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ffi::ibv_comp_channel,
) {
    // SAFETY: the queue is new.
    unsafe {
        (*cq).context = context;
        (*cq).cqe = cqe;
        (*cq).cq_context = cq_context;
        (*cq).channel = channel;
        (*cq).handle = inner.handle();
    }
    let mut parents = vec![context.addr()];
    if !channel.is_null() {
        parents.push(channel.addr());
    }
    // SAFETY: as above.
    unsafe { inner.output("a completion queue: cqe", &raw mut (*cq).cqe) };
    inner.made(Kind::CompletionQueue, cq, &parents);
    let mut queue = Queue { channel: channel.addr(), ..Queue::default() };
    queue.completions.reserve(ROOM);
    // Events identify the queue by its number.
    inner.queues.insert(cq.expose_provenance(), queue);
}

/// Adds a completion, and raises the event that was requested.
pub(super) fn complete(inner: &mut Inner, cq: usize, completion: Completion) {
    let Some(queue) = inner.queues.get_mut(&cq) else { return };
    queue.completions.push_back(completion);
    if !std::mem::take(&mut queue.armed) {
        return;
    }
    let channel = queue.channel;
    if let Some(channel) = inner.channels.get_mut(&channel) {
        channel.events.push_back(cq);
        // SAFETY: the descriptor belongs to the channel, which exists.
        unsafe { semaphore::put(channel.fd, 1) };
    }
}

/// The state of a queue; a violation if it was destroyed.
pub(super) fn queue_of<'i>(inner: &'i mut MutexGuard<'_, Inner>, cq: usize, verb: &str) -> Option<&'i mut Queue> {
    if inner.queues.get(&cq).is_some_and(|queue| queue.is_lost) {
        inner.violation(format!("{verb} on a queue without memory"));
    }
    inner.exists(cq, verb).then(|| inner.queues.get_mut(&cq))?
}

/// # Safety
///
/// `wc` can be written.
unsafe fn write_basic(wc: *mut ffi::ibv_wc, completion: &Completion) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        (*wc).wr_id = completion.wr_id;
        (*wc).status = ffi::ibv_wc_status(completion.status);
        (*wc).opcode = ffi::ibv_wc_opcode(completion.opcode);
        (*wc).vendor_err = completion.vendor_err;
        (*wc).byte_len = completion.byte_len;
        (*wc).__bindgen_anon_1.imm_data = completion.imm_data.to_be();
        (*wc).qp_num = completion.qp_num;
        (*wc).src_qp = completion.src_qp;
        (*wc).wc_flags = completion.wc_flags;
        (*wc).slid = completion.slid as u16;
        (*wc).sl = completion.sl;
        (*wc).dlid_path_bits = completion.dlid_path_bits;
        (*wc).pkey_index = completion.pkey_index;
    }
}
