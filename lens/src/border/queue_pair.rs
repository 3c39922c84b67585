//! Queue pairs: requests that are posted with `ibv_post_send`, `ibv_post_recv` and `ibv_post_srq_recv`.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use rdma_mummy_sys::*;

use super::adopt::{self, context_of, pair_of};
use super::context::{PostReceive, PostSend};
use super::flight::{Flight, Request};
use super::original::Original;
use super::table::Keyed;
use crate::count::{Counts, PairSummary, Run};
use crate::moment::{Kind, Moment};
use crate::state::{self, COUNT, FAULTS, TRACE};
use crate::{faults, trace};

/// The record of a queue pair.
#[derive(Debug)]
pub(super) struct QueuePair {
    key: AtomicU64,
    number: AtomicU32,
    send_queue: AtomicU32,
    signals_all: AtomicBool,
    /// The driver's functions, which are those of the context.
    post_send: Original<PostSend>,
    post_receive: Original<PostReceive>,
    pub(super) flight: Flight,
    pub(super) counts: Counts,
    pub(super) faults: faults::OfPair,
}

impl Keyed for QueuePair {
    fn key(&self) -> &AtomicU64 {
        &self.key
    }
}

impl QueuePair {
    pub(super) const fn new() -> Self {
        Self {
            key: AtomicU64::new(0),
            number: AtomicU32::new(0),
            send_queue: AtomicU32::new(0),
            signals_all: AtomicBool::new(false),
            post_send: Original::none(),
            post_receive: Original::none(),
            flight: Flight::new(),
            counts: Counts::new(),
            faults: faults::OfPair::new(),
        }
    }

    /// Prepares the record for a new queue pair.
    pub(super) fn start(&self, qp: &ibv_qp, requests: u32, signals_all: bool) {
        self.number.store(qp.qp_num, Ordering::Relaxed);
        // SAFETY: the queues of a live queue pair are live.
        self.send_queue.store(unsafe { qp.send_cq.as_ref() }.map_or(0, |cq| cq.handle), Ordering::Relaxed);
        self.signals_all.store(signals_all, Ordering::Relaxed);
        if let Some(context) = context_of(qp.context) {
            self.post_send.copy(&context.post_send);
            self.post_receive.copy(&context.post_receive);
        }
        self.flight.start(requests);
        self.counts.start();
        self.faults.start(std::ptr::from_ref(qp).cast_mut(), qp.qp_num);
    }

    #[inline]
    pub(super) fn number(&self) -> u32 {
        self.number.load(Ordering::Relaxed)
    }

    pub(super) fn in_flight(&self) -> u64 {
        self.flight.len()
    }

    /// Its counts, as values.
    pub(super) fn summary(&self) -> PairSummary {
        PairSummary::new(self.number(), &self.counts)
    }

    /// Whether a request with these flags reports its success.
    #[inline]
    pub(super) fn is_signaled(&self, flags: u16) -> bool {
        flags & SIGNALED != 0 || self.signals_all.load(Ordering::Relaxed)
    }

    /// Adds a request to those in flight, before the device has it.
    pub(super) fn post(&self, on: u8, moment: Moment) {
        let at = state::now();
        self.flight.push(Request {
            wr_id: moment.wr_id,
            at,
            opcode: moment.opcode,
            is_signaled: self.is_signaled(moment.flags),
            bytes: moment.bytes,
        });
        if on & TRACE != 0 {
            trace::moment(Moment { at, ..moment });
        }
    }

    /// Records that the device refused the last `count` requests.
    pub(super) fn refused(&self, on: u8, count: u64, errno: i32, is_injected: bool) {
        self.flight.take_back(count);
        if on & TRACE != 0 {
            trace::moment(Moment {
                at: state::now(),
                kind: Kind::Refused,
                qp: self.number(),
                errno: errno.try_into().unwrap_or(u8::MAX),
                bytes: count,
                is_injected,
                thread: state::thread(),
                ..Moment::default()
            });
        }
    }
}

/// What follows the requests in flight one by one.
pub(super) const FOLLOWS: u8 = TRACE | FAULTS;

pub(super) const SIGNALED: u16 = 2;

