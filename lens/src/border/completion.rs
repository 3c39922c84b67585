//! Completions that are polled with `ibv_poll_cq`, and requests for events.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use rdma_mummy_sys::*;

use super::adopt::{context_of, pair_numbered};
use super::flight::Request;
use super::queue_pair::{FOLLOWS, QueuePair, Side};
use super::{altered, held};
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

impl Completion {
    pub(super) fn of(wc: &ibv_wc, cq: &ibv_cq) -> Self {
        Self {
            wr_id: wc.wr_id,
            status: wc.status,
            opcode: wc.opcode,
            bytes: wc.byte_len,
            vendor: wc.vendor_err,
            flags: wc.wc_flags,
            queue: cq.handle,
        }
    }
}

/// The opcode of a receive in the trace.
const RECEIVE: u8 = 128;

/// Whether a success with this opcode is that of a receive. Others with this bit are those of vendors' requests and of tag
/// matching.
pub(super) fn is_receive(opcode: ibv_wc_opcode) -> bool {
    type Code = ibv_wc_opcode;
    matches!(
        opcode,
        Code::IBV_WC_RECV | Code::IBV_WC_RECV_RDMA_WITH_IMM | Code::IBV_WC_TM_RECV | Code::IBV_WC_TM_NO_TAG
    )
}

/// Whether a completion may be that of a request or of a receive: a failure does not name its operation.
fn is_ambiguous(pair: &QueuePair, cq: *const ibv_cq, completion: Completion) -> bool {
    // Receives of a shared queue are not followed.
    let may_be_receive = |id| pair.receives.has(id) || pair.receives.is_unused();
    completion.status != ibv_wc_status::IBV_WC_SUCCESS
        && pair.side(cq) == Side::Either
        && pair.flight.has(completion.wr_id)
        && may_be_receive(completion.wr_id)
}

/// Takes the request of a completion from those in flight. `true` for a receive.
fn request_of(pair: &QueuePair, cq: *const ibv_cq, completion: Completion) -> (bool, Option<Request>) {
    let id = completion.wr_id;
    if completion.status == ibv_wc_status::IBV_WC_SUCCESS {
        let is_receive = is_receive(completion.opcode);
        let flight = if is_receive { &pair.receives } else { &pair.flight };
        return (is_receive, flight.complete(id, true));
    }
    // A failure does not name its operation.
    match pair.side(cq) {
        Side::Send => (false, pair.flight.complete(id, false)),
        Side::Receive => (true, pair.receives.complete(id, false)),
        // The requests of a queue complete in order, so the next one of a queue comes first.
        Side::Either if pair.flight.is_next(id) || !pair.receives.is_next(id) => {
            match pair.flight.complete(id, false) {
                Some(request) => (false, Some(request)),
                None => (true, pair.receives.complete(id, false)),
            }
        }
        Side::Either => (true, pair.receives.complete(id, false)),
    }
}

/// Whose completion it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attributed {
    pub(super) pair: Option<&'static QueuePair>,
    pub(super) number: u32,
    pub(super) is_receive: bool,
    /// Whether it may be the other one of request and receive.
    pub(super) is_either: bool,
    request: Option<Request>,
    /// Whether a fault has given it its status.
    pub(super) is_injected: bool,
}

/// Attributes a completion that the driver has just reported to its request. A fault may change its status.
pub(super) fn attribute(
    on: u8,
    number: u32,
    cq: *const ibv_cq,
    context: *const ibv_context,
    completion: &mut Completion,
) -> Attributed {
    let pair = pair_numbered(context, number);
    let is_either = on & FAULTS != 0 && pair.is_some_and(|pair| is_ambiguous(pair, cq, *completion));
    let (is_receive, request) =
        pair.map_or((is_receive(completion.opcode), None), |pair| request_of(pair, cq, *completion));
    let mut is_injected = false;
    if on & FAULTS != 0
        && completion.status != ibv_wc_status::IBV_WC_SUCCESS
        && !is_receive
        && request.is_some()
        && let Some(status) = pair.and_then(|pair| pair.faults.next_status())
    {
        (completion.status, is_injected) = (status, true);
    }
    // The status of a fault makes it that of a request.
    let is_either = is_either && !is_injected;
    Attributed { pair, number, is_receive, is_either, request, is_injected }
}

