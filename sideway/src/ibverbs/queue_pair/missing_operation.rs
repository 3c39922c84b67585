//! Rejecting operations that an extended queue pair was not built for, with a typed error instead of a call through a
//! null pointer.
//!
//! A driver leaves the function of such an operation null. When a queue pair is built, a function of this module
//! replaces each null pointer. If the program calls that function, it records the request and installs inert functions
//! for the rest of the batch. So nothing is written to a request that the driver has not begun. `wr_complete` then
//! discards the whole batch, restores the driver's functions and fails. Operations that the queue pair was built for
//! need no check when a request is built, so they cost nothing.
//!
//! In `struct ibv_qp_ex` the functions are the members from `wr_atomic_cmp_swp` to `wr_abort`, which exist in every
//! version of the struct. The struct of an older library may lack the later members (`wr_atomic_write`, `wr_flush`).
//! These functions are called through the queue pair's context, which contains either the driver's function or a
//! function that rejects the request.

use std::ptr::{self, NonNull};
use std::sync::Arc;

use libc::{c_int, c_void};
use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_ah, ibv_data_buf, ibv_mw, ibv_mw_bind_info, ibv_qp_ex, ibv_sge};

use super::SendOperationFlags as Operation;
use super::packet_offloads::SegmentHeaders;
use super::send_context::{COUNT, FIRST, Function, LaterOperations, Saved, SendContext};
use crate::ibverbs::work_request::{FailedRequest, Refusal, RefusalReason};

impl SendContext {
    /// Allocates a context on the heap; [`free`](Self::free) frees it.
    pub(crate) fn allocate(headers: SegmentHeaders, max_send_wr: u32) -> NonNull<Self> {
        NonNull::from(Box::leak(Box::new(Self {
            refusal: None,
            saved: None,
            later: LaterOperations::NONE,
            vendor: None,
            packets: Arc::default(),
            headers,
            max_send_wr,
            limits: None,
        })))
    }

    /// Rejects the request and its whole batch, unless the driver lets the device write checksums.
    ///
    /// # Safety
    ///
    /// The contract of [`atomic_write`](Self::atomic_write) applies, and `wr_id` is set.
    #[inline]
    pub(crate) unsafe fn expect_checksums(qp: *mut ibv_qp_ex) {
        // SAFETY: the caller upholds the contract of this function.
        let reason = unsafe { Self::of(qp) }.and_then(|context| context.packets.refuses_checksums());
        if let Some(reason) = reason {
            // SAFETY: as above.
            unsafe { refuse(qp, reason) }
        }
    }
}

/// Rejects the request that is being built, and its whole batch.
///
/// # Safety
///
/// `qp` is a live queue pair whose `qp_context` is a [`SendContext`]. The call is made between `wr_start` and
/// `wr_complete`.
#[cold]
pub(crate) unsafe fn refuse(qp: *mut ibv_qp_ex, reason: RefusalReason) {
    // SAFETY: the queue pair is live, and the code that builds the batch owns its send queue.
    let (context, wr_id) = unsafe { (SendContext::of(qp), (*qp).wr_id) };
    let Some(context) = context else { return };
    if context.saved.is_some() {
        return;
    }
    context.refusal = Some(Refusal { failed: FailedRequest { index: None, wr_id }, reason });
    // SAFETY: the block of functions is within the struct (FIRST, COUNT) and aligned. All its members are nullable
    // function pointers. No other code uses the send queue.
    unsafe {
        context.saved = Some(Saved { block: block(qp).read(), later: context.later });
        context.later = LaterOperations::INERT;
        make_inert(qp);
    }
}

/// Restores the driver's functions.
///
/// # Safety
///
/// The contract of [`refuse`] applies.
unsafe fn restore(qp: *mut ibv_qp_ex) {
    // SAFETY: as in `refuse`.
    unsafe {
        if let Some(context) = SendContext::of(qp)
            && let Some(saved) = context.saved.take()
        {
            context.later = saved.later;
            block(qp).write(saved.block);
        }
    }
}

impl LaterOperations {
    /// Functions that reject operations for which the queue pair was not built.
    const NONE: Self = {
        unsafe extern "C" fn atomic_write(qp: *mut ibv_qp_ex, _: u32, _: u64, _: *const c_void) {
            // SAFETY: called while a batch of this queue pair is built.
            unsafe { refuse(qp, RefusalReason::NotEnabled(Operation::AtomicWrite)) }
        }
        unsafe extern "C" fn flush(qp: *mut ibv_qp_ex, _: u32, _: u64, _: usize, _: u8, _: u8) {
            // SAFETY: as above.
            unsafe { refuse(qp, RefusalReason::NotEnabled(Operation::Flush)) }
        }
        Self { atomic_write, flush, vendor: ptr::null_mut() }
    };

