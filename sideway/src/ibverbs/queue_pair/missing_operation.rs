//! Operations that an extended queue pair was not built for: a typed error instead of a call through null.
//!
//! A driver leaves the function of such an operation null. When a queue pair is built, each null is replaced by a function
//! of this module. Called, it notes the request, and puts inert functions into the queue pair for the rest of the batch,
//! so that nothing further is written into a request that was never begun; `wr_complete` then takes the whole batch back
//! and fails, and the driver's functions return to their places. A queue pair that is used as it was built pays nothing:
//! no check is made when a request is built.
//!
//! The functions stand in `struct ibv_qp_ex` from `wr_atomic_cmp_swp` to `wr_abort`: these members are as old as the
//! struct. For later ones (`wr_atomic_write`, `wr_flush`) a library may have no room: they are called through the context of
//! the queue pair, which has the driver's function or a refusing one.

use std::any::Any;
use std::mem::offset_of;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use libc::{c_int, c_void};
use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_ah, ibv_data_buf, ibv_mw, ibv_mw_bind_info, ibv_qp_ex, ibv_sge};

use super::SendOperationFlags as Operation;
use super::limits::SendLimits;
use super::packet_offloads::{PacketOffloads, SegmentHeaders};
use crate::ibverbs::work_request::{FailedRequest, Refusal, RefusalReason};

type Function = Option<unsafe extern "C" fn()>;

const FIRST: usize = offset_of!(ibv_qp_ex, wr_atomic_cmp_swp);
const COUNT: usize = (offset_of!(ibv_qp_ex, wr_abort) - FIRST) / size_of::<Function>() + 1;

/// What `qp_context` of an extended queue pair points to.
#[derive(Debug)]
pub(crate) struct SendContext {
    /// The first request of the batch that was refused.
    refusal: Option<Refusal>,
    /// The driver's functions, while inert ones stand in their places.
    saved: Option<Saved>,
    later: LaterOperations,
    /// What a vendor's module keeps with the queue pair: `later` points to it.
    vendor: Option<VendorData>,
    /// The core of the queue pair has it too, and notes there what other threads change.
    packets: Arc<PacketOffloads>,
    headers: SegmentHeaders,
    /// Requests that the send queue was built for.
    max_send_wr: u32,
    /// Of a driver that does not look.
    limits: Option<SendLimits>,
}

/// A box that is pointed to: owned as a raw pointer, so that moving it leaves the others valid.
#[derive(Debug)]
struct VendorData(NonNull<dyn Any + Send>);

impl Drop for VendorData {
    fn drop(&mut self) {
        // SAFETY: made of a box (`keep_vendor_data`), and owned here alone.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

type AtomicWrite = unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, *const c_void);

/// Operations whose functions a library may have no room for.
#[derive(Clone, Copy, Debug)]
struct LaterOperations {
    atomic_write: AtomicWrite,
    flush: sys::WrFlush,
    /// What stands in [`SendContext::vendor`]; null while the batch is refused, as vendors' functions cannot be made inert.
    vendor: *mut c_void,
}

/// What stands where inert functions are.
#[derive(Debug)]
struct Saved {
    block: [Function; COUNT],
    later: LaterOperations,
}

impl SendContext {
    /// A context on the heap; [`free`](Self::free) takes it back.
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

    /// Gives the memory back.
    ///
    /// # Safety
    ///
    /// `context` came from [`allocate`](Self::allocate), and nobody uses it any more.
    pub(crate) unsafe fn free(context: NonNull<Self>) {
        // SAFETY: the caller's promise; `allocate` leaked a box.
        drop(unsafe { Box::from_raw(context.as_ptr()) });
    }

    /// What the core of the queue pair shares.
    ///
    /// # Safety
    ///
    /// `context` came from [`allocate`](Self::allocate), and nobody else uses it meanwhile.
    pub(crate) unsafe fn packets(context: NonNull<Self>) -> Arc<PacketOffloads> {
        // SAFETY: the caller's promise.
        Arc::clone(unsafe { &(*context.as_ptr()).packets })
    }

    /// The length of the header of a segmented send, where the driver takes it.
    ///
    /// # Safety
    ///
    /// As [`atomic_write`](Self::atomic_write).
    #[inline]
    pub(crate) unsafe fn header_length(qp: *mut ibv_qp_ex, given: usize) -> Result<u16, RefusalReason> {
        // SAFETY: as for `atomic_write`.
        let headers = unsafe { (*(*qp).qp_base.qp_context.cast::<Self>()).headers };
        headers.check(given)
    }

    /// Refuses the request, and with it the batch, unless the driver lets the device write checksums.
    ///
    /// # Safety
    ///
    /// As [`atomic_write`](Self::atomic_write), with `wr_id` set.
    #[inline]
    pub(crate) unsafe fn expect_checksums(qp: *mut ibv_qp_ex) {
        // SAFETY: the caller's promise.
        let reason = unsafe { Self::of(qp) }.and_then(|context| context.packets.refuses_checksums());
        if let Some(reason) = reason {
            // SAFETY: as above.
            unsafe { refuse(qp, reason) }
        }
    }

