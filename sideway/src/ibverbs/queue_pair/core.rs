//! The C object of a queue pair with any kind of queues, and the objects that it keeps alive.

use std::any::Any;
use std::borrow::Cow;
use std::mem;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_qp, ibv_qp_attr, ibv_qp_init_attr};

use super::multicast::Groups;
use super::packet_offloads::PacketOffloads;
use super::send_context::SendContext;
use super::{
    ModifyQueuePairError, QueuePairAttribute, QueuePairAttributeMask as Mask, QueuePairInitAttribute, QueuePairState,
    QueuePairType, SendOperationFlags, TransitionTable,
};
use crate::error::{Errno, VerbError};
use crate::ffi::{Attachment, Handle, check_errno, errno_of};
use crate::ibverbs::completion::{CompletionQueueCore, Threads};
use crate::ibverbs::device_context::{DeviceCapabilityFlags, DeviceContext};
use crate::ibverbs::flow::{Flow, FlowRule};
use crate::ibverbs::protection_domain::ProtectionDomain;
use crate::ibverbs::shared_receive_queue::SharedReceiveQueueCore;
use crate::ibverbs::work_request::RefusalReason;

/// What a queue pair is, regardless of its objects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    pub(crate) qp_type: QueuePairType,
    /// The transitions of the queue pair's service.
    pub(crate) transitions: TransitionTable,
    /// Whether the queue pair was built for send requests.
    pub(crate) holds_sends: bool,
}

/// The C object and everything that must outlive it. Both queues share this struct.
#[derive(Debug)]
pub struct QueuePairCore {
    qp: NonNull<ibv_qp>,
    /// `None` from the moment when the queue pair is destroyed.
    handle: Option<Handle<ibv_qp>>,
    send_context: Option<NonNull<SendContext>>,
    /// The packet offloads of the send context, if there is one.
    packets: Option<Arc<PacketOffloads>>,
    kind: Kind,
    atomic_writes: OnceLock<bool>,
    /// The multicast groups of the queue pair. They are recorded because C cannot destroy a queue pair that is in a
    /// group.
    pub(super) groups: Groups,
    // The objects from which the queue pair was created. Declared after the handle, because they must outlive it.
    parents: Parents,
    /// This lock is held while a verb changes the state that the C object stores, because the library writes it without
    /// a lock.
    control: Mutex<()>,
    /// Objects that must live as long as the queue pair.
    kept: Mutex<Vec<Kept>>,
    context: Arc<DeviceContext>,
}

// SAFETY: the handle is `Send` and `Sync` (see `Handle`). The send context is accessed only through the send queue,
// which `&mut` confines to one thread at a time. In addition, the last owner of the core frees it.
unsafe impl Send for QueuePairCore {}
// SAFETY: the reasons given for `Send` apply.
unsafe impl Sync for QueuePairCore {}

impl QueuePairCore {
    /// Takes ownership of a new queue pair.
    ///
    /// # Safety
    ///
    /// - `qp` was just created in `context` from all of `parents`, and has no other owner.
    /// - If there is a `send_context`, [`SendContext::allocate`] returned it, and it is the `qp_context` of `qp`.
    pub(crate) unsafe fn adopt(
        qp: NonNull<ibv_qp>,
        kind: Kind,
        send_context: Option<NonNull<SendContext>>,
        mut parents: Parents,
        context: Arc<DeviceContext>,
    ) -> Arc<Self> {
        // SAFETY: by the contract of this function, `qp` is new and has no other owner. ibv_destroy_qp destroys it.
        let handle = Some(unsafe { Handle::new(qp, sys::ibv_destroy_qp, "ibv_destroy_qp") });
        // SAFETY: by the contract of this function, `context` is valid. No request was posted to the queue pair yet.
        let packets = send_context.map(|context| unsafe { SendContext::packets(context) });
        let threads = parents.threads();
        let (control, groups) = (Mutex::default(), Groups::default());
        let kept = Mutex::new(mem::take(&mut parents.kept));
        let core = Arc::new(Self {
            qp,
            handle,
            send_context,
            packets,
            kind,
            atomic_writes: OnceLock::new(),
            groups,
            parents,
            control,
            kept,
            context,
        });
        // Any thread can take events, so an event must not give access to a queue pair that is confined to one thread.
        if threads == Threads::Any {
            core.context.objects().insert(qp, &core);
        }
        core
    }

    pub(crate) fn create_flow(self: &Arc<Self>, rule: &FlowRule) -> Result<Flow, VerbError> {
        let owner: Kept = Arc::<Self>::clone(self);
        // SAFETY: the core owns the queue pair, which belongs to this context.
        unsafe { Flow::create(self.raw(), owner, self.context(), rule) }
    }

    #[inline]
    pub(crate) fn raw(&self) -> *mut ibv_qp {
        self.qp.as_ptr()
    }

