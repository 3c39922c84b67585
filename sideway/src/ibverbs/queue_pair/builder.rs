//! Making queue pairs.

use std::mem;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use libc::c_int;
use rdma_mummy_sys as sys;
use rdma_mummy_sys::{
    ibv_qp, ibv_qp_cap, ibv_qp_init_attr, ibv_qp_init_attr_ex, ibv_qp_init_attr_mask, ibv_qp_type, ibv_srq,
};

use super::missing_operation::{self, SendContext};
use super::{
    BasicQueuePair, BasicSendQueue, ExtendedQueuePair, ExtendedSendQueue, GenericQueuePair, Parents, QueuePairCore,
    QueuePairType, SendOperationFlags,
};
use crate::error::{Errno, VerbError};
use crate::ffi::check_pointer;
use crate::ibverbs::completion::{CompletionQueue, CompletionQueueCore};
use crate::ibverbs::protection_domain::ProtectionDomain;
use crate::ibverbs::quirks;
use crate::ibverbs::shared_receive_queue::{SharedReceiveQueue, SharedReceiveQueueCore, SharedReceiveQueueType};
use crate::ibverbs::work_request::{ReceiveQueue, RefusalReason};

/// Makes queue pairs. Unless set: reliable connection, 16 requests and 1 entry a list on either side, no inline data, not
/// every send signaled.
#[derive(Debug)]
pub struct QueuePairBuilder {
    pd: Arc<ProtectionDomain>,
    qp_type: QueuePairType,
    cap: ibv_qp_cap,
    sq_sig_all: bool,
    send_cq: Option<Arc<CompletionQueueCore>>,
    recv_cq: Option<Arc<CompletionQueueCore>>,
    srq: Option<Arc<SharedReceiveQueueCore>>,
    operations: Option<SendOperationFlags>,
}

impl QueuePairBuilder {
    /// A builder in this domain.
    pub fn new(pd: &Arc<ProtectionDomain>) -> Self {
        Self {
            pd: Arc::clone(pd),
            qp_type: QueuePairType::ReliableConnection,
            cap: ibv_qp_cap { max_send_wr: 16, max_recv_wr: 16, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 },
            sq_sig_all: false,
            send_cq: None,
            recv_cq: None,
            srq: None,
            operations: None,
        }
    }

    /// The transport service: reliable or unreliable connection, or raw packets. The others need address handles or
    /// further verbs that this version of the crate does not wrap yet; building them is refused.
    pub fn setup_qp_type(&mut self, qp_type: QueuePairType) -> &mut Self {
        self.qp_type = qp_type;
        self
    }

    /// Send requests that can be outstanding.
    pub fn setup_max_send_wr(&mut self, max_send_wr: u32) -> &mut Self {
        self.cap.max_send_wr = max_send_wr;
        self
    }

    /// Receive requests that can be outstanding.
    pub fn setup_max_recv_wr(&mut self, max_recv_wr: u32) -> &mut Self {
        self.cap.max_recv_wr = max_recv_wr;
        self
    }

    /// Entries of a send request's gather list.
    pub fn setup_max_send_sge(&mut self, max_send_sge: u32) -> &mut Self {
        self.cap.max_send_sge = max_send_sge;
        self
    }

    /// Entries of a receive request's scatter list.
    pub fn setup_max_recv_sge(&mut self, max_recv_sge: u32) -> &mut Self {
        self.cap.max_recv_sge = max_recv_sge;
        self
    }

    /// Bytes that a send request can carry in itself.
    pub fn setup_max_inline_data(&mut self, max_inline_data: u32) -> &mut Self {
        self.cap.max_inline_data = max_inline_data;
        self
    }

    /// Whether every send request is signaled.
    pub fn setup_sq_sig_all(&mut self, sq_sig_all: bool) -> &mut Self {
        self.sq_sig_all = sq_sig_all;
        self
    }

    /// Where completions of sends go. The queue's C object lives as long as the queue pair.
    pub fn setup_send_cq(&mut self, send_cq: &impl CompletionQueue) -> &mut Self {
        self.send_cq = Some(Arc::clone(send_cq.core()));
        self
    }

    /// Where completions of receives go; may be the queue of the sends.
    pub fn setup_recv_cq(&mut self, recv_cq: &impl CompletionQueue) -> &mut Self {
        self.recv_cq = Some(Arc::clone(recv_cq.core()));
        self
    }

