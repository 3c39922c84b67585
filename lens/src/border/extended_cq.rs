//! Completions that are polled with `ibv_start_poll` and `ibv_next_poll`.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rdma_mummy_sys::*;

use super::adopt::{extended_queue_of, pair_numbered, recent_extended_queue};
use super::altered;
use super::completion::{Completion, attribute, count_alike, is_receive, report};
use super::held;
use super::original::{Original, Step};
use super::queue_pair::FOLLOWS;
use super::saved::{Readers, Saved};
use super::table::Keyed;
use crate::state::{self, FAULTS};
use crate::{count, faults};

type Start = unsafe extern "C" fn(*mut ibv_cq_ex, *mut ibv_poll_cq_attr) -> c_int;
type Next = unsafe extern "C" fn(*mut ibv_cq_ex) -> c_int;
type End = unsafe extern "C" fn(*mut ibv_cq_ex);

/// The driver's functions of an extended completion queue.
#[derive(Debug)]
pub(super) struct ExtendedQueue {
    key: AtomicU64,
    start: Original<Start>,
    next: Original<Next>,
    /// Those that are replaced only if completions may be held back.
    end: Original<End>,
    pub(super) readers: Readers,
    holds: AtomicBool,
    /// The thread that polls while completions may be held back; zero for none.
    polled_by: AtomicU32,
    /// Whether it polls the driver.
    is_open: AtomicBool,
    /// The completion that it has selected, if it was held back.
    selected: Mutex<Option<Saved>>,
}

/// The fields without which a completion cannot be attributed.
pub(super) const NEEDED: u64 =
    (ibv_create_cq_wc_flags::IBV_WC_EX_WITH_QP_NUM.0 | ibv_create_cq_wc_flags::IBV_WC_EX_WITH_BYTE_LEN.0) as u64;
/// The bits of `comp_mask` for the fields of `ibv_cq_init_attr_ex` of this release.
pub(super) const KNOWN: u32 = 0b11;

impl Keyed for ExtendedQueue {
    fn key(&self) -> &AtomicU64 {
        &self.key
    }
}

impl ExtendedQueue {
    pub(super) fn new() -> Self {
        Self {
            key: AtomicU64::new(0),
            start: Original::none(),
            next: Original::none(),
            end: Original::none(),
            readers: Readers::none(),
            holds: AtomicBool::new(false),
            polled_by: AtomicU32::new(0),
            is_open: AtomicBool::new(false),
            selected: Mutex::new(None),
        }
    }

    /// This thread begins to poll.
    pub(super) fn begin(&self) {
        self.polled_by.store(state::thread(), Ordering::Relaxed);
    }

    /// Whether this thread polls while completions may be held back.
    #[inline]
    fn is_polled(&self) -> bool {
        let thread = self.polled_by.load(Ordering::Relaxed);
        thread != 0 && thread == state::thread()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Saved>> {
        self.selected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Selects a completion that was held back, or none.
    pub(super) fn select(&self, saved: Option<Saved>) {
        *self.lock() = saved;
    }

    /// Reads the completion that this thread has selected, if it was held back.
    pub(super) fn with_selected<T>(&self, read: impl FnOnce(&Saved) -> T) -> Option<T> {
        if self.is_polled() { self.lock().as_ref().map(read) } else { None }
    }

    /// Selects the next completion of the driver.
    ///
    /// # Safety
    ///
    /// This thread polls the queue, and `attr` is readable or null.
    pub(super) unsafe fn advance_driver(&self, cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
        let mut none = ibv_poll_cq_attr { comp_mask: 0 };
        let attr = if attr.is_null() { &raw mut none } else { attr };
        // SAFETY: guaranteed by the caller.
        unsafe {
            match (self.is_open.load(Ordering::Relaxed), self.start.get(), self.next.get()) {
                (true, _, Some(next)) => next(cq),
                (false, Some(start), _) => {
                    let code = start(cq, attr);
                    self.is_open.store(code == 0, Ordering::Relaxed);
                    code
                }
                _ => libc::ENOENT,
            }
        }
    }

    /// Ends the poll.
    ///
    /// # Safety
    ///
    /// This thread polls the queue.
    pub(super) unsafe fn end(&self, cq: *mut ibv_cq_ex) {
        self.select(None);
        if self.is_open.swap(false, Ordering::Relaxed)
            && let Some(end) = self.end.get()
        {
            // SAFETY: guaranteed by the caller.
            unsafe { end(cq) };
        }
        self.polled_by.store(0, Ordering::Relaxed);
    }
}

/// # Safety
///
/// `cq` is live.
pub(super) unsafe fn is_ours(cq: *mut ibv_cq_ex) -> bool {
    // SAFETY: by contract.
    unsafe { (*cq).start_poll }.is_some_and(|found| std::ptr::fn_addr_eq(found, start_poll as Start))
}

pub(super) fn take(step: Step, record: &ExtendedQueue, cq: *mut ibv_cq_ex) {
    // SAFETY: `adopt` calls this function for a new queue.
    unsafe {
        if step == Step::Keep {
            record.holds.store(faults::alters_completions(), Ordering::Relaxed);
        }
        let holds = record.holds.load(Ordering::Relaxed);
        record.start.take(step, &raw mut (*cq).start_poll, start_poll);
        record.next.take(step, &raw mut (*cq).next_poll, if holds { next_poll_held } else { next_poll });
        if holds {
            record.end.take(step, &raw mut (*cq).end_poll, end_poll);
            record.readers.take(step, cq);
        }
    }
}

unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    // SAFETY: the program passes a live queue.
    unsafe {
        let Some(record) = extended_queue_of(cq) else { return libc::ENOENT };
        let on = state::on();
        if on & FAULTS != 0 && held::alters_completions() && record.holds.load(Ordering::Relaxed) {
            return altered::start(on, record, cq, attr);
        }
        let Some(function) = record.start.get() else { return libc::ENOENT };
        let code = function(cq, attr);
        observe(cq, code);
        code
    }
}

unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: the program passes a live queue, which it polls.
    unsafe {
        // Both calls are the last ones, so that a lens that does nothing needs no frame.
        if let Some(record) = recent_extended_queue(cq)
            && let Some(function) = record.next.get()
            && state::on() == 0
        {
            function(cq)
        } else {
            next_and_observe(cq)
        }
    }
}

