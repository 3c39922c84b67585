//! Building queue pairs.

use std::mem;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use rdma_mummy_sys as sys;
use rdma_mummy_sys::{
    ibv_context, ibv_cq, ibv_qp, ibv_qp_cap, ibv_qp_ex, ibv_qp_init_attr, ibv_qp_init_attr_ex,
    ibv_qp_init_attr_mask as mask, ibv_qp_type, ibv_srq,
};

use super::limits;
use super::mend;
use super::missing_operation;
use super::packet_offloads::SegmentHeaders;
use super::send_context::SendContext;
use super::send_room::unchecked_driver;
use super::{
    BasicQueuePair, BasicSendQueue, BasicService, ExtendedQueuePair, ExtendedSendQueue, GenericQueuePair, Kind, Maker,
    Parents, QueuePairBuilder, QueuePairCore, QueuePairType, SendOperationFlags, Service,
};
use crate::error::{Errno, VerbError};
use crate::ffi::check_pointer;
use crate::ibverbs::completion::CompletionQueueCore;
use crate::ibverbs::quirks::Driver;
use crate::ibverbs::shared_receive_queue::SharedReceiveQueueCore;
use crate::ibverbs::work_request::{ReceiveQueue, RefusalReason};

impl<T: BasicService> QueuePairBuilder<T> {
    /// `ibv_create_qp(pd, attr)` — builds a basic queue pair.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: a completion queue is missing or belongs to another device, or a value exceeds the device's limit.
    /// - `ENOMEM`: out of resources.
    ///
    /// # References
    ///
    /// [ibv_create_qp(3)](https://man7.org/linux/man-pages/man3/ibv_create_qp.3.html)
    #[doc(alias = "ibv_create_qp")]
    pub fn build(&self) -> Result<BasicQueuePair<T>, VerbError> {
        self.build_by(&Maker::verbs())
    }

    /// Builds a basic queue pair with the functions of `maker`.
    pub(crate) fn build_by(&self, maker: &Maker<'_>) -> Result<BasicQueuePair<T>, VerbError> {
        let parents = self.parents_by(maker, maker.verb)?;
        if self.needs_extended() {
            return self.build_basic_by_extended_verb(maker);
        }
        let mut attr = ibv_qp_init_attr {
            qp_context: ptr::null_mut(),
            send_cq: raw(&parents.send_cq),
            recv_cq: raw(&parents.recv_cq),
            srq: raw_srq(&parents.srq),
            cap: self.capabilities(),
            qp_type: ibv_qp_type(self.qp_type.raw()),
            sq_sig_all: self.sq_sig_all.into(),
        };
        // The domain and the queues are live and belong to one device. An XRC initiator needs no completion queue for
        // receives.
        let qp = (maker.create)(self.pd.raw(), &mut attr);
        let qp = check_pointer(maker.verb, qp).map_err(|error| self.explain(error))?;
        // SAFETY: the queue pair was just created from these parents, and has no other owner.
        unsafe { self.finish_basic(maker.verb, qp, parents) }
    }

    /// Builds a queue pair for the basic posting verbs, with attributes that `struct ibv_qp_init_attr` lacks.
    fn build_basic_by_extended_verb(&self, maker: &Maker<'_>) -> Result<BasicQueuePair<T>, VerbError> {
        let parents = self.parents_by(maker, maker.verb_ex)?;
        let mut attr = self.attributes_ex(&parents);
        // The domain and the queues are live and belong to one device. The attributes are initialised according to
        // their mask.
        let qp = (maker.create_ex)(self.pd.device_context().raw(), &mut attr);
        let qp = check_pointer(maker.verb_ex, qp).map_err(|error| self.explain(error))?;
        // SAFETY: the queue pair was just created from these parents, and has no other owner.
        unsafe { self.finish_basic(maker.verb_ex, qp, parents) }
    }