    /// Takes the receives from a shared queue, whose C object lives as long as the queue pair. Receives of its own are refused,
    /// and [`setup_max_recv_wr`](Self::setup_max_recv_wr) and [`setup_max_recv_sge`](Self::setup_max_recv_sge) mean nothing.
    pub fn setup_srq(&mut self, srq: &SharedReceiveQueue) -> &mut Self {
        self.srq = Some(Arc::clone(srq.core()));
        self
    }

    /// The operations that an extended queue pair is built for. Unless set: all sends, writes, reads and atomics that the
    /// transport service has, without the atomics where the device has none. An operation that was not named, and that the
    /// driver then leaves out, is refused when its batch is posted.
    pub fn setup_send_ops_flags(&mut self, operations: SendOperationFlags) -> &mut Self {
        self.operations = Some(operations);
        self
    }

    /// `ibv_create_qp(pd, attr)` — makes a basic queue pair.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: no completion queue, or one of another device; more of something than the device has.
    /// - `ENOMEM`: out of resources.
    ///
    /// # References
    ///
    /// [ibv_create_qp(3)](https://man7.org/linux/man-pages/man3/ibv_create_qp.3.html)
    #[doc(alias = "ibv_create_qp")]
    pub fn build(&self) -> Result<BasicQueuePair, VerbError> {
        const VERB: &str = "ibv_create_qp";
        let (send_cq, recv_cq) = self.completion_queues(VERB)?;
        let mut attr = ibv_qp_init_attr {
            qp_context: ptr::null_mut(),
            send_cq: send_cq.raw(),
            recv_cq: recv_cq.raw(),
            srq: self.raw_srq(VERB)?,
            cap: self.cap,
            qp_type: ibv_qp_type(self.qp_type.raw()),
            sq_sig_all: self.sq_sig_all.into(),
        };
        // SAFETY: the domain and both queues are live and of one device.
        let qp = unsafe { sys::ibv_create_qp(self.pd.raw(), &mut attr) };
        let qp = check_pointer(VERB, qp).map_err(|error| self.explain(error))?;
        // SAFETY: just made in this domain with these queues; it has no context.
        let core = unsafe { self.adopt(qp, None, send_cq, recv_cq) };
        let send = BasicSendQueue::new(&core, &self.cap)?;
        Ok(BasicQueuePair::new(send, self.receive_queue(&core)?))
    }

    /// `ibv_create_qp_ex(context, attr)` — makes an extended queue pair.
    ///
    /// # Errors
    ///
    /// - `EOPNOTSUPP`, `ENOSYS`: the device has no extended queue pairs, or not for these operations.
    /// - else as [`build`](Self::build).
    ///
    /// # References
    ///
    /// [ibv_create_qp_ex(3)](https://man7.org/linux/man-pages/man3/ibv_create_qp_ex.3.html),
    /// [ibv_wr_post(3)](https://man7.org/linux/man-pages/man3/ibv_wr_post.3.html)
    #[doc(alias = "ibv_create_qp_ex")]
    pub fn build_ex(&self) -> Result<ExtendedQueuePair, VerbError> {
        self.build_extended().map(|(qp, _mended)| qp)
    }

    /// An extended queue pair where the device has them, without known faults, for the operations asked for; else a basic
    /// one.
    ///
    /// # Errors
    ///
    /// As [`build`](Self::build).
    pub fn build_generic(&self) -> Result<GenericQueuePair, VerbError> {
        match self.build_extended() {
            Ok((_, true)) => Ok(self.build()?.into()),
            Ok((qp, false)) => Ok(qp.into()),
            Err(error) if matches!(error.errno().raw(), libc::EOPNOTSUPP | libc::ENOSYS) => Ok(self.build()?.into()),
            Err(error) => Err(error),
        }
    }

    /// An extended queue pair, and whether a fault of its driver had to be mended.
    fn build_extended(&self) -> Result<(ExtendedQueuePair, bool), VerbError> {
        let all = self.operations.unwrap_or_else(|| SendOperationFlags::of_transport(self.qp_type));
        match self.create_extended(all) {
            Err(error)
                if self.operations.is_none()
                    && all.intersects(SendOperationFlags::ATOMICS)
                    && matches!(error.errno().raw(), libc::EOPNOTSUPP | libc::EINVAL) =>
            {
                self.create_extended(all.difference(SendOperationFlags::ATOMICS)).map_err(|_| error)
            }
            result => result,
        }
    }

