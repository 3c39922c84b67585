//! Objects that the driver has made: their records, and our functions in place of the driver's. The address of an object
//! does not change, because drivers find their own struct around it.

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use rdma_mummy_sys as ffi;
use rdma_mummy_sys::{ibv_context, ibv_cq, ibv_cq_ex, ibv_qp, ibv_qp_ex, rdma_cm_id};

use super::context::{self, Context};
use super::extended_cq::{self, ExtendedQueue};
use super::extended_qp::{self, ExtendedPair};
use super::queue_pair::QueuePair;
use super::table::{Keyed, Table};

pub(super) static CONTEXTS: Table<Context> = Table::new();
pub(super) static PAIRS: Table<QueuePair> = Table::new();
/// Queue pairs by context and number, for completions.
pub(super) static NUMBERS: Table<Numbered> = Table::new();
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

#[inline]
pub(super) fn extended_pair_of(qp: *const ibv_qp_ex) -> Option<&'static ExtendedPair> {
    EXTENDED_PAIRS.find(key(qp))
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

/// # Safety
///
/// `context` is null or live.
pub(super) unsafe fn context(context: *mut ibv_context) {
    // SAFETY: by contract.
    unsafe {
        if context.is_null() || context::is_ours(context) {
            return;
        }
        // The record of a closed context at this address, if librdmacm has closed it.
        drop_key(&CONTEXTS, key(context));
        CONTEXTS.insert(key(context), Context::new, |record| context::take(record, context));
    }
}

fn drop_key<T: Keyed + Sync>(table: &Table<T>, key: u64) {
    if let Some(record) = table.remove(key) {
        table.reuse(record);
    }
}

/// # Safety
///
/// `qp` is null or live.
pub(super) unsafe fn queue_pair(qp: *mut ibv_qp) {
    // SAFETY: by contract.
    unsafe {
        if qp.is_null() {
            return;
        }
        context((*qp).context);
        if pair_of(qp).is_some_and(|pair| pair.number() == (*qp).qp_num) {
            return;
        }
        drop_key(&PAIRS, key(qp));
        let (mut attr, mut made): (ffi::ibv_qp_attr, ffi::ibv_qp_init_attr) = (std::mem::zeroed(), std::mem::zeroed());
        let mask = ffi::ibv_qp_attr_mask::IBV_QP_CAP.0.cast_signed();
        let is_known = ffi::load::front::pass(|| ffi::ibv_query_qp(qp, &raw mut attr, mask, &raw mut made)) == 0;
        let (slots, signals_all) = if is_known { (made.cap.max_send_wr, made.sq_sig_all != 0) } else { (1024, false) };
        let pair = PAIRS.insert(key(qp), QueuePair::new, |pair| pair.start(&*qp, slots, signals_all));
        let numbered = NUMBERS.insert(number_key((*qp).context, (*qp).qp_num), Numbered::default, |_| ());
        numbered.pair.store(std::ptr::from_ref(pair).cast_mut(), Ordering::Release);
    }
}

/// Adopts a queue pair when the program first posts to it: a function of a vendor has made it.
///
/// # Safety
///
/// `qp` is live.
#[cold]
pub(super) unsafe fn late(qp: *mut ibv_qp) -> Option<&'static QueuePair> {
    // SAFETY: guaranteed by the caller.
    unsafe { queue_pair(qp) };
    pair_of(qp)
}

/// # Safety
///
/// `qp` is null or live, and has the functions of an extended queue pair.
pub(super) unsafe fn extended_queue_pair(qp: *mut ibv_qp_ex) {
    // SAFETY: by contract.
    unsafe {
        if qp.is_null() || extended_qp::is_ours(qp) {
            return;
        }
        queue_pair(qp.cast());
        let Some(pair) = pair_of(qp.cast()) else { return };
        drop_key(&EXTENDED_PAIRS, key(qp));
        EXTENDED_PAIRS.insert(key(qp), ExtendedPair::new, |record| extended_qp::take(record, qp, pair));
    }
}

