//! What an extended queue pair of this crate keeps for its requests: `qp_context` points to it.

use std::any::Any;
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::Arc;

use libc::c_void;
use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_data_buf, ibv_qp_ex, ibv_sge};

use super::packet_offloads::{PacketOffloads, SegmentHeaders};
use crate::ibverbs::work_request::{Refusal, RefusalReason};

pub(super) type Function = Option<unsafe extern "C" fn()>;

pub(super) const FIRST: usize = offset_of!(ibv_qp_ex, wr_atomic_cmp_swp);
pub(super) const COUNT: usize = (offset_of!(ibv_qp_ex, wr_abort) - FIRST) / size_of::<Function>() + 1;

/// The `qp_context` of an extended queue pair.
#[derive(Debug)]
pub(crate) struct SendContext {
    /// The first rejected request of the batch.
    pub(super) refusal: Option<Refusal>,
    /// The driver's functions, while inert ones are installed.
    pub(super) saved: Option<Saved>,
    pub(super) later: LaterOperations,
    /// The data of a vendor's module. `later` points to it.
    pub(super) vendor: Option<VendorData>,
    /// The packet offloads. They are shared with the queue pair's core, through which other threads change them.
    pub(super) packets: Arc<PacketOffloads>,
    pub(super) headers: SegmentHeaders,
    /// The number of requests that the send queue was built for.
    pub(super) max_send_wr: u32,
    /// The limits of requests, if the driver does not check them itself.
    pub(super) limits: Option<SendLimits>,
}

pub(super) type AtomicWrite = unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, *const c_void);

/// The operations whose functions a library may lack.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaterOperations {
    pub(super) atomic_write: AtomicWrite,
    pub(super) flush: sys::WrFlush,
    /// A copy of [`SendContext::vendor`]; null while the batch is rejected, because vendors' functions cannot be made
    /// inert.
    pub(super) vendor: *mut c_void,
}

/// The functions replaced by inert ones.
#[derive(Debug)]
pub(super) struct Saved {
    pub(super) block: [Function; COUNT],
    pub(super) later: LaterOperations,
}

pub(super) type SetInline = unsafe extern "C" fn(*mut ibv_qp_ex, *mut c_void, usize);
pub(super) type SetInlineList = unsafe extern "C" fn(*mut ibv_qp_ex, usize, *const ibv_data_buf);
pub(super) type SetSgeList = unsafe extern "C" fn(*mut ibv_qp_ex, usize, *const ibv_sge);

/// The limits, and the driver's functions that were replaced.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendLimits {
    /// The maximum inline data in bytes.
    pub(super) max_inline: usize,
    /// The maximum number of gather list entries.
    pub(super) max_sge: usize,
    pub(super) set_inline: SetInline,
    pub(super) set_inline_list: SetInlineList,
    pub(super) set_sge_list: SetSgeList,
}

/// An owned box, stored as a raw pointer so that other pointers to its content stay valid when this struct is moved.
#[derive(Debug)]
pub(super) struct VendorData(pub(super) NonNull<dyn Any + Send>);