    fn create_extended(&self, operations: SendOperationFlags) -> Result<(ExtendedQueuePair, bool), VerbError> {
        const VERB: &str = "ibv_create_qp_ex";
        let (send_cq, recv_cq) = self.completion_queues(VERB)?;
        let srq = self.raw_srq(VERB)?;
        let send_context = SendContext::allocate();
        // SAFETY: all-zero is legal: the struct has integers and pointers alone.
        let mut attr: ibv_qp_init_attr_ex = unsafe { mem::zeroed() };
        attr.qp_context = send_context.as_ptr().cast();
        attr.send_cq = send_cq.raw();
        attr.recv_cq = recv_cq.raw();
        attr.srq = srq;
        attr.cap = self.cap;
        attr.qp_type = ibv_qp_type(self.qp_type.raw());
        attr.sq_sig_all = self.sq_sig_all.into();
        attr.comp_mask =
            ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_PD.0 | ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS.0;
        attr.pd = self.pd.raw();
        attr.send_ops_flags = operations.bits();
        // SAFETY: the domain and both queues are live and of one device; the attributes are complete for the mask.
        let qp = unsafe { sys::ibv_create_qp_ex(self.pd.device_context().raw(), &mut attr) };
        let qp = match check_pointer(VERB, qp) {
            Ok(qp) => qp,
            Err(error) => {
                // SAFETY: no queue pair was made that could point to it.
                unsafe { SendContext::free(send_context) };
                return Err(self.explain_extended(self.explain(error), operations));
            }
        };
        // SAFETY: just made in this domain with these queues and this context.
        let core = unsafe { self.adopt(qp, Some(send_context), send_cq, recv_cq) };
        // SAFETY: the queue pair is live.
        let extended = unsafe { sys::ibv_qp_to_qp_ex(qp.as_ptr()) };
        let Some(extended) = NonNull::new(extended) else {
            return Err(unusable("ibv_qp_to_qp_ex gave no extended queue pair"));
        };
        // SAFETY: the queue pair is live, nobody posts to it, and its context is a SendContext.
        let mended = unsafe {
            // A queue without room for a request refuses all of them: drivers write through what they did not allocate.
            let refuse_all = self.cap.max_send_wr == 0;
            missing_operation::fill_in(extended.as_ptr(), refuse_all)
                .map_err(|name| unusable(&format!("the driver made the queue pair without the function {name}")))?;
            quirks::mend_queue_pair(extended.as_ptr())
        };
        // SAFETY: `extended` is the queue pair of `core`, and no function of its is null now.
        let send = unsafe { ExtendedSendQueue::new(extended, &core) };
        Ok((ExtendedQueuePair::new(send, self.receive_queue(&core)?), mended))
    }

    /// Takes a new queue pair over.
    ///
    /// # Safety
    ///
    /// As [`QueuePairCore::adopt`].
    unsafe fn adopt(
        &self,
        qp: NonNull<ibv_qp>,
        send_context: Option<NonNull<SendContext>>,
        send_cq: Arc<CompletionQueueCore>,
        recv_cq: Arc<CompletionQueueCore>,
    ) -> Arc<QueuePairCore> {
        let parents = Parents {
            send_cq: Some(send_cq),
            recv_cq: Some(recv_cq),
            srq: self.srq.clone(),
            pd: Some(Arc::clone(&self.pd)),
            ..Parents::default()
        };
        // SAFETY: the caller's promise.
        unsafe { QueuePairCore::adopt(qp, self.qp_type, send_context, parents, Arc::clone(self.pd.device_context())) }
    }

    fn receive_queue(&self, core: &Arc<QueuePairCore>) -> Result<ReceiveQueue, VerbError> {
        if self.srq.is_some() {
            return ReceiveQueue::refusing(core, RefusalReason::ReceivesAreShared);
        }
        ReceiveQueue::new(core, self.cap.max_recv_wr, self.cap.max_recv_sge)
    }

