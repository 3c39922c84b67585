//! What all kinds of queue pair share.

use std::any::Any;
use std::mem;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_qp, ibv_qp_attr, ibv_qp_init_attr};

use super::missing_operation::SendContext;
use super::{
    ModifyQueuePairError, QueuePairAttribute, QueuePairAttributeMask as Mask, QueuePairInitAttribute, QueuePairState,
    QueuePairType, Service, TransitionTable,
};
use crate::error::VerbError;
use crate::ffi::{Handle, check_errno, errno_of};
use crate::ibverbs::completion::CompletionQueueCore;
use crate::ibverbs::device_context::DeviceContext;
use crate::ibverbs::protection_domain::ProtectionDomain;
use crate::ibverbs::work_request::{HoldsFor, PostRecvGuard, PostSendGuard};

/// What every kind of queue pair can do.
pub trait QueuePair: AsQueuePairCore {
    /// What requests of the queue pair look like.
    type Service: Service;

    /// The batch of sends that [`start_post_send`](Self::start_post_send) begins.
    type Guard<'g>: PostSendGuard<Service = Self::Service> + HoldsFor<'g>
    where
        Self: 'g;

    /// Begins a batch of sends.
    #[doc(alias = "ibv_wr_start")]
    fn start_post_send(&mut self) -> Self::Guard<'_>;

    /// Begins a batch of receives.
    #[doc(alias = "ibv_post_recv")]
    fn start_post_recv(&mut self) -> PostRecvGuard<'_>;

    /// `ibv_modify_qp(qp, attr, attr_mask)` — sets attributes, the state among them.
    ///
    /// # Errors
    ///
    /// [`ModifyQueuePairError`] tells what was wrong: a transition that does not exist, attributes missing or too many,
    /// a peer that is not reached.
    ///
    /// # References
    ///
    /// [ibv_modify_qp(3)](https://man7.org/linux/man-pages/man3/ibv_modify_qp.3.html)
    #[doc(alias = "ibv_modify_qp")]
    fn modify(&self, attribute: &QueuePairAttribute) -> Result<(), ModifyQueuePairError> {
        self.core().modify(attribute)
    }

    /// `ibv_query_qp(qp, attr, attr_mask, init_attr)` — reads attributes. A driver may fill in more than is asked for.
    ///
    /// # Errors
    ///
    /// The driver's errno.
    ///
    /// # References
    ///
    /// [ibv_query_qp(3)](https://man7.org/linux/man-pages/man3/ibv_query_qp.3.html)
    #[doc(alias = "ibv_query_qp")]
    fn query(&self, mask: Mask) -> Result<(QueuePairAttribute, QueuePairInitAttribute), VerbError> {
        self.core().query(mask)
    }

    /// The state that the last successful [`modify`](Self::modify) or [`query`](Self::query) left. A queue pair also goes
    /// into the error state by itself, which only a query shows.
    fn state(&self) -> QueuePairState {
        self.core().cached_state()
    }

    /// The transport service.
    fn qp_type(&self) -> QueuePairType {
        self.core().qp_type()
    }

    /// The number by which peers address the queue pair, 24 bits.
    fn qp_number(&self) -> u32 {
        self.core().qp_number()
    }

    /// The C object.
    ///
    /// # Safety
    ///
    /// It is used only while `self` lives, not destroyed, and not posted to while a guard is out; its `qp_context` and its
    /// functions stay as they are.
    unsafe fn qp(&self) -> NonNull<ibv_qp> {
        self.core().qp
    }
}

/// Access to the shared part; only this crate's queue pairs have it.
pub trait AsQueuePairCore {
    #[doc(hidden)]
    fn core(&self) -> &Arc<QueuePairCore>;
}

/// The C object with everything that must outlive it; the two queues share it.
#[derive(Debug)]
pub struct QueuePairCore {
    qp: NonNull<ibv_qp>,
    /// Taken by who destroys the queue pair.
    handle: Option<Handle<ibv_qp>>,
    send_context: Option<NonNull<SendContext>>,
    qp_type: QueuePairType,
    transitions: TransitionTable,
    // Behind the handle: they must outlive it.
    parents: Parents,
    context: Arc<DeviceContext>,
}