/// # Safety
///
/// `cq` is null or live.
pub(super) unsafe fn extended_completion_queue(cq: *mut ibv_cq_ex) {
    // SAFETY: by contract.
    unsafe {
        if cq.is_null() || extended_cq::is_ours(cq) {
            return;
        }
        drop_key(&EXTENDED_QUEUES, key(cq));
        EXTENDED_QUEUES.insert(key(cq), ExtendedQueue::new, |queue| extended_cq::take(queue, cq));
    }
}

/// Adopts the context of an identifier and, if `has_made`, its queue pair.
///
/// # Safety
///
/// `id` is null or live, and so is its queue pair if `has_made`.
pub(super) unsafe fn identifier(id: *mut rdma_cm_id, has_made: bool) {
    // SAFETY: by contract; the context of a live identifier is live.
    unsafe {
        let Some(found) = id.as_ref() else { return };
        context(found.verbs);
        if has_made {
            queue_pair(found.qp);
            if let Some(pair) = pair_of(found.qp) {
                pair.faults.set_id(id);
            }
        }
    }
}

/// Records of an object that is about to be destroyed. Another thread may get the address as soon as the driver has freed
/// it.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    context: Option<(u64, &'static Context)>,
    pair: Option<(u64, &'static QueuePair)>,
    numbered: Option<(u64, &'static Numbered)>,
    extended_pair: Option<(u64, &'static ExtendedPair)>,
    extended_queue: Option<(u64, &'static ExtendedQueue)>,
}

impl Leaving {
    pub(super) fn context(context: *mut ibv_context) -> Self {
        Self { context: removed(&CONTEXTS, key(context)), ..Self::default() }
    }

    /// # Safety
    ///
    /// `qp` is null or live.
    pub(super) unsafe fn queue_pair(qp: *mut ibv_qp) -> Self {
        // SAFETY: by contract.
        let number = unsafe { qp.as_ref() }.map_or(0, |qp| number_key(qp.context, qp.qp_num));
        Self {
            pair: removed(&PAIRS, key(qp)),
            numbered: removed(&NUMBERS, number),
            extended_pair: removed(&EXTENDED_PAIRS, key(qp)),
            ..Self::default()
        }
    }

    pub(super) fn completion_queue(cq: *mut ibv_cq) -> Self {
        Self { extended_queue: removed(&EXTENDED_QUEUES, key(cq)), ..Self::default() }
    }

    /// The object was destroyed.
    pub(super) fn end(self) {
        if let Some((_, pair)) = self.pair {
            crate::count::retire(pair.summary());
        }
        reuse(&CONTEXTS, self.context);
        reuse(&PAIRS, self.pair);
        reuse(&NUMBERS, self.numbered);
        reuse(&EXTENDED_PAIRS, self.extended_pair);
        reuse(&EXTENDED_QUEUES, self.extended_queue);
    }

    /// The object was not destroyed.
    pub(super) fn stay(self) {
        put_back(&CONTEXTS, self.context);
        put_back(&PAIRS, self.pair);
        put_back(&NUMBERS, self.numbered);
        put_back(&EXTENDED_PAIRS, self.extended_pair);
        put_back(&EXTENDED_QUEUES, self.extended_queue);
    }
}

fn removed<T: Keyed + Sync>(table: &Table<T>, key: u64) -> Option<(u64, &'static T)> {
    table.remove(key).map(|record| (key, record))
}

fn reuse<T: Keyed + Sync>(table: &Table<T>, record: Option<(u64, &'static T)>) {
    if let Some((_, record)) = record {
        table.reuse(record);
    }
}

fn put_back<T: Keyed + Sync>(table: &Table<T>, record: Option<(u64, &'static T)>) {
    if let Some((key, record)) = record {
        table.put_back(key, record);
    }
}
