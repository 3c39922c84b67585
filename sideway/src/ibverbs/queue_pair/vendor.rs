//! Vendor queue pairs: how another crate adds a transport service that this crate lacks.
//!
//! The crate identifies its service by its own type `V`; its queue pairs have the service [`Vendor<V>`](Vendor).
//!
//! 1. Create a builder: [`QueuePairBuilder::of_vendor`], with a table of the attributes of each transition, used to
//!    explain errors.
//! 2. Build the queue pairs: [`build_with`](QueuePairBuilder::build_with) and the vendor's function, or
//!    [`build_target_with`](QueuePairBuilder::build_target_with) for queue pairs without queues.
//! 3. Set the destination of requests: write an extension trait for [`LocalBufferHandle`] with a safe method such as
//!    `setup_my_addr`, which calls [`setup_vendor_address`](LocalBufferHandle::setup_vendor_address).
//!
//! Requests are then built, posted and polled like those of any queue pair. All standard operations are offered, each
//! with an address; posting an operation that the queue pair was not built for returns an error.
//! `tests/tests/process/vendor_plug_in` in the repository is a complete plug-in.
//!
//! To read a vendor's completion fields, define a struct in the crate:
//! [`build_ex_with`](crate::ibverbs::completion::CompletionQueueBuilder::build_ex_with) builds the queue,
//! [`keep_alive`](crate::ibverbs::completion::CompletionQueue::keep_alive) keeps it alive, and
//! [`cq_ex`](crate::ibverbs::completion::ExtendedWorkCompletion::cq_ex) returns the queue of a completion.
//!
//! # Three rules for addresses
//!
//! - **Get the vendor's function with [`data`], and call it only if that returns `Some`.** A rejected request (for an
//!   operation for which the queue pair was not built, or with an object of another device) rejects its batch. The
//!   standard functions then do nothing, but a vendor's function would write to a request that was never begun.
//! - **Check the device of each object that a request names** with [`check_device`], and [`refuse`] the request if it
//!   fails.
//! - **Borrowed data stays borrowed until the batch is posted:** `setup_vendor_address` requires this for the data that
//!   the address captures.
//!
//! **Check for null functions once**, in `attach` of [`build_with`](QueuePairBuilder::build_with), if the vendor's
//! library may leave some null.

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

/// The service of a vendor's queue pairs, identified by a type `V` of the crate that adds it: each request with data
/// has a destination.
#[derive(Clone, Copy, Debug)]
pub struct Vendor<V>(PhantomData<V>, Infallible);

impl<V> Sealed for Vendor<V> {}

// SAFETY: operations with data are offered only with an address, which completes the request by the contract of
// `setup_vendor_address`; the others involve no peer.
unsafe impl<V: Debug + 'static> Service for Vendor<V> {}

macro_rules! offers_with_address {
    ($($Operation:ty),+ $(,)?) => {
        $(
            // SAFETY: the address is set.
            unsafe impl<V: Debug + 'static, F> Offers<Addressed<$Operation, VendorAddress<F>>> for Vendor<V> {}
        )+
    };
}

offers_with_address!(SendMessage, SendImm, SendInv, Write, WriteImm, Read, CompareSwap, FetchAdd);
// SAFETY: the operation involves no peer.
unsafe impl<V: Debug + 'static> Offers<LocalInvalidate> for Vendor<V> {}
// SAFETY: as above.
unsafe impl<V: Debug + 'static> Offers<BindMemoryWindow<'_>> for Vendor<V> {}

/// The destination of a request on a vendor's queue pair.
#[derive(Clone, Copy)]
pub struct VendorAddress<F>(F);

impl<F> Debug for VendorAddress<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VendorAddress").finish_non_exhaustive()
    }
}

impl<F> Sealed for VendorAddress<F> {}

// SAFETY: the closure fulfils the contract: the caller of `setup_vendor_address` guarantees it.
unsafe impl<F: FnOnce(*mut ibv_qp_ex) + Copy> SendAddress for VendorAddress<F> {
    #[inline]
    unsafe fn give(self, qp: *mut ibv_qp_ex) {
        (self.0)(qp);
    }

    unsafe fn write(self, _wr: &mut ibv_send_wr, _qp: *mut ibv_qp) -> Result<(), RefusalReason> {
        Err(RefusalReason::DriverFault("a vendor's queue pairs are extended"))
    }
}

impl<V: Debug + 'static> QueuePairBuilder<Vendor<V>> {
    /// Creates a builder of a vendor's queue pairs, of the type [`Driver`](QueuePairType::Driver); `transitions` has
    /// the required and optional attributes of each transition.
    pub fn of_vendor(pd: &Arc<ProtectionDomain>, transitions: TransitionTable) -> Self {
        // SAFETY: only `build_with` builds queue pairs of the service, and its caller guarantees that they have this
        // service.
        let mut builder = unsafe { Self::of_service(pd, &[QueuePairType::Driver]) };
        builder.set_transitions(transitions);
        builder
    }
}

impl<'g, G: PostSendGuard, O: SendOperation> LocalBufferHandle<'g, G, O> {
    /// Sets the destination of a request on a vendor's queue pair: `give` calls the vendor's function for the request
    /// being built.
    ///
    /// # Safety
    ///
    /// - `give` completes the request: a driver of the service `V` dereferences no pointer, and needs no field, that
    ///   the request has left unset. Data that it stores in the request is valid until the batch is posted: it is
    ///   captured by reference, or lives longer.
    /// - `give` calls the vendor's functions only if [`data`] returns `Some`, and posts nothing. This crate calls
    ///   `give` with a live extended queue pair between `wr_start` and `wr_complete`; an operation was begun, or the
    ///   batch is rejected. None of the queue pair's functions up to `wr_abort` is null.
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

/// Returns the data that `attach` of [`build_with`](QueuePairBuilder::build_with) returned, for a request being built.
/// `None` if the request is rejected, possibly by this call because the queue's capacity is zero; the caller must then
/// do nothing.
///
/// # Safety
///
/// - `qp` is the argument of the closure of [`setup_vendor_address`](LocalBufferHandle::setup_vendor_address).
/// - It was built by `build_with`, whose `attach` returned a `D`.
/// - The pointer is used before that call returns.
#[inline]
pub unsafe fn data<D>(qp: *mut ibv_qp_ex) -> Option<NonNull<D>> {
    // SAFETY: by the contract of this function, a queue pair with a send context and an open batch.
    let data = NonNull::new(unsafe { SendContext::vendor_data(qp) }.cast());
    if data.is_none() {
        // SAFETY: as above. A batch that is already rejected keeps its first reason.
        unsafe { missing_operation::refuse(qp, RefusalReason::BatchTooLong { limit: 0 }) };
    }
    data
}

/// Rejects the request being built, and with it the batch: nothing of it is posted, and
/// [`post`](crate::ibverbs::work_request::PostSendGuard::post) returns the reason.
///
/// # Safety
///
/// `qp` is the argument of the closure of [`setup_vendor_address`](LocalBufferHandle::setup_vendor_address).
#[cold]
pub unsafe fn refuse(qp: *mut ibv_qp_ex, reason: RefusalReason) {
    // SAFETY: the caller upholds the contract of this function.
    unsafe { missing_operation::refuse(qp, reason) }
}

/// Checks that a request of `qp` may name an object of the device `context`; drivers assume without a check that the
/// object is theirs.
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
    // SAFETY: the caller upholds the contract of this function.
    unsafe { operation::check_device(context, qp) }
}