/// What a queue pair is made from.
#[derive(Debug, Default)]
pub(crate) struct Parents {
    pub(crate) send_cq: Option<Arc<CompletionQueueCore>>,
    pub(crate) recv_cq: Option<Arc<CompletionQueueCore>>,
    #[expect(dead_code, reason = "kept for its life alone")]
    pub(crate) pd: Option<Arc<ProtectionDomain>>,
    /// What a vendor's function made it from as well.
    #[expect(dead_code, reason = "kept for its life alone")]
    pub(crate) kept: Vec<Kept>,
}

/// Something that must outlive a queue pair.
pub(crate) type Kept = Arc<dyn Any + Send + Sync>;

// SAFETY: the handle may move and be shared (see there); the send context is reached only through the send queue, which
// `&mut` keeps to one thread, and by the last owner of the core, who frees it.
unsafe impl Send for QueuePairCore {}
// SAFETY: as for Send.
unsafe impl Sync for QueuePairCore {}

impl QueuePairCore {
    /// Takes a new queue pair over.
    ///
    /// # Safety
    ///
    /// - `qp` was just made in `context` from `parents`, all of them, and is nobody else's;
    /// - where there is a `send_context`, it came from [`SendContext::allocate`] and is this `qp`'s `qp_context`.
    pub(crate) unsafe fn adopt(
        qp: NonNull<ibv_qp>,
        (qp_type, transitions): (QueuePairType, TransitionTable),
        send_context: Option<NonNull<SendContext>>,
        parents: Parents,
        context: Arc<DeviceContext>,
    ) -> Arc<Self> {
        // SAFETY: the caller's promise; ibv_destroy_qp is the verb for it.
        let handle = Some(unsafe { Handle::new(qp, sys::ibv_destroy_qp, "ibv_destroy_qp") });
        let core = Arc::new(Self { qp, handle, send_context, qp_type, transitions, parents, context });
        core.context.objects().queue_pairs.insert(qp, &core);
        core
    }

    #[inline]
    pub(crate) fn raw(&self) -> *mut ibv_qp {
        self.qp.as_ptr()
    }

    pub(crate) fn as_non_null(&self) -> NonNull<ibv_qp> {
        self.qp
    }

    pub(crate) fn context(&self) -> &Arc<DeviceContext> {
        &self.context
    }

    /// What it was made from.
    pub(crate) fn parents(&self) -> &Parents {
        &self.parents
    }

    /// Which transitions it has.
    pub(crate) fn transitions(&self) -> TransitionTable {
        self.transitions
    }

    pub(crate) fn qp_type(&self) -> QueuePairType {
        self.qp_type
    }

    pub(crate) fn qp_number(&self) -> u32 {
        // SAFETY: the QP is live as long as the core, and the field is an aligned word. Some have their number from the device
        // no sooner than at a transition (targets of dynamic connections), which another thread may make meanwhile.
        let qp_num = unsafe { AtomicU32::from_ptr(&raw mut (*self.raw()).qp_num) };
        qp_num.load(Ordering::Relaxed)
    }

    pub(crate) fn cached_state(&self) -> QueuePairState {
        // SAFETY: the QP is live as long as the core, and the field is an aligned word. Another thread's ibv_modify_qp may
        // write it meanwhile, in C: an atomic load gives the old state or the new one.
        let state = unsafe { AtomicU32::from_ptr((&raw mut (*self.raw()).state).cast()) };
        QueuePairState::from_raw(state.load(Ordering::Relaxed))
    }

    /// The state as the driver has it now.
    pub(crate) fn current_state(&self) -> QueuePairState {
        self.query(Mask::State).map_or_else(|_| self.cached_state(), |(attribute, _)| attribute.state())
    }