    /// Functions that reject all operations of a queue of capacity zero.
    const NO_ROOM: Self = {
        unsafe extern "C" fn atomic_write(qp: *mut ibv_qp_ex, _: u32, _: u64, _: *const c_void) {
            // SAFETY: as above.
            unsafe { refuse(qp, RefusalReason::BatchTooLong { limit: 0 }) }
        }
        unsafe extern "C" fn flush(qp: *mut ibv_qp_ex, _: u32, _: u64, _: usize, _: u8, _: u8) {
            // SAFETY: as above.
            unsafe { refuse(qp, RefusalReason::BatchTooLong { limit: 0 }) }
        }
        Self { atomic_write, flush, vendor: ptr::null_mut() }
    };

    /// Functions that do nothing. They are used for the rest of a rejected batch.
    const INERT: Self = {
        unsafe extern "C" fn atomic_write(_: *mut ibv_qp_ex, _: u32, _: u64, _: *const c_void) {}
        unsafe extern "C" fn flush(_: *mut ibv_qp_ex, _: u32, _: u64, _: usize, _: u8, _: u8) {}
        Self { atomic_write, flush, vendor: ptr::null_mut() }
    };
}

/// Stores the driver's functions for those later operations that the queue pair was built for. If a library accepted
/// the flag of an operation, its struct has the member for the operation. Otherwise, the member must not be read.
///
/// # Safety
///
/// The contract of [`fill_in`] applies, and the library has accepted `operations`.
pub(crate) unsafe fn take_later(qp: *mut ibv_qp_ex, operations: Operation, refuse_all: bool) {
    // SAFETY: by the contract of this function, no code posts to the queue pair.
    let Some(context) = (unsafe { SendContext::of(qp) }) else { return };
    if refuse_all {
        context.later = LaterOperations::NO_ROOM;
        return;
    }
    if operations.contains(Operation::AtomicWrite)
        // SAFETY: the library has accepted the flag, so the member exists.
        && let Some(function) = unsafe { (*qp).wr_atomic_write }
    {
        context.later.atomic_write = function;
    }
    if operations.contains(Operation::Flush)
        // SAFETY: as above.
        && let Some(function) = unsafe { (*qp.cast::<sys::ibv_qp_ex_since_v44>()).wr_flush }
    {
        context.later.flush = function;
    }
}

/// Installs a function that rejects requests with one entry, if the queue pair was built for no entries. This is needed
/// because the code that builds a request does not check for one entry.
///
/// # Safety
///
/// The contract of [`fill_in`] applies.
pub(crate) unsafe fn refuse_entries(qp: *mut ibv_qp_ex) {
    unsafe extern "C" fn no_entry(qp: *mut ibv_qp_ex, _: u32, _: u64, _: u32) {
        // SAFETY: called while a batch of this queue pair is built.
        unsafe { refuse(qp, RefusalReason::TooManyEntries { given: 1, limit: 0 }) }
    }
    // SAFETY: the caller upholds the contract of this function.
    unsafe { (*qp).wr_set_sge = Some(no_entry) };
}

fn block(qp: *mut ibv_qp_ex) -> *mut [Function; COUNT] {
    qp.wrapping_byte_add(FIRST).cast()
}

/// Ends a rejected batch. This is `wr_complete` while inert functions are installed.
unsafe extern "C" fn complete_refused(qp: *mut ibv_qp_ex) -> c_int {
    // SAFETY: `refuse` installed this function on the queue pair, whose batch has not ended.
    unsafe { abort_refused(qp) };
    libc::EOPNOTSUPP
}

/// Discards a rejected batch. This is `wr_abort` while inert functions are installed.
unsafe extern "C" fn abort_refused(qp: *mut ibv_qp_ex) {
    // SAFETY: `refuse` installed this function on the queue pair, whose batch has not ended. The driver's `wr_abort`,
    // which is not null (`fill_in`), ends the batch.
    unsafe {
        restore(qp);
        rdma_mummy_sys::ibv_wr_abort(qp);
    }
}

