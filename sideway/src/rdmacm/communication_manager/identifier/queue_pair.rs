//! Queue pairs that are created through an identifier.

use std::mem;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use libc::c_int;
use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_context, ibv_pd, ibv_qp, ibv_qp_init_attr, ibv_qp_init_attr_ex, ibv_qp_type, rdma_cm_id};

use super::{Identifier, not_on_a_device, verbs};
use crate::error::VerbError;
use crate::ffi::Attachment;
use crate::ibverbs::queue_pair::{
    BasicQueuePair, BasicService, ExtendedQueuePair, GenericQueuePair, Maker, QueuePairBuilder, QueuePairType,
};
use crate::ibverbs::shared_receive_queue::{SharedReceiveQueueCore, SharedReceiveQueueType};

const VERB: &str = "rdma_create_qp";
const EX: &str = "rdma_create_qp_ex";

impl Identifier {
    /// `rdma_create_qp(id, pd, qp_init_attr)` — creates a basic queue pair from the builder. The identifier moves the
    /// queue pair through its states: to Init in this call, to ReadyToSend while connecting, and to the Error state in
    /// [`disconnect`](Self::disconnect). A queue pair for datagrams is ready to send when this call returns.
    ///
    /// The builder's domain must belong to [`get_device_context`](Self::get_device_context). If the builder has no
    /// shared receive queue, the queue pair uses the shared receive queue that was created through the identifier, if
    /// there is one and it is not an XRC queue.
    ///
    /// The queue pair keeps the identifier alive. When the queue pair is destroyed ([`rdma_destroy_qp`] in C, which
    /// reports no errors), the identifier first leaves its multicast groups and drops its reference to the queue pair.
    ///
    /// The call runs the domain's [allocator](crate::ibverbs::parent_domain::DomainAllocator), if it has one. The
    /// allocator must not use the identifier or its channel, which would deadlock.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the identifier has no device, or its device is not that of the builder's domain, or it already has a
    ///   queue pair. Or the identifier is for datagrams and the queue pair for connections, or vice versa. Or the
    ///   identifier belongs to a connect request, and the peer has given up.
    /// - Otherwise the errors of [`QueuePairBuilder::build`], or those of the transition.
    ///
    /// # References
    ///
    /// [rdma_create_qp(3)](https://man7.org/linux/man-pages/man3/rdma_create_qp.3.html)
    ///
    /// [`rdma_destroy_qp`]: https://man7.org/linux/man-pages/man3/rdma_destroy_qp.3.html
    #[doc(alias = "rdma_create_qp")]
    #[doc(alias = "rdma_destroy_qp")]
    pub fn create_qp<T: BasicService>(
        self: &Arc<Self>,
        builder: &QueuePairBuilder<T>,
    ) -> Result<BasicQueuePair<T>, VerbError> {
        self.make(VERB, builder, |builder, maker| builder.build_by(maker))
    }

    /// `rdma_create_qp_ex(id, qp_init_attr)` — creates an extended queue pair, in the same way as
    /// [`create_qp`](Self::create_qp).
    ///
    /// # Errors
    ///
    /// The errors are those of [`create_qp`](Self::create_qp) and [`QueuePairBuilder::build_ex`].
    ///
    /// # References
    ///
    /// [rdma_create_qp(3)](https://man7.org/linux/man-pages/man3/rdma_create_qp.3.html)
    #[doc(alias = "rdma_create_qp_ex")]
    pub fn create_qp_ex<T: BasicService>(
        self: &Arc<Self>,
        builder: &QueuePairBuilder<T>,
    ) -> Result<ExtendedQueuePair<T>, VerbError> {
        self.make(EX, builder, |builder, maker| builder.build_ex_by(maker))
    }

    /// Creates an extended queue pair if the device supports such queue pairs and its driver has no known faults.
    /// Otherwise creates a basic queue pair.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`create_qp`](Self::create_qp).
    pub fn create_qp_generic<T: BasicService>(
        self: &Arc<Self>,
        builder: &QueuePairBuilder<T>,
    ) -> Result<GenericQueuePair<T>, VerbError> {
        self.make(EX, builder, |builder, maker| builder.build_generic_by(maker))
    }

    /// Whether a queue pair was created through the identifier.
    pub(in crate::rdmacm) fn has_queue_pair(&self) -> bool {
        // SAFETY: the identifier is live and locked.
        self.with(|id| unsafe { !(*id).qp.is_null() })
    }

