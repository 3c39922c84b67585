//! Objects that the driver has made: their records, and our functions in place of the driver's. The address of an object
//! does not change, because drivers find their own struct around it.

use std::cell::Cell;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rdma_mummy_sys as ffi;
use rdma_mummy_sys::{ibv_context, ibv_cq, ibv_cq_ex, ibv_qp, ibv_qp_ex, ibv_srq, rdma_cm_id};

use super::context::{self, Context};
use super::extended_cq::{self, ExtendedQueue};
use super::extended_qp::{self, ExtendedPair};
use super::held;
use super::original::Step;
use super::queue_pair::QueuePair;
use super::shared_queue::SharedQueue;
use super::table::{Keyed, Table};
use crate::{faults, state};

pub(super) static CONTEXTS: Table<Context> = Table::new();
pub(super) static PAIRS: Table<QueuePair> = Table::new();
/// Queue pairs by context and number, for completions.
pub(super) static NUMBERS: Table<Numbered> = Table::new();
pub(super) static SHARED_QUEUES: Table<SharedQueue> = Table::new();
pub(super) static EXTENDED_PAIRS: Table<ExtendedPair> = Table::new();
pub(super) static EXTENDED_QUEUES: Table<ExtendedQueue> = Table::new();

/// A reference to the record of a queue pair.
#[derive(Debug, Default)]
pub(super) struct Numbered {
    key: AtomicU64,
    pair: AtomicPtr<QueuePair>,
}

impl Keyed for Numbered {
    fn key(&self) -> &AtomicU64 {
        &self.key
    }
}

fn key<T>(object: *const T) -> u64 {
    object.addr() as u64
}

/// The key of a queue pair by its number. Numbers have 24 bits.
fn number_key(context: *const ibv_context, number: u32) -> u64 {
    key(context) ^ (u64::from(number) << 40) ^ 1
}

/// The record of a context.
#[inline]
pub(super) fn context_of(context: *const ibv_context) -> Option<&'static Context> {
    CONTEXTS.find(key(context))
}

/// The record of a queue pair.
#[inline]
pub(super) fn pair_of(qp: *const ibv_qp) -> Option<&'static QueuePair> {
    PAIRS.find(key(qp))
}

/// The record of a shared receive queue.
pub(super) fn shared_of(srq: *const ibv_srq) -> Option<&'static SharedQueue> {
    SHARED_QUEUES.find(key(srq))
}

#[inline]
pub(super) fn extended_pair_of(qp: *const ibv_qp_ex) -> Option<&'static ExtendedPair> {
    EXTENDED_PAIRS.find(key(qp))
}

/// The record of an extended queue pair, if it was found lately.
#[inline]
pub(super) fn recent_extended_pair(qp: *const ibv_qp_ex) -> Option<&'static ExtendedPair> {
    EXTENDED_PAIRS.recent(key(qp))
}

/// The record of an extended completion queue, if it was found lately.
#[inline]
pub(super) fn recent_extended_queue(cq: *const ibv_cq_ex) -> Option<&'static ExtendedQueue> {
    EXTENDED_QUEUES.recent(key(cq))
}

#[inline]
pub(super) fn extended_queue_of(cq: *const ibv_cq_ex) -> Option<&'static ExtendedQueue> {
    EXTENDED_QUEUES.find(key(cq))
}

/// The record of the queue pair with this number.
#[inline]
pub(super) fn pair_numbered(context: *const ibv_context, number: u32) -> Option<&'static QueuePair> {
    let pair = NUMBERS.find(number_key(context, number))?.pair.load(Ordering::Acquire);
    // SAFETY: records are never freed.
    unsafe { pair.as_ref() }
}

thread_local! {
    /// The queue pair that `ibv_create_qp_ex` has just made in this thread, and its operations.
    static MADE_WITH: Cell<Option<(u64, u64)>> = const { Cell::new(None) };
}

/// Records the operations of a queue pair that is about to be adopted.
pub(super) fn made_with(qp: *const ibv_qp, operations: u64) {
    // A thread that ends may make no queue pairs.
    let _ = MADE_WITH.try_with(|made| made.set(Some((key(qp), operations))));
}

/// Held while an object is adopted: two threads may get the same one.
static ADOPTING: Mutex<()> = Mutex::new(());

/// Waits for other threads that adopt. `None` in a child that was forked, where the lock may never be free: objects that it
/// makes stay those of the driver.
fn turn() -> Option<MutexGuard<'static, ()>> {
    (!state::is_child()).then(|| ADOPTING.lock().unwrap_or_else(PoisonError::into_inner))
}

/// # Safety
///
/// `context` is null or live.
pub(super) unsafe fn context(context: *mut ibv_context) {
    if let Some(_turn) = turn() {
        // SAFETY: guaranteed by the caller.
        unsafe { context_in_turn(context) };
    }
}

