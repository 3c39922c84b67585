//! What all kinds of queue pair share.

use std::any::Any;
use std::mem;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_qp, ibv_qp_attr, ibv_qp_init_attr};

use super::missing_operation::SendContext;
use super::multicast::Groups;
use super::{
    DataInOrder, DataInOrderFlags, Ece, ModifyQueuePairError, QueuePairAttribute, QueuePairAttributeMask as Mask,
    QueuePairInitAttribute, QueuePairState, QueuePairType, RateLimit, Service, TransitionTable,
};
use crate::error::{Errno, VerbError};
use crate::ffi::{Handle, check_errno, errno_of};
use crate::ibverbs::address::Gid;
use crate::ibverbs::completion::{CompletionQueueCore, Threads};
use crate::ibverbs::device_context::DeviceContext;
use crate::ibverbs::flow::{Flow, FlowRule};
use crate::ibverbs::protection_domain::ProtectionDomain;
use crate::ibverbs::shared_receive_queue::SharedReceiveQueueCore;
use crate::ibverbs::work_queue::RwqIndirectionTable;
use crate::ibverbs::work_request::{HoldsFor, PostRecvGuard, PostSendGuard, WorkRequestOperationType};
use crate::ibverbs::xrc_domain::XrcDomain;

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

    /// `ibv_attach_mcast(qp, gid, lid)` — takes part in a multicast group: datagrams to it arrive here too, in a receive
    /// each, once the queue pair is ready to receive. Attaching twice is no error.
    ///
    /// On Ethernet `lid` is 0 and the GID is that of an IP group ([`Gid::of_multicast_group`]). On InfiniBand both are those
    /// of the multicast member record, which joining gives (librdmacm's `rdma_join_multicast`).
    ///
    /// A queue pair that goes leaves the groups that it is in.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the queue pair is no datagram one, the GID is none of a group, or the LID not one of a group
    ///   (0xC000 to 0xFFFE, or 0 on Ethernet).
    /// - `ENOMEM`: the device has no room for another member or group.
    ///
    /// # References
    ///
    /// [ibv_attach_mcast(3)](https://man7.org/linux/man-pages/man3/ibv_attach_mcast.3.html)
    #[doc(alias = "ibv_attach_mcast")]
    fn attach_mcast(&self, gid: &Gid, lid: u16) -> Result<(), VerbError> {
        self.core().attach_mcast(gid, lid)
    }

    /// `ibv_detach_mcast(qp, gid, lid)` — leaves a multicast group.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the queue pair is not in this group.
    ///
    /// # References
    ///
    /// [ibv_attach_mcast(3)](https://man7.org/linux/man-pages/man3/ibv_attach_mcast.3.html)
    #[doc(alias = "ibv_detach_mcast")]
    fn detach_mcast(&self, gid: &Gid, lid: u16) -> Result<(), VerbError> {
        self.core().detach_mcast(gid, lid)
    }

    /// `ibv_create_flow(qp, flow)` — brings packets that match the rule to this queue pair, as long as the [`Flow`] lives.
    ///
    /// # Errors
    ///
    /// - `EPERM`: steering needs the capability `CAP_NET_RAW`.
    /// - `EOPNOTSUPP`: the device has no flow steering, or not this specification.
    /// - `EINVAL`: an action or counters of another device context; a port that is not there; specifications in an order, or
    ///   with values, that the driver does not take.
    /// - `ENOMEM`, `EEXIST`: no room for another rule; the same rule is there.
    ///
    /// # References
    ///
    /// [ibv_create_flow(3)](https://man7.org/linux/man-pages/man3/ibv_create_flow.3.html)
    #[doc(alias = "ibv_create_flow")]
    fn create_flow(&self, rule: &FlowRule) -> Result<Flow, VerbError> {
        self.core().create_flow(rule)
    }

    /// `ibv_query_ece(qp, ece)` — the enhanced connection establishment options of the queue pair: before a connection
    /// those that the device can do, to be sent to the peer; in ReadyToReceive and later those that are in use.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`: the device has none.
    ///
    /// # References
    ///
    /// [ibv_query_ece(3)](https://man7.org/linux/man-pages/man3/ibv_query_ece.3.html)
    #[doc(alias = "ibv_query_ece")]
    fn query_ece(&self) -> Result<Ece, VerbError> {
        self.core().query_ece()
    }

    /// `ibv_set_ece(qp, ece)` — asks for enhanced connection establishment options, to be used by the transitions that
    /// follow. What comes back is what was accepted of them.
    ///
    /// # Errors
    ///
    /// - `EOPNOTSUPP`: the device has none, or `vendor_id` is 0.
    /// - `EINVAL`: options of another vendor.
    ///
    /// # References
    ///
    /// [ibv_set_ece(3)](https://man7.org/linux/man-pages/man3/ibv_set_ece.3.html)
    #[doc(alias = "ibv_set_ece")]
    fn set_ece(&self, ece: Ece) -> Result<Ece, VerbError> {
        self.core().set_ece(ece)
    }

    /// `ibv_modify_qp_rate_limit(qp, attr)` — paces what the queue pair sends.
    ///
    /// # Errors
    ///
    /// - `EOPNOTSUPP`: the device has no packet pacing
    ///   ([`packet_pacing_caps`](crate::ibverbs::device_context::PacketPacingCapabilities)), or not for this service.
    /// - `EINVAL`: the queue pair is not in ReadyToSend, or a value is beyond what the device has.
    ///
    /// # References
    ///
    /// [ibv_modify_qp_rate_limit(3)](https://man7.org/linux/man-pages/man3/ibv_modify_qp_rate_limit.3.html)
    #[doc(alias = "ibv_modify_qp_rate_limit")]
    fn modify_rate_limit(&self, limit: &RateLimit) -> Result<(), VerbError> {
        self.core().modify_rate_limit(limit)
    }

    /// `ibv_query_qp_data_in_order(qp, op, flags)` — whether what this operation brings is written to memory of this side
    /// in order, so that a program may watch the memory instead of polling for the completion. The empty set promises
    /// nothing, and is the answer of devices and libraries that do not know.
    ///
    /// # References
    ///
    /// [ibv_query_qp_data_in_order(3)](https://man7.org/linux/man-pages/man3/ibv_query_qp_data_in_order.3.html)
    #[doc(alias = "ibv_query_qp_data_in_order")]
    fn query_data_in_order(&self, operation: WorkRequestOperationType, flags: DataInOrderFlags) -> DataInOrder {
        self.core().query_data_in_order(operation, flags)
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
    /// The multicast groups that it is in: C does not destroy a queue pair that is in one.
    pub(super) groups: Groups,
    // Behind the handle: they must outlive it.
    parents: Parents,
    /// What was attached to the queue pair.
    kept: Mutex<Vec<Kept>>,
    context: Arc<DeviceContext>,
}