    /// # Safety
    ///
    /// `qp` was just created from `parents`, without a context, and has no other owner.
    unsafe fn finish_basic(
        &self,
        verb: &'static str,
        qp: NonNull<ibv_qp>,
        parents: Parents,
    ) -> Result<BasicQueuePair<T>, VerbError> {
        // SAFETY: the caller upholds the contract of this function.
        let core = unsafe { self.adopt(qp, None, parents) };
        // SAFETY: the builder's service is that of the queue pair.
        let send = unsafe { BasicSendQueue::new(verb, &core, &self.cap)? };
        Ok(BasicQueuePair::new(send, self.receive_queue(verb, &core)?))
    }

    /// Builds an extended queue pair if the device supports the requested operations and its driver is known to check
    /// for overflow ([`assume_send_room`](Self::assume_send_room)). Otherwise builds a basic queue pair.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`build`](Self::build).
    pub fn build_generic(&self) -> Result<GenericQueuePair<T>, VerbError> {
        self.build_generic_by(&Maker::verbs())
    }

    /// Builds a queue pair of either kind with the functions of `maker`.
    pub(crate) fn build_generic_by(&self, maker: &Maker<'_>) -> Result<GenericQueuePair<T>, VerbError> {
        match self.build_extended(maker) {
            Ok((qp, true)) => {
                // The extended queue pair is destroyed first, because an identifier cannot have two queue pairs.
                drop(qp);
                Ok(self.build_by(maker)?.into())
            }
            Ok((qp, false)) => Ok(qp.into()),
            Err(error) if matches!(error.errno().raw(), libc::EOPNOTSUPP | libc::ENOSYS) => {
                Ok(self.build_by(maker)?.into())
            }
            Err(error) => Err(error),
        }
    }

    /// `ibv_create_qp_ex(context, attr)` — builds an extended queue pair. A program that runs on several drivers calls
    /// [`build_generic`](Self::build_generic) instead: this function succeeds on softrnic and soft-RoCE, but on mlx5
    /// only after [`assume_send_room`](Self::assume_send_room).
    ///
    /// # Errors
    ///
    /// - `EOPNOTSUPP`, `ENOSYS`: the device does not support extended queue pairs or the requested operations. Or its
    ///   driver does not check the send queue for overflow ([`assume_send_room`](Self::assume_send_room)).
    /// - Otherwise the errors of [`build`](Self::build).
    ///
    /// # References
    ///
    /// [ibv_create_qp_ex(3)](https://man7.org/linux/man-pages/man3/ibv_create_qp_ex.3.html),
    /// [ibv_wr_post(3)](https://man7.org/linux/man-pages/man3/ibv_wr_post.3.html)
    #[doc(alias = "ibv_create_qp_ex")]
    pub fn build_ex(&self) -> Result<ExtendedQueuePair<T>, VerbError> {
        self.build_ex_by(&Maker::verbs())
    }

    /// Builds an extended queue pair with the functions of `maker`.
    pub(crate) fn build_ex_by(&self, maker: &Maker<'_>) -> Result<ExtendedQueuePair<T>, VerbError> {
        self.build_extended(maker).map(|(qp, _mended)| qp)
    }

    /// Builds an extended queue pair. Also returns whether it needed a workaround for a driver fault.
    fn build_extended(&self, maker: &Maker<'_>) -> Result<(ExtendedQueuePair<T>, bool), VerbError> {
        let all = self.operations.unwrap_or_else(|| SendOperationFlags::of_transport(self.qp_type));
        let make = |operations| {
            let parents = self.parents_by(maker, maker.verb_ex)?;
            self.create_extended(maker.verb_ex, parents, operations, maker.create_ex, |_| Ok(()))
                .map_err(|error| self.explain_extended(error, operations, maker.instead))
        };
        match make(all) {
            Err(error)
                if self.operations.is_none()
                    && all.intersects(SendOperationFlags::ATOMICS)
                    && matches!(error.errno().raw(), libc::EOPNOTSUPP | libc::EINVAL) =>
            {
                let fewer = all.difference(SendOperationFlags::ATOMICS);
                // If the second attempt fails with another errno, return the second error, because the first one was
                // caused only by the atomics.
                make(fewer).map_err(|second| if second.errno() == error.errno() { error } else { second })
            }
            result => result,
        }
    }
}

