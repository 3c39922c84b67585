//! Queue pairs of a vendor's: how another crate adds a service that the standard verbs do not have.
//!
//! 1. Name the service: an empty enum with `unsafe impl` [`Service`](super::Service). Its
//!    [`transition`](super::Service::transition) says which attributes each change of state needs, by which errors are
//!    explained.
//! 2. Say where its requests go: a `Copy` struct with `unsafe impl`
//!    [`SendAddress`](crate::ibverbs::work_request::SendAddress). A service whose requests look like datagrams takes
//!    [`DatagramAddress`](crate::ibverbs::work_request::DatagramAddress) as it is.
//! 3. Add operations, where it has some of its own: `unsafe impl` [`SendOperation`](crate::ibverbs::work_request::SendOperation).
//! 4. Say which requests are complete: `unsafe impl` [`Offers`](super::Offers) for each operation, with its address
//!    ([`Addressed`](crate::ibverbs::work_request::Addressed)) where the service wants one, and
//!    [`OffersWithoutData`](super::OffersWithoutData) for operations that take no data. Everything else does not compile.
//! 5. Make the queue pairs: [`QueuePairBuilder::of_service`](super::QueuePairBuilder::of_service), then
//!    [`build_with`](super::QueuePairBuilder::build_with) around the vendor's function, or
//!    [`build_target_with`](super::QueuePairBuilder::build_target_with) where there are no queues to post to.
//! 6. Make it read well: a trait of the crate's own for
//!    [`LocalBufferHandle`](crate::ibverbs::work_request::LocalBufferHandle) with a method such as `setup_my_addr`, which calls
//!    [`setup_address`](crate::ibverbs::work_request::LocalBufferHandle::setup_address).
//!
//! Requests are then begun, posted and polled as those of any queue pair.
//!
//! Fields that a vendor adds to completions are read by a struct of the crate's own:
//! [`build_ex_with`](crate::ibverbs::completion::CompletionQueueBuilder::build_ex_with) makes the queue,
//! [`keep_alive`](crate::ibverbs::completion::CompletionQueue::keep_alive) keeps it, and
//! [`cq_ex`](crate::ibverbs::completion::ExtendedWorkCompletion::cq_ex) of a completion tells whether it is of this queue.
//!
//! # Three rules for addresses and operations
//!
//! - **A vendor's function is found with [`data`], and is called only where that gives something.** A request that is refused (an
//!   operation that the queue pair was not built for, an object of another device) takes its batch with it: from then on the
//!   standard functions do nothing, but a vendor's function would write into a request that was never begun.
//! - **An object that a request names is held against the queue pair's device** with [`check_device`]; one that does not
//!   pass is [`refuse`]d.
//! - **What is borrowed stays borrowed until the batch is posted:** `setup_address` and `setup_operation` see to that, for what is
//!   in the lifetimes of the type.
//!
//! Functions that the vendor's library may leave null are seen by `attach` of
//! [`build_with`](super::QueuePairBuilder::build_with), once.

use std::ptr::NonNull;

use rdma_mummy_sys::{ibv_context, ibv_qp, ibv_qp_ex};

use super::missing_operation::{self, SendContext};
use crate::ibverbs::work_request::{RefusalReason, operation};

/// What `attach` of [`build_with`](super::QueuePairBuilder::build_with) gave, for a request that is being built; `None` where
/// the request is refused, be it by this call, because the queue has no room for any request. Nothing is then to be done.
///
/// # Safety
///
/// - `qp` is what a [`SendAddress`](crate::ibverbs::work_request::SendAddress) or
///   [`SendOperation`](crate::ibverbs::work_request::SendOperation) is called with;
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
/// `qp` is what a [`SendAddress`](crate::ibverbs::work_request::SendAddress) or
/// [`SendOperation`](crate::ibverbs::work_request::SendOperation) is called with.
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
