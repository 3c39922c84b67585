//! Queue pairs of every service: their queries, and every operation with every form of data.

use std::cell::RefCell;
use std::error::Error;
use std::io::IoSlice;
use std::sync::Arc;

use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::address::AddressHandleAttribute;
use sideway::ibverbs::async_event::AsyncEventType;
use sideway::ibverbs::completion::{BasicCompletionQueue, PollCompletionQueueError};
use sideway::ibverbs::device_context::DeviceContext;
use sideway::ibverbs::memory_region::OwnedMemoryRegion;
use sideway::ibverbs::memory_window::{BindInformation, MemoryWindow, MemoryWindowType};
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{
    Connected, DataInOrderFlags, PostSendGuard, QueuePair, QueuePairAttributeMask, QueuePairBuilder, RateLimit,
    SendOperationFlags, Service,
};
use sideway::ibverbs::work_request::{
    FlushLevel, FlushPlacement, PostSendError, ScatterGatherEntry, WorkRequestFlags, WorkRequestOperationType,
};
use sideway_tests::recording::{Raised, Recording, connect};

use super::{Outcome, open, show};

const SIGNALED: WorkRequestFlags = WorkRequestFlags::Signaled;
/// More requests than any program's batch has.
const DEPTH: u32 = 32;

/// The parents of the programs' objects.
struct Ground {
    region: OwnedMemoryRegion,
    window: RefCell<MemoryWindow>,
    cq: BasicCompletionQueue,
    pd: Arc<ProtectionDomain>,
    context: Arc<DeviceContext>,
}

impl Ground {
    fn new(recording: &Recording) -> Result<Self, Box<dyn Error>> {
        let context = open(recording)?;
        let pd = context.alloc_pd()?;
        let cq = context.create_cq_builder().setup_cqe(64).build()?;
        let region = pd.reg_owned_mr(64, AccessFlags::LocalWrite | AccessFlags::MemoryWindowBind)?;
        let window = RefCell::new(pd.alloc_mw(MemoryWindowType::Type2)?);
        Ok(Self { region, window, cq, pd, context })
    }

    fn sized<T: Service>(&self, mut builder: QueuePairBuilder<T>) -> QueuePairBuilder<T> {
        builder.setup_send_cq(&self.cq).setup_recv_cq(&self.cq).setup_max_inline_data(16);
        builder.setup_max_send_wr(DEPTH).setup_max_recv_wr(4).setup_max_send_sge(2).setup_max_recv_sge(2);
        builder.setup_send_ops_flags(SendOperationFlags::from_bits_retain(0x1fff));
        builder
    }

    /// The queries of every queue pair, and its events.
    fn ask(&self, recording: &Recording, qp: &impl QueuePair) -> Outcome {
        connect(qp)?;
        show((qp.query(QueuePairAttributeMask::all())?, qp.state(), qp.qp_number()));
        show(qp.set_ece(qp.query_ece()?)?);
        qp.modify_rate_limit(&RateLimit::default())?;
        show(qp.query_data_in_order(WorkRequestOperationType::Write, DataInOrderFlags::empty()));
        let events = self.context.async_events()?;
        recording.raise(&self.context, Raised::of_qp(AsyncEventType::CommunicationEstablished.raw(), qp));
        show(events.try_get_async_event()?);
        Ok(())
    }

    /// Every operation of a connection that both kinds of queue pair have.
    fn post<Q: QueuePair<Service = Connected>>(&self, qp: &mut Q) -> Result<(), PostSendError> {
        let (lkey, addr) = (self.region.lkey(), self.region.addr());
        let entries = [ScatterGatherEntry::new(lkey, addr, 4), ScatterGatherEntry::new(lkey, addr + 4, 4)];
        let bind = BindInformation::new(self.region.region(), addr + 8, 16, AccessFlags::RemoteRead);
        let mut window = self.window.borrow_mut();
        let mut guard = qp.start_post_send();
        guard.construct_wr(1, SIGNALED).setup_send().setup_inline_data(b"ping");
        guard
            .construct_wr(2, SIGNALED)
            .setup_send_imm(7)
            .setup_inline_data_list(&[IoSlice::new(b"pi"), IoSlice::new(b"ng")]);
        guard.construct_wr(3, SIGNALED).setup_send_inv(8).setup_no_data();
        // SAFETY: the recording device touches no memory.
        unsafe {
            guard.construct_wr(4, SIGNALED).setup_write(1, 2).setup_sge(lkey, addr, 4);
            guard.construct_wr(5, SIGNALED).setup_write_imm(1, 2, 3).setup_sge_list(&entries);
            guard.construct_wr(6, SIGNALED).setup_read(1, 2).setup_sge(lkey, addr, 4);
            guard.construct_wr(7, SIGNALED).setup_atomic_compare_swap(1, 2, 3, 4).setup_sge(lkey, addr, 8);
            guard.construct_wr(8, SIGNALED).setup_atomic_fetch_add(1, 2, 3).setup_sge(lkey, addr, 8);
        }
        guard.construct_wr(9, SIGNALED).setup_local_inv(10);
        guard.construct_wr(11, SIGNALED).setup_atomic_write(1, 2, *b"8 bytes!");
        guard.construct_wr(12, SIGNALED).setup_bind_mw(&mut window, 0x77, bind);
        guard.post()?;
        // An aborted batch.
        let mut guard = qp.start_post_send();
        guard.construct_wr(13, SIGNALED).setup_send().setup_no_data();
        drop(guard);
        Ok(())
    }

