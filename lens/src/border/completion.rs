//! Completions that are polled with `ibv_poll_cq`, and requests for events.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use rdma_mummy_sys::load::front;
use rdma_mummy_sys::*;

use super::adopt::{context_of, pair_numbered};
use super::queue_pair::QueuePair;
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

const RECEIVE: u32 = ibv_wc_opcode::IBV_WC_RECV.0;

/// Records a completion of `pair`. Returns the status that the program gets.
pub(super) fn completed(
    on: u8,
    pair: Option<&'static QueuePair>,
    number: u32,
    completion: Completion,
) -> ibv_wc_status {
    let is_success = completion.status == ibv_wc_status::IBV_WC_SUCCESS;
    let is_receive = is_success && completion.opcode.0 & RECEIVE != 0;
    let request = pair.filter(|_| !is_receive).and_then(|pair| pair.flight.complete(completion.wr_id, is_success));
    let injected = pair
        .filter(|_| on & FAULTS != 0 && !is_success && request.is_some())
        .and_then(|pair| pair.faults.next_status());
    let status = injected.unwrap_or(completion.status);
    let took = request.filter(|request| request.at != 0).map(|request| state::now() - request.at);
    if on & COUNT != 0 {
        match (pair, request) {
            (Some(pair), Some(request)) => pair.counts.completed(request.opcode, took, is_success),
            (Some(pair), None) if is_receive => pair.counts.got(completion.bytes),
            (Some(pair), None) => pair.counts.failed_receive(),
            (None, _) => _ = count::UNKNOWN.fetch_add(1, Ordering::Relaxed),
        }
    }
    if on & TRACE != 0 {
        // The opcode of a failure is that of its request; a receive if no request has this identifier.
        let opcode = match request {
            Some(_) if is_success => completion.opcode.0 as u8,
            Some(request) => request.opcode,
            None if is_success => completion.opcode.0 as u8,
            None => RECEIVE as u8,
        };
        trace::moment(Moment {
            at: state::now(),
            kind: Kind::Completion,
            opcode,
            status: status_number(status),
            // Whether the opcode is that of a request.
            segments: u8::from(request.is_some() && !is_success),
            flags: completion.flags as u16,
            is_injected: injected.is_some(),
            qp: number,
            queue: completion.queue,
            wr_id: completion.wr_id,
            bytes: if is_receive { completion.bytes.into() } else { request.map_or(0, |request| request.bytes) },
            key: completion.vendor,
            remote: pair.map_or(0, QueuePair::in_flight),
            extra: took.unwrap_or(0),
            thread: state::thread(),
            ..Moment::default()
        });
    }
    status
}

pub(super) unsafe extern "C" fn poll(cq: *mut ibv_cq, most: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the program passes a live queue, and space for `most` completions.
    unsafe {
        let context = (*cq).context;
        let Some(function) = context_of(context).and_then(|context| context.poll.get()) else { return -1 };
        let found = function(cq, most, wc);
        let on = state::on();
        if found <= 0 || on == 0 || front::is_passing() {
            return found;
        }
        let mut last: Option<&'static QueuePair> = None;
        for index in 0..found as usize {
            let wc = &mut *wc.add(index);
            if last.is_none_or(|pair| pair.number() != wc.qp_num) {
                last = pair_numbered(context, wc.qp_num);
            }
            let completion = Completion {
                wr_id: wc.wr_id,
                status: wc.status,
                opcode: wc.opcode,
                bytes: wc.byte_len,
                vendor: wc.vendor_err,
                flags: wc.wc_flags,
                queue: (*cq).handle,
            };
            wc.status = completed(on, last, wc.qp_num, completion);
        }
        found
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
