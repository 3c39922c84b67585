//! A completion queue confined to one thread.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::rc::Rc;

use rdma_mummy_sys::ibv_cq;

use super::poller::Polling;
use super::{SingleThread, SingleThreadedDomain, SingleThreadedPoller};
use crate::error::VerbError;
use crate::ibverbs::completion::poll::polled;
use crate::ibverbs::completion::{
    AsCore, CompletionModeration, CompletionQueue, CompletionQueueBuilder, CreateCompletionQueueWorkCompletionFlags,
    ExtendedCompletionQueue, ExtendedWorkCompletion, PollCompletionQueueError,
};

/// Builds completion queues without a lock, with the defaults of [`CompletionQueueBuilder`].
#[derive(Debug)]
pub struct SingleThreadedCompletionQueueBuilder {
    builder: CompletionQueueBuilder,
    thread: SingleThread,
}

impl SingleThreadedCompletionQueueBuilder {
    pub(super) fn new(domain: &SingleThreadedDomain) -> Self {
        let mut builder = CompletionQueueBuilder::new(domain.device_context());
        if domain.has_allocator {
            builder.setup_parent_domain(&domain.domain);
        }
        Self { builder, thread: PhantomData }
    }

    /// Sets the minimum capacity; see [`CompletionQueueBuilder::setup_cqe`].
    pub fn setup_cqe(&mut self, cqe: u32) -> &mut Self {
        self.builder.setup_cqe(cqe);
        self
    }

    /// Sets the fields of completions: see [`CompletionQueueBuilder::setup_wc_flags`].
    pub fn setup_wc_flags(&mut self, fields: CreateCompletionQueueWorkCompletionFlags) -> &mut Self {
        self.builder.setup_wc_flags(fields);
        self
    }

    /// Sets whether the queue continues after an overrun: see [`CompletionQueueBuilder::setup_ignore_overrun`].
    pub fn setup_ignore_overrun(&mut self, ignore_overrun: bool) -> &mut Self {
        self.builder.setup_ignore_overrun(ignore_overrun);
        self
    }

    /// `ibv_create_cq_ex(context, attr)` with `IBV_CREATE_CQ_ATTR_SINGLE_THREADED` — builds a queue.
    ///
    /// # Errors
    ///
    /// - `EOPNOTSUPP`, `ENOSYS`: the driver does not support such queues.
    /// - Otherwise the errors of [`CompletionQueueBuilder::build_ex`].
    ///
    /// # References
    ///
    /// [ibv_create_cq_ex(3)](https://man7.org/linux/man-pages/man3/ibv_create_cq_ex.3.html)
    #[doc(alias = "IBV_CREATE_CQ_ATTR_SINGLE_THREADED")]
    pub fn build(&self) -> Result<SingleThreadedCompletionQueue, VerbError> {
        // SAFETY: only two types contain the queue, and neither of them can leave the thread: the queue type itself,
        // and the queue pairs of this module, which are the only ones that accept such a queue.
        let cq = unsafe { self.builder.build_single_threaded() }?;
        Ok(SingleThreadedCompletionQueue { cq, polling: Rc::default(), thread: PhantomData })
    }
}

/// An extended completion queue that is confined to its thread. It has no lock, and it has no channel, so completions
/// are found only by polling.
#[derive(Debug)]
pub struct SingleThreadedCompletionQueue {
    /// The program never gets access to this queue, because it could move the queue to another thread, alone or with a
    /// queue pair.
    cq: ExtendedCompletionQueue,
    /// The polling state, which the queue shares with its queue pairs.
    polling: Rc<Polling>,
    thread: SingleThread,
}

polled! {
    SingleThreadedCompletionQueue: ExtendedWorkCompletion, by |cq| cq.inner().core();
}