    fn receive(&self, qp: &mut impl QueuePair) -> Outcome {
        let entry = ScatterGatherEntry::new(self.region.lkey(), self.region.addr(), 4);
        let mut guard = qp.start_post_recv();
        // SAFETY: the recording device touches no memory.
        unsafe {
            guard.construct_wr(20).setup_sge(entry.lkey(), entry.addr(), 4);
            guard.construct_wr(21).setup_sge_list(&[entry, entry]);
        }
        guard.construct_wr(22).setup_no_data();
        Ok(guard.post()?)
    }

    /// Polls the completions.
    fn poll(&mut self) -> Result<(), PollCompletionQueueError> {
        loop {
            let mut poller = match self.cq.start_poll() {
                Err(PollCompletionQueueError::CompletionQueueEmpty) => return Ok(()),
                other => other?,
            };
            while let Some(wc) = poller.next()? {
                show((wc, wc.wr_id(), wc.status(), wc.opcode(), wc.byte_len(), wc.imm_data(), wc.wc_flags()));
                show((wc.vendor_err(), wc.qp_num(), wc.src_qp(), wc.pkey_index(), wc.slid(), wc.source()));
            }
        }
    }
}

pub(super) fn basic(recording: &Recording) -> Outcome {
    let mut ground = Ground::new(recording)?;
    let mut qp = ground.sized(ground.pd.create_qp_builder()).build()?;
    show(&qp);
    ground.ask(recording, &qp)?;
    ground.receive(&mut qp)?;
    ground.post(&mut qp)?;
    ground.poll()?;
    qp.close()?;
    Ok(())
}

pub(super) fn extended(recording: &Recording) -> Outcome {
    let mut ground = Ground::new(recording)?;
    let mut qp = ground.sized(ground.pd.create_qp_builder()).build_ex()?;
    show(&qp);
    ground.ask(recording, &qp)?;
    ground.receive(&mut qp)?;
    ground.post(&mut qp)?;
    let mut guard = qp.start_post_send();
    guard.construct_wr(14, SIGNALED).setup_flush(1, 2, 3, FlushPlacement::Global, FlushLevel::Range);
    guard.post()?;
    ground.poll()?;
    qp.close()?;
    Ok(())
}

/// Datagrams, raw packets, and XRC initiators.
pub(super) fn other_services(recording: &Recording) -> Outcome {
    let mut ground = Ground::new(recording)?;
    let mut way = AddressHandleAttribute::new();
    way.setup_port(1).setup_grh_src_gid_index(0);
    let ah = ground.pd.create_ah(&way)?;
    let mut datagrams = ground.sized(ground.pd.create_ud_qp_builder()).build_ex()?;
    let mut guard = datagrams.start_post_send();
    guard.construct_wr(1, SIGNALED).setup_send().setup_ud_addr(&ah, 1, 2).setup_inline_data(b"ping");
    guard.post()?;
    let group = "ff0e::1".parse()?;
    datagrams.attach_mcast(&group, 0)?;
    datagrams.detach_mcast(&group, 0)?;
    let mut packets = ground.sized(ground.pd.create_raw_packet_qp_builder()).setup_max_tso_header(64).build_ex()?;
    let mut guard = packets.start_post_send();
    // SAFETY: the recording device touches no memory.
    unsafe {
        guard.construct_wr(2, SIGNALED).setup_send_tso(b"ethernet header", 1400).setup_sge(ground.region.lkey(), 0, 64)
    };
    guard.post()?;
    let mut initiator = ground.sized(ground.pd.create_xrc_send_qp_builder()).build_ex()?;
    let mut guard = initiator.start_post_send();
    guard.construct_wr(3, SIGNALED).setup_send().setup_xrc_srqn(7).setup_inline_data(b"ping");
    guard.post()?;
    show((&datagrams, &packets, &initiator));
    ground.poll()?;
    Ok(())
}