    /// Takes out what was refused in the batch that has just ended.
    ///
    /// # Safety
    ///
    /// `qp` is a live queue pair of [`fill_in`], and the caller has its send queue to itself.
    #[cold]
    pub(crate) unsafe fn take_refusal(qp: *mut ibv_qp_ex) -> Option<Refusal> {
        // SAFETY: the caller's promise.
        unsafe { Self::of(qp) }?.refusal.take()
    }

    /// Requests that the send queue was built for.
    ///
    /// # Safety
    ///
    /// As [`take_refusal`](Self::take_refusal).
    #[cold]
    pub(crate) unsafe fn max_send_wr(qp: *mut ibv_qp_ex) -> Option<usize> {
        // SAFETY: the caller's promise.
        unsafe { Self::of(qp) }.map(|context| context.max_send_wr as usize)
    }

    /// `ibv_wr_atomic_write`, or a refusal.
    ///
    /// # Safety
    ///
    /// `qp` is a live queue pair of [`fill_in`], between `wr_start` and `wr_complete`.
    #[inline]
    pub(crate) unsafe fn atomic_write(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, value: &[u8; 8]) {
        // SAFETY: the context of such a queue pair is a SendContext; who builds a batch has its send queue to itself.
        unsafe {
            let context = (*qp).qp_base.qp_context.cast::<Self>();
            ((*context).later.atomic_write)(qp, rkey, remote_addr, value.as_ptr().cast());
        }
    }

    /// `ibv_wr_flush`, or a refusal.
    ///
    /// # Safety
    ///
    /// As [`atomic_write`](Self::atomic_write).
    #[inline]
    pub(crate) unsafe fn flush(
        qp: *mut ibv_qp_ex,
        rkey: u32,
        remote_addr: u64,
        length: usize,
        placement: u8,
        level: u8,
    ) {
        // SAFETY: as above.
        unsafe {
            let context = (*qp).qp_base.qp_context.cast::<Self>();
            ((*context).later.flush)(qp, rkey, remote_addr, length, placement, level);
        }
    }

    /// Keeps `data` with the queue pair, for the requests of a vendor's service.
    ///
    /// # Safety
    ///
    /// As [`take_refusal`](Self::take_refusal), and nothing is being posted.
    pub(crate) unsafe fn keep_vendor_data<D: Send + 'static>(qp: *mut ibv_qp_ex, data: D, refuse_all: bool) {
        // SAFETY: the caller's promise.
        let Some(context) = (unsafe { Self::of(qp) }) else { return };
        let data = NonNull::from(Box::leak(Box::new(data)));
        context.vendor = Some(VendorData(data));
        if !refuse_all {
            context.later.vendor = data.as_ptr().cast();
        }
    }

    /// What [`keep_vendor_data`](Self::keep_vendor_data) was given; null while the batch is refused, or where it can only be
    /// refused.
    ///
    /// # Safety
    ///
    /// As [`atomic_write`](Self::atomic_write).
    #[inline]
    pub(crate) unsafe fn vendor_data(qp: *mut ibv_qp_ex) -> *mut c_void {
        // SAFETY: as above.
        unsafe { (*(*qp).qp_base.qp_context.cast::<Self>()).later.vendor }
    }

    /// Keeps what requests are compared with.
    ///
    /// # Safety
    ///
    /// As [`keep_vendor_data`](Self::keep_vendor_data).
    pub(super) unsafe fn keep_limits(qp: *mut ibv_qp_ex, limits: SendLimits) {
        // SAFETY: the caller's promise.
        if let Some(context) = unsafe { Self::of(qp) } {
            context.limits = Some(limits);
        }
    }

    /// What [`keep_limits`](Self::keep_limits) was given.
    ///
    /// # Safety
    ///
    /// As [`take_refusal`](Self::take_refusal).
    pub(super) unsafe fn limits(qp: *mut ibv_qp_ex) -> Option<SendLimits> {
        // SAFETY: the caller's promise.
        unsafe { Self::of(qp) }?.limits
    }

    /// # Safety
    ///
    /// As [`take_refusal`](Self::take_refusal), and the reference is the only one while it lives.
    unsafe fn of<'q>(qp: *mut ibv_qp_ex) -> Option<&'q mut Self> {
        // SAFETY: the queue pair is live, its context is null or a SendContext, and the caller has it to itself.
        unsafe { (*qp).qp_base.qp_context.cast::<Self>().as_mut() }
    }
}

/// Refuses the request that is being built, and with it the batch.
///
/// # Safety
///
/// `qp` is a live queue pair whose `qp_context` is a [`SendContext`], between `wr_start` and `wr_complete`.
#[cold]
pub(crate) unsafe fn refuse(qp: *mut ibv_qp_ex, reason: RefusalReason) {
    // SAFETY: the queue pair is live, and who builds a batch has its send queue to itself.
    let (context, wr_id) = unsafe { (SendContext::of(qp), (*qp).wr_id) };
    let Some(context) = context else { return };
    if context.saved.is_some() {
        return;
    }
    context.refusal = Some(Refusal { failed: FailedRequest { index: None, wr_id }, reason });
    // SAFETY: the block of functions is within the struct (FIRST, COUNT) and aligned, all its members are function
    // pointers that may be null, and nobody else uses the send queue meanwhile.
    unsafe {
        context.saved = Some(Saved { block: block(qp).read(), later: context.later });
        context.later = LaterOperations::INERT;
        make_inert(qp);
    }
}

