//! Queue pairs of a vendor's: how another crate adds a transport service that this crate does not have.
//!
//! The crate names its service by a type of its own, `V`; its queue pairs are of the service [`Vendor<V>`](Vendor).
//!
//! 1. Make a builder: [`QueuePairBuilder::of_vendor`], with a table of which attributes each change of state needs, by which errors are
//!    explained.
//! 2. Make the queue pairs: [`build_with`](QueuePairBuilder::build_with) around the vendor's function, or
//!    [`build_target_with`](QueuePairBuilder::build_target_with) for queue pairs without queues to post to.
//! 3. Write where a request goes: an extension trait for [`LocalBufferHandle`] with a safe method such as `setup_my_addr`, which calls
//!    [`setup_vendor_address`](LocalBufferHandle::setup_vendor_address).
//!
//! Requests are then begun, posted and polled as those of any queue pair. All standard operations are offered, each with an address; one
//! that the queue pair was not built for is refused when its batch is posted. `tests/tests/process/vendor_plug_in` in the repository is a whole
//! plug-in.
//!
//! Fields that a vendor adds to completions are read by a struct of the crate's own:
//! [`build_ex_with`](crate::ibverbs::completion::CompletionQueueBuilder::build_ex_with) makes the queue,
//! [`keep_alive`](crate::ibverbs::completion::CompletionQueue::keep_alive) keeps it alive, and
//! [`cq_ex`](crate::ibverbs::completion::ExtendedWorkCompletion::cq_ex) of a completion names its queue.
//!
//! # Three rules for addresses
//!
//! - **Find the vendor's function with [`data`], and call it only if that returns something.** A request that is refused (an operation
//!   that the queue pair was not built for, an object of another device) refuses its batch: from then on the standard functions do
//!   nothing, but a vendor's function would write into a request that was never begun.
//! - **Compare an object that a request names with the queue pair's device** by [`check_device`], and [`refuse`] one of another.
//! - **What is borrowed stays borrowed until the batch is posted:** `setup_vendor_address` requires that of what the address captures.
//!
//! Functions that the vendor's library may leave null are checked once, by `attach` of [`build_with`](QueuePairBuilder::build_with).

use std::convert::Infallible;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_mummy_sys::{ibv_context, ibv_qp, ibv_qp_ex, ibv_send_wr};

use super::missing_operation::{self, SendContext};
use super::{Offers, QueuePairBuilder, QueuePairType, Service, TransitionTable};
use crate::ffi::Sealed;
use crate::ibverbs::protection_domain::ProtectionDomain;
use crate::ibverbs::work_request::{
    Addressed, BindMemoryWindow, CompareSwap, FetchAdd, HoldsFor, LocalBufferHandle, LocalInvalidate, PostSendGuard,
    Read, RefusalReason, Send as SendMessage, SendAddress, SendImm, SendInv, SendOperation, Write, WriteImm, operation,
};

/// The service of a vendor's queue pairs, named by the type `V` of the crate that adds it: each request with data says where it goes.
#[derive(Clone, Copy, Debug)]
pub struct Vendor<V>(PhantomData<V>, Infallible);

impl<V> Sealed for Vendor<V> {}

// SAFETY: operations with data are offered with an address alone, which completes the request by the contract of
// `setup_vendor_address`; the others go to no peer.
unsafe impl<V: Debug + 'static> Service for Vendor<V> {}

macro_rules! offers_with_address {
    ($($Operation:ty),+ $(,)?) => {
        $(
            // SAFETY: the address is there.
            unsafe impl<V: Debug + 'static, F> Offers<Addressed<$Operation, VendorAddress<F>>> for Vendor<V> {}
        )+
    };
}

offers_with_address!(SendMessage, SendImm, SendInv, Write, WriteImm, Read, CompareSwap, FetchAdd);
// SAFETY: the operation goes to no peer.
unsafe impl<V: Debug + 'static> Offers<LocalInvalidate> for Vendor<V> {}
// SAFETY: as above.
unsafe impl<V: Debug + 'static> Offers<BindMemoryWindow<'_>> for Vendor<V> {}

/// Where a request of a vendor's queue pair goes.
#[derive(Clone, Copy)]
pub struct VendorAddress<F>(F);

impl<F> Debug for VendorAddress<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VendorAddress").finish_non_exhaustive()
    }
}

impl<F> Sealed for VendorAddress<F> {}

