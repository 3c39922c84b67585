//! Requests that are posted with `ibv_post_send`, `ibv_post_recv` and `ibv_post_srq_recv`. The driver validates them, so
//! no more of them is read than it accepts.

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use rdma_mummy_sys::*;

use super::adopt::{self, context_of, pair_of};
use super::context::PostSend;
use super::flight::Request;
use super::queue_pair::{FOLLOWS, QueuePair, SIGNALED};
use crate::count::Run;
use crate::moment::{Kind, Moment};
use crate::state::{self, COUNT, FAULTS, TRACE};
use crate::{faults, trace};

/// A request that is a link of a list.
pub(super) trait Link: Sized {
    fn next(&self) -> *mut Self;
}

impl Link for ibv_send_wr {
    fn next(&self) -> *mut Self {
        self.next
    }
}

impl Link for ibv_recv_wr {
    fn next(&self) -> *mut Self {
        self.next
    }
}

/// The requests of a list, of which a driver accepts `most`.
///
/// # Safety
///
/// The list is live while the result is used, up to this number.
pub(super) unsafe fn links<'a, T: Link + 'a>(
    list: *mut T,
    most: &AtomicU32,
) -> impl Iterator<Item = &'a T> + use<'a, T> {
    // SAFETY: guaranteed by the caller.
    let next = |link: &&'a T| unsafe { link.next().as_ref() };
    // SAFETY: as above.
    std::iter::successors(unsafe { list.as_ref() }, next).take(most.load(Ordering::Relaxed) as usize + 1)
}

/// Calls a function that posts, and returns its result and the first request that it refused, if it is one of the list;
/// null after a success.
/// Some drivers return an error without setting the pointer; then the program's keeps its value, and no request counts as
/// accepted.
///
/// # Safety
///
/// As for the function.
pub(super) unsafe fn posted<T: Link>(
    list: *mut T,
    bad: *mut *mut T,
    most: &AtomicU32,
    function: impl FnOnce(*mut *mut T) -> c_int,
) -> (c_int, *mut T) {
    let mut refused = ptr::null_mut();
    let code = function(&raw mut refused);
    if !refused.is_null() {
        // SAFETY: the program passes a pointer that can be written.
        unsafe { *bad = refused };
    }
    if code == 0 {
        return (code, ptr::null_mut());
    }
    // SAFETY: guaranteed by the caller.
    let is_link = unsafe { links(list, most) }.any(|link| ptr::eq(link, refused));
    (code, if is_link { refused } else { list })
}

/// The sum of the segments, and the first of them. A driver refuses more than `most`, which are not read.
///
/// # Safety
///
/// `list` has `count` segments, if these are not more than `most`.
pub(super) unsafe fn segments(list: *const ibv_sge, count: usize, most: &AtomicU32) -> (u64, Option<ibv_sge>) {
    if list.is_null() || count == 0 || count > most.load(Ordering::Relaxed) as usize {
        return (0, None);
    }
    // SAFETY: guaranteed by the caller.
    let list = unsafe { std::slice::from_raw_parts(list, count) };
    (list.iter().map(|segment| u64::from(segment.length)).sum(), list.first().copied())
}

fn count_of(segments: c_int) -> usize {
    usize::try_from(segments).unwrap_or(0)
}

