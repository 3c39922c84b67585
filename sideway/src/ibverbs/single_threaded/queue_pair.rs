//! A queue pair confined to one thread.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rdma_mummy_sys::ibv_qp;

use super::poller::Polls;
use super::{SingleThread, SingleThreadedCompletionQueue, SingleThreadedDomain};
use crate::error::{Errno, VerbError};
use crate::ibverbs::completion::{CompletionCounter, CompletionRecord, CountedOperations, PollCompletions};
use crate::ibverbs::queue_pair::teardown::{DrainError, Drained};
use crate::ibverbs::queue_pair::{
    BasicQueuePair, BasicService, ConnectQueuePairError, Connected, Datagram, ExtendedQueuePair, GenericQueuePair,
    ModifyQueuePairError, Pair, PostRecvGuard, QueuePair, QueuePairAttribute, QueuePairAttributeMask, QueuePairBuilder,
    QueuePairEndpoint, QueuePairInitAttribute, QueuePairState, QueuePairType, RcOptions, SendOperationFlags, SendQueue,
    Service,
};

/// Builds queue pairs confined to one thread, with the defaults of [`QueuePairBuilder`].
#[derive(Debug)]
pub struct SingleThreadedQueuePairBuilder<T = Connected> {
    /// The program never gets access to this builder, because the queue pairs that it builds may leave the thread.
    builder: QueuePairBuilder<T>,
    polls: Polls,
    thread: SingleThread,
}

macro_rules! forward {
    ($( $setup:ident($argument:ident: $Type:ty) )+) => { $(
        #[doc = concat!("See [`QueuePairBuilder::", stringify!($setup), "`].")]
        pub fn $setup(&mut self, $argument: $Type) -> &mut Self {
            self.builder.$setup($argument);
            self
        }
    )+ };
}

impl SingleThreadedQueuePairBuilder {
    pub(super) fn new(domain: &SingleThreadedDomain) -> Self {
        Self { builder: domain.domain.create_qp_builder(), polls: Polls::default(), thread: PhantomData }
    }

    forward! {
        setup_qp_type(qp_type: QueuePairType)
    }
}

impl SingleThreadedQueuePairBuilder<Datagram> {
    pub(super) fn new_ud(domain: &SingleThreadedDomain) -> Self {
        Self { builder: domain.domain.create_ud_qp_builder(), polls: Polls::default(), thread: PhantomData }
    }
}

impl<T: Service> SingleThreadedQueuePairBuilder<T> {
    forward! {
        setup_max_send_wr(max_send_wr: u32)
        setup_max_recv_wr(max_recv_wr: u32)
        setup_max_send_sge(max_send_sge: u32)
        setup_max_recv_sge(max_recv_sge: u32)
        setup_max_inline_data(max_inline_data: u32)
        setup_sq_sig_all(sq_sig_all: bool)
        setup_send_ops_flags(operations: SendOperationFlags)
    }

    /// Permits drivers that do not check for overflow; see [`QueuePairBuilder::assume_send_room`].
    ///
    /// # Safety
    ///
    /// The contract of [`QueuePairBuilder::assume_send_room`] applies.
    pub unsafe fn assume_send_room(&mut self) -> &mut Self {
        // SAFETY: the caller upholds the contract of this function.
        unsafe { self.builder.assume_send_room() };
        self
    }

    /// Sets the completion queue of sends. The queue pair keeps the C object of the completion queue alive.
    pub fn setup_send_cq(&mut self, send_cq: &SingleThreadedCompletionQueue) -> &mut Self {
        self.builder.setup_send_cq(send_cq.inner());
        self.polls.send = Some(Rc::clone(send_cq.polling()));
        self
    }

    /// Sets the completion queue of receives. It may be the same as that of sends.
    pub fn setup_recv_cq(&mut self, recv_cq: &SingleThreadedCompletionQueue) -> &mut Self {
        self.builder.setup_recv_cq(recv_cq.inner());
        self.polls.recv = Some(Rc::clone(recv_cq.polling()));
        self
    }

