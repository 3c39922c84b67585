//! Polls while faults change the course of completions: each completion that the driver reports is settled on its own.

use std::ffi::c_int;

use rdma_mummy_sys::*;

use super::completion::{Completion, report};
use super::context::Poll;
use super::extended_cq::{ExtendedQueue, current};
use super::held;
use super::saved::Saved;

/// `ibv_poll_cq`.
///
/// # Safety
///
/// As for `ibv_poll_cq`; `function` is the driver's.
#[cold]
pub(super) unsafe fn poll(on: u8, function: Poll, (cq, most, wc): (*mut ibv_cq, c_int, *mut ibv_wc)) -> c_int {
    let queue = held::queue(cq);
    if !queue.begin() {
        // This thread polls the queue as an extended one, which the driver refuses or waits for.
        // SAFETY: guaranteed by the caller.
        return unsafe { function(cq, most, wc) };
    }
    let mut filled: c_int = 0;
    while filled < most {
        // SAFETY: the program has space for `most` completions, the queue is live, and the driver has written the
        // completion.
        unsafe {
            let place = wc.add(filled as usize);
            let mut saved = queue.take(false);
            let mut found = 0;
            if saved.is_none() {
                found = function(cq, 1, place);
                if found == 0 {
                    saved = queue.take(true);
                }
            }
            if let Some(saved) = saved {
                place.write(saved.wc());
                report(on, saved.completion, saved.attributed);
                filled += 1;
                continue;
            }
            if found <= 0 {
                if filled == 0 {
                    filled = found;
                }
                break;
            }
            let found = *place;
            let save = |completion, attributed| Saved::of_basic(found, completion, attributed);
            if let Some((completion, attributed)) =
                queue.settle(on, &*cq, found.qp_num, Completion::of(&found, &*cq), save)
            {
                (*place).status = completion.status;
                report(on, completion, attributed);
                filled += 1;
            }
        }
    }
    queue.end();
    filled
}

/// `ibv_start_poll`.
///
/// # Safety
///
/// As for `ibv_start_poll`.
#[cold]
pub(super) unsafe fn start(on: u8, record: &ExtendedQueue, cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    let queue = held::queue(cq.cast());
    if !queue.begin() {
        return libc::EBUSY;
    }
    record.begin();
    // SAFETY: guaranteed by the caller.
    unsafe {
        let code = advance(on, record, cq, attr);
        if code != 0 {
            end(record, cq);
        }
        code
    }
}

/// `ibv_next_poll`, and the first step of `ibv_start_poll`.
///
/// # Safety
///
/// This thread polls the queue, and `attr` is readable or null.
#[cold]
pub(super) unsafe fn advance(on: u8, record: &ExtendedQueue, cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    let queue = held::queue(cq.cast());
    loop {
        let mut saved = queue.take(false);
        if saved.is_none() {
            record.select(None);
            // SAFETY: guaranteed by the caller.
            let code = unsafe { record.advance_driver(cq, attr) };
            if code == libc::ENOENT {
                saved = queue.take(true);
            }
            if code != 0 && saved.is_none() {
                return code;
            }
        }
        if let Some(saved) = saved {
            // SAFETY: the driver writes these fields at the same steps.
            unsafe { ((*cq).wr_id, (*cq).status) = (saved.completion.wr_id, saved.completion.status) };
            report(on, saved.completion, saved.attributed);
            record.select(Some(saved));
            return 0;
        }
        // SAFETY: there is a current completion, whose fields the driver's functions return.
        unsafe {
            let (number, found) = current(cq);
            let save = |completion, attributed| Saved::of_extended(record, cq, number, completion, attributed);
            if let Some((completion, attributed)) = queue.settle(on, &*cq.cast::<ibv_cq>(), number, found, save) {
                (*cq).status = completion.status;
                report(on, completion, attributed);
                return 0;
            }
        }
    }
}

/// `ibv_end_poll`.
///
/// # Safety
///
/// This thread polls the queue.
pub(super) unsafe fn end(record: &ExtendedQueue, cq: *mut ibv_cq_ex) {
    // SAFETY: guaranteed by the caller.
    unsafe { record.end(cq) };
    held::queue(cq.cast()).end();
}