/// # Safety
///
/// As for `ibv_next_poll`.
#[inline(never)]
unsafe fn next_and_observe(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let Some(function) = extended_queue_of(cq).and_then(|queue| queue.next.get()) else { return libc::ENOENT };
        let code = function(cq);
        observe(cq, code);
        code
    }
}

/// `ibv_next_poll` of a queue whose completions may be held back.
unsafe extern "C" fn next_poll_held(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: the program passes a live queue, which it polls.
    unsafe {
        match extended_queue_of(cq).filter(|record| record.is_polled()) {
            Some(record) => altered::advance(state::on(), record, cq, std::ptr::null_mut()),
            None => next_and_observe(cq),
        }
    }
}

unsafe extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    // SAFETY: the program passes a live queue, which it polls.
    unsafe {
        let Some(record) = extended_queue_of(cq) else { return };
        if record.is_polled() {
            altered::end(record, cq);
        } else if let Some(function) = record.end.get() {
            function(cq);
        }
    }
}

/// # Safety
///
/// The driver's function has returned `code`; after zero, the queue has a current completion.
#[inline]
unsafe fn observe(cq: *mut ibv_cq_ex, code: c_int) {
    let on = state::on();
    if code == 0 && on & FOLLOWS != 0 {
        // SAFETY: guaranteed by the caller.
        unsafe { follow_current(on, cq) };
    } else if code == 0 && on != 0 {
        // SAFETY: as above.
        unsafe { count_current(cq) };
    }
}

/// # Safety
///
/// The queue has a current completion.
#[inline(never)]
unsafe fn follow_current(on: u8, cq: *mut ibv_cq_ex) {
    // SAFETY: by contract there is a current completion, whose fields the driver's functions return.
    unsafe {
        let (number, mut completion) = current(cq);
        let attributed = attribute(on, number, cq.cast(), (*cq).context, &mut completion);
        report(on, completion, attributed);
        (*cq).status = completion.status;
    }
}

/// The number of the queue pair and the fields of the current completion.
///
/// # Safety
///
/// There is one, and the queue has the driver's functions or ours.
pub(super) unsafe fn current(cq: *mut ibv_cq_ex) -> (u32, Completion) {
    // SAFETY: guaranteed by the caller; the functions return the fields of the current completion.
    unsafe {
        let is_success = (*cq).status == ibv_wc_status::IBV_WC_SUCCESS;
        let completion = Completion {
            wr_id: (*cq).wr_id,
            status: (*cq).status,
            opcode: (*cq).read_opcode.filter(|_| is_success).map_or(ibv_wc_opcode(0), |read| read(cq)),
            bytes: (*cq).read_byte_len.filter(|_| is_success).map_or(0, |read| read(cq)),
            vendor: (*cq).read_vendor_err.filter(|_| !is_success).map_or(0, |read| read(cq)),
            flags: (*cq).read_wc_flags.filter(|_| is_success).map_or(0, |read| read(cq)),
            queue: (*cq).handle,
        };
        ((*cq).read_qp_num.map_or(0, |read| read(cq)), completion)
    }
}

/// Counts the current completion.
///
/// # Safety
///
/// There is one.
#[inline]
unsafe fn count_current(cq: *mut ibv_cq_ex) {
    // SAFETY: the driver's functions return the fields of the current completion.
    unsafe {
        let pair = (*cq).read_qp_num.and_then(|read| pair_numbered((*cq).context, read(cq)));
        let Some(pair) = pair else {
            count::UNKNOWN.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let is_success = (*cq).status == ibv_wc_status::IBV_WC_SUCCESS;
        let opcode = (*cq).read_opcode.filter(|_| is_success).map_or(ibv_wc_opcode(0), |read| read(cq));
        let bytes = (*cq).read_byte_len.filter(|_| is_receive(opcode)).map_or(0, |read| read(cq));
        count_alike(pair, is_success, opcode, (1, bytes.into()));
    }
}