    pub(crate) fn modify(&self, attribute: &QueuePairAttribute) -> Result<(), ModifyQueuePairError> {
        let mut attr = *attribute.raw();
        // SAFETY: the QP is live, and the attributes are complete for the mask.
        let ret = unsafe { sys::ibv_modify_qp(self.raw(), &mut attr, attribute.mask().bits() as libc::c_int) };
        if ret == 0 { Ok(()) } else { Err(ModifyQueuePairError::diagnose(self, attribute, errno_of(ret))) }
    }

    pub(crate) fn query(&self, mask: Mask) -> Result<(QueuePairAttribute, QueuePairInitAttribute), VerbError> {
        // SAFETY: all-zero is legal for both: they have integers and pointers alone.
        let (mut attr, mut init): (ibv_qp_attr, ibv_qp_init_attr) = unsafe { mem::zeroed() };
        // SAFETY: the QP is live, and both structs are there to be filled.
        let ret = unsafe { sys::ibv_query_qp(self.raw(), &mut attr, mask.bits() as libc::c_int, &mut init) };
        check_errno("ibv_query_qp", ret)?;
        Ok((QueuePairAttribute::from_raw(attr, mask), QueuePairInitAttribute::from_raw(init)))
    }

    /// Destroys the queue pair and reports. Its owner has given up both queues but this hold.
    pub(crate) fn close(self: Arc<Self>) -> Result<(), VerbError> {
        Arc::into_inner(self).map_or(Ok(()), |mut core| core.destroy())
    }

    fn destroy(&mut self) -> Result<(), VerbError> {
        let Some(handle) = self.handle.take() else { return Ok(()) };
        self.context.objects().queue_pairs.remove(self.qp);
        // Where it fails, the queue pair lives on and points to the context: that is leaked with it.
        handle.close()?;
        if let Some(send_context) = self.send_context.take() {
            // SAFETY: the queue pair that pointed to it is gone, and nobody shares the core any more.
            unsafe { SendContext::free(send_context) };
        }
        Ok(())
    }
}

impl Drop for QueuePairCore {
    fn drop(&mut self) {
        if let Err(error) = self.destroy() {
            log::warn!("{error}; the queue pair is leaked");
        }
    }
}

/// The control methods, as inherent ones of a queue that was split off its pair.
macro_rules! control_methods {
    ($Queue:ty $(, $T:ident: $Bound:path)?) => {
        impl $(<$T: $Bound>)? $Queue {
            /// `ibv_modify_qp` on the queue pair: see [`QueuePair::modify`](crate::ibverbs::queue_pair::QueuePair::modify).
            ///
            /// # Errors
            ///
            /// As there.
            pub fn modify(
                &self,
                attribute: &crate::ibverbs::queue_pair::QueuePairAttribute,
            ) -> Result<(), crate::ibverbs::queue_pair::ModifyQueuePairError> {
                self.core().modify(attribute)
            }

            /// `ibv_query_qp` on the queue pair: see [`QueuePair::query`](crate::ibverbs::queue_pair::QueuePair::query).
            ///
            /// # Errors
            ///
            /// As there.
            pub fn query(
                &self,
                mask: crate::ibverbs::queue_pair::QueuePairAttributeMask,
            ) -> Result<
                (crate::ibverbs::queue_pair::QueuePairAttribute, crate::ibverbs::queue_pair::QueuePairInitAttribute),
                crate::error::VerbError,
            > {
                self.core().query(mask)
            }

            /// The state, as [`QueuePair::state`](crate::ibverbs::queue_pair::QueuePair::state).
            pub fn state(&self) -> crate::ibverbs::queue_pair::QueuePairState {
                self.core().cached_state()
            }

            /// The number by which peers address the queue pair, 24 bits.
            pub fn qp_number(&self) -> u32 {
                self.core().qp_number()
            }
        }
    };
}

control_methods!(crate::ibverbs::work_request::ReceiveQueue);
control_methods!(super::BasicSendQueue<T>, T: Service);
control_methods!(super::ExtendedSendQueue<T>, T: Service);
control_methods!(super::GenericSendQueue<T>, T: Service);
control_methods!(super::TargetQueuePair);