/// The sum of the segments, and the first of them.
///
/// # Safety
///
/// `list` has `count` segments.
pub(super) unsafe fn segments(list: *const ibv_sge, count: usize) -> (u64, Option<ibv_sge>) {
    if list.is_null() || count == 0 {
        return (0, None);
    }
    // SAFETY: guaranteed by the caller.
    let list = unsafe { std::slice::from_raw_parts(list, count) };
    (list.iter().map(|segment| u64::from(segment.length)).sum(), list.first().copied())
}

/// # Safety
///
/// `request` is a request of the program for a queue pair of type `service`.
unsafe fn moment_of_send(request: &ibv_send_wr, number: u32, service: ibv_qp_type) -> Moment {
    type Code = ibv_wr_opcode;
    let count = usize::try_from(request.num_sge).unwrap_or(0);
    // SAFETY: the opcode and the service select the members of the unions that the program has filled; all members are
    // plain numbers and pointers.
    unsafe {
        let (bytes, first) = segments(request.sg_list, count);
        let (remote, key) = match request.opcode {
            Code::IBV_WR_RDMA_WRITE | Code::IBV_WR_RDMA_WRITE_WITH_IMM | Code::IBV_WR_RDMA_READ => {
                (request.wr.rdma.remote_addr, request.wr.rdma.rkey)
            }
            Code::IBV_WR_ATOMIC_CMP_AND_SWP | Code::IBV_WR_ATOMIC_FETCH_AND_ADD => {
                (request.wr.atomic.remote_addr, request.wr.atomic.rkey)
            }
            Code::IBV_WR_SEND | Code::IBV_WR_SEND_WITH_IMM if service == ibv_qp_type::IBV_QPT_UD => {
                (request.wr.ud.remote_qpn.into(), request.wr.ud.remote_qkey)
            }
            _ => (0, 0),
        };
        let has_immediate = matches!(
            request.opcode,
            Code::IBV_WR_RDMA_WRITE_WITH_IMM | Code::IBV_WR_SEND_WITH_IMM | Code::IBV_WR_SEND_WITH_INV
        );
        Moment {
            kind: Kind::Send,
            opcode: request.opcode.0 as u8,
            segments: count.try_into().unwrap_or(u8::MAX),
            flags: request.send_flags as u16,
            qp: number,
            wr_id: request.wr_id,
            bytes,
            remote,
            key,
            lkey: first.map_or(0, |segment| segment.lkey),
            address: first.map_or(0, |segment| segment.addr),
            extra: if has_immediate { request.__bindgen_anon_1.imm_data.into() } else { 0 },
            thread: state::thread(),
            ..Moment::default()
        }
    }
}

pub(super) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    list: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the program passes a live queue pair, and requests that are live during the call.
    unsafe {
        let Some(pair) = pair_of(qp).or_else(|| adopt::late(qp)) else { return libc::EOPNOTSUPP };
        let Some(function) = pair.post_send.get() else { return libc::EOPNOTSUPP };
        match state::on() {
            0 => function(qp, list, bad),
            on if on & FOLLOWS != 0 => post_and_follow(on, pair, function, (qp, list, bad)),
            _ => {
                if list.as_ref().is_some_and(|first| pair.is_signaled(first.send_flags as u16)) {
                    pair.counts.will_post();
                }
                let code = function(qp, list, bad);
                count_sends(pair, list, if code == 0 { std::ptr::null() } else { *bad });
                code
            }
        }
    }
}

/// Counts the requests of a list, of which the device refused those from `bad` on.
///
/// # Safety
///
/// The list and its segments are live.
unsafe fn count_sends(pair: &QueuePair, list: *const ibv_send_wr, bad: *const ibv_send_wr) {
    let mut run = Run::default();
    let mut next = list;
    // SAFETY: guaranteed by the caller.
    while let Some(request) = unsafe { next.as_ref() }
        && next != bad
    {
        // SAFETY: as above.
        let bytes = match request.num_sge {
            // SAFETY: as above.
            1 => unsafe { (*request.sg_list).length.into() },
            // SAFETY: as above.
            count => unsafe { segments(request.sg_list, usize::try_from(count).unwrap_or(0)).0 },
        };
        run.add(&pair.counts, request.opcode.0, pair.is_signaled(request.send_flags as u16), bytes);
        next = request.next;
    }
    pair.counts.posted(run);
    // SAFETY: as above.
    let left = std::iter::successors(unsafe { next.as_ref() }, |request| unsafe { request.next.as_ref() });
    pair.counts.refused(left.count() as u64);
}

