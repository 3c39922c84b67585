//! Completions that are polled with `ibv_poll_cq`, and requests for events.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use rdma_mummy_sys::*;

use super::adopt::{context_of, pair_numbered};
use super::queue_pair::{FOLLOWS, QueuePair};
use crate::count::Completed;
use crate::moment::{Kind, Moment, status_number};
use crate::state::{self, COUNT, FAULTS, TRACE};
use crate::{count, trace};

/// What a driver reports of a completion.
#[derive(Clone, Copy, Debug)]
pub(super) struct Completion {
    pub(super) wr_id: u64,
    pub(super) status: ibv_wc_status,
    /// Undefined after a failure.
    pub(super) opcode: ibv_wc_opcode,
    pub(super) bytes: u32,
    pub(super) vendor: u32,
    pub(super) flags: u32,
    /// The queue, by its handle.
    pub(super) queue: u32,
}

pub(super) const RECEIVE: u32 = ibv_wc_opcode::IBV_WC_RECV.0;

/// Records a completion of `pair`, of which the trace or the faults follow the requests. Returns the status that the
/// program gets.
pub(super) fn follow(on: u8, pair: Option<&'static QueuePair>, number: u32, completion: Completion) -> ibv_wc_status {
    let is_success = completion.status == ibv_wc_status::IBV_WC_SUCCESS;
    let is_receive = is_success && completion.opcode.0 & RECEIVE != 0;
    let request = pair.filter(|_| !is_receive).and_then(|pair| pair.flight.complete(completion.wr_id, is_success));
    let is_failed_request = !is_success && request.is_some();
    let injected = pair.filter(|_| on & FAULTS != 0 && is_failed_request).and_then(|pair| pair.faults.next_status());
    let status = injected.unwrap_or(completion.status);
    if on & COUNT != 0 {
        match (pair, request) {
            (Some(pair), Some(request)) if !is_success => pair.counts.failed(request.opcode.into()),
            (Some(pair), _) => count_one(pair, is_success, completion.opcode.0, completion.bytes),
            (None, _) => _ = count::UNKNOWN.fetch_add(1, Ordering::Relaxed),
        }
    }
    if on & TRACE != 0 {
        // The opcode of a failure is that of its request; a receive if no request has this identifier.
        let opcode = match request {
            Some(request) if !is_success => request.opcode,
            None if !is_success => RECEIVE as u8,
            _ => completion.opcode.0 as u8,
        };
        let at = state::now();
        trace::moment(Moment {
            at,
            kind: Kind::Completion,
            opcode,
            status: status_number(status),
            // Whether the opcode is that of a request.
            segments: is_failed_request.into(),
            flags: completion.flags as u16,
            is_injected: injected.is_some(),
            qp: number,
            queue: completion.queue,
            wr_id: completion.wr_id,
            bytes: if is_receive { completion.bytes.into() } else { request.map_or(0, |request| request.bytes) },
            key: completion.vendor,
            remote: pair.map_or(0, QueuePair::in_flight),
            extra: request.map_or(0, |request| at.saturating_sub(request.at)),
            thread: state::thread(),
            ..Moment::default()
        });
    }
    status
}

/// Counts a completion whose request is not known.
pub(super) fn count_one(pair: &QueuePair, is_success: bool, opcode: u32, bytes: u32) {
    let mut completed = Completed::default();
    match (is_success, opcode & RECEIVE != 0) {
        (true, true) => completed.add_message(bytes),
        (true, false) => completed.add_request(&pair.counts, opcode),
        // Without a trace, it is not known whose failure this is.
        (false, _) => pair.counts.failed_unknown(),
    }
    pair.counts.completed(completed);
}

pub(super) unsafe extern "C" fn poll(cq: *mut ibv_cq, most: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the program passes a live queue, and space for `most` completions.
    unsafe {
        let context = (*cq).context;
        let Some(function) = context_of(context).and_then(|context| context.poll.get()) else { return -1 };
        let found = function(cq, most, wc);
        let on = state::on();
        if found <= 0 || on == 0 {
            return found;
        }
        let list = std::slice::from_raw_parts_mut(wc, found as usize);
        if on & FOLLOWS != 0 {
            follow_all(on, &*cq, list)
        } else {
            count_all(&*cq, list)
        }
        found
    }
}

#[inline(never)]
fn follow_all(on: u8, cq: &ibv_cq, list: &mut [ibv_wc]) {
    for wc in list {
        let completion = Completion {
            wr_id: wc.wr_id,
            status: wc.status,
            opcode: wc.opcode,
            bytes: wc.byte_len,
            vendor: wc.vendor_err,
            flags: wc.wc_flags,
            queue: cq.handle,
        };
        wc.status = follow(on, pair_numbered(cq.context, wc.qp_num), wc.qp_num, completion);
    }
}

/// Counts completions, those of a queue pair in a row at once.
fn count_all(cq: &ibv_cq, list: &[ibv_wc]) {
    for row in list.chunk_by(|one, other| one.qp_num == other.qp_num) {
        let Some(pair) = row.first().and_then(|wc| pair_numbered(cq.context, wc.qp_num)) else {
            count::UNKNOWN.fetch_add(row.len() as u64, Ordering::Relaxed);
            continue;
        };
        let mut completed = Completed::default();
        for wc in row {
            if wc.status != ibv_wc_status::IBV_WC_SUCCESS {
                pair.counts.failed_unknown();
            } else if wc.opcode.0 & RECEIVE != 0 {
                completed.add_message(wc.byte_len);
            } else {
                completed.add_request(&pair.counts, wc.opcode.0);
            }
        }
        pair.counts.completed(completed);
    }
}

pub(super) unsafe extern "C" fn notify(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: the program passes a live queue.
    unsafe {
        let Some(function) = context_of((*cq).context).and_then(|context| context.notify.get()) else {
            return libc::EOPNOTSUPP;
        };
        super::control::call(
            "ibv_req_notify_cq",
            |to| {
                super::show::Show::show(cq, "cq", to);
                super::show::Show::show(solicited_only, "solicited_only", to);
            },
            || function(cq, solicited_only),
            |_| (),
        )
    }
}