/// # Safety
///
/// As [`context`], in this thread's turn.
unsafe fn context_in_turn(context: *mut ibv_context) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if context.is_null() || context::is_ours(context) {
            return;
        }
        let record = CONTEXTS.insert(key(context), Context::new, |record| context::take(Step::Keep, record, context));
        context::take(Step::Replace, record, context);
    }
}

/// A queue pair that was just made, which may have the address and the number of a destroyed one.
///
/// # Safety
///
/// `qp` is null or live.
pub(super) unsafe fn new_queue_pair(qp: *mut ibv_qp) {
    if let Some(_turn) = turn() {
        // SAFETY: guaranteed by the caller.
        unsafe { queue_pair_in_turn(qp, true) };
    }
}

/// # Safety
///
/// As [`new_queue_pair`], in this thread's turn.
unsafe fn queue_pair_in_turn(qp: *mut ibv_qp, is_new: bool) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if qp.is_null() {
            return;
        }
        context_in_turn((*qp).context);
        if !is_new && pair_of(qp).is_some_and(|pair| pair.number() == (*qp).qp_num) {
            return;
        }
        let (mut attr, mut made): (ffi::ibv_qp_attr, ffi::ibv_qp_init_attr) = (std::mem::zeroed(), std::mem::zeroed());
        let mask = ffi::ibv_qp_attr_mask::IBV_QP_CAP.0.cast_signed();
        let is_known = ffi::load::front::pass(|| ffi::ibv_query_qp(qp, &raw mut attr, mask, &raw mut made)) == 0;
        let made = is_known.then_some(made);
        let pair = PAIRS.insert(key(qp), QueuePair::new, |pair| {
            pair.start(&*qp, made.as_ref());
            let with = MADE_WITH.try_with(Cell::take).ok().flatten().filter(|(made, _)| *made == key(qp));
            pair.set_operations(with.map_or(0, |(_, operations)| operations));
        });
        let numbered = NUMBERS.insert(number_key((*qp).context, (*qp).qp_num), Numbered::default, |_| ());
        numbered.pair.store(std::ptr::from_ref(pair).cast_mut(), Ordering::Release);
        if faults::delays_completions() {
            held::prepare((*qp).send_cq);
            held::prepare((*qp).recv_cq);
        }
    }
}

/// A shared receive queue that was just made, which may have the address of a destroyed one.
///
/// # Safety
///
/// `srq` is null or live.
pub(super) unsafe fn new_shared_queue(srq: *mut ibv_srq) {
    let Some(_turn) = turn().filter(|_| !srq.is_null()) else { return };
    // SAFETY: guaranteed by the caller.
    unsafe { context_in_turn((*srq).context) };
    SHARED_QUEUES.insert(key(srq), SharedQueue::default, |shared| shared.faults.start());
}

/// Adopts a queue pair when the program first posts to it: a function of a vendor has made it.
///
/// # Safety
///
/// `qp` is live.
#[cold]
pub(super) unsafe fn late(qp: *mut ibv_qp) -> Option<&'static QueuePair> {
    let _turn = turn()?;
    // SAFETY: guaranteed by the caller.
    unsafe { queue_pair_in_turn(qp, false) };
    pair_of(qp)
}

/// # Safety
///
/// `qp` is null or live, and has the functions of an extended queue pair.
pub(super) unsafe fn extended_queue_pair(qp: *mut ibv_qp_ex) {
    let Some(_turn) = turn() else { return };
    // SAFETY: guaranteed by the caller.
    unsafe {
        if qp.is_null() || extended_qp::is_ours(qp) {
            return;
        }
        queue_pair_in_turn(qp.cast(), false);
        let Some(pair) = pair_of(qp.cast()) else { return };
        let keep = |record: &'static ExtendedPair| extended_qp::take(Step::Keep, record, qp, pair);
        let record = EXTENDED_PAIRS.insert(key(qp), ExtendedPair::new, keep);
        extended_qp::take(Step::Replace, record, qp, pair);
    }
}

/// # Safety
///
/// `cq` is null or live.
pub(super) unsafe fn extended_completion_queue(cq: *mut ibv_cq_ex) {
    let Some(_turn) = turn() else { return };
    // SAFETY: guaranteed by the caller.
    unsafe {
        if cq.is_null() || extended_cq::is_ours(cq) {
            return;
        }
        let keep = |record: &'static ExtendedQueue| extended_cq::take(Step::Keep, record, cq);
        let record = EXTENDED_QUEUES.insert(key(cq), ExtendedQueue::new, keep);
        extended_cq::take(Step::Replace, record, cq);
    }
}

/// Adopts the context and the queue pair of an identifier, for which a call has just made the queue pair.
///
/// # Safety
///
/// `id` is null or live, and so is its queue pair.
pub(super) unsafe fn identifier(id: *mut rdma_cm_id) {
    let Some(_turn) = turn() else { return };
    // SAFETY: by contract; the context of a live identifier is live.
    unsafe {
        let Some(found) = id.as_ref() else { return };
        context_in_turn(found.verbs);
        queue_pair_in_turn(found.qp, true);
        if let Some(pair) = pair_of(found.qp) {
            pair.faults.set_id(id);
        }
    }
}

