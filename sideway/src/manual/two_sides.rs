// What examples of the manual begin with: two queue pairs on softrnic's device, connected with each other. They include this
// file, which is no module of the crate.

use std::error::Error;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::address::AddressHandleAttribute;
use sideway::ibverbs::completion::{CompletionChannel, CompletionRecord, GenericCompletionQueue, PollCompletions};
use sideway::ibverbs::device::DeviceList;
use sideway::ibverbs::device_context::{DeviceContext, Mtu};
use sideway::ibverbs::memory_region::OwnedMemoryRegion;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{
    GenericQueuePair, QueuePair, QueuePairAttribute, QueuePairState, SendOperationFlags,
};

/// What can be taken to another thread, and turned into a `Box<dyn Error>`.
pub type Fault = Box<dyn Error + Send + Sync>;

/// One side. Dropped in this order: the memory goes behind the queue pair whose requests name it.
pub struct Side {
    pub qp: GenericQueuePair,
    pub cq: GenericCompletionQueue,
    pub channel: Arc<CompletionChannel>,
    pub memory: OwnedMemoryRegion,
}

/// softrnic's device.
pub fn soft_device() -> Result<Arc<DeviceContext>, Fault> {
    softrnic::register()?;
    Ok(DeviceList::new()?.find("soft0")?.open()?)
}

/// Two sides in one domain, connected, with a page of memory each that the other may read, write and change by atomics.
pub fn two_sides() -> Result<[Side; 2], Fault> {
    let context = soft_device()?;
    let pd = context.alloc_pd()?;
    let sides = [side(&pd)?, side(&pd)?];
    let [near, far] = &sides;
    connect(&context, &near.qp, far.qp.qp_number())?;
    connect(&context, &far.qp, near.qp.qp_number())?;
    Ok(sides)
}

fn side(pd: &Arc<ProtectionDomain>) -> Result<Side, Fault> {
    let context = pd.device_context();
    let channel = context.create_comp_channel()?;
    let cq = context.create_cq_builder().setup_comp_channel(&channel, 0).build_generic()?;
    let qp = pd
        .create_qp_builder()
        .setup_max_inline_data(64)
        .setup_send_cq(&cq)
        .setup_recv_cq(&cq)
        .setup_send_ops_flags(
            SendOperationFlags::Send
                | SendOperationFlags::Write
                | SendOperationFlags::Read
                | SendOperationFlags::AtomicFetchAndAdd
                | SendOperationFlags::BindMemoryWindow
                | SendOperationFlags::LocalInvalidate,
        )
        .build_generic()?;
    let remote = AccessFlags::RemoteRead | AccessFlags::RemoteWrite | AccessFlags::RemoteAtomic;
    let access = remote | AccessFlags::LocalWrite | AccessFlags::MemoryWindowBind;
    let memory = pd.reg_owned_mr(4096, access)?;
    Ok(Side { qp, cq, channel, memory })
}

/// Takes `qp` from Reset to ReadyToSend, with the queue pair of number `peer` at the other end.
pub fn connect(context: &DeviceContext, qp: &impl QueuePair, peer: u32) -> Result<(), Fault> {
    let mut way = AddressHandleAttribute::new();
    way.setup_port(1).setup_grh(&context.query_gid(1, 0)?, 0, 0, 64, 0);
    let mut attributes = QueuePairAttribute::new();
    attributes
        .setup_state(QueuePairState::Init)
        .setup_pkey_index(0)
        .setup_port(1)
        .setup_access_flags(AccessFlags::RemoteRead | AccessFlags::RemoteWrite | AccessFlags::RemoteAtomic);
    qp.modify(&attributes)?;
    let mut attributes = QueuePairAttribute::new();
    attributes
        .setup_state(QueuePairState::ReadyToReceive)
        .setup_address_vector(&way)
        .setup_path_mtu(Mtu::Mtu1024)
        .setup_dest_qp_num(peer)
        .setup_rq_psn(0)
        .setup_max_dest_read_atomic(1)
        .setup_min_rnr_timer(12);
    qp.modify(&attributes)?;
    let mut attributes = QueuePairAttribute::new();
    attributes
        .setup_state(QueuePairState::ReadyToSend)
        .setup_sq_psn(0)
        .setup_timeout(14)
        .setup_retry_cnt(7)
        .setup_rnr_retry(7)
        .setup_max_read_atomic(1);
    qp.modify(&attributes)?;
    Ok(())
}

/// The next completion of a queue that has one request under way.
pub fn wait(cq: &mut impl PollCompletions) -> Result<CompletionRecord, Fault> {
    let begun = Instant::now();
    let mut records = Vec::new();
    while begun.elapsed() < Duration::from_secs(60) {
        cq.poll_records(&mut records)?;
        if let Some(record) = records.pop() {
            return Ok(record);
        }
        thread::yield_now();
    }
    Err("nothing completes".into())
}
