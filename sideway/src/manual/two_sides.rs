// Setup for the examples of the manual: two queue pairs on softrnic's device that are connected with each other. The
// examples include this file; it is not a module of the crate.

use std::error::Error;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::completion::{CompletionChannel, CompletionRecord, GenericCompletionQueue, PollCompletions};
use sideway::ibverbs::device::DeviceList;
use sideway::ibverbs::device_context::DeviceContext;
use sideway::ibverbs::memory_region::OwnedMemoryRegion;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{GenericQueuePair, QueuePair, RcOptions, SendOperationFlags};

/// An error that can be sent to another thread.
pub type Fault = Box<dyn Error + Send + Sync>;

/// One queue pair with its completion queue and memory. The fields are dropped in the order of their declaration, so
/// the memory outlives the queue pair that uses it.
pub struct Side {
    pub qp: GenericQueuePair,
    pub cq: GenericCompletionQueue,
    pub channel: Arc<CompletionChannel>,
    pub memory: OwnedMemoryRegion,
}

/// Opens softrnic's device.
pub fn soft_device() -> Result<Arc<DeviceContext>, Fault> {
    softrnic::register()?;
    Ok(DeviceList::new()?.find("soft0")?.open()?)
}

/// Creates two connected sides in one domain. Each side has a page of memory that its peer may read, write and change
/// with atomics.
pub fn two_sides() -> Result<[Side; 2], Fault> {
    let context = soft_device()?;
    let pd = context.alloc_pd()?;
    let sides = [side(&pd)?, side(&pd)?];
    let [near, far] = &sides;
    let options = RcOptions::new();
    near.qp.connect_rc(&far.qp.local_endpoint(&options)?, &options)?;
    far.qp.connect_rc(&near.qp.local_endpoint(&options)?, &options)?;
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

/// Polls until the one outstanding request completes.
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
    Err("no completion within the time limit".into())
}