    /// The shared receive queue, null where there is none, seen to be of this device.
    fn raw_srq(&self, verb: &'static str) -> Result<*mut ibv_srq, VerbError> {
        let Some(srq) = &self.srq else { return Ok(ptr::null_mut()) };
        if srq.context().raw() != self.pd.device_context().raw() {
            return Err(VerbError::invalid(
                verb,
                "the shared receive queue given to setup_srq is of another device context than the domain",
            ));
        }
        if srq.srq_type() == SharedReceiveQueueType::ReliableConnectionExtended {
            return Err(VerbError::invalid(
                verb,
                "the queue given to setup_srq is an XRC queue: no queue pair is made with it, senders name it by its number",
            ));
        }
        Ok(srq.raw())
    }

    /// Both completion queues, seen to be there and of this device; what else can be checked before the library is asked.
    fn completion_queues(
        &self,
        verb: &'static str,
    ) -> Result<(Arc<CompletionQueueCore>, Arc<CompletionQueueCore>), VerbError> {
        let of_this_device = |queue: &Option<Arc<CompletionQueueCore>>, which: &str| match queue {
            None => Err(VerbError::invalid(verb, format!("no completion queue was given: call setup_{which}_cq"))),
            Some(queue) if queue.context().raw() != self.pd.device_context().raw() => Err(VerbError::invalid(
                verb,
                format!("the completion queue given to setup_{which}_cq is of another device context than the domain"),
            )),
            Some(queue) => Ok(Arc::clone(queue)),
        };
        // A datagram names its address handle by a pointer, which only a request of its own kind may set.
        match self.qp_type {
            QueuePairType::ReliableConnection | QueuePairType::UnreliableConnection | QueuePairType::RawPacket => {}
            other => {
                return Err(VerbError::new(verb, Errno::from_raw(libc::EOPNOTSUPP)).with_hint(format!(
                    "this version of sideway does not wrap queue pairs of type {other:?} yet: only ReliableConnection, \
                     UnreliableConnection and RawPacket"
                )));
            }
        }
        self.pd.device_context().require_operations(
            verb,
            &[
                ("post_send", |operations| operations.post_send.is_some()),
                ("post_recv", |operations| operations.post_recv.is_some()),
            ],
        )?;
        // Larger ones no driver takes, and the requests are held in memory here too.
        let limit = c_int::MAX as u32 >> 8;
        let cap = &self.cap;
        if [cap.max_send_wr, cap.max_recv_wr, cap.max_send_sge, cap.max_recv_sge, cap.max_inline_data]
            .iter()
            .any(|&value| value > limit)
        {
            return Err(VerbError::invalid(verb, format!("a capability is above {limit}: {cap:?}")));
        }
        Ok((of_this_device(&self.send_cq, "send")?, of_this_device(&self.recv_cq, "recv")?))
    }

    #[cold]
    fn explain(&self, error: VerbError) -> VerbError {
        if !matches!(error.errno().raw(), libc::EINVAL | libc::ENOMEM) {
            return error;
        }
        let Ok(device) = self.pd.device_context().query_device() else { return error };
        let cap = &self.cap;
        let most_wr = cap.max_send_wr.max(cap.max_recv_wr);
        let most_sge = cap.max_send_sge.max(cap.max_recv_sge);
        if most_wr > device.max_qp_wr() {
            return error
                .with_hint(format!("{most_wr} requests are asked for and the device has {}", device.max_qp_wr()));
        }
        if most_sge > device.max_sge() {
            return error
                .with_hint(format!("{most_sge} entries are asked for and the device has {}", device.max_sge()));
        }
        if cap.max_inline_data > 0 && error.errno().raw() == libc::EINVAL {
            return error.with_hint(format!(
                "perhaps {} bytes of inline data are more than the device takes; it does not say how many it does",
                cap.max_inline_data
            ));
        }
        error
    }

    #[cold]
    fn explain_extended(&self, error: VerbError, operations: SendOperationFlags) -> VerbError {
        match error.errno().raw() {
            libc::EOPNOTSUPP | libc::ENOSYS if error.hint().is_none() => error.with_hint(format!(
                "the device or its driver has no extended queue pairs, or not for {operations:?} on {:?}: use build or \
                 build_generic",
                self.qp_type
            )),
            _ => error,
        }
    }
}

#[cold]
fn unusable(what: &str) -> VerbError {
    VerbError::new("ibv_create_qp_ex", Errno::from_raw(libc::EOPNOTSUPP))
        .with_hint(format!("{what}: use build or build_generic"))
}