impl Drop for VendorData {
    fn drop(&mut self) {
        // SAFETY: the pointer was created from a box (`keep_vendor_data`), and only this struct owns it.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl SendContext {
    /// Frees the memory.
    ///
    /// # Safety
    ///
    /// [`allocate`](Self::allocate) returned `context`, which is not used after this call.
    pub(crate) unsafe fn free(context: NonNull<Self>) {
        // SAFETY: by the contract of this function, the pointer is the box that `allocate` leaked, and nothing else
        // uses it.
        drop(unsafe { Box::from_raw(context.as_ptr()) });
    }

    /// Returns the packet offloads, which are shared with the queue pair's core.
    ///
    /// # Safety
    ///
    /// [`allocate`](Self::allocate) returned `context`, which no other thread uses during this call.
    pub(crate) unsafe fn packets(context: NonNull<Self>) -> Arc<PacketOffloads> {
        // SAFETY: the caller upholds the contract of this function.
        Arc::clone(unsafe { &(*context.as_ptr()).packets })
    }

    /// Returns the header length of a segmented send, if the driver accepts it.
    ///
    /// # Safety
    ///
    /// The contract of [`atomic_write`](Self::atomic_write) applies.
    #[inline]
    pub(crate) unsafe fn header_length(qp: *mut ibv_qp_ex, given: usize) -> Result<u16, RefusalReason> {
        // SAFETY: as for `atomic_write`.
        let headers = unsafe { (*(*qp).qp_base.qp_context.cast::<Self>()).headers };
        headers.check(given)
    }

    /// Takes the record of the rejected request, if there is one, after a batch has ended.
    ///
    /// # Safety
    ///
    /// `qp` is a live queue pair on which [`fill_in`](super::missing_operation::fill_in) was called, and the caller owns
    /// its send queue.
    #[cold]
    pub(crate) unsafe fn take_refusal(qp: *mut ibv_qp_ex) -> Option<Refusal> {
        // SAFETY: the caller upholds the contract of this function.
        unsafe { Self::of(qp) }?.refusal.take()
    }

    /// Returns the number of requests that the send queue was built for.
    ///
    /// # Safety
    ///
    /// The contract of [`take_refusal`](Self::take_refusal) applies.
    #[cold]
    pub(crate) unsafe fn max_send_wr(qp: *mut ibv_qp_ex) -> Option<usize> {
        // SAFETY: the caller upholds the contract of this function.
        unsafe { Self::of(qp) }.map(|context| context.max_send_wr as usize)
    }

    /// Calls `ibv_wr_atomic_write`, or rejects the request if the queue pair was not built for it.
    ///
    /// # Safety
    ///
    /// `qp` is a live queue pair on which [`fill_in`](super::missing_operation::fill_in) was called. The call is made
    /// between `wr_start` and `wr_complete`.
    #[inline]
    pub(crate) unsafe fn atomic_write(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, value: &[u8; 8]) {
        // SAFETY: the context of such a queue pair is a SendContext, and the code that builds the batch owns the send
        // queue.
        unsafe {
            let context = (*qp).qp_base.qp_context.cast::<Self>();
            ((*context).later.atomic_write)(qp, rkey, remote_addr, value.as_ptr().cast());
        }
    }

    /// Calls `ibv_wr_flush`, or rejects the request if the queue pair was not built for it.
    ///
    /// # Safety
    ///
    /// The contract of [`atomic_write`](Self::atomic_write) applies.
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

    /// Stores the limits of requests, together with the driver's functions.
    ///
    /// # Safety
    ///
    /// The contract of [`take_refusal`](Self::take_refusal) applies, and no batch is open.
    pub(super) unsafe fn keep_limits(qp: *mut ibv_qp_ex, limits: SendLimits) {
        // SAFETY: the caller upholds the contract of this function.
        if let Some(context) = unsafe { Self::of(qp) } {
            context.limits = Some(limits);
        }
    }

    /// Returns the limits that [`keep_limits`](Self::keep_limits) stored.
    ///
    /// # Safety
    ///
    /// The contract of [`take_refusal`](Self::take_refusal) applies.
    pub(super) unsafe fn limits(qp: *mut ibv_qp_ex) -> Option<SendLimits> {
        // SAFETY: the caller upholds the contract of this function.
        unsafe { Self::of(qp) }?.limits
    }

    /// # Safety
    ///
    /// The contract of [`take_refusal`](Self::take_refusal) applies, and no other reference exists while this one
    /// lives.
    pub(super) unsafe fn of<'q>(qp: *mut ibv_qp_ex) -> Option<&'q mut Self> {
        // SAFETY: the queue pair is live. Its context is null or a SendContext, and the caller owns the queue pair.
        unsafe { (*qp).qp_base.qp_context.cast::<Self>().as_mut() }
    }
}
