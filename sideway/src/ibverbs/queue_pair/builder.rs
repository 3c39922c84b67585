//! The attributes with which queue pairs are built.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

use rdma_mummy_sys::ibv_qp_cap;

use super::{
    Connected, Datagram, Kept, QueuePairCreateFlags, QueuePairType, RawPacket, SendOperationFlags, Service, Xrc,
};
use crate::ibverbs::completion::{CompletionQueue, CompletionQueueCore};
use crate::ibverbs::protection_domain::ProtectionDomain;
use crate::ibverbs::shared_receive_queue::{SharedReceiveQueue, SharedReceiveQueueCore};

const CONNECTED: &[QueuePairType] = &[QueuePairType::ReliableConnection, QueuePairType::UnreliableConnection];

/// Builds queue pairs. By default, a queue pair is a reliable connection. Both queues have space for 16 requests with 1
/// entry each, and there is no inline data. Sends are signaled only if the request has the flag.
#[derive(Debug)]
pub struct QueuePairBuilder<T = Connected> {
    pub(super) pd: Arc<ProtectionDomain>,
    pub(super) qp_type: QueuePairType,
    pub(super) cap: ibv_qp_cap,
    pub(super) sq_sig_all: bool,
    pub(super) send_cq: Option<Arc<CompletionQueueCore>>,
    pub(super) recv_cq: Option<Arc<CompletionQueueCore>>,
    pub(super) srq: Option<Arc<SharedReceiveQueueCore>>,
    pub(super) operations: Option<SendOperationFlags>,
    pub(super) create_flags: QueuePairCreateFlags,
    pub(super) max_tso_header: u16,
    pub(super) source_qpn: u32,
    pub(super) kept: Vec<Kept>,
    /// Whether the program has promised not to overflow an extended send queue.
    pub(super) assumes_send_room: bool,
    /// The transport types that have the service `T`.
    pub(super) types: &'static [QueuePairType],
    service: PhantomData<fn() -> T>,
}

impl ProtectionDomain {
    /// Creates a builder of queue pairs for connections in this domain.
    pub fn create_qp_builder(self: &Arc<Self>) -> QueuePairBuilder {
        QueuePairBuilder::new(self)
    }

    /// Creates a builder of queue pairs for datagrams (UD).
    pub fn create_ud_qp_builder(self: &Arc<Self>) -> QueuePairBuilder<Datagram> {
        // SAFETY: this is the type of datagram queue pairs.
        unsafe { QueuePairBuilder::of_service(self, &[QueuePairType::UnreliableDatagram]) }
    }

    /// Creates a builder of queue pairs for raw packets with all their headers. Building such a queue pair requires the
    /// capability `CAP_NET_RAW`.
    pub fn create_raw_packet_qp_builder(self: &Arc<Self>) -> QueuePairBuilder<RawPacket> {
        // SAFETY: this is the type of raw packet queue pairs.
        unsafe { QueuePairBuilder::of_service(self, &[QueuePairType::RawPacket]) }
    }

    /// Creates a builder of queue pairs that send on extended reliable connections (XRC). They have no receive queue.
    pub fn create_xrc_send_qp_builder(self: &Arc<Self>) -> QueuePairBuilder<Xrc> {
        // SAFETY: this is the type of XRC initiators.
        unsafe { QueuePairBuilder::of_service(self, &[QueuePairType::ReliableConnectionExtendedSend]) }
    }
}

impl QueuePairBuilder {
    /// Creates a builder in this domain.
    pub fn new(pd: &Arc<ProtectionDomain>) -> Self {
        // SAFETY: requests to queue pairs of these types contain no destination.
        unsafe { Self::of_service(pd, CONNECTED) }
    }

    /// Sets the transport service: a reliable or an unreliable connection. Requests on other services have other
    /// fields, so there are separate builders for these services.
    pub fn setup_qp_type(&mut self, qp_type: QueuePairType) -> &mut Self {
        self.qp_type = qp_type;
        self
    }
}

