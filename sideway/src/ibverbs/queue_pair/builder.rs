//! What a queue pair is to be like.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

use rdma_mummy_sys::ibv_qp_cap;

use super::{
    Connected, Datagram, Kept, QueuePairCreateFlags, QueuePairType, RawPacket, SendOperationFlags, Service,
    TransitionTable, Xrc,
};
use crate::ibverbs::completion::{CompletionQueue, CompletionQueueCore};
use crate::ibverbs::protection_domain::ProtectionDomain;
use crate::ibverbs::shared_receive_queue::{SharedReceiveQueue, SharedReceiveQueueCore};

const CONNECTED: &[QueuePairType] = &[QueuePairType::ReliableConnection, QueuePairType::UnreliableConnection];

/// Makes queue pairs. Unless set: reliable connection, 16 requests and 1 entry a list on either side, no inline data, not
/// every send signaled.
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
    /// The program has promised not to post beyond the room of an extended send queue.
    pub(super) assumes_send_room: bool,
    /// The types whose requests look as `T` says.
    pub(super) types: &'static [QueuePairType],
    pub(super) transitions: TransitionTable,
    service: PhantomData<fn() -> T>,
}

impl ProtectionDomain {
    /// A builder of queue pairs in this domain, with one peer each.
    pub fn create_qp_builder(self: &Arc<Self>) -> QueuePairBuilder {
        QueuePairBuilder::new(self)
    }

    /// A builder of queue pairs for datagrams (UD).
    pub fn create_ud_qp_builder(self: &Arc<Self>) -> QueuePairBuilder<Datagram> {
        // SAFETY: datagrams are of that type.
        unsafe { QueuePairBuilder::of_service(self, &[QueuePairType::UnreliableDatagram]) }
    }

    /// A builder of queue pairs for packets with all their headers, which need the right `CAP_NET_RAW`.
    pub fn create_raw_packet_qp_builder(self: &Arc<Self>) -> QueuePairBuilder<RawPacket> {
        // SAFETY: raw packets are of that type.
        unsafe { QueuePairBuilder::of_service(self, &[QueuePairType::RawPacket]) }
    }

    /// A builder of queue pairs that begin requests of extended reliable connections (XRC). They have no receive queue.
    pub fn create_xrc_send_qp_builder(self: &Arc<Self>) -> QueuePairBuilder<Xrc> {
        // SAFETY: the initiators of XRC are of that type.
        unsafe { QueuePairBuilder::of_service(self, &[QueuePairType::ReliableConnectionExtendedSend]) }
    }
}

impl QueuePairBuilder {
    /// A builder in this domain.
    pub fn new(pd: &Arc<ProtectionDomain>) -> Self {
        // SAFETY: requests to queue pairs of these types say nothing of where.
        unsafe { Self::of_service(pd, CONNECTED) }
    }

    /// The transport service: reliable or unreliable connection. Queue pairs of the others say more, or less, in their requests,
    /// and have builders of their own.
    pub fn setup_qp_type(&mut self, qp_type: QueuePairType) -> &mut Self {
        self.qp_type = qp_type;
        self
    }
}