impl SingleThreadedCompletionQueue {
    /// `ibv_start_poll(cq, attr)` — starts a poll; see [`ExtendedCompletionQueue::start_poll`].
    ///
    /// Queue pairs of the queue may be dropped during the poll. They are then destroyed when the poller is dropped.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`ExtendedCompletionQueue::start_poll`].
    #[doc(alias = "ibv_start_poll")]
    #[inline]
    pub fn start_poll(&mut self) -> Result<SingleThreadedPoller<'_>, PollCompletionQueueError> {
        Ok(SingleThreadedPoller::new(self.cq.start_poll()?, &self.polling))
    }

    /// `ibv_start_poll(cq, attr)`, `ibv_next_poll(cq)`, `ibv_end_poll(cq)` — passes up to `most` completions to `take`:
    /// see [`ExtendedCompletionQueue::poll_each`].
    ///
    /// `take` may drop queue pairs of the queue. They are destroyed after the poll.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`ExtendedCompletionQueue::poll_each`].
    #[doc(alias = "ibv_next_poll")]
    #[doc(alias = "ibv_end_poll")]
    #[inline(always)]
    pub fn poll_each<E: From<PollCompletionQueueError>>(
        &mut self,
        most: u32,
        take: impl FnMut(ExtendedWorkCompletion<'_>) -> Result<(), E>,
    ) -> Result<u32, E> {
        if most == 0 {
            return Ok(0);
        }
        match self.start_poll() {
            Ok(poller) => poller.give(most, take),
            Err(PollCompletionQueueError::CompletionQueueEmpty) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// `ibv_resize_cq(cq, cqe)` — changes the queue's capacity: see [`ExtendedCompletionQueue::resize`].
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`ExtendedCompletionQueue::resize`].
    #[doc(alias = "ibv_resize_cq")]
    pub fn resize(&mut self, cqe: u32) -> Result<(), VerbError> {
        self.cq.resize(cqe)
    }

    /// `ibv_modify_cq(cq, attr)` — sets the event moderation: see [`CompletionQueue::modify`].
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`CompletionQueue::modify`].
    #[doc(alias = "ibv_modify_cq")]
    pub fn modify(&self, moderation: CompletionModeration) -> Result<(), VerbError> {
        self.cq.modify(moderation)
    }

    /// Returns the queue's capacity, which is at least as large as requested.
    pub fn cqe(&self) -> u32 {
        self.cq.cqe()
    }

    /// Returns the fields that the queue delivers.
    pub fn wc_flags(&self) -> CreateCompletionQueueWorkCompletionFlags {
        self.cq.wc_flags()
    }

    /// `ibv_destroy_cq(cq)` — destroys the queue. This method returns an error of the verb, whereas drop only logs it.
    ///
    /// # Errors
    ///
    /// Returns `EBUSY` if queue pairs still reference the queue. The queue is then destroyed when the last of them is
    /// dropped. Otherwise returns the driver's errno, and the queue is leaked.
    #[doc(alias = "ibv_destroy_cq")]
    pub fn close(self) -> Result<(), VerbError> {
        self.cq.close()
    }

    /// Returns the C object.
    ///
    /// # Safety
    ///
    /// Use the object only on this thread, and only while `self` lives. Do not destroy it, do not poll it while another
    /// poll is open, and do not change its `cq_context` or its functions.
    pub unsafe fn cq(&self) -> NonNull<ibv_cq> {
        // SAFETY: the caller upholds the contract of this function.
        unsafe { self.cq.cq() }
    }

    /// Returns the inner queue, for the queue pairs of this module and for polling.
    pub(in crate::ibverbs) fn inner(&self) -> &ExtendedCompletionQueue {
        &self.cq
    }

    /// Returns the polling state, for the queue pairs of this module, which must not be destroyed during a poll.
    pub(super) fn polling(&self) -> &Rc<Polling> {
        &self.polling
    }
}

/// A poll must continue on the thread that started it. If one of these types were `Send`, the calls here would be
/// ambiguous and fail to compile.
const _: fn() = || {
    trait NotSend<A> {
        fn check() {}
    }
    impl<T: ?Sized> NotSend<()> for T {}
    impl<T: ?Sized + Send> NotSend<u8> for T {}
    <SingleThreadedPoller<'static> as NotSend<_>>::check();
    <ExtendedWorkCompletion<'static> as NotSend<_>>::check();
    <SingleThreadedDomain as NotSend<_>>::check();
    <SingleThreadedCompletionQueueBuilder as NotSend<_>>::check();
    <SingleThreadedCompletionQueue as NotSend<_>>::check();
};
