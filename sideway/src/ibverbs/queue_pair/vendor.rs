//! Queue pairs of vendors: how another crate adds a transport service that this crate lacks.
//!
//! The other crate identifies its service by a type `V` that it defines. Its queue pairs have the service
//! [`Vendor<V>`](Vendor).
//!
//! 1. Create a builder with [`QueuePairBuilder::of_vendor`]. Pass a table of the attributes of each transition, which
//!    is used to explain errors.
//! 2. Build the queue pairs with [`build_with`](QueuePairBuilder::build_with), which calls the vendor's function. For
//!    queue pairs without queues, use [`build_target_with`](QueuePairBuilder::build_target_with).
//! 3. Let programs set the destination of requests. For this, write an extension trait for [`LocalBufferHandle`] with a
//!    safe method, such as `setup_my_addr`, that calls
//!    [`setup_vendor_address`](LocalBufferHandle::setup_vendor_address).
//!
//! Requests are then built, posted and polled like those of any queue pair. The service offers all standard operations,
//! each with an address. Posting an operation that the queue pair was not built for returns an error.
//! `tests/tests/process/vendor_plug_in` in the repository is a complete plug-in.
//!
//! To read completion fields of a vendor, define a struct in the other crate. The following methods help:
//! [`build_ex_with`](crate::ibverbs::completion::CompletionQueueBuilder::build_ex_with) builds the queue,
//! [`keep_alive`](crate::ibverbs::completion::CompletionQueue::keep_alive) keeps it alive, and
//! [`cq_ex`](crate::ibverbs::completion::ExtendedWorkCompletion::cq_ex) returns the queue of a completion.
//!
//! # Three rules for addresses
//!
//! - **Get the vendor's function with [`data`], and call it only if that returns `Some`.** If a request is rejected
//!   (because the queue pair was not built for its operation, or because it names an object of another device), its
//!   whole batch is rejected. The standard functions then do nothing. But a vendor's function would write to a request
//!   that the driver has not begun.
//! - **Check the device of each object that a request names** with [`check_device`], and [`refuse`] the request if the
//!   check fails.
//! - **Borrowed data stays borrowed until the batch is posted:** `setup_vendor_address` requires this for the data that
//!   its closure captures.
//!
//! **Check for null functions once**, in `attach` of [`build_with`](QueuePairBuilder::build_with), if the vendor's
//! library may leave some of them null.

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

/// The service of a vendor's queue pairs. It is identified by a type `V` of the crate that adds the service. Each
/// request with data has a destination.
#[derive(Clone, Copy, Debug)]
pub struct Vendor<V>(PhantomData<V>, Infallible);

impl<V> Sealed for Vendor<V> {}

// SAFETY: the service offers operations with data only with an address. By the contract of `setup_vendor_address`, the
// address completes the request. The other operations involve no peer.
unsafe impl<V: Debug + 'static> Service for Vendor<V> {}

macro_rules! offers_with_address {
    ($($Operation:ty),+ $(,)?) => {
        $(
            // SAFETY: the request has an address.
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

// SAFETY: the closure upholds the contract, as the caller of `setup_vendor_address` guarantees.
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
    /// Creates a builder of a vendor's queue pairs, which have the type [`Driver`](QueuePairType::Driver).
    /// `transitions` returns the required and optional attributes of each transition.
    pub fn of_vendor(pd: &Arc<ProtectionDomain>, transitions: TransitionTable) -> Self {
        // SAFETY: only `build_with` builds queue pairs of this service, and the caller of `build_with` guarantees that
        // they have it.
        let mut builder = unsafe { Self::of_service(pd, &[QueuePairType::Driver]) };
        builder.set_transitions(transitions);
        builder
    }
}

impl<'g, G: PostSendGuard, O: SendOperation> LocalBufferHandle<'g, G, O> {
    /// Sets the destination of a request on a vendor's queue pair. `give` calls the vendor's function for the request
    /// that is being built.
    ///
    /// # Safety
    ///
    /// - `give` completes the request. After the call, every pointer in the request that a driver of the service `V`
    ///   dereferences is set, and so is every field that the driver needs. Data to which `give` points in the request
    ///   is valid until the batch is posted, because the closure captures it by reference or because it lives longer.
    /// - `give` calls the vendor's functions only if [`data`] returns `Some`, and posts nothing. In return, this crate
    ///   calls `give` with a live extended queue pair, between `wr_start` and `wr_complete`. An operation was begun
    ///   before the call, or the batch is rejected. None of the queue pair's functions up to `wr_abort` is null.
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

/// Returns the data that `attach` of [`build_with`](QueuePairBuilder::build_with) returned, for a request that is being
/// built. Returns `None` if the request is rejected; the caller must then do nothing. This call itself rejects the
/// request if the capacity of the queue is zero.
///
/// # Safety
///
/// - `qp` is the argument of the closure of [`setup_vendor_address`](LocalBufferHandle::setup_vendor_address).
/// - `qp` was built by `build_with`, whose `attach` returned a `D`.
/// - The returned pointer is used only until the closure returns.
#[inline]
pub unsafe fn data<D>(qp: *mut ibv_qp_ex) -> Option<NonNull<D>> {
    // SAFETY: by the contract of this function, the queue pair has a send context and an open batch.
    let data = NonNull::new(unsafe { SendContext::vendor_data(qp) }.cast());
    if data.is_none() {
        // SAFETY: as above. If the batch is already rejected, its first reason is kept.
        unsafe { missing_operation::refuse(qp, RefusalReason::BatchTooLong { limit: 0 }) };
    }
    data
}

/// Rejects the request that is being built, and its whole batch. No request of the batch is posted, and
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

/// Checks that a request of `qp` may name an object of the device `context`. Drivers do not check whether the object
/// belongs to their device.
///
/// # Errors
///
/// Returns [`RefusalReason::OfAnotherDevice`] if the object belongs to another device.
///
/// # Safety
///
/// `qp` is a live queue pair.
#[inline]
pub unsafe fn check_device(context: *mut ibv_context, qp: *mut ibv_qp) -> Result<(), RefusalReason> {
    // SAFETY: the caller upholds the contract of this function.
    unsafe { operation::check_device(context, qp) }
}