impl<T: Service> QueuePairBuilder<T> {
    /// Creates a builder for queue pairs of a service. The first of these types is the default.
    ///
    /// # Safety
    ///
    /// Requests to queue pairs of these types have the fields of the service `T`.
    pub(crate) unsafe fn of_service(pd: &Arc<ProtectionDomain>, types: &'static [QueuePairType]) -> Self {
        Self {
            pd: Arc::clone(pd),
            qp_type: types.first().copied().unwrap_or(QueuePairType::Driver),
            types,
            cap: ibv_qp_cap { max_send_wr: 16, max_recv_wr: 16, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 },
            sq_sig_all: false,
            send_cq: None,
            recv_cq: None,
            srq: None,
            operations: None,
            create_flags: QueuePairCreateFlags::empty(),
            max_tso_header: 0,
            source_qpn: 0,
            kept: Vec::new(),
            assumes_send_room: false,
            service: PhantomData,
        }
    }

    /// Sets additional features of the queue pair.
    pub fn setup_create_flags(&mut self, create_flags: QueuePairCreateFlags) -> &mut Self {
        self.create_flags = create_flags;
        self
    }

    /// Sets the maximum length of the packet header of [segmented
    /// sends](crate::ibverbs::work_request::WorkRequestHandle::setup_send_tso), in bytes. Without this call, an
    /// extended queue pair does not support segmented sends.
    pub fn setup_max_tso_header(&mut self, max_tso_header: u16) -> &mut Self {
        self.max_tso_header = max_tso_header;
        self
    }

    /// Sets the number that datagrams carry as their source, 24 bits, instead of the number of the queue pair.
    pub fn setup_source_qpn(&mut self, source_qpn: u32) -> &mut Self {
        self.source_qpn = source_qpn;
        self.create_flags |= QueuePairCreateFlags::SourceQpn;
        self
    }

    /// Keeps an object alive until the queue pairs of this builder are destroyed. This is meant for objects that
    /// they use in addition to the domain and the completion queues.
    pub fn setup_kept(&mut self, object: Arc<dyn Any + Send + Sync>) -> &mut Self {
        self.kept.push(object);
        self
    }

    /// Returns a copy of the builder with a shared receive queue.
    pub(crate) fn with_srq(&self, srq: Arc<SharedReceiveQueueCore>) -> Self {
        Self { srq: Some(srq), ..self.clone() }
    }

    /// Returns the transport service.
    pub fn qp_type(&self) -> QueuePairType {
        self.qp_type
    }

    /// Returns the protection domain.
    pub fn protection_domain(&self) -> &Arc<ProtectionDomain> {
        &self.pd
    }

    /// Whether neither receives nor receive entries are requested.
    #[cfg(feature = "mlx5")]
    pub(crate) fn has_no_receives(&self) -> bool {
        (self.cap.max_recv_wr, self.cap.max_recv_sge) == (0, 0)
    }

    /// Uses the completion queue of sends for receives as well, unless another queue was set for them. No receives will
    /// complete there.
    #[cfg(feature = "mlx5")]
    pub(crate) fn complete_receives_with_sends(&mut self) {
        self.recv_cq = self.recv_cq.take().or_else(|| self.send_cq.clone());
    }

    /// Whether operations are requested.
    #[cfg(any(feature = "mlx5", feature = "efa"))]
    pub(crate) fn has_operations(&self) -> bool {
        self.operations.is_some()
    }

    /// Sets the maximum number of outstanding send requests. Posting more requests returns an error.
    pub fn setup_max_send_wr(&mut self, max_send_wr: u32) -> &mut Self {
        self.cap.max_send_wr = max_send_wr;
        self
    }

    /// Sets the maximum number of outstanding receive requests.
    pub fn setup_max_recv_wr(&mut self, max_recv_wr: u32) -> &mut Self {
        self.cap.max_recv_wr = max_recv_wr;
        self
    }

    /// Sets the maximum number of entries of a send request's gather list.
    pub fn setup_max_send_sge(&mut self, max_send_sge: u32) -> &mut Self {
        self.cap.max_send_sge = max_send_sge;
        self
    }

    /// Sets the maximum number of entries of a receive request's scatter list.
    pub fn setup_max_recv_sge(&mut self, max_recv_sge: u32) -> &mut Self {
        self.cap.max_recv_sge = max_recv_sge;
        self
    }