/// Posts requests that the trace or the faults follow.
///
/// # Safety
///
/// As for `ibv_post_send`.
#[inline(never)]
unsafe fn post_and_follow(
    on: u8,
    pair: &QueuePair,
    function: PostSend,
    (qp, list, bad): (*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr),
) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if on & FAULTS != 0 {
            faults::before_post(&pair.faults);
        }
        let mut count = 0_u64;
        let mut next = list;
        while let Some(request) = next.as_ref() {
            pair.post(on, moment_of_send(request, pair.number(), (*qp).qp_type));
            count += 1;
            next = request.next;
        }
        let injected = if on & FAULTS != 0 { faults::refuse_post(&pair.faults) } else { None };
        let code = match injected {
            Some(errno) => {
                *bad = list;
                errno
            }
            None => function(qp, list, bad),
        };
        if code != 0 {
            let left = std::iter::successors((*bad).as_ref(), |request| request.next.as_ref()).count();
            pair.refused(on, (left as u64).min(count), code, injected.is_some());
        }
        if on & COUNT != 0 {
            count_sends(pair, list, if code == 0 { std::ptr::null() } else { *bad });
        }
        code
    }
}

/// Traces the requests of a list.
///
/// # Safety
///
/// The list and its segments are live.
unsafe fn trace_receives(on: u8, mut next: *mut ibv_recv_wr, kind: Kind, queue: u32) {
    if on & TRACE == 0 {
        return;
    }
    // SAFETY: guaranteed by the caller.
    while let Some(request) = unsafe { next.as_ref() } {
        let count = usize::try_from(request.num_sge).unwrap_or(0);
        // SAFETY: as above.
        let (bytes, first) = unsafe { segments(request.sg_list, count) };
        trace::moment(Moment {
            at: state::now(),
            kind,
            segments: count.try_into().unwrap_or(u8::MAX),
            qp: if kind == Kind::Receive { queue } else { 0 },
            queue: if kind == Kind::Receive { 0 } else { queue },
            wr_id: request.wr_id,
            bytes,
            lkey: first.map_or(0, |segment| segment.lkey),
            address: first.map_or(0, |segment| segment.addr),
            thread: state::thread(),
            ..Moment::default()
        });
        next = request.next;
    }
}

pub(super) unsafe extern "C" fn post_receive(
    qp: *mut ibv_qp,
    list: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the program passes a live queue pair, and requests that are live during the call.
    unsafe {
        let Some(pair) = pair_of(qp).or_else(|| adopt::late(qp)) else { return libc::EOPNOTSUPP };
        let Some(function) = pair.post_receive.get() else { return libc::EOPNOTSUPP };
        let on = state::on();
        if on & FOLLOWS == 0 {
            return function(qp, list, bad);
        }
        let refusal = if on & FAULTS != 0 { faults::refuse_receive(&pair.faults) } else { None };
        if refusal.is_none() {
            // Recorded first, because another thread may poll the completion of a request before the call returns.
            trace_receives(on, list, Kind::Receive, pair.number());
        }
        let code = match refusal {
            Some(errno) => {
                *bad = list;
                errno
            }
            None => function(qp, list, bad),
        };
        if code != 0 && on & TRACE != 0 {
            trace::moment(Moment {
                at: state::now(),
                kind: Kind::Refused,
                qp: pair.number(),
                opcode: 128,
                errno: code.try_into().unwrap_or(u8::MAX),
                is_injected: refusal.is_some(),
                thread: state::thread(),
                ..Moment::default()
            });
        }
        code
    }
}

pub(super) unsafe extern "C" fn post_shared(
    srq: *mut ibv_srq,
    list: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the program passes a live queue, and requests that are live during the call.
    unsafe {
        let function = context_of((*srq).context).and_then(|context| context.post_shared.get());
        let Some(function) = function else { return libc::EOPNOTSUPP };
        trace_receives(state::on(), list, Kind::SharedReceive, (*srq).handle);
        function(srq, list, bad)
    }
}
