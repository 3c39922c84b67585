//! Completions that are polled with `ibv_start_poll` and `ibv_next_poll`.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

use rdma_mummy_sys::*;

use super::adopt::{extended_queue_of, pair_numbered};
use super::completion::{Completion, count_one, follow, is_receive};
use super::original::{Original, Step};
use super::queue_pair::FOLLOWS;
use super::table::Keyed;
use crate::{count, state};

type Start = unsafe extern "C" fn(*mut ibv_cq_ex, *mut ibv_poll_cq_attr) -> c_int;
type Next = unsafe extern "C" fn(*mut ibv_cq_ex) -> c_int;

/// The driver's functions of an extended completion queue.
#[derive(Debug)]
pub(super) struct ExtendedQueue {
    key: AtomicU64,
    start: Original<Start>,
    next: Original<Next>,
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
        Self { key: AtomicU64::new(0), start: Original::none(), next: Original::none() }
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
        record.start.take(step, &raw mut (*cq).start_poll, start_poll);
        record.next.take(step, &raw mut (*cq).next_poll, next_poll);
    }
}

unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    // SAFETY: the program passes a live queue.
    unsafe {
        let Some(function) = extended_queue_of(cq).and_then(|queue| queue.start.get()) else { return libc::ENOENT };
        let code = function(cq, attr);
        observe(cq, code);
        code
    }
}

unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: the program passes a live queue, which it polls.
    unsafe {
        let Some(function) = extended_queue_of(cq).and_then(|queue| queue.next.get()) else { return libc::ENOENT };
        let code = function(cq);
        observe(cq, code);
        code
    }
}

/// # Safety
///
/// The driver's function has returned `code`; after zero, the queue has a current completion.
#[inline]
unsafe fn observe(cq: *mut ibv_cq_ex, code: c_int) {
    let on = state::on();
    if code == 0 && on != 0 {
        // SAFETY: guaranteed by the caller.
        unsafe { observe_current(on, cq) };
    }
}

/// # Safety
///
/// The queue has a current completion.
#[inline(never)]
unsafe fn observe_current(on: u8, cq: *mut ibv_cq_ex) {
    if on & FOLLOWS == 0 {
        // SAFETY: as below.
        unsafe { count_current(cq) };
        return;
    }
    // SAFETY: by contract there is a current completion, whose fields the driver's functions return.
    unsafe {
        let is_success = (*cq).status == ibv_wc_status::IBV_WC_SUCCESS;
        let number = (*cq).read_qp_num.map_or(0, |read| read(cq));
        let completion = Completion {
            wr_id: (*cq).wr_id,
            status: (*cq).status,
            opcode: (*cq).read_opcode.filter(|_| is_success).map_or(ibv_wc_opcode(0), |read| read(cq)),
            bytes: (*cq).read_byte_len.filter(|_| is_success).map_or(0, |read| read(cq)),
            vendor: (*cq).read_vendor_err.filter(|_| !is_success).map_or(0, |read| read(cq)),
            flags: (*cq).read_wc_flags.filter(|_| is_success).map_or(0, |read| read(cq)),
            queue: (*cq).handle,
        };
        (*cq).status = follow(on, pair_numbered((*cq).context, number), number, cq.cast(), completion);
    }
}

/// Counts the current completion.
///
/// # Safety
///
/// There is one.
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
        count_one(pair, is_success, opcode, bytes);
    }
}