    /// Sets the maximum inline data of a send request in bytes.
    pub fn setup_max_inline_data(&mut self, max_inline_data: u32) -> &mut Self {
        self.cap.max_inline_data = max_inline_data;
        self
    }

    /// Sets whether every send request is signaled.
    pub fn setup_sq_sig_all(&mut self, sq_sig_all: bool) -> &mut Self {
        self.sq_sig_all = sq_sig_all;
        self
    }

    /// Sets the completion queue of sends. The queue pair keeps the C object of the completion queue alive.
    pub fn setup_send_cq(&mut self, send_cq: &impl CompletionQueue) -> &mut Self {
        self.send_cq = Some(Arc::clone(send_cq.core()));
        self
    }

    /// Sets the completion queue of receives. It may be the same as that of sends.
    pub fn setup_recv_cq(&mut self, recv_cq: &impl CompletionQueue) -> &mut Self {
        self.recv_cq = Some(Arc::clone(recv_cq.core()));
        self
    }

    /// Sets a shared receive queue. The queue pair keeps the C object of that queue alive. Posting receives to the
    /// queue pair itself then fails, and [`setup_max_recv_wr`](Self::setup_max_recv_wr) and
    /// [`setup_max_recv_sge`](Self::setup_max_recv_sge) have no effect.
    pub fn setup_srq(&mut self, srq: &SharedReceiveQueue) -> &mut Self {
        self.srq = Some(Arc::clone(srq.core()));
        self
    }

    /// Whether [`setup_srq`](Self::setup_srq) was called.
    pub fn has_srq(&self) -> bool {
        self.srq.is_some()
    }

    /// Permits extended queue pairs on drivers that do not check the send queue for overflow. The program must count
    /// its requests itself.
    ///
    /// If the send queue overflows, the mlx5 driver overwrites the previous request, which may be in flight, and fails
    /// the batch only afterwards ([`quirks`](crate::manual::quirks#send-queues-without-an-overflow-check)). On such a
    /// driver, and without this call, [`build_ex`](Self::build_ex) returns `EOPNOTSUPP`, and
    /// [`build_generic`](Self::build_generic) builds a basic queue pair, whose send queue all drivers check. The call
    /// has no effect with drivers that check extended send queues, which are those of soft-RoCE, EFA and softrnic.
    ///
    /// # Safety
    ///
    /// For each queue pair built by this builder or a clone of it, until the queue pair is reset or destroyed:
    ///
    /// - After each request added to a batch, at most [`setup_max_send_wr`](Self::setup_max_send_wr) requests are
    ///   outstanding, including those of the batch. A signaled request is outstanding until its completion has been
    ///   polled. An unsignaled request is outstanding until the completion of a later request on the queue has been
    ///   polled. Binding a window with [`bind_mw`](crate::ibverbs::memory_window::MemoryWindow::bind_mw) is also a
    ///   request.
    /// - On mlx5, the header of a segmented send
    ///   ([`setup_send_tso`](crate::ibverbs::work_request::WorkRequestHandle::setup_send_tso)) has at most 18 bytes.
    ///   Alternatively, all requests of the queue take the same number of 64-byte blocks, and the number of blocks of
    ///   the queue is a multiple of that number.
    pub unsafe fn assume_send_room(&mut self) -> &mut Self {
        self.assumes_send_room = true;
        self
    }

    /// Sets the operations that an extended queue pair supports. By default, these are all sends, writes, reads and
    /// atomics of the transport service. Atomics are omitted if the device does not support them. Posting an operation
    /// that was not requested returns an error if the driver omits it.
    pub fn setup_send_ops_flags(&mut self, operations: SendOperationFlags) -> &mut Self {
        self.operations = Some(operations);
        self
    }
}

// A derived implementation would require `T: Clone`, which services do not implement.
impl<T> Clone for QueuePairBuilder<T> {
    fn clone(&self) -> Self {
        Self {
            pd: Arc::clone(&self.pd),
            send_cq: self.send_cq.clone(),
            recv_cq: self.recv_cq.clone(),
            srq: self.srq.clone(),
            kept: self.kept.clone(),
            ..*self
        }
    }
}