impl<T: Service> QueuePairBuilder<T> {
    /// Builds an extended queue pair with a vendor's function instead of `ibv_create_qp_ex`, such as `mlx5dv_create_qp`
    /// or `efadv_create_qp_ex` with the vendor's attributes. `verb` is the function's name for errors.
    ///
    /// After the queue pair was created, `attach` is called with it. `attach` checks that the vendor's functions exist.
    /// It returns the data that the addresses of the service later obtain with
    /// [`vendor_data`](SendContext::vendor_data), or `()` if the service needs no such data. If `attach` fails, the
    /// queue pair is destroyed.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: a completion queue is missing, or belongs to another device.
    /// - If `create` returns null, the errno that it set.
    /// - The error that `attach` returned.
    ///
    /// # Safety
    ///
    /// - `create` behaves like `ibv_create_qp_ex` with the given attributes. It may change the attributes that its
    ///   documentation names, except `qp_context`, the domain and the completion queues. It changes no other
    ///   attributes. It returns null or a new queue pair of the service `T` that no other code owns. The functions of
    ///   operations that the attributes do not request are null or callable.
    /// - The queue pair uses no object that is destroyed before it; see [`setup_kept`](Self::setup_kept).
    /// - `attach` returns the data that the addresses of `T` expect.
    /// - `attach` does not post requests, and does not change the functions or the `qp_context` of the queue pair.
    #[cfg_attr(not(any(feature = "efa", feature = "mlx5")), expect(dead_code, reason = "vendors use it"))]
    pub(crate) unsafe fn build_with<D: Send + 'static>(
        &self,
        verb: &'static str,
        create: impl FnOnce(*mut ibv_context, &mut ibv_qp_init_attr_ex) -> *mut ibv_qp,
        attach: impl FnOnce(NonNull<ibv_qp_ex>) -> Result<D, VerbError>,
    ) -> Result<ExtendedQueuePair<T>, VerbError> {
        let operations = self.operations.unwrap_or_else(|| SendOperationFlags::of_transport(self.qp_type));
        self.create_extended(verb, self.parents(verb)?, operations, create, attach).map(|(qp, _mended)| qp)
    }

    fn create_extended<D: Send + 'static>(
        &self,
        verb: &'static str,
        parents: Parents,
        operations: SendOperationFlags,
        create: impl FnOnce(*mut ibv_context, &mut ibv_qp_init_attr_ex) -> *mut ibv_qp,
        attach: impl FnOnce(NonNull<ibv_qp_ex>) -> Result<D, VerbError>,
    ) -> Result<(ExtendedQueuePair<T>, bool), VerbError> {
        if !self.assumes_send_room
            && let Some(driver) = unchecked_driver(self.pd.device_context())
        {
            return Err(unusable(
                verb,
                &format!(
                    "{driver} does not check an extended send queue for overflow, and \
                    QueuePairBuilder::assume_send_room was not called"
                ),
            ));
        }
        let driver = Driver::of(self.pd.device_context());
        if let Some(reason) = driver.refuses_extended() {
            return Err(unusable(verb, reason));
        }
        let segments = operations.contains(SendOperationFlags::TcpSegmentationOffload);
        let headers = SegmentHeaders(segments.then_some(self.max_tso_header));
        let send_context = SendContext::allocate(headers, self.cap.max_send_wr);
        let mut attr = self.attributes_ex(&parents);
        attr.qp_context = send_context.as_ptr().cast();
        attr.comp_mask |= mask::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS.0;
        attr.send_ops_flags = operations.bits();
        let qp = create(self.pd.device_context().raw(), &mut attr);
        let qp = match check_pointer(verb, qp) {
            Ok(qp) => qp,
            Err(error) => {
                // SAFETY: no queue pair was created that could point to it.
                unsafe { SendContext::free(send_context) };
                return Err(self.explain(error));
            }
        };
        // SAFETY: the queue pair was just created from these parents and this context.
        let core = unsafe { self.adopt(qp, Some(send_context), parents) };
        // SAFETY: the queue pair is live.
        let extended = unsafe { sys::ibv_qp_to_qp_ex(qp.as_ptr()) };
        let Some(extended) = NonNull::new(extended) else {
            return Err(unusable(verb, "ibv_qp_to_qp_ex returned no extended queue pair"));
        };
        // SAFETY: the queue pair is live, and no request was posted to it. Its context is a SendContext. The library
        // has accepted the operations.
        let mended = unsafe {
            // A queue of capacity zero must reject all requests. Otherwise, drivers would write to memory that they did
            // not allocate.
            let refuse_all = self.cap.max_send_wr == 0;
            let data = attach(extended)?;
            missing_operation::fill_in(extended.as_ptr(), refuse_all).map_err(|name| {
                unusable(verb, &format!("the driver created the queue pair without the function {name}"))
            })?;
            missing_operation::take_later(extended.as_ptr(), operations, refuse_all);
            if self.cap.max_send_sge == 0 {
                missing_operation::refuse_entries(extended.as_ptr());
            }
            SendContext::keep_vendor_data(extended.as_ptr(), data, refuse_all);
            let mended = mend::mend(driver, extended.as_ptr());
            if !driver.compares_lengths() {
                limits::enforce(extended.as_ptr(), &self.cap);
            }
            mended
        };
        // SAFETY: `extended` is the queue pair of `core` and has the builder's service. None of its functions is null
        // any more.
        let send = unsafe { ExtendedSendQueue::new(extended, &core) };
        Ok((ExtendedQueuePair::new(send, self.receive_queue(verb, &core)?), mended))
    }

    pub(super) fn attributes_ex(&self, parents: &Parents) -> ibv_qp_init_attr_ex {
        // SAFETY: all zeros are a valid value, because the struct has only integers and pointers.
        let mut attr: ibv_qp_init_attr_ex = unsafe { mem::zeroed() };
        attr.send_cq = raw(&parents.send_cq);
        attr.recv_cq = raw(&parents.recv_cq);
        attr.srq = raw_srq(&parents.srq);
        attr.cap = self.capabilities();
        attr.qp_type = ibv_qp_type(self.qp_type.raw());
        attr.sq_sig_all = self.sq_sig_all.into();
        attr.comp_mask = mask::IBV_QP_INIT_ATTR_PD.0;
        attr.pd = self.pd.raw();
        if self.max_tso_header > 0 {
            attr.comp_mask |= mask::IBV_QP_INIT_ATTR_MAX_TSO_HEADER.0;
            attr.max_tso_header = self.max_tso_header;
        }
        if !self.create_flags.is_empty() {
            attr.comp_mask |= mask::IBV_QP_INIT_ATTR_CREATE_FLAGS.0;
            attr.create_flags = self.create_flags.bits();
            attr.source_qpn = self.source_qpn;
        }
        attr
    }

    /// Whether the builder requests attributes that `struct ibv_qp_init_attr` lacks.
    fn needs_extended(&self) -> bool {
        self.max_tso_header > 0 || !self.create_flags.is_empty()
    }

    /// Returns the requested capacities. Those that queue pairs of this type do not have are 0.
    fn capabilities(&self) -> ibv_qp_cap {
        if self.is_xrc_send() { ibv_qp_cap { max_recv_wr: 0, max_recv_sge: 0, ..self.cap } } else { self.cap }
    }

    /// Takes ownership of a new queue pair.
    ///
    /// # Safety
    ///
    /// The contract of [`QueuePairCore::adopt`] applies.
    pub(super) unsafe fn adopt(
        &self,
        qp: NonNull<ibv_qp>,
        send_context: Option<NonNull<SendContext>>,
        parents: Parents,
    ) -> Arc<QueuePairCore> {
        self.warn_of_small_queues(&parents);
        // SAFETY: the caller upholds the contract of this function.
        unsafe {
            let context = Arc::clone(self.pd.device_context());
            let holds_sends = self.cap.max_send_wr > 0;
            let kind = Kind { qp_type: self.qp_type, transitions: T::transition, holds_sends };
            QueuePairCore::adopt(qp, kind, send_context, parents, context)
        }
    }

    /// Logs a warning if a completion queue has fewer entries than the queue pair can have outstanding requests. Such a
    /// queue may overrun unless the program limits the number of its requests.
    fn warn_of_small_queues(&self, parents: &Parents) {
        let receives = if parents.srq.is_some() { 0 } else { self.capabilities().max_recv_wr };
        let (sends, receives) = (u64::from(self.cap.max_send_wr), u64::from(receives));
        let is_one =
            matches!((&parents.send_cq, &parents.recv_cq), (Some(one), Some(other)) if Arc::ptr_eq(one, other));
        let needed = if is_one { [sends + receives, 0] } else { [sends, receives] };
        for (cq, needed) in [&parents.send_cq, &parents.recv_cq].into_iter().zip(needed) {
            if let Some(cq) = cq.as_ref().filter(|cq| u64::from(cq.cqe()) < needed) {
                rdma_mummy_sys::log!(
                    warn,
                    "a completion queue of {} entries may overrun: its queue pair can have {needed} requests \
                    outstanding; build a larger one with CompletionQueueBuilder::setup_cqe",
                    cq.cqe()
                );
            }
        }
    }

    fn receive_queue(&self, verb: &'static str, core: &Arc<QueuePairCore>) -> Result<ReceiveQueue, VerbError> {
        if self.is_xrc_send() {
            return ReceiveQueue::refusing(verb, core, RefusalReason::NoReceives);
        }
        if self.srq.is_some() {
            return ReceiveQueue::refusing(verb, core, RefusalReason::ReceivesAreShared);
        }
        ReceiveQueue::new(verb, core, self.cap.max_recv_wr, self.cap.max_recv_sge)
    }

    pub(super) fn is_xrc_send(&self) -> bool {
        self.qp_type == QueuePairType::ReliableConnectionExtendedSend
    }

    fn parents_by(&self, maker: &Maker<'_>, verb: &'static str) -> Result<Parents, VerbError> {
        Ok(Parents { attachment: maker.attachment.clone(), ..self.parents(verb)? })
    }

    #[cold]
    pub(super) fn explain(&self, error: VerbError) -> VerbError {
        if !matches!(error.errno().raw(), libc::EINVAL | libc::ENOMEM) {
            return error;
        }
        let Ok(device) = self.pd.device_context().query_device() else { return error };
        let cap = &self.cap;
        let most_wr = cap.max_send_wr.max(cap.max_recv_wr);
        let most_sge = cap.max_send_sge.max(cap.max_recv_sge);
        if most_wr > device.max_qp_wr() {
            return error.with_hint(format!(
                "{most_wr} requests exceed the device's limit of {}; request less",
                device.max_qp_wr()
            ));
        }
        if most_sge > device.max_sge() {
            return error.with_hint(format!(
                "{most_sge} entries exceed the device's limit of {}; request less",
                device.max_sge()
            ));
        }
        if cap.max_inline_data > 0 && error.errno().raw() == libc::EINVAL {
            return error.with_hint(format!(
                "{} bytes of inline data may exceed the device's limit, which it does not report; request less",
                cap.max_inline_data
            ));
        }
        error
    }

    #[cold]
    fn explain_extended(&self, error: VerbError, operations: SendOperationFlags, instead: &str) -> VerbError {
        let hint = match (error.errno().raw(), error.hint()) {
            (libc::EOPNOTSUPP, Some(hint)) => format!("{hint}; {instead}"),
            (libc::EOPNOTSUPP | libc::ENOSYS, None) => format!(
                "the device or its driver does not support extended queue pairs, or {operations:?} on {:?}; {instead}",
                self.qp_type
            ),
            _ => return error,
        };
        error.with_hint(hint)
    }
}

fn raw(queue: &Option<Arc<CompletionQueueCore>>) -> *mut ibv_cq {
    queue.as_ref().map_or(ptr::null_mut(), |queue| queue.raw())
}

fn raw_srq(srq: &Option<Arc<SharedReceiveQueueCore>>) -> *mut ibv_srq {
    srq.as_ref().map_or(ptr::null_mut(), |srq| srq.raw())
}

#[cold]
fn unusable(verb: &'static str, what: &str) -> VerbError {
    VerbError::new(verb, Errno::EOPNOTSUPP).with_hint(what.to_owned())
}