/// Records a completion that the program gets.
pub(super) fn report(on: u8, completion: Completion, attributed: Attributed) {
    let Attributed { pair, number, is_receive, request, is_injected, .. } = attributed;
    let is_success = completion.status == ibv_wc_status::IBV_WC_SUCCESS;
    let is_failed_send = !is_success && !is_receive && request.is_some();
    if on & COUNT != 0 {
        match (pair, request) {
            (Some(pair), Some(request)) if is_failed_send => pair.counts.failed(request.opcode.into()),
            (Some(pair), Some(request)) if !is_receive => {
                pair.counts.took(request.opcode.into(), state::now().saturating_sub(request.at));
                count_alike(pair, is_success, completion.opcode, (1, completion.bytes.into()));
            }
            (Some(pair), _) => count_alike(pair, is_success, completion.opcode, (1, completion.bytes.into())),
            (None, _) => _ = count::UNKNOWN.fetch_add(1, Ordering::Relaxed),
        }
    }
    if on & TRACE != 0 {
        let at = state::now();
        trace::moment(Moment {
            at,
            kind: Kind::Completion,
            opcode: match request {
                _ if is_success => completion.opcode.0 as u8,
                Some(request) if !is_receive => request.opcode,
                _ => RECEIVE,
            },
            status: status_number(completion.status),
            // Whether the opcode is that of a request.
            segments: is_failed_send.into(),
            flags: completion.flags as u16,
            is_injected,
            qp: number,
            queue: completion.queue,
            wr_id: completion.wr_id,
            bytes: if is_receive { completion.bytes.into() } else { request.map_or(0, |request| request.bytes) },
            key: completion.vendor,
            remote: pair.map_or(0, QueuePair::in_flight),
            extra: request.filter(|_| !is_receive).map_or(0, |request| at.saturating_sub(request.at)),
            thread: state::thread(),
            ..Moment::default()
        });
    }
}

/// Counts completions of one kind, whose requests are not known.
#[inline]
pub(super) fn count_alike(pair: &QueuePair, is_success: bool, opcode: ibv_wc_opcode, (count, bytes): (u64, u64)) {
    if !is_success {
        // Without a trace, it is not known whose failure this is.
        pair.counts.failed_unknown(count);
    } else if is_receive(opcode) {
        pair.counts.received(count, bytes);
    } else {
        pair.counts.completed(opcode.0, count);
    }
}

pub(super) unsafe extern "C" fn poll(cq: *mut ibv_cq, most: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the program passes a live queue, and space for `most` completions.
    unsafe {
        let context = (*cq).context;
        let Some(function) = context_of(context).and_then(|context| context.poll.get()) else { return -1 };
        let on = state::on();
        if on & FAULTS != 0 && held::alters_completions() {
            return altered::poll(on, function, (cq, most, wc));
        }
        let found = function(cq, most, wc);
        // A driver without the function returns a positive error.
        if found <= 0 || found > most || on == 0 {
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
        let mut completion = Completion::of(wc, cq);
        let attributed = attribute(on, wc.qp_num, cq, cq.context, &mut completion);
        report(on, completion, attributed);
        wc.status = completion.status;
    }
}

/// Counts completions, those of one kind in a row at once.
fn count_all(cq: &ibv_cq, mut list: &[ibv_wc]) {
    while let Some(first) = list.first() {
        let is_alike =
            |wc: &ibv_wc| wc.qp_num == first.qp_num && wc.opcode == first.opcode && wc.status == first.status;
        let (mut count, mut bytes) = (0, 0);
        for wc in list.iter().take_while(|wc| is_alike(wc)) {
            count += 1;
            bytes += u64::from(wc.byte_len);
        }
        list = &list[count..];
        let is_success = first.status == ibv_wc_status::IBV_WC_SUCCESS;
        match pair_numbered(cq.context, first.qp_num) {
            Some(pair) => count_alike(pair, is_success, first.opcode, (count as u64, bytes)),
            None => _ = count::UNKNOWN.fetch_add(count as u64, Ordering::Relaxed),
        }
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
            || {
                // Before the device may raise the event.
                held::armed(cq);
                function(cq, solicited_only)
            },
            |_| (),
        )
    }
}