/// # Safety
///
/// `request` is a request of the program for a queue pair of type `service`.
unsafe fn moment_of_send(request: &ibv_send_wr, pair: &QueuePair, service: ibv_qp_type) -> Moment {
    type Code = ibv_wr_opcode;
    let count = count_of(request.num_sge);
    // SAFETY: the opcode and the service select the members of the unions that the program has filled; all members are
    // plain numbers and pointers.
    unsafe {
        let (bytes, first) = segments(request.sg_list, count, &pair.limits.send_segments);
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
            qp: pair.number(),
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
        let Some(pair) = pair_of(qp).or_else(|| adopt::late(qp)) else {
            let function = context_of((*qp).context).and_then(|context| context.post_send.get());
            return function.map_or(libc::EOPNOTSUPP, |function| function(qp, list, bad));
        };
        let Some(function) = pair.post_send.get() else { return libc::EOPNOTSUPP };
        match state::on() {
            0 => function(qp, list, bad),
            on if on & FOLLOWS != 0 => post_and_follow(on, pair, function, (qp, list, bad)),
            _ => {
                if list.as_ref().is_some_and(|first| pair.is_signaled(first.send_flags as u16)) {
                    pair.counts.will_post();
                }
                let (code, refused) = posted(list, bad, &pair.limits.sends, |bad| function(qp, list, bad));
                count_sends(pair, list, refused);
                code
            }
        }
    }
}

/// Counts the requests of a list, of which the device refused those from `refused` on.
///
/// # Safety
///
/// The list and its segments are live.
#[inline]
unsafe fn count_sends(pair: &QueuePair, list: *mut ibv_send_wr, refused: *mut ibv_send_wr) {
    let mut run = Run::default();
    let (limits, signals_all) = (&pair.limits, pair.signals_all());
    // As `links`, in fewer instructions.
    let (mut next, mut left) = (list, limits.sends.load(Ordering::Relaxed).saturating_add(1));
    // SAFETY: guaranteed by the caller.
    while let Some(request) = unsafe { next.as_ref() }
        && !ptr::eq(next, refused)
        && left > 0
    {
        (next, left) = (request.next, left - 1);
        let bytes = match request.num_sge {
            // SAFETY: as above.
            1 => unsafe { (*request.sg_list).length.into() },
            // SAFETY: as above.
            count => unsafe { segments(request.sg_list, count_of(count), &limits.send_segments).0 },
        };
        run.add(request.opcode.0, signals_all || request.send_flags as u16 & SIGNALED != 0, bytes);
    }
    pair.counts.posted(&run);
    if !refused.is_null() {
        // SAFETY: as above.
        pair.counts.refused(unsafe { links(refused, &limits.sends) }.count() as u64);
    }
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
        // Recorded first, because another thread may poll the completion of a request before the call returns.
        let mut count = 0;
        for request in links(list, &pair.limits.sends) {
            pair.post(on, moment_of_send(request, pair, (*qp).qp_type));
            count += 1;
        }
        let injected = if on & FAULTS != 0 { faults::refuse_post(&pair.faults) } else { None };
        let (code, refused) = match injected {
            Some(errno) => {
                *bad = list;
                (errno, list)
            }
            None => posted(list, bad, &pair.limits.sends, |bad| function(qp, list, bad)),
        };
        if code != 0 {
            let left = links(refused, &pair.limits.sends).count() as u64;
            pair.refused(on, left.min(count), code, injected.is_some());
        } else if count == 0 {
            pair.posted_nothing();
        }
        if on & COUNT != 0 {
            count_sends(pair, list, refused);
        }
        code
    }
}