    fn make<T: BasicService, Q>(
        self: &Arc<Self>,
        verb: &'static str,
        builder: &QueuePairBuilder<T>,
        build: impl FnOnce(&QueuePairBuilder<T>, &Maker<'_>) -> Result<Q, VerbError>,
    ) -> Result<Q, VerbError> {
        self.check_builder(verb, builder)?;
        let mut with_srq = None;
        // The sender of a message selects an XRC queue, so a queue pair cannot be created with one.
        let feeds = |srq: &SharedReceiveQueueCore| {
            !builder.has_srq()
                && builder.qp_type() != QueuePairType::ReliableConnectionExtendedSend
                && srq.srq_type() != SharedReceiveQueueType::ReliableConnectionExtended
        };
        let builder = match self.made_srq().filter(|srq| feeds(srq)) {
            Some(srq) => with_srq.insert(builder.with_srq(srq)),
            None => builder,
        };
        let create = |pd: *mut ibv_pd, attr: &mut ibv_qp_init_attr| {
            // SAFETY: the identifier is live and on the device of the domain, and the builder initialised the
            // attributes.
            self.new_qp(|id| unsafe { sys::rdma_create_qp(id, pd, attr) })
        };
        let create_ex = |_: *mut ibv_context, attr: &mut ibv_qp_init_attr_ex| {
            // SAFETY: as above; the attributes contain the domain.
            self.new_qp(|id| unsafe { sys::rdma_create_qp_ex(id, attr) })
        };
        // SAFETY: the functions create the queue pair with the attributes and move it to its next state. The identifier
        // stores the address of the queue pair, and is the attachment.
        let maker =
            unsafe { Maker::new((VERB, &create), (EX, &create_ex), Arc::clone(self) as Arc<dyn Attachment<ibv_qp>>) };
        build(builder, &maker).map_err(|error| match error.errno().raw() {
            // The kernel takes the attributes for Init from its state of the request. That state no longer exists if
            // the peer has given up.
            libc::EINVAL if self.is_request() && error.hint().is_none() => {
                error.with_hint("the peer may have given up")
            }
            _ => error,
        })
    }

    /// Returns the queue pair that `call` created, or null with errno set.
    fn new_qp(&self, call: impl FnOnce(*mut rdma_cm_id) -> c_int) -> *mut ibv_qp {
        self.with(|id| {
            // SAFETY: the identifier is live and locked.
            let has_one = |id: *mut rdma_cm_id| unsafe { !(*id).qp.is_null() };
            if has_one(id) {
                // SAFETY: this writes the errno of this thread.
                unsafe { *libc::__errno_location() = libc::EINVAL };
                return ptr::null_mut();
            }
            // SAFETY: as above. If the attributes name no shared receive queue, the library would use the queue of the
            // identifier. That queue may be about to be destroyed (the identifier refers to it until `detach`), and the
            // queue pair would neither record it nor keep it alive. So the queue is removed from the identifier during
            // this call.
            unsafe {
                let srq = mem::replace(&mut (*id).srq, ptr::null_mut());
                let ret = call(id);
                (*id).srq = srq;
                if ret == 0 { (*id).qp } else { ptr::null_mut() }
            }
        })
    }

    /// Refuses input with which the library would crash, or would fail with EINVAL without a reason.
    fn check_builder<T>(self: &Arc<Self>, verb: &'static str, builder: &QueuePairBuilder<T>) -> Result<(), VerbError>
    where
        T: BasicService,
    {
        // SAFETY: the identifier is live and locked.
        let (context, qp, qp_type) = self.with(|id| unsafe { (verbs(id), (*id).qp, (*id).qp_type) });
        let context = context.ok_or_else(|| not_on_a_device(verb))?;
        if builder.protection_domain().device_context().raw() != context.as_ptr() {
            return Err(VerbError::invalid(
                verb,
                "the protection domain belongs to another device context than the identifier; allocate it from \
                Identifier::get_device_context",
            ));
        }
        if !qp.is_null() {
            return Err(VerbError::invalid(verb, "the identifier already has a queue pair; create another identifier"));
        }
        let wants_datagrams = qp_type == ibv_qp_type::IBV_QPT_UD;
        if wants_datagrams != (builder.qp_type() == QueuePairType::UnreliableDatagram) {
            return Err(VerbError::invalid(
                verb,
                if wants_datagrams {
                    "this port space is for datagrams; use ProtectionDomain::create_ud_qp_builder"
                } else {
                    "this port space is for connections, and the queue pair is for datagrams; create the identifier \
                    in PortSpace::Udp"
                },
            ));
        }
        Ok(())
    }
}

impl Attachment<ibv_qp> for Identifier {
    fn detach(&self, qp: NonNull<ibv_qp>) {
        self.with_channel(|id, channel| {
            // SAFETY: the identifier is live and locked.
            if unsafe { (*id).qp } != qp.as_ptr() {
                return;
            }
            // The library has attached the queue pair to the groups, and the kernel does not destroy a queue pair that
            // is attached to one.
            self.leave_all(id, channel);
            // SAFETY: as above.
            unsafe { (*id).qp = ptr::null_mut() };
        });
    }
    fn apart(&self, run: &mut dyn FnMut()) {
        self.with(|_| run());
    }
}