/// Puts the driver's functions back.
///
/// # Safety
///
/// As [`refuse`].
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
    /// Those of a queue pair that was not built for them.
    const NONE: Self = {
        unsafe extern "C" fn atomic_write(qp: *mut ibv_qp_ex, _: u32, _: u64, _: *const c_void) {
            // SAFETY: called while a batch of this very queue pair is built.
            unsafe { refuse(qp, RefusalReason::NotEnabled(Operation::AtomicWrite)) }
        }
        unsafe extern "C" fn flush(qp: *mut ibv_qp_ex, _: u32, _: u64, _: usize, _: u8, _: u8) {
            // SAFETY: as above.
            unsafe { refuse(qp, RefusalReason::NotEnabled(Operation::Flush)) }
        }
        Self { atomic_write, flush, vendor: ptr::null_mut() }
    };

    /// Those of a queue that has no room for a request.
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

    /// Those of a batch that was refused.
    const INERT: Self = {
        unsafe extern "C" fn atomic_write(_: *mut ibv_qp_ex, _: u32, _: u64, _: *const c_void) {}
        unsafe extern "C" fn flush(_: *mut ibv_qp_ex, _: u32, _: u64, _: usize, _: u8, _: u8) {}
        Self { atomic_write, flush, vendor: ptr::null_mut() }
    };
}

/// Takes the driver's functions for the later operations, where the queue pair was built for them: a library that accepts the
/// flag of an operation has room for its function, and one that does not must not be looked at.
///
/// # Safety
///
/// As [`fill_in`]; the library has accepted `operations`.
pub(crate) unsafe fn take_later(qp: *mut ibv_qp_ex, operations: Operation, refuse_all: bool) {
    // SAFETY: the caller's promise; nobody posts to the queue pair.
    let Some(context) = (unsafe { SendContext::of(qp) }) else { return };
    if refuse_all {
        context.later = LaterOperations::NO_ROOM;
        return;
    }
    if operations.contains(Operation::AtomicWrite)
        // SAFETY: the library has accepted the flag.
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

/// Refuses single entries, for which the queue pair was not built: no check is made of them when a request is built.
///
/// # Safety
///
/// As [`fill_in`].
pub(crate) unsafe fn refuse_entries(qp: *mut ibv_qp_ex) {
    unsafe extern "C" fn no_entry(qp: *mut ibv_qp_ex, _: u32, _: u64, _: u32) {
        // SAFETY: called while a batch of this very queue pair is built.
        unsafe { refuse(qp, RefusalReason::TooManyEntries { given: 1, limit: 0 }) }
    }
    // SAFETY: the caller's promise.
    unsafe { (*qp).wr_set_sge = Some(no_entry) };
}

fn block(qp: *mut ibv_qp_ex) -> *mut [Function; COUNT] {
    qp.wrapping_byte_add(FIRST).cast()
}

/// Ends a batch that was refused: `wr_complete` while inert functions are in place.
unsafe extern "C" fn complete_refused(qp: *mut ibv_qp_ex) -> c_int {
    // SAFETY: put in place by `refuse` on this very queue pair; its batch has not ended.
    unsafe { abort_refused(qp) };
    libc::EOPNOTSUPP
}

/// Takes a batch back that was refused: `wr_abort` while inert functions are in place.
unsafe extern "C" fn abort_refused(qp: *mut ibv_qp_ex) {
    // SAFETY: put in place by `refuse` on this very queue pair; its batch has not ended, and the driver's own `wr_abort`,
    // which is not null (`fill_in`), ends it.
    unsafe {
        restore(qp);
        rdma_mummy_sys::ibv_wr_abort(qp);
    }
}

macro_rules! operations {
    (operations { $( $field:ident($($argument:ty),*) => $Flag:ident; )+ } setters { $( $setter:ident($($parameter:ty),*); )+ }) => {
        /// Puts a refusing function wherever the driver has none, or everywhere.
        ///
        /// # Errors
        ///
        /// The name of a function that every extended queue pair needs and this one has not.
        ///
        /// # Safety
        ///
        /// `qp` is a live extended queue pair that nobody posts to, and its `qp_context` is a [`SendContext`].
        pub(crate) unsafe fn fill_in(qp: *mut ibv_qp_ex, refuse_all: bool) -> Result<(), &'static str> {
            // SAFETY: the queue pair is live and nobody posts to it.
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
                            // SAFETY: put in place by `fill_in` on this very queue pair; called while a batch is built.
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

        /// Makes every step of building do nothing until the batch ends.
        ///
        /// # Safety
        ///
        /// As [`refuse`]; the driver's functions have been saved.
        unsafe fn make_inert(qp: *mut ibv_qp_ex) {
            // SAFETY: the queue pair is live, and nobody else uses its send queue.
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