macro_rules! operations {
    (operations { $( $field:ident($($argument:ty),*) => $Flag:ident; )+ } setters { $( $setter:ident($($parameter:ty),*); )+ }) => {
        /// Installs functions that reject requests, either in place of null pointers or in place of all functions.
        ///
        /// # Errors
        ///
        /// Returns the name of a function that is null although every extended queue pair needs it.
        ///
        /// # Safety
        ///
        /// `qp` is a live extended queue pair to which no code posts, and its `qp_context` is a [`SendContext`].
        pub(crate) unsafe fn fill_in(qp: *mut ibv_qp_ex, refuse_all: bool) -> Result<(), &'static str> {
            // SAFETY: the queue pair is live, and no code posts to it.
            unsafe {
                if (*qp).wr_start.is_none() {
                    return Err("wr_start");
                }
                if (*qp).wr_complete.is_none() {
                    return Err("wr_complete");
                }
                if (*qp).wr_abort.is_none() {
                    return Err("wr_abort");
                }
                $(
                    if refuse_all {
                        unsafe extern "C" fn no_room(qp: *mut ibv_qp_ex, $(_: $argument),*) {
                            // SAFETY: as below.
                            unsafe { refuse(qp, RefusalReason::BatchTooLong { limit: 0 }) }
                        }
                        (*qp).$field = Some(no_room);
                    } else if (*qp).$field.is_none() {
                        unsafe extern "C" fn missing(qp: *mut ibv_qp_ex, $(_: $argument),*) {
                            // SAFETY: `fill_in` installed this function, which is called while a batch is built.
                            unsafe { refuse(qp, RefusalReason::NotEnabled(Operation::$Flag)) }
                        }
                        (*qp).$field = Some(missing);
                    }
                )+
                $(
                    if (*qp).$setter.is_none() {
                        unsafe extern "C" fn missing(qp: *mut ibv_qp_ex, $(_: $parameter),*) {
                            // SAFETY: as above.
                            unsafe { refuse(qp, RefusalReason::DriverFault(concat!(
                                "the driver has no ", stringify!($setter), " for this queue pair"
                            ))) }
                        }
                        (*qp).$setter = Some(missing);
                    }
                )+
            }
            Ok(())
        }

        /// Installs functions that do nothing for all steps of building a request, until the batch ends.
        ///
        /// # Safety
        ///
        /// The contract of [`refuse`] applies, and the driver's functions have been saved.
        unsafe fn make_inert(qp: *mut ibv_qp_ex) {
            // SAFETY: the queue pair is live, and no other code uses its send queue.
            unsafe {
                $(
                    unsafe extern "C" fn $field(_: *mut ibv_qp_ex, $(_: $argument),*) {}
                    (*qp).$field = Some($field);
                )+
                $(
                    unsafe extern "C" fn $setter(_: *mut ibv_qp_ex, $(_: $parameter),*) {}
                    (*qp).$setter = Some($setter);
                )+
                (*qp).wr_complete = Some(complete_refused);
                (*qp).wr_abort = Some(abort_refused);
            }
        }
    };
}

operations! {
    operations {
    wr_atomic_cmp_swp(u32, u64, u64, u64) => AtomicCompareAndSwap;
    wr_atomic_fetch_add(u32, u64, u64) => AtomicFetchAndAdd;
    wr_bind_mw(*mut ibv_mw, u32, *const ibv_mw_bind_info) => BindMemoryWindow;
    wr_local_inv(u32) => LocalInvalidate;
    wr_rdma_read(u32, u64) => Read;
    wr_rdma_write(u32, u64) => Write;
    wr_rdma_write_imm(u32, u64, u32) => WriteWithImmediate;
    wr_send() => Send;
    wr_send_imm(u32) => SendWithImmediate;
    wr_send_inv(u32) => SendWithInvalidate;
    wr_send_tso(*mut c_void, u16, u16) => TcpSegmentationOffload;
    }
    setters {
    wr_set_ud_addr(*mut ibv_ah, u32, u32);
    wr_set_xrc_srqn(u32);
    wr_set_inline_data(*mut c_void, usize);
    wr_set_inline_data_list(usize, *const ibv_data_buf);
    wr_set_sge(u32, u64, u32);
    wr_set_sge_list(usize, *const ibv_sge);
    }
}

const _: () =
    assert!(align_of::<[Function; COUNT]>() <= align_of::<ibv_qp_ex>() && FIRST.is_multiple_of(align_of::<Function>()));
const _: () = assert!(COUNT == 20, "eleven operations, six setters, and wr_start, wr_complete, wr_abort");