/// Forgets an identifier that is about to be destroyed, but whose queue pair may live on.
pub(super) fn forget_identifier(id: *mut rdma_cm_id) {
    if !state::is_child() {
        PAIRS.all().iter().for_each(|pair| pair.faults.forget_id(id));
    }
}

/// Records of an object that is about to be destroyed. Other threads find them until it is destroyed, because the call may
/// fail. Another thread may get the address as soon as the driver has freed it.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    context: Option<(u64, &'static Context)>,
    pair: Option<(u64, &'static QueuePair)>,
    numbered: Option<(u64, &'static Numbered)>,
    shared_queue: Option<(u64, &'static SharedQueue)>,
    extended_pair: Option<(u64, &'static ExtendedPair)>,
    extended_queue: Option<(u64, &'static ExtendedQueue)>,
    /// The queue pair, for its faults.
    faults: Option<(*mut ibv_qp, &'static QueuePair)>,
    /// The completion queues, and whether completions of them could be held back while the program sleeps.
    queues: [Option<(*mut ibv_cq, bool)>; 2],
}

impl Leaving {
    pub(super) fn context(context: *mut ibv_context) -> Self {
        Self { context: leaving(&CONTEXTS, key(context)), ..Self::default() }
    }

    /// # Safety
    ///
    /// `qp` is null or live.
    pub(super) unsafe fn queue_pair(qp: *mut ibv_qp) -> Self {
        // SAFETY: by contract.
        let number = unsafe { qp.as_ref() }.map_or(0, |qp| number_key(qp.context, qp.qp_num));
        let faults = pair_of(qp).filter(|_| !state::is_child());
        faults.iter().for_each(|pair| pair.faults.leave());
        Self {
            faults: faults.map(|pair| (qp, pair)),
            pair: leaving(&PAIRS, key(qp)),
            numbered: leaving(&NUMBERS, number),
            extended_pair: leaving(&EXTENDED_PAIRS, key(qp)),
            ..Self::default()
        }
    }

    pub(super) fn shared_queue(srq: *mut ibv_srq) -> Self {
        Self { shared_queue: leaving(&SHARED_QUEUES, key(srq)), ..Self::default() }
    }

    pub(super) fn completion_queue(cq: *mut ibv_cq) -> Self {
        let extended_queue = leaving(&EXTENDED_QUEUES, key(cq));
        Self { extended_queue, ..Self::default() }.with_queues([cq, std::ptr::null_mut()])
    }

    /// With completion queues that are destroyed, too.
    pub(super) fn with_queues(mut self, queues: [*mut ibv_cq; 2]) -> Self {
        if !state::is_child() {
            self.queues = queues.map(|cq| (!cq.is_null()).then(|| (cq, held::retire(cq))));
        }
        self
    }

    /// The object was destroyed.
    pub(super) fn end(self) {
        self.faults.iter().for_each(|(_, pair)| held::forget_pair(pair));
        self.queues.iter().flatten().for_each(|(cq, _)| held::forget(*cq));
        let counts = self.pair.map(|(_, pair)| pair.summary());
        left(&CONTEXTS, self.context);
        left(&PAIRS, self.pair);
        left(&NUMBERS, self.numbered);
        left(&SHARED_QUEUES, self.shared_queue);
        left(&EXTENDED_PAIRS, self.extended_pair);
        left(&EXTENDED_QUEUES, self.extended_queue);
        counts.into_iter().for_each(crate::count::retire);
    }

    /// The object was not destroyed.
    pub(super) fn stay(self) {
        self.faults.iter().for_each(|(qp, pair)| pair.faults.stay(*qp));
        for (cq, _) in self.queues.iter().flatten().filter(|(_, had_waker)| *had_waker) {
            // SAFETY: the queue was not destroyed.
            unsafe { held::stay(*cq) };
        }
        stays(&CONTEXTS, self.context);
        stays(&PAIRS, self.pair);
        stays(&NUMBERS, self.numbered);
        stays(&SHARED_QUEUES, self.shared_queue);
        stays(&EXTENDED_PAIRS, self.extended_pair);
        stays(&EXTENDED_QUEUES, self.extended_queue);
    }
}

fn leaving<T: Keyed + Sync>(table: &Table<T>, key: u64) -> Option<(u64, &'static T)> {
    if state::is_child() {
        return None;
    }
    table.leave(key).map(|record| (key, record))
}

fn left<T: Keyed + Sync>(table: &Table<T>, record: Option<(u64, &'static T)>) {
    if let Some((key, record)) = record {
        table.left(key, record);
    }
}

fn stays<T: Keyed + Sync>(table: &Table<T>, record: Option<(u64, &'static T)>) {
    if let Some((_, record)) = record {
        table.stays(record);
    }
}