impl<T: Service> QueuePairBuilder<T> {
    /// A builder for queue pairs of a service: of the first of these types unless another is set.
    ///
    /// # Safety
    ///
    /// Requests to queue pairs of these types look as `T` says.
    pub(crate) unsafe fn of_service(pd: &Arc<ProtectionDomain>, types: &'static [QueuePairType]) -> Self {
        Self {
            pd: Arc::clone(pd),
            qp_type: types.first().copied().unwrap_or(QueuePairType::Driver),
            types,
            transitions: T::transition,
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

    /// What the queue pair is to do beside its service.
    pub fn setup_create_flags(&mut self, create_flags: QueuePairCreateFlags) -> &mut Self {
        self.create_flags = create_flags;
        self
    }

    /// Bytes of packet header that [segmented sends](crate::ibverbs::work_request::WorkRequestHandle::setup_send_tso) have at
    /// most; unless set, an extended queue pair takes none.
    pub fn setup_max_tso_header(&mut self, max_tso_header: u16) -> &mut Self {
        self.max_tso_header = max_tso_header;
        self
    }

    /// The number that datagrams carry as that of their sender, 24 bits, instead of the queue pair's own.
    pub fn setup_source_qpn(&mut self, source_qpn: u32) -> &mut Self {
        self.source_qpn = source_qpn;
        self.create_flags |= QueuePairCreateFlags::SourceQpn;
        self
    }

    /// Keeps something alive until queue pairs of this builder have been destroyed: what a vendor's function makes them from
    /// beside the domain and the completion queues.
    pub fn setup_kept(&mut self, object: Arc<dyn Any + Send + Sync>) -> &mut Self {
        self.kept.push(object);
        self
    }

    pub(super) fn set_transitions(&mut self, transitions: TransitionTable) {
        self.transitions = transitions;
    }

    /// The same builder with a shared receive queue.
    pub(crate) fn with_srq(&self, srq: Arc<SharedReceiveQueueCore>) -> Self {
        Self { srq: Some(srq), ..self.clone() }
    }

    /// The transport service that queue pairs are made for.
    pub fn qp_type(&self) -> QueuePairType {
        self.qp_type
    }

    /// The protection domain that queue pairs are made in.
    pub fn protection_domain(&self) -> &Arc<ProtectionDomain> {
        &self.pd
    }

    /// Whether neither receives nor entries for them are asked for.
    #[cfg(feature = "mlx5")]
    pub(crate) fn has_no_receives(&self) -> bool {
        (self.cap.max_recv_wr, self.cap.max_recv_sge) == (0, 0)
    }

    /// Completes receives, of which there will be none, where sends complete, unless a queue was given for them.
    #[cfg(feature = "mlx5")]
    pub(crate) fn complete_receives_with_sends(&mut self) {
        self.recv_cq = self.recv_cq.take().or_else(|| self.send_cq.clone());
    }

    /// Whether operations were asked for.
    #[cfg(any(feature = "mlx5", feature = "efa"))]
    pub(crate) fn has_operations(&self) -> bool {
        self.operations.is_some()
    }

    /// Send requests that can be outstanding; one too many is refused when its batch is posted.
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

    /// Whether [`setup_srq`](Self::setup_srq) was called.
    pub fn has_srq(&self) -> bool {
        self.srq.is_some()
    }

    /// Lets extended queue pairs be built on drivers that do not check whether the send queue has room, because the program counts.
    ///
    /// mlx5's driver writes a request that has no room over the one before it, which may be in flight, and fails the batch
    /// afterwards ([`quirks`](crate::manual::quirks#send-queues-without-an-overflow-check)). On such a driver, and without this call,
    /// [`build_ex`](Self::build_ex) returns `EOPNOTSUPP`, and [`build_generic`](Self::build_generic) makes a basic queue pair, whose
    /// drivers all check. The call has no effect on drivers that check: those of soft-RoCE, EFA and softrnic.
    ///
    /// # Safety
    ///
    /// For each queue pair that this builder or a clone of it makes, until the queue pair is reset or destroyed:
    ///
    /// - With each request that is added to a batch, no more requests are outstanding than
    ///   [`setup_max_send_wr`](Self::setup_max_send_wr) says, those of the batch among them. A request is outstanding until its
    ///   completion has been polled; one that is not signaled, until that of a later request on the queue has. Binding a window by
    ///   [`bind_mw`](crate::ibverbs::memory_window::MemoryWindow::bind_mw) is a request as well.
    /// - On mlx5, the header of a segmented send
    ///   ([`setup_send_tso`](crate::ibverbs::work_request::WorkRequestHandle::setup_send_tso)) has 18 bytes at most; or all requests
    ///   of the queue take the same number of 64-byte blocks, by which the blocks of the queue can be divided.
    pub unsafe fn assume_send_room(&mut self) -> &mut Self {
        self.assumes_send_room = true;
        self
    }

    /// The operations that an extended queue pair is built for. Unless set: all sends, writes, reads and atomics that the
    /// transport service has, without the atomics where the device has none. An operation that was not named, and that the
    /// driver then leaves out, is refused when its batch is posted.
    pub fn setup_send_ops_flags(&mut self, operations: SendOperationFlags) -> &mut Self {
        self.operations = Some(operations);
        self
    }
}

// Derived, it would ask for services that can be cloned.
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
