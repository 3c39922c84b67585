//! Two queue pairs of one device that send datagrams to each other.

use std::fmt;
use std::sync::Arc;

use sideway::error::VerbError;
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::address::{AddressHandle, AddressHandleAttribute};
use sideway::ibverbs::completion::{
    GenericCompletionQueue, WorkCompletionFlags, WorkCompletionOperationType, WorkCompletionStatus,
};
use sideway::ibverbs::device_context::DeviceContext;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{
    BasicQueuePair, Datagram, ExtendedQueuePair, GenericQueuePair, PostSendGuard, QueuePair, QueuePairAttribute,
    QueuePairBuilder, QueuePairState,
};
use sideway::ibverbs::work_request::WorkRequestFlags;

use crate::device;
use crate::loopback::{Give, Memory, QueueKind, Range, to};
use crate::waiting;

/// Bytes of the global routing header, or of its placeholder, before every received datagram.
pub const GRH: usize = 40;
/// Bytes of each side's memory.
pub const MEMORY: usize = 64 * 1024;
/// Maximum inline data of the queue pairs.
pub const INLINE: u32 = 64;
/// The Q_Key of both sides.
pub const QKEY: u32 = 0x1234_5678;

/// A kind of queue pair for datagrams.
pub trait Kind: QueuePair<Service = Datagram> + fmt::Debug + Sized {
    /// For messages.
    const NAME: &'static str;

    /// Creates one.
    ///
    /// # Errors
    ///
    /// As the builder's.
    fn build(builder: &QueuePairBuilder<Datagram>) -> Result<Self, VerbError>;
}

macro_rules! kind {
    ($Pair:ty, $name:literal, $build:ident) => {
        impl Kind for $Pair {
            const NAME: &'static str = $name;

            fn build(builder: &QueuePairBuilder<Datagram>) -> Result<Self, VerbError> {
                builder.$build()
            }
        }
    };
}

kind!(BasicQueuePair<Datagram>, "basic", build);
kind!(ExtendedQueuePair<Datagram>, "extended", build_ex);
kind!(GenericQueuePair<Datagram>, "generic", build_generic);

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

/// One side: a queue pair, its completion queue, its memory.
#[derive(Debug)]
pub struct End<Q> {
    // Fields are dropped in this order, so the queue pair is destroyed before its memory is freed.
    /// The queue pair.
    pub qp: Q,
    /// The completion queue of the QP.
    pub cq: GenericCompletionQueue,
    /// The memory of its requests.
    pub memory: Memory,
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

impl<Q: Kind> Datagrams<Q> {
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

impl<Q: Kind> End<Q> {
    /// A range of this side's memory.
    ///
    /// # Panics
    ///
    /// If the range is out of bounds.
    #[track_caller]
    pub fn range(&self, offset: usize, len: usize) -> Range {
        Range::of(&self.memory, offset, len)
    }

    /// The contents of the memory.
    ///
    /// # Panics
    ///
    /// If the range is out of bounds.
    #[track_caller]
    pub fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read(offset, &mut bytes);
        bytes
    }

    /// Posts one receive.
    ///
    /// # Panics
    ///
    /// If the receive cannot be posted.
    #[track_caller]
    pub fn post_receive(&mut self, wr_id: u64, offset: usize, len: usize) {
        let range = self.range(offset, len);
        let mut batch = self.qp.start_post_recv();
        batch.construct_wr(wr_id).give(range);
        batch.post().unwrap_or_else(|error| panic!("{}: {error}", Q::NAME));
    }

    /// Waits for the next completion.
    ///
    /// # Panics
    ///
    /// If no completion arrives.
    #[track_caller]
    pub fn completion(&mut self) -> Completion {
        waiting::first(Q::NAME, || self.poll())
    }

    /// Waits for the next completion, which must be a success.
    ///
    /// # Panics
    ///
    /// If no completion arrives, or if the request failed.
    #[track_caller]
    pub fn success(&mut self) -> Completion {
        let completion = self.completion();
        assert_eq!(completion.status, WorkCompletionStatus::Success, "{}: {completion:?}", Q::NAME);
        completion
    }

    /// Asserts that nothing completes.
    ///
    /// # Panics
    ///
    /// If a request completes.
    #[track_caller]
    pub fn silence(&mut self) {
        waiting::nothing(Q::NAME, || self.poll());
    }

    #[track_caller]
    fn poll(&mut self) -> Option<Completion> {
        let qp_num = self.qp.qp_number();
        waiting::take(&mut self.cq, |wc| {
            assert_eq!(wc.qp_num(), qp_num);
            let opcode = (wc.status() == WorkCompletionStatus::Success).then(|| wc.opcode());
            let received = (opcode == Some(WorkCompletionOperationType::Receive)).then(|| {
                let flags = wc.wc_flags();
                let imm_data = flags.contains(WorkCompletionFlags::WithImmediate).then(|| wc.imm_data());
                let has_header = flags.contains(WorkCompletionFlags::GlobalRoutingHeader);
                (wc.byte_len() as usize, wc.src_qp(), imm_data, has_header)
            });
            Completion { wr_id: wc.wr_id(), status: wc.status(), opcode, received }
        })
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

/// Runs a function for each kind of queue pair with each kind of completion queue, nine times.
#[macro_export]
macro_rules! on_all_kinds_of_datagrams {
    ($function:ident) => {{
        use sideway::ibverbs::queue_pair::{BasicQueuePair, Datagram, ExtendedQueuePair, GenericQueuePair};
        let has_extended = $crate::device::has_extended_queue_pairs();
        for queue in $crate::loopback::QueueKind::ALL {
            println!("{}: {queue:?} completion queue", stringify!($function));
            $function::<BasicQueuePair<Datagram>>(queue);
            if has_extended {
                $function::<ExtendedQueuePair<Datagram>>(queue);
            }
            $function::<GenericQueuePair<Datagram>>(queue);
        }
    }};
}