/// `ibv_bind_mw`, which posts a request.
pub(super) unsafe extern "C" fn bind_window(qp: *mut ibv_qp, mw: *mut ibv_mw, bind: *mut ibv_mw_bind) -> c_int {
    // SAFETY: the program passes live objects, and a request that is live during the call.
    unsafe {
        let Some(function) = context_of((*qp).context).and_then(|context| context.bind.get()) else {
            return libc::EOPNOTSUPP;
        };
        let on = state::on();
        let Some(pair) = pair_of(qp).or_else(|| adopt::late(qp)).filter(|_| on != 0) else {
            return function(qp, mw, bind);
        };
        let (wr_id, flags) = ((*bind).wr_id, (*bind).send_flags as u16);
        let mut run = Run::default();
        run.add(ibv_wr_opcode::IBV_WR_BIND_MW.0, pair.is_signaled(flags), 0);
        if on & FOLLOWS == 0 && run.has_signaled() {
            pair.counts.will_post();
        }
        if on & FAULTS != 0 {
            faults::before_post(&pair.faults);
        }
        if on & FOLLOWS != 0 {
            let opcode = ibv_wr_opcode::IBV_WR_BIND_MW.0 as u8;
            let (key, remote) = ((*mw).rkey, (*bind).bind_info.addr);
            let (qp, thread) = (pair.number(), state::thread());
            let moment =
                Moment { kind: Kind::Send, opcode, flags, qp, wr_id, remote, key, thread, ..Moment::default() };
            pair.post(on, moment);
        }
        let injected = if on & FAULTS != 0 { faults::refuse_post(&pair.faults) } else { None };
        let code = injected.unwrap_or_else(|| function(qp, mw, bind));
        if code != 0 && on & FOLLOWS != 0 {
            pair.refused(on, 1, code, injected.is_some());
        }
        if on & COUNT != 0 {
            if code == 0 { pair.counts.posted(&run) } else { pair.counts.refused(1) }
        }
        code
    }
}

/// A receive, of a queue pair or of a shared queue.
///
/// # Safety
///
/// The segments are live, if these are not more than `most`.
pub(super) unsafe fn moment_of_receive(request: &ibv_recv_wr, most: &AtomicU32) -> Moment {
    let count = count_of(request.num_sge);
    // SAFETY: guaranteed by the caller.
    let (bytes, first) = unsafe { segments(request.sg_list, count, most) };
    Moment {
        at: state::now(),
        segments: count.try_into().unwrap_or(u8::MAX),
        wr_id: request.wr_id,
        bytes,
        lkey: first.map_or(0, |segment| segment.lkey),
        address: first.map_or(0, |segment| segment.addr),
        thread: state::thread(),
        ..Moment::default()
    }
}

/// Traces that receives were refused.
pub(super) fn trace_refusal(of: Moment, count: usize, code: c_int, is_injected: bool) {
    trace::moment(Moment {
        at: state::now(),
        kind: Kind::Refused,
        opcode: 128,
        bytes: count as u64,
        errno: code.try_into().unwrap_or(u8::MAX),
        is_injected,
        thread: state::thread(),
        ..of
    });
}

pub(super) unsafe extern "C" fn post_receive(
    qp: *mut ibv_qp,
    list: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the program passes a live queue pair, and requests that are live during the call.
    unsafe {
        let Some(pair) = pair_of(qp).or_else(|| adopt::late(qp)) else {
            let function = context_of((*qp).context).and_then(|context| context.post_receive.get());
            return function.map_or(libc::EOPNOTSUPP, |function| function(qp, list, bad));
        };
        let Some(function) = pair.post_receive.get() else { return libc::EOPNOTSUPP };
        let on = state::on();
        if on & FOLLOWS == 0 {
            return function(qp, list, bad);
        }
        let (limits, mut count) = (&pair.limits, 0);
        for request in links(list, &limits.receives) {
            let moment = moment_of_receive(request, &limits.receive_segments);
            let (wr_id, at) = (moment.wr_id, moment.at);
            pair.receives.push(Request { wr_id, at, opcode: 0, is_signaled: true, bytes: moment.bytes });
            count += 1;
            if on & TRACE != 0 {
                trace::moment(Moment { kind: Kind::Receive, qp: pair.number(), ..moment });
            }
        }
        let injected = if on & FAULTS != 0 { faults::refuse_receive(&pair.faults) } else { None };
        let (code, refused) = match injected {
            Some(errno) => {
                *bad = list;
                (errno, list)
            }
            None => posted(list, bad, &limits.receives, |bad| function(qp, list, bad)),
        };
        if code != 0 {
            let left = links(refused, &limits.receives).count();
            pair.receives.take_back((left as u64).min(count));
            if on & TRACE != 0 {
                trace_refusal(Moment { qp: pair.number(), ..Moment::default() }, left, code, injected.is_some());
            }
        }
        code
    }
}