/// What a queue pair is made from.
#[derive(Debug, Default)]
pub(crate) struct Parents {
    pub(crate) send_cq: Option<Arc<CompletionQueueCore>>,
    pub(crate) recv_cq: Option<Arc<CompletionQueueCore>>,
    pub(crate) srq: Option<Arc<SharedReceiveQueueCore>>,
    #[expect(dead_code, reason = "kept for its life alone")]
    pub(crate) xrcd: Option<Arc<XrcDomain>>,
    pub(crate) pd: Option<Arc<ProtectionDomain>>,
    #[expect(dead_code, reason = "kept for its life alone")]
    pub(crate) rwq_ind_table: Option<Arc<RwqIndirectionTable>>,
    /// What a vendor's function made it from as well.
    pub(crate) kept: Vec<Kept>,
}

impl Parents {
    /// From which threads a queue pair made from them is used: ending it touches its completion queues, and in a thread domain
    /// it shares a doorbell.
    fn threads(&self) -> Threads {
        let single = [&self.send_cq, &self.recv_cq].into_iter().flatten().any(|cq| cq.threads() == Threads::Single)
            || self.pd.as_ref().is_some_and(|pd| pd.has_thread_domain());
        if single { Threads::Single } else { Threads::Any }
    }
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
        mut parents: Parents,
        context: Arc<DeviceContext>,
    ) -> Arc<Self> {
        // SAFETY: the caller's promise; ibv_destroy_qp is the verb for it.
        let handle = Some(unsafe { Handle::new(qp, sys::ibv_destroy_qp, "ibv_destroy_qp") });
        let threads = parents.threads();
        let (kept, groups) = (Mutex::new(mem::take(&mut parents.kept)), Groups::default());
        let core = Arc::new(Self { qp, handle, send_context, qp_type, transitions, groups, parents, kept, context });
        // Events find a queue pair from any thread, and so must not find one that is bound to its own.
        if threads == Threads::Any {
            core.context.objects().queue_pairs.insert(qp, &core);
        }
        core
    }

    #[inline]
    pub(crate) fn raw(&self) -> *mut ibv_qp {
        self.qp.as_ptr()
    }

    /// Keeps something alive until the queue pair is gone.
    pub(crate) fn keep_alive(&self, kept: Kept) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).push(kept);
    }

    /// The same for public accessors.
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

    /// The same for who holds a part of the queue pair alone: not to Reset. A reset sets the driver's indices into its queues
    /// back; a batch that is being built meanwhile would go on where they were, and bring requests of the past to life.
    pub(crate) fn modify_part(&self, attribute: &QueuePairAttribute) -> Result<(), ModifyQueuePairError> {
        if attribute.mask().contains(Mask::State) && attribute.state() == QueuePairState::Reset {
            return Err(self.refuse_reset(
                "a batch may be under construction elsewhere: a queue pair is reset by the Pair that has both its queues (Pair::join)",
            ));
        }
        self.modify(attribute)
    }

    #[cold]
    fn refuse_reset(&self, hint: &'static str) -> ModifyQueuePairError {
        let (from, to) = (self.cached_state(), QueuePairState::Reset);
        ModifyQueuePairError::Verb { from, to, source: VerbError::invalid("ibv_modify_qp", hint) }
    }

    pub(crate) fn query(&self, mask: Mask) -> Result<(QueuePairAttribute, QueuePairInitAttribute), VerbError> {
        // SAFETY: all-zero is legal for both: they have integers and pointers alone.
        let (mut attr, mut init): (ibv_qp_attr, ibv_qp_init_attr) = unsafe { mem::zeroed() };
        // SAFETY: the QP is live, and both structs are there to be filled.
        let ret = unsafe { sys::ibv_query_qp(self.raw(), &mut attr, mask.bits() as libc::c_int, &mut init) };
        check_errno("ibv_query_qp", ret)?;
        Ok((QueuePairAttribute::from_raw(attr, mask), QueuePairInitAttribute::from_raw(init)))
    }

    /// Destroys the queue pair and reports. Where a flow or an event holds it, it lives on, and is destroyed by the last of
    /// them.
    pub(crate) fn close(self: Arc<Self>) -> Result<(), VerbError> {
        match Arc::into_inner(self) {
            Some(mut core) => core.destroy(),
            None => Err(VerbError::new("ibv_destroy_qp", Errno::from_raw(libc::EBUSY))
                .with_hint("flows or asynchronous events hold the queue pair: it goes with the last of them")),
        }
    }

    fn destroy(&mut self) -> Result<(), VerbError> {
        let Some(handle) = self.handle.take() else { return Ok(()) };
        self.leave_groups();
        // Where it fails, the queue pair lives on and points to the send context: that is leaked with it, and so is what it was
        // promised would outlive it, and a parent domain, to whose allocator's memory the device may still write.
        if let Err(error) = handle.close() {
            mem::forget(mem::take(self.kept.get_mut().unwrap_or_else(PoisonError::into_inner)));
            mem::forget(self.parents.pd.take_if(|pd| pd.is_parent_domain()));
            return Err(error);
        }
        self.context.objects().queue_pairs.remove(self.qp);
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
    ($Queue:ty $(, $T:ident: $Bound:path)?; $modify:ident$(: $limit:literal)?) => {
        impl $(<$T: $Bound>)? $Queue {
            /// `ibv_modify_qp` on the queue pair: see [`QueuePair::modify`](crate::ibverbs::queue_pair::QueuePair::modify).
            ///
            /// # Errors
            ///
            /// As there.
            $(#[doc = $limit])?
            pub fn modify(
                &self,
                attribute: &crate::ibverbs::queue_pair::QueuePairAttribute,
            ) -> Result<(), crate::ibverbs::queue_pair::ModifyQueuePairError> {
                self.core().$modify(attribute)
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

            /// `ibv_attach_mcast` on the queue pair: see
            /// [`QueuePair::attach_mcast`](crate::ibverbs::queue_pair::QueuePair::attach_mcast).
            ///
            /// # Errors
            ///
            /// As there.
            pub fn attach_mcast(
                &self,
                gid: &crate::ibverbs::address::Gid,
                lid: u16,
            ) -> Result<(), crate::error::VerbError> {
                self.core().attach_mcast(gid, lid)
            }

            /// `ibv_detach_mcast` on the queue pair: see
            /// [`QueuePair::detach_mcast`](crate::ibverbs::queue_pair::QueuePair::detach_mcast).
            ///
            /// # Errors
            ///
            /// As there.
            pub fn detach_mcast(
                &self,
                gid: &crate::ibverbs::address::Gid,
                lid: u16,
            ) -> Result<(), crate::error::VerbError> {
                self.core().detach_mcast(gid, lid)
            }

            /// `ibv_create_flow` on the queue pair: see
            /// [`QueuePair::create_flow`](crate::ibverbs::queue_pair::QueuePair::create_flow).
            ///
            /// # Errors
            ///
            /// As there.
            pub fn create_flow(
                &self,
                rule: &crate::ibverbs::flow::FlowRule,
            ) -> Result<crate::ibverbs::flow::Flow, crate::error::VerbError> {
                self.core().create_flow(rule)
            }

            /// `ibv_modify_qp_rate_limit` on the queue pair: see
            /// [`QueuePair::modify_rate_limit`](crate::ibverbs::queue_pair::QueuePair::modify_rate_limit).
            ///
            /// # Errors
            ///
            /// As there.
            pub fn modify_rate_limit(
                &self,
                limit: &crate::ibverbs::queue_pair::RateLimit,
            ) -> Result<(), crate::error::VerbError> {
                self.core().modify_rate_limit(limit)
            }
        }
    };
}

macro_rules! control_methods_of_parts {
    ($( $Queue:ty $(, $T:ident: $Bound:path)?; )+) => { $(
        control_methods!($Queue $(, $T: $Bound)?; modify_part: "`EINVAL` also for the transition to Reset, which is for who has both \
            queues: [`Pair`](crate::ibverbs::queue_pair::Pair). It would pull the queue from under a batch that another builds.");
    )+ };
}

control_methods_of_parts! {
    crate::ibverbs::work_request::ReceiveQueue;
    super::BasicSendQueue<T>, T: Service;
    super::ExtendedSendQueue<T>, T: Service;
    super::GenericSendQueue<T>, T: Service;
    super::QueuePairRef;
}
control_methods!(crate::ibverbs::xrc_domain::XrcReceiveQueuePair; modify);
control_methods!(crate::ibverbs::work_queue::RssQueuePair; modify);
control_methods!(super::TargetQueuePair; modify);