// SAFETY: the closure keeps the contract, by that of `setup_vendor_address`.
unsafe impl<F: FnOnce(*mut ibv_qp_ex) + Copy> SendAddress for VendorAddress<F> {
    #[inline]
    unsafe fn give(self, qp: *mut ibv_qp_ex) {
        (self.0)(qp);
    }

    unsafe fn write(self, _wr: &mut ibv_send_wr, _qp: *mut ibv_qp) -> Result<(), RefusalReason> {
        Err(RefusalReason::DriverFault("a vendor's queue pairs are extended ones"))
    }
}

impl<V: Debug + 'static> QueuePairBuilder<Vendor<V>> {
    /// A builder of a vendor's queue pairs, of the type [`Driver`](QueuePairType::Driver); `transitions` has the attributes that each
    /// change of state needs and takes.
    pub fn of_vendor(pd: &Arc<ProtectionDomain>, transitions: TransitionTable) -> Self {
        // SAFETY: queue pairs of the service are made by `build_with` alone, whose caller promises that they are of it.
        let mut builder = unsafe { Self::of_service(pd, &[QueuePairType::Driver]) };
        builder.set_transitions(transitions);
        builder
    }
}

impl<'g, G: PostSendGuard, O: SendOperation> LocalBufferHandle<'g, G, O> {
    /// Where the request of a vendor's queue pair goes: `give` calls the vendor's function for the request that is being built.
    ///
    /// # Safety
    ///
    /// - `give` completes the request: a driver whose queue pairs are of the service `V` follows no pointer, and finishes no request,
    ///   that it has left unset. What it leaves in the request is valid until the batch is posted: it is captured by reference, or
    ///   lives longer.
    /// - `give` calls the vendor's functions only if [`data`] returns something, and posts nothing. It is called with a live extended
    ///   queue pair between `wr_start` and `wr_complete`; an operation was begun, or the batch is refused. None of the queue pair's
    ///   functions up to `wr_abort` is null.
    #[inline]
    pub unsafe fn setup_vendor_address<'q, V, F>(
        self,
        give: F,
    ) -> LocalBufferHandle<'g, G, Addressed<O, VendorAddress<F>>>
    where
        V: Debug + 'static,
        F: FnOnce(*mut ibv_qp_ex) + Copy + 'q,
        G: PostSendGuard<Service = Vendor<V>> + HoldsFor<'q>,
    {
        self.setup_address(VendorAddress(give))
    }
}

/// What `attach` of [`build_with`](QueuePairBuilder::build_with) gave, for a request that is being built; `None` if the request is
/// refused, be it by this call, because the queue has no room for any request. The caller then does nothing.
///
/// # Safety
///
/// - `qp` is what the closure of [`setup_vendor_address`](LocalBufferHandle::setup_vendor_address) is called with;
/// - it was made by `build_with`, whose `attach` gave a `D`;
/// - the pointer is used before that call returns.
#[inline]
pub unsafe fn data<D>(qp: *mut ibv_qp_ex) -> Option<NonNull<D>> {
    // SAFETY: the caller's promise: a queue pair with a send context, of which a batch is being built.
    let data = NonNull::new(unsafe { SendContext::vendor_data(qp) }.cast());
    if data.is_none() {
        // SAFETY: as above. A batch that is refused already stays so, for its first reason.
        unsafe { missing_operation::refuse(qp, RefusalReason::BatchTooLong { limit: 0 }) };
    }
    data
}

/// Refuses the request that is being built, and with it the batch: nothing of it is posted, and the reason comes back from
/// [`post`](crate::ibverbs::work_request::PostSendGuard::post).
///
/// # Safety
///
/// `qp` is what the closure of [`setup_vendor_address`](LocalBufferHandle::setup_vendor_address) is called with.
#[cold]
pub unsafe fn refuse(qp: *mut ibv_qp_ex, reason: RefusalReason) {
    // SAFETY: the caller's promise.
    unsafe { missing_operation::refuse(qp, reason) }
}

/// Whether an object of the device `context` may be named in a request of `qp`; drivers do not look, and take any for one of
/// their own.
///
/// # Errors
///
/// [`RefusalReason::OfAnotherDevice`].
///
/// # Safety
///
/// `qp` is a live queue pair.
#[inline]
pub unsafe fn check_device(context: *mut ibv_context, qp: *mut ibv_qp) -> Result<(), RefusalReason> {
    // SAFETY: the caller's promise.
    unsafe { operation::check_device(context, qp) }
}
