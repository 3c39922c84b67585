//! The C object behind a queue pair, whatever its queues are, and what it keeps alive.

use std::any::Any;
use std::borrow::Cow;
use std::mem;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_qp, ibv_qp_attr, ibv_qp_init_attr};

use super::missing_operation::SendContext;
use super::multicast::Groups;
use super::packet_offloads::PacketOffloads;
use super::{
    ModifyQueuePairError, QueuePairAttribute, QueuePairAttributeMask as Mask, QueuePairInitAttribute, QueuePairState,
    QueuePairType, SendOperationFlags, TransitionTable,
};
use crate::error::{Errno, VerbError};
use crate::ffi::{Attachment, Handle, check_errno, errno_of};
use crate::ibverbs::completion::{CompletionQueueCore, Threads};
use crate::ibverbs::device_context::{DeviceCapabilityFlags, DeviceContext};
use crate::ibverbs::protection_domain::ProtectionDomain;
use crate::ibverbs::shared_receive_queue::SharedReceiveQueueCore;
use crate::ibverbs::work_queue::RwqIndirectionTable;
use crate::ibverbs::work_request::RefusalReason;
use crate::ibverbs::xrc_domain::XrcDomain;

/// The C object with everything that must outlive it; the two queues share it.
#[derive(Debug)]
pub struct QueuePairCore {
    qp: NonNull<ibv_qp>,
    /// Taken by who destroys the queue pair.
    handle: Option<Handle<ibv_qp>>,
    send_context: Option<NonNull<SendContext>>,
    /// What the send context has, where there is one.
    packets: Option<Arc<PacketOffloads>>,
    qp_type: QueuePairType,
    transitions: TransitionTable,
    /// It was built for requests to be sent.
    holds_sends: bool,
    atomic_writes: OnceLock<bool>,
    /// The multicast groups that it is in: C does not destroy a queue pair that is in one.
    pub(super) groups: Groups,
    // Behind the handle: they must outlive it.
    parents: Parents,
    /// Held while a verb changes what C keeps of the queue pair: the library writes it without a lock.
    control: Mutex<()>,
    /// What was attached to the queue pair.
    kept: Mutex<Vec<Kept>>,
    context: Arc<DeviceContext>,
}

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
        (qp_type, transitions, holds_sends): (QueuePairType, TransitionTable, bool),
        send_context: Option<NonNull<SendContext>>,
        mut parents: Parents,
        context: Arc<DeviceContext>,
    ) -> Arc<Self> {
        // SAFETY: the caller's promise; ibv_destroy_qp is the verb for it.
        let handle = Some(unsafe { Handle::new(qp, sys::ibv_destroy_qp, "ibv_destroy_qp") });
        // SAFETY: the caller's promise; nobody posts to the queue pair yet.
        let packets = send_context.map(|context| unsafe { SendContext::packets(context) });
        let threads = parents.threads();
        let (control, groups) = (Mutex::default(), Groups::default());
        let kept = Mutex::new(mem::take(&mut parents.kept));
        let core = Arc::new(Self {
            qp,
            handle,
            send_context,
            packets,
            qp_type,
            transitions,
            holds_sends,
            atomic_writes: OnceLock::new(),
            groups,
            parents,
            control,
            kept,
            context,
        });
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

    /// Why a basic queue pair refuses an atomic write: siw looks its opcode up in a table that ends before, and so a device has to
    /// report that it has them. It is asked until it has answered.
    #[cold]
    pub(super) fn refuses_atomic_write(&self) -> Option<RefusalReason> {
        let has = match self.atomic_writes.get() {
            Some(has) => *has,
            None => {
                let Ok(device) = self.context.query_device() else {
                    return Some(RefusalReason::Invalid(
                        "ibv_query_device_ex failed, which tells whether the device has atomic writes",
                    ));
                };
                let has = device.device_cap_flags().contains(DeviceCapabilityFlags::AtomicWrite);
                *self.atomic_writes.get_or_init(|| has)
            }
        };
        (!has).then_some(RefusalReason::NotOfDevice(SendOperationFlags::AtomicWrite))
    }

    /// Whether it was built for requests to be sent.
    pub(super) fn holds_sends(&self) -> bool {
        self.holds_sends
    }

    /// The state as the driver has it now.
    pub(crate) fn current_state(&self) -> QueuePairState {
        self.query(Mask::State).map_or_else(|_| self.cached_state(), |(attribute, _)| attribute.state())
    }

    pub(crate) fn modify(&self, attribute: &QueuePairAttribute) -> Result<(), ModifyQueuePairError> {
        // mlx5 looks the port up in an array of its own before it asks the kernel.
        if self.qp_type == QueuePairType::RawPacket && attribute.mask().contains(Mask::Port) {
            self.check_port(attribute)?;
        }
        let mut attr = *attribute.raw();
        // SAFETY: the QP is live, and the attributes are complete for the mask.
        let ret =
            self.alone(|| unsafe { sys::ibv_modify_qp(self.raw(), &mut attr, attribute.mask().bits() as libc::c_int) });
        if ret != 0 {
            return Err(ModifyQueuePairError::diagnose(self, attribute, errno_of(ret)));
        }
        if let (QueuePairType::RawPacket, true, Some(packets)) =
            (self.qp_type, attribute.mask().contains(Mask::Port), &self.packets)
        {
            packets.note_port(&self.context, attribute.port());
        }
        Ok(())
    }

    /// The same for who holds a part of the queue pair alone: not to Reset. A reset sets the driver's indices into its queues
    /// back; a batch that is being built meanwhile would go on where they were, and bring requests of the past to life.
    pub(crate) fn modify_part(&self, attribute: &QueuePairAttribute) -> Result<(), ModifyQueuePairError> {
        if attribute.mask().contains(Mask::State) && attribute.state() == QueuePairState::Reset {
            return Err(self.refuse(
                attribute,
                "a batch may be under construction elsewhere: a queue pair is reset by the Pair that has both its queues (Pair::join)",
            ));
        }
        self.modify(attribute)
    }

    /// Sees that there is such a port.
    fn check_port(&self, attribute: &QueuePairAttribute) -> Result<(), ModifyQueuePairError> {
        match self.context.query_device() {
            Ok(device) if !(1..=device.phys_port_cnt()).contains(&attribute.port().into()) => {
                let (port, ports) = (attribute.port(), device.phys_port_cnt());
                Err(self.refuse(attribute, format!("port {port} is asked for and the device has ports 1 to {ports}")))
            }
            Ok(_) => Ok(()),
            // Nobody knows what ports there are.
            Err(source) => Err(self.failed(attribute, source)),
        }
    }

    #[cold]
    fn refuse(&self, attribute: &QueuePairAttribute, hint: impl Into<Cow<'static, str>>) -> ModifyQueuePairError {
        self.failed(attribute, VerbError::invalid("ibv_modify_qp", hint))
    }

    #[cold]
    fn failed(&self, attribute: &QueuePairAttribute, source: VerbError) -> ModifyQueuePairError {
        let from = self.cached_state();
        let to = if attribute.mask().contains(Mask::State) { attribute.state() } else { from };
        ModifyQueuePairError::Verb { from, to, source }
    }

    pub(crate) fn query(&self, mask: Mask) -> Result<(QueuePairAttribute, QueuePairInitAttribute), VerbError> {
        // SAFETY: all-zero is legal for both: they have integers and pointers alone.
        let (mut attr, mut init): (ibv_qp_attr, ibv_qp_init_attr) = unsafe { mem::zeroed() };
        // SAFETY: the QP is live, and both structs are there to be filled.
        let ret =
            self.alone(|| unsafe { sys::ibv_query_qp(self.raw(), &mut attr, mask.bits() as libc::c_int, &mut init) });
        check_errno("ibv_query_qp", ret)?;
        Ok((QueuePairAttribute::from_raw(attr, mask), QueuePairInitAttribute::from_raw(init)))
    }

    /// Runs a verb that reads or writes what C keeps of the queue pair, with nobody beside it; gives what it returns.
    pub(super) fn alone(&self, mut verb: impl FnMut() -> libc::c_int) -> libc::c_int {
        let mut ret = 0;
        let mut run = || {
            let _alone = self.control.lock().unwrap_or_else(PoisonError::into_inner);
            ret = verb();
        };
        match &self.parents.attachment {
            // It moves the queue pair by itself, from whichever thread takes its events.
            Some(attachment) => attachment.apart(&mut run),
            None => run(),
        }
        ret
    }

    /// Destroys the queue pair and reports. Where a flow or an event holds it, it lives on, and is destroyed by the last of
    /// them.
    pub(crate) fn close(self: Arc<Self>) -> Result<(), VerbError> {
        match Arc::into_inner(self) {
            Some(mut core) => core.destroy(),
            None => Err(VerbError::new("ibv_destroy_qp", Errno::EBUSY)
                .with_hint("flows or asynchronous events hold the queue pair: it goes with the last of them")),
        }
    }

    fn destroy(&mut self) -> Result<(), VerbError> {
        let Some(handle) = self.handle.take() else { return Ok(()) };
        if let Some(attachment) = &self.parents.attachment {
            attachment.detach(self.qp);
        }
        self.leave_groups();
        // Where it fails, the queue pair lives on and points to the send context: that is leaked with it, and so is what it was
        // promised would outlive it, and a parent domain, to whose allocator's memory the device may still write.
        if let Err(error) = handle.close() {
            mem::forget(mem::take(self.kept.get_mut().unwrap_or_else(PoisonError::into_inner)));
            self.parents.pd.iter().for_each(ProtectionDomain::keep_parent_domain);
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
    /// What has the queue pair's address.
    pub(crate) attachment: Option<Arc<dyn Attachment<ibv_qp>>>,
    /// What a vendor's function made it from as well.
    pub(crate) kept: Vec<Kept>,
}

impl Parents {
    /// From which threads a queue pair made from them is used: ending it touches its completion queues, and in a thread domain
    /// it shares a doorbell.
    pub(super) fn threads(&self) -> Threads {
        let single = [&self.send_cq, &self.recv_cq].into_iter().flatten().any(|cq| cq.threads() == Threads::Single)
            || self.pd.as_ref().is_some_and(|pd| pd.has_thread_domain());
        if single { Threads::Single } else { Threads::Any }
    }
}

/// Something that must outlive a queue pair.
pub(crate) type Kept = Arc<dyn Any + Send + Sync>;