    /// Keeps an object alive until the queue pair is destroyed.
    pub(crate) fn keep_alive(&self, kept: Kept) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).push(kept);
    }

    /// Returns the C object for public accessors.
    pub(crate) fn as_non_null(&self) -> NonNull<ibv_qp> {
        self.qp
    }

    pub(crate) fn context(&self) -> &Arc<DeviceContext> {
        &self.context
    }

    /// Returns the objects from which the queue pair was created.
    pub(crate) fn parents(&self) -> &Parents {
        &self.parents
    }

    /// Returns the table of transitions of the queue pair's service.
    pub(crate) fn transitions(&self) -> TransitionTable {
        self.kind.transitions
    }

    pub(crate) fn qp_type(&self) -> QueuePairType {
        self.kind.qp_type
    }

    pub(crate) fn qp_number(&self) -> u32 {
        // SAFETY: the QP is live as long as the core, and the field is an aligned word. Some numbers (those of targets
        // of dynamic connections) are assigned only in a transition, which another thread may execute at the same time.
        let qp_num = unsafe { AtomicU32::from_ptr(&raw mut (*self.raw()).qp_num) };
        qp_num.load(Ordering::Relaxed)
    }

    pub(crate) fn cached_state(&self) -> QueuePairState {
        // SAFETY: the QP is live as long as the core, and the field is an aligned word. ibv_modify_qp on another thread
        // may write it in C code at the same time, so an atomic load returns either the old or the new state.
        let state = unsafe { AtomicU32::from_ptr((&raw mut (*self.raw()).state).cast()) };
        QueuePairState::from_raw(state.load(Ordering::Relaxed))
    }

    /// Returns the reason why a basic queue pair rejects an atomic write, if it does. The device must report support
    /// for atomic writes, because the siw driver would use the opcode as an index beyond the end of a table. If the
    /// query of the device fails, the next call repeats it.
    #[cold]
    pub(super) fn refuses_atomic_write(&self) -> Option<RefusalReason> {
        let has = match self.atomic_writes.get() {
            Some(has) => *has,
            None => {
                let Ok(device) = self.context.query_device() else {
                    return Some(RefusalReason::Invalid(
                        "cannot check support for atomic writes: ibv_query_device_ex failed",
                    ));
                };
                let has = device.device_cap_flags().contains(DeviceCapabilityFlags::AtomicWrite);
                *self.atomic_writes.get_or_init(|| has)
            }
        };
        (!has).then_some(RefusalReason::NotOfDevice(SendOperationFlags::AtomicWrite))
    }

    /// Whether the queue pair was built for send requests.
    pub(super) fn holds_sends(&self) -> bool {
        self.kind.holds_sends
    }

    /// Returns the driver's current state.
    pub(crate) fn current_state(&self) -> QueuePairState {
        self.query(Mask::State).map_or_else(|_| self.cached_state(), |(attribute, _)| attribute.state())
    }

    pub(crate) fn modify(&self, attribute: &QueuePairAttribute) -> Result<(), ModifyQueuePairError> {
        // The mlx5 driver uses the port as an index into an array before it calls the kernel.
        if self.kind.qp_type == QueuePairType::RawPacket && attribute.mask().contains(Mask::Port) {
            self.check_port(attribute)?;
        }
        let mut attr = *attribute.raw();
        // SAFETY: the QP is live, and the attributes are initialised according to their mask.
        let ret =
            self.alone(|| unsafe { sys::ibv_modify_qp(self.raw(), &mut attr, attribute.mask().bits() as libc::c_int) });
        if ret != 0 {
            return Err(ModifyQueuePairError::diagnose(self, attribute, errno_of(ret)));
        }
        if let (QueuePairType::RawPacket, true, Some(packets)) =
            (self.kind.qp_type, attribute.mask().contains(Mask::Port), &self.packets)
        {
            packets.note_port(&self.context, attribute.port());
        }
        Ok(())
    }

    /// Sets attributes on behalf of the owner of only one queue, and therefore rejects the state Reset. A reset sets
    /// the queue indices of the driver to zero. If the other owner is building a batch, that batch would continue at
    /// the old indices, and the device would execute old requests again.
    pub(crate) fn modify_part(&self, attribute: &QueuePairAttribute) -> Result<(), ModifyQueuePairError> {
        if attribute.mask().contains(Mask::State) && attribute.state() == QueuePairState::Reset {
            return Err(self.refuse(
                attribute,
                "another thread may be building a batch; reset the queue pair through the Pair of both queues \
                (Pair::join)",
            ));
        }
        self.modify(attribute)
    }

    /// Checks that the port exists.
    fn check_port(&self, attribute: &QueuePairAttribute) -> Result<(), ModifyQueuePairError> {
        match self.context.query_device() {
            Ok(device) if !(1..=device.phys_port_cnt()).contains(&attribute.port().into()) => {
                let (port, ports) = (attribute.port(), device.phys_port_cnt());
                Err(self.refuse(attribute, format!("there is no port {port}; use a port from 1 to {ports}")))
            }
            Ok(_) => Ok(()),
            // The query of the device failed, so the ports are unknown.
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
        // SAFETY: all zeros are a valid value of both structs, because they have only integers and pointers.
        let (mut attr, mut init): (ibv_qp_attr, ibv_qp_init_attr) = unsafe { mem::zeroed() };
        // SAFETY: the QP is live, and the call may write to both structs.
        let ret =
            self.alone(|| unsafe { sys::ibv_query_qp(self.raw(), &mut attr, mask.bits() as libc::c_int, &mut init) });
        check_errno("ibv_query_qp", ret)?;
        Ok((QueuePairAttribute::from_raw(attr, mask), QueuePairInitAttribute::from_raw(init)))
    }

    /// Runs a verb that needs exclusive access to the state that the C object stores. Returns the result of the verb.
    pub(super) fn alone(&self, mut verb: impl FnMut() -> libc::c_int) -> libc::c_int {
        let mut ret = 0;
        let mut run = || {
            let _alone = self.control.lock().unwrap_or_else(PoisonError::into_inner);
            ret = verb();
        };
        match &self.parents.attachment {
            // The attachment itself also changes the queue pair's state, on any thread that takes its events.
            Some(attachment) => attachment.apart(&mut run),
            None => run(),
        }
        ret
    }

    /// Destroys the queue pair. If a flow or an event still references it, the queue pair is destroyed when the last
    /// reference is dropped.
    pub(crate) fn close(self: Arc<Self>) -> Result<(), VerbError> {
        match Arc::into_inner(self) {
            Some(mut core) => core.destroy(),
            None => Err(VerbError::new("ibv_destroy_qp", Errno::EBUSY)
                .with_hint("flows or asynchronous events reference the queue pair; the last of them destroys it")),
        }
    }

    fn destroy(&mut self) -> Result<(), VerbError> {
        let Some(handle) = self.handle.take() else { return Ok(()) };
        if let Some(attachment) = &self.parents.attachment {
            attachment.detach(self.qp);
        }
        self.leave_groups();
        // If the verb fails, the queue pair continues to exist and to point to the send context. So the context is
        // leaked together with the queue pair. All objects that must outlive the queue pair are leaked too. One example
        // is a parent domain, because the device may still write to the memory of its allocator.
        if let Err(error) = handle.close() {
            mem::forget(mem::take(self.kept.get_mut().unwrap_or_else(PoisonError::into_inner)));
            self.parents.pd.iter().for_each(ProtectionDomain::keep_parent_domain);
            return Err(error);
        }
        self.context.objects().remove(self.qp);
        if let Some(send_context) = self.send_context.take() {
            // SAFETY: the queue pair that pointed to the context is destroyed, and the core is not shared any more.
            unsafe { SendContext::free(send_context) };
        }
        Ok(())
    }
}