    /// `ibv_create_qp(pd, attr)` — builds a basic queue pair: see [`QueuePairBuilder::build`].
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`QueuePairBuilder::build`].
    #[doc(alias = "ibv_create_qp")]
    pub fn build(&self) -> Result<SingleThreadedQueuePair<BasicQueuePair<T>>, VerbError>
    where
        T: BasicService,
    {
        self.builder.build().map(|qp| SingleThreadedQueuePair::new(qp, &self.polls))
    }

    /// `ibv_create_qp_ex(context, attr)` — builds an extended queue pair: see [`QueuePairBuilder::build_ex`].
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`QueuePairBuilder::build_ex`].
    #[doc(alias = "ibv_create_qp_ex")]
    pub fn build_ex(&self) -> Result<SingleThreadedQueuePair<ExtendedQueuePair<T>>, VerbError>
    where
        T: BasicService,
    {
        self.builder.build_ex().map(|qp| SingleThreadedQueuePair::new(qp, &self.polls))
    }

    /// Builds an extended queue pair if the device supports it and its driver has no known faults. Otherwise builds a
    /// basic queue pair.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`QueuePairBuilder::build_generic`].
    pub fn build_generic(&self) -> Result<SingleThreadedQueuePair<GenericQueuePair<T>>, VerbError>
    where
        T: BasicService,
    {
        self.builder.build_generic().map(|qp| SingleThreadedQueuePair::new(qp, &self.polls))
    }
}

/// A queue pair confined to its thread. If its domain contains a thread domain, posting takes no lock.
///
/// This type does not implement [`QueuePair`], whose methods give access to the C object of the queue pair, which may
/// leave the thread, and to a reset while a completion queue is being polled. Code for both kinds of queue pairs takes
/// the batch instead of the queue pair:
///
/// ```
/// use sideway::ibverbs::queue_pair::PostSendGuard;
///
/// fn add_requests(batch: &mut impl PostSendGuard) {
///     // …
/// #   let _ = batch;
/// }
/// ```
#[derive(Debug)]
pub struct SingleThreadedQueuePair<Q: QueuePair> {
    /// The program never gets access to this queue pair or to its halves, because they could leave the thread.
    qp: Q,
    polls: Polls,
    thread: SingleThread,
}

impl<Q: QueuePair> SingleThreadedQueuePair<Q> {
    fn new(qp: Q, polls: &Polls) -> Self {
        Self { qp, polls: polls.clone(), thread: PhantomData }
    }

    /// Starts a batch of sends.
    #[doc(alias = "ibv_wr_start")]
    #[inline]
    pub fn start_post_send(&mut self) -> Q::Guard<'_> {
        self.qp.start_post_send()
    }

    /// Starts a batch of receives.
    #[doc(alias = "ibv_post_recv")]
    #[inline]
    pub fn start_post_recv(&mut self) -> PostRecvGuard<'_> {
        self.qp.start_post_recv()
    }

    /// `ibv_modify_qp(qp, attr, attr_mask)` — sets attributes: see [`QueuePair::modify`].
    ///
    /// # Errors
    ///
    /// The errors are those of [`QueuePair::modify`]. In addition, returns `EBUSY` for a reset while one of the
    /// completion queues is being polled, because a reset removes completions from these queues.
    #[doc(alias = "ibv_modify_qp")]
    pub fn modify(&self, attribute: &QueuePairAttribute) -> Result<(), ModifyQueuePairError> {
        let resets =
            attribute.mask().contains(QueuePairAttributeMask::State) && attribute.state() == QueuePairState::Reset;
        if resets && self.polls.are_active() {
            let source = busy("ibv_modify_qp").with_hint("a completion queue is being polled; drop the poller first");
            return Err(ModifyQueuePairError::Verb { from: self.state(), to: QueuePairState::Reset, source });
        }
        self.qp.modify(attribute)
    }

    /// Returns the data that a peer needs to connect to this queue pair; see [`QueuePair::local_endpoint`].
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`QueuePair::local_endpoint`].
    pub fn local_endpoint(&self, options: &RcOptions) -> Result<QueuePairEndpoint, VerbError>
    where
        Q: QueuePair<Service = Connected>,
    {
        self.qp.local_endpoint(options)
    }

    /// `ibv_modify_qp(qp, attr, attr_mask)` — connects a queue pair of type RC: see [`QueuePair::connect_rc`].
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`QueuePair::connect_rc`].
    #[doc(alias = "ibv_modify_qp")]
    pub fn connect_rc(&self, remote: &QueuePairEndpoint, options: &RcOptions) -> Result<(), ConnectQueuePairError>
    where
        Q: QueuePair<Service = Connected>,
    {
        self.qp.connect_rc(remote, options)
    }

    /// `ibv_query_qp(qp, attr, attr_mask, init_attr)` — reads attributes: see [`QueuePair::query`].
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`QueuePair::query`].
    #[doc(alias = "ibv_query_qp")]
    pub fn query(
        &self,
        mask: QueuePairAttributeMask,
    ) -> Result<(QueuePairAttribute, QueuePairInitAttribute), VerbError> {
        self.qp.query(mask)
    }

    /// `ibv_qp_attach_comp_cntr(qp, comp_cntr, attr)` — lets a counter count operations of this queue pair; see
    /// [`CompletionCounter::attach`].
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`CompletionCounter::attach`].
    #[doc(alias = "ibv_qp_attach_comp_cntr")]
    pub fn attach_comp_cntr(
        &self,
        counter: &Arc<CompletionCounter>,
        operations: CountedOperations,
    ) -> Result<(), VerbError> {
        counter.attach(&self.qp, operations)
    }

    /// Returns the state: see [`QueuePair::state`].
    pub fn state(&self) -> QueuePairState {
        self.qp.state()
    }

    /// Returns the transport service.
    pub fn qp_type(&self) -> QueuePairType {
        self.qp.qp_type()
    }

    /// Returns the queue pair's number, 24 bits, by which peers address it.
    pub fn qp_number(&self) -> u32 {
        self.qp.qp_number()
    }

    /// `ibv_destroy_qp(qp)` — destroys the queue pair. This method returns an error of the verb, whereas drop only logs
    /// it.
    ///
    /// # Errors
    ///
    /// Returns `EBUSY` while a completion queue of the queue pair is being polled. The queue pair is then destroyed
    /// when the poller is dropped. Otherwise returns the driver's errno, and the queue pair is leaked.
    #[doc(alias = "ibv_destroy_qp")]
    pub fn close(self) -> Result<(), VerbError> {
        if self.polls.are_active() {
            return Err(busy("ibv_destroy_qp")
                .with_hint("a completion queue is being polled; dropping the poller destroys the queue pair"));
        }
        let core = Arc::clone(self.qp.core());
        drop(self);
        core.close()
    }

    /// Returns the C object.
    ///
    /// # Safety
    ///
    /// Use the object only on this thread, and only while `self` lives. Do not destroy it, do not post to it while a
    /// guard exists, and do not change its `qp_context` or its functions.
    pub unsafe fn qp(&self) -> NonNull<ibv_qp> {
        // SAFETY: the caller upholds the contract of this function.
        unsafe { self.qp.qp() }
    }
}

