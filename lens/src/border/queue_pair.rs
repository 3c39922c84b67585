//! The record of a queue pair: its limits, its requests in flight, its counts and faults.

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rdma_mummy_sys::*;

use super::adopt::{context_of, shared_of};
use super::context::{PostReceive, PostSend};
use super::flight::{Flight, Request};
use super::held;
use super::original::Original;
use super::show::name_of;
use super::table::Keyed;
use crate::count::{Counts, PairSummary};
use crate::faults;
use crate::moment::{Kind, Moment};
use crate::state::{self, FAULTS, TRACE};
use crate::trace;

/// The record of a queue pair.
#[derive(Debug)]
pub(super) struct QueuePair {
    key: AtomicU64,
    number: AtomicU32,
    /// The name of the device.
    device: AtomicPtr<String>,
    /// The completion queues, by their addresses.
    send_queue: AtomicPtr<ibv_cq>,
    receive_queue: AtomicPtr<ibv_cq>,
    signals_all: AtomicBool,
    /// The operations of `ibv_wr_start` for which it was made.
    operations: AtomicU64,
    pub(super) limits: Limits,
    /// The driver's functions, which are those of the context.
    pub(super) post_send: Original<PostSend>,
    pub(super) post_receive: Original<PostReceive>,
    pub(super) flight: Flight,
    /// The receives of its own queue.
    pub(super) receives: Flight,
    pub(super) counts: Counts,
    pub(super) faults: faults::OfPair,
}

/// What a driver accepts. Of requests beyond it, only what the driver reads is read.
#[derive(Debug)]
pub(super) struct Limits {
    pub(super) sends: AtomicU32,
    pub(super) receives: AtomicU32,
    pub(super) send_segments: AtomicU32,
    pub(super) receive_segments: AtomicU32,
}

/// Which queue a completion belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Send,
    Receive,
    /// Both queues have the same completion queue, or it is unknown.
    Either,
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
            device: AtomicPtr::new(ptr::null_mut()),
            send_queue: AtomicPtr::new(ptr::null_mut()),
            receive_queue: AtomicPtr::new(ptr::null_mut()),
            signals_all: AtomicBool::new(false),
            operations: AtomicU64::new(0),
            limits: Limits {
                sends: AtomicU32::new(0),
                receives: AtomicU32::new(0),
                send_segments: AtomicU32::new(0),
                receive_segments: AtomicU32::new(0),
            },
            post_send: Original::none(),
            post_receive: Original::none(),
            flight: Flight::new(),
            receives: Flight::new(),
            counts: Counts::new(),
            faults: faults::OfPair::new(),
        }
    }

    /// Prepares the record for a new queue pair, of which the driver has reported `made`.
    pub(super) fn start(&self, qp: &ibv_qp, made: Option<&ibv_qp_init_attr>) {
        let cap = made.map(|made| made.cap);
        let set = |to: &AtomicU32, limit: Option<u32>, unknown| to.store(limit.unwrap_or(unknown), Ordering::Relaxed);
        self.number.store(qp.qp_num, Ordering::Relaxed);
        // SAFETY: the context of a live queue pair is live.
        let device = interned(unsafe { name_of(qp.context) });
        self.device.store(ptr::from_ref(device).cast_mut(), Ordering::Relaxed);
        self.send_queue.store(qp.send_cq, Ordering::Relaxed);
        self.receive_queue.store(qp.recv_cq, Ordering::Relaxed);
        self.signals_all.store(made.is_some_and(|made| made.sq_sig_all != 0), Ordering::Relaxed);
        set(&self.limits.sends, cap.map(|cap| cap.max_send_wr), 1024);
        set(&self.limits.receives, cap.map(|cap| cap.max_recv_wr), 1024);
        set(&self.limits.send_segments, cap.map(|cap| cap.max_send_sge), 1);
        set(&self.limits.receive_segments, cap.map(|cap| cap.max_recv_sge), 1);
        if let Some(context) = context_of(qp.context) {
            self.post_send.copy(&context.post_send);
            self.post_receive.copy(&context.post_receive);
        }
        self.counts.start();
        self.reset();
        let shared = shared_of(qp.srq).map_or(0, |shared| shared.faults.nth());
        self.faults.start(ptr::from_ref(qp).cast_mut(), qp.qp_num, shared);
    }

    /// The operations for which the queue pair was made, as its attributes name them.
    pub(super) fn set_operations(&self, operations: u64) {
        self.operations.store(operations, Ordering::Relaxed);
    }

    pub(super) fn has_operation(&self, operation: ibv_qp_create_send_ops_flags) -> bool {
        self.operations.load(Ordering::Relaxed) & u64::from(operation.0) != 0
    }

    /// The queue pair is in the state RESET: it has no requests.
    pub(super) fn reset(&self) {
        self.flight.start(self.limits.sends.load(Ordering::Relaxed));
        self.receives.start(self.limits.receives.load(Ordering::Relaxed));
        self.counts.nothing_in_flight();
        held::forget_pair(self);
        self.faults.reset();
    }

    /// Forgets what a lens before this one has followed: some of its requests may have completed since.
    pub(super) fn forget(&self) {
        self.flight.start(self.limits.sends.load(Ordering::Relaxed));
        self.receives.start(self.limits.receives.load(Ordering::Relaxed));
        self.faults.forget();
    }

    /// The side of which `cq` gets the completions.
    pub(super) fn side(&self, cq: *const ibv_cq) -> Side {
        let is = |queue: &AtomicPtr<ibv_cq>| ptr::eq(queue.load(Ordering::Relaxed), cq);
        match (is(&self.send_queue), is(&self.receive_queue)) {
            (true, false) => Side::Send,
            (false, true) => Side::Receive,
            _ => Side::Either,
        }
    }

    /// Whether the completions of its sends and receives are in one queue.
    pub(super) fn has_one_queue(&self) -> bool {
        ptr::eq(self.send_queue.load(Ordering::Relaxed), self.receive_queue.load(Ordering::Relaxed))
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
        // SAFETY: the pointer is null, or to a name that is never freed.
        let device = unsafe { self.device.load(Ordering::Relaxed).as_ref() }.cloned().unwrap_or_default();
        PairSummary::new(device, self.number(), &self.counts)
    }

    /// Whether a request with these flags reports its success.
    #[inline]
    pub(super) fn is_signaled(&self, flags: u16) -> bool {
        flags & SIGNALED != 0 || self.signals_all()
    }

    #[inline]
    pub(super) fn signals_all(&self) -> bool {
        self.signals_all.load(Ordering::Relaxed)
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

    /// Called after a call that posted no request: the status of a fault may be that of none.
    pub(super) fn posted_nothing(&self) {
        if !self.faults.is_armed() {
            return;
        }
        if self.in_flight() == 0 {
            self.faults.disarm();
        } else if !self.flight.has_signaled() {
            // The device may have done all of them.
            self.faults.expect_nothing();
        }
        held::wake(state::now());
    }

    /// Records that the device refused the last `count` requests.
    pub(super) fn refused(&self, on: u8, count: u64, errno: i32, is_injected: bool) {
        self.flight.take_back(count);
        self.posted_nothing();
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

/// The one copy of a name, which is never freed: devices are few.
fn interned(name: String) -> &'static String {
    static NAMES: Mutex<Vec<&'static String>> = Mutex::new(Vec::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.iter().find(|known| ***known == name) {
        return known;
    }
    let name: &'static String = Box::leak(Box::new(name));
    names.push(name);
    name
}

/// What follows the requests in flight one by one.
pub(super) const FOLLOWS: u8 = TRACE | FAULTS;

pub(super) const SIGNALED: u16 = 2;