impl Drop for QueuePairCore {
    fn drop(&mut self) {
        if let Err(error) = self.destroy() {
            rdma_mummy_sys::log!(warn, "{error}; the queue pair is leaked");
        }
    }
}

/// The objects from which a queue pair is created.
#[derive(Debug, Default)]
pub(crate) struct Parents {
    pub(crate) send_cq: Option<Arc<CompletionQueueCore>>,
    pub(crate) recv_cq: Option<Arc<CompletionQueueCore>>,
    pub(crate) srq: Option<Arc<SharedReceiveQueueCore>>,
    pub(crate) pd: Option<Arc<ProtectionDomain>>,
    /// The XRC domain, or the indirection table of work queues.
    #[expect(dead_code, reason = "held only to keep it alive")]
    pub(crate) origin: Option<Kept>,
    /// The C object that stores the queue pair's address.
    pub(crate) attachment: Option<Arc<dyn Attachment<ibv_qp>>>,
    /// Objects that a vendor's function needs as long as the queue pair lives.
    pub(crate) kept: Vec<Kept>,
}

impl Parents {
    /// Returns which threads may use the queue pair. It depends on the completion queues, which are accessed when the
    /// queue pair is destroyed, and on the domain, because queue pairs of a thread domain share a doorbell.
    pub(super) fn threads(&self) -> Threads {
        let single = [&self.send_cq, &self.recv_cq].into_iter().flatten().any(|cq| cq.threads() == Threads::Single)
            || self.pd.as_ref().is_some_and(|pd| pd.has_thread_domain());
        if single { Threads::Single } else { Threads::Any }
    }
}

/// An object that must outlive a queue pair.
pub(crate) type Kept = Arc<dyn Any + Send + Sync>;
