//! Two queue pairs of one device that send datagrams to each other.

use std::sync::Arc;

use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::address::{AddressHandle, AddressHandleAttribute};
use sideway::ibverbs::completion::{
    GenericWorkCompletion, WorkCompletionFlags, WorkCompletionOperationType, WorkCompletionStatus,
};
use sideway::ibverbs::device_context::DeviceContext;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{Datagram, PostSendGuard, QueuePairAttribute, QueuePairState};
use sideway::ibverbs::work_request::WorkRequestFlags;

use crate::device;
use crate::loopback::{Copied, Copying, End, Give, Kind, Memory, QueueKind, to};

/// Bytes of the global routing header, or of its placeholder, before every received datagram.
pub const GRH: usize = 40;
/// Bytes of each side's memory.
pub const MEMORY: usize = 64 * 1024;
/// Maximum inline data of the queue pairs.
pub const INLINE: u32 = 64;
/// The Q_Key of both sides.
pub const QKEY: u32 = 0x1234_5678;

/// Two sides.
#[derive(Debug)]
pub struct Datagrams<Q> {
    /// The one that mostly sends.
    pub near: End<Q>,
    /// The one that mostly receives.
    pub far: End<Q>,
    /// The address of the port itself.
    pub way: Arc<AddressHandle>,
    /// The protection domain of both sides.
    pub pd: Arc<ProtectionDomain>,
    /// The device of both sides.
    pub context: Arc<DeviceContext>,
}

/// A completion, copied off the queue. Fields that are undefined after a failure are `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The number of the request.
    pub wr_id: u64,
    /// Its status.
    pub status: WorkCompletionStatus,
    /// The operation.
    pub opcode: Option<WorkCompletionOperationType>,
    /// For a received datagram: its length with the header space, the sender's queue pair number, immediate data if
    /// present, and whether the global routing header is present.
    pub received: Option<(usize, u32, Option<u32>, bool)>,
}

impl<Q: Kind<Datagram>> Datagrams<Q> {
    /// Two sides that are ready to send.
    ///
    /// # Panics
    ///
    /// If a step fails.
    #[track_caller]
    pub fn new(queue: QueueKind) -> Self {
        let context = device::open();
        let pd = context.alloc_pd().unwrap_or_else(|error| panic!("{error}"));
        let end = || {
            let cq = queue.build(context.create_cq_builder().setup_cqe(64));
            let mut builder = pd.create_ud_qp_builder();
            builder.setup_max_send_wr(16).setup_max_recv_wr(16).setup_max_send_sge(4).setup_max_recv_sge(4);
            builder.setup_max_inline_data(INLINE).setup_send_cq(&cq).setup_recv_cq(&cq);
            let qp = Q::build(&builder).unwrap_or_else(|error| panic!("{}: {error}", Q::NAME));
            let memory = Memory::new(&pd, MEMORY, AccessFlags::LocalWrite);
            for attributes in [init(), to(QueuePairState::ReadyToReceive), ready_to_send()] {
                qp.modify(&attributes).unwrap_or_else(|error| panic!("{}: {error}", Q::NAME));
            }
            End { qp, cq, memory }
        };
        let (near, far) = (end(), end());
        let way = pd.create_ah(&to_itself(&context)).unwrap_or_else(|error| panic!("{error}"));
        Self { near, far, way, pd, context }
    }

    /// Sends a range of the near side's memory to the far one, without immediate data, and signaled.
    ///
    /// # Panics
    ///
    /// If the send cannot be posted.
    #[track_caller]
    pub fn send(&mut self, wr_id: u64, offset: usize, len: usize, qkey: u32) {
        let (range, number) = (self.near.range(offset, len), self.far.qp.qp_number());
        let mut batch = self.near.qp.start_post_send();
        let request = batch.construct_wr(wr_id, WorkRequestFlags::Signaled).setup_send();
        request.setup_ud_addr(&self.way, number, qkey).give(range);
        batch.post().unwrap_or_else(|error| panic!("{}: {error}", Q::NAME));
    }
}

impl Copying for Datagram {
    type Completion = Completion;
}

impl Copied for Completion {
    fn of(wc: &GenericWorkCompletion<'_>, qp_num: u32) -> Self {
        assert_eq!(wc.qp_num(), qp_num);
        let opcode = (wc.status() == WorkCompletionStatus::Success).then(|| wc.opcode());
        let received = (opcode == Some(WorkCompletionOperationType::Receive)).then(|| {
            let flags = wc.wc_flags();
            let imm_data = flags.contains(WorkCompletionFlags::WithImmediate).then(|| wc.imm_data());
            let has_header = flags.contains(WorkCompletionFlags::GlobalRoutingHeader);
            (wc.byte_len() as usize, wc.src_qp(), imm_data, has_header)
        });
        Self { wr_id: wc.wr_id(), status: wc.status(), opcode, received }
    }

    fn is_success(&self, _qp_num: u32) -> bool {
        self.status == WorkCompletionStatus::Success
    }
}

/// The address of the port itself.
///
/// # Panics
///
/// If the port has no address.
#[track_caller]
pub fn to_itself(context: &DeviceContext) -> AddressHandleAttribute {
    let port = context.query_port(device::PORT).unwrap_or_else(|error| panic!("{error}"));
    let mut way = AddressHandleAttribute::new();
    way.setup_port(device::PORT).setup_dest_lid(port.lid());
    if let Some(entry) = device::gid(context) {
        way.setup_grh(&entry.gid(), 0, entry.gid_index() as u8, 64, 0);
    }
    way
}

/// RESET to INIT.
pub fn init() -> QueuePairAttribute {
    let mut attributes = to(QueuePairState::Init);
    attributes.setup_pkey_index(0).setup_port(device::PORT).setup_qkey(QKEY);
    attributes
}

/// RTR to RTS.
pub fn ready_to_send() -> QueuePairAttribute {
    let mut attributes = to(QueuePairState::ReadyToSend);
    attributes.setup_sq_psn(0xffffff);
    attributes
}