impl<Q: QueuePair> Drop for SingleThreadedQueuePair<Q> {
    fn drop(&mut self) {
        self.polls.keep(self.qp.core());
    }
}

#[cold]
fn busy(verb: &'static str) -> VerbError {
    VerbError::new(verb, Errno::EBUSY)
}

impl<S: SendQueue> SingleThreadedQueuePair<Pair<S>> {
    /// Moves the queue pair to the Error state and polls `queues` until all its requests are flushed; see
    /// [`Pair::drain`]. After that, no request uses its buffers any more. Call [`close`](Self::close) to destroy the
    /// queue pair.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Pair::drain`].
    pub fn drain(
        &mut self,
        queues: &mut [&mut SingleThreadedCompletionQueue],
        timeout: Duration,
        seen: impl FnMut(&CompletionRecord),
    ) -> Result<Drained, DrainError> {
        let mut queues: Vec<&mut dyn PollCompletions> =
            queues.iter_mut().map(|cq| -> &mut dyn PollCompletions { *cq }).collect();
        self.qp.drain(&mut queues, timeout, seen)
    }
}

/// A batch must continue on the thread that started it. If one of these types were `Send`, the calls here would be
/// ambiguous and fail to compile.
const _: fn() = || {
    use crate::ibverbs::queue_pair::{BasicPostSendGuard, ExtendedPostSendGuard, GenericPostSendGuard};

    trait NotSend<A> {
        fn check() {}
    }
    impl<T: ?Sized> NotSend<()> for T {}
    impl<T: ?Sized + Send> NotSend<u8> for T {}
    <BasicPostSendGuard<'static> as NotSend<_>>::check();
    <ExtendedPostSendGuard<'static> as NotSend<_>>::check();
    <GenericPostSendGuard<'static> as NotSend<_>>::check();
    <PostRecvGuard<'static> as NotSend<_>>::check();
    <SingleThreadedQueuePairBuilder as NotSend<_>>::check();
    <SingleThreadedQueuePair<ExtendedQueuePair> as NotSend<_>>::check();
};
