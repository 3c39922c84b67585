//! The objects of a loop.

use std::sync::Arc;

use anyhow::Result;
use sideway::ibverbs::completion::{
    BasicCompletionQueue, CompletionQueue, CompletionQueueBuilder, CreateCompletionQueueWorkCompletionFlags as Fields,
    ExtendedCompletionQueue,
};
use sideway::ibverbs::device::DeviceList;
use sideway::ibverbs::device_context::DeviceContext;
use sideway::ibverbs::queue_pair::{BasicQueuePair, ExtendedQueuePair, QueuePairBuilder};

use crate::device;
use crate::work::{BATCH, Task, Values};

/// A queue pair of the extended interface, and the completion queue of both its queues, ready for `task`.
///
/// # Errors
///
/// A verb failed.
pub fn extended(task: Task) -> Result<(ExtendedQueuePair, ExtendedCompletionQueue)> {
    let context = open()?;
    let cq = cq_builder(&context).setup_wc_flags(Fields::all()).build_ex()?;
    make_ready(&cq, task);
    let qp = qp_builder(&context, &cq)?.build_ex()?;
    Ok((qp, cq))
}

/// As [`extended`], of the basic interface.
///
/// # Errors
///
/// A verb failed.
pub fn basic(task: Task) -> Result<(BasicQueuePair, BasicCompletionQueue)> {
    let context = open()?;
    let cq = cq_builder(&context).build()?;
    make_ready(&cq, task);
    let qp = qp_builder(&context, &cq)?.build()?;
    Ok((qp, cq))
}

fn open() -> Result<Arc<DeviceContext>> {
    device::register()?;
    Ok(DeviceList::new()?.find(device::NAME)?.open()?)
}

fn cq_builder(context: &Arc<DeviceContext>) -> CompletionQueueBuilder {
    let mut builder = context.create_cq_builder();
    builder.setup_cqe(2 * BATCH);
    builder
}

fn qp_builder(context: &Arc<DeviceContext>, cq: &impl CompletionQueue) -> Result<QueuePairBuilder> {
    let mut builder = context.alloc_pd()?.create_qp_builder();
    builder.setup_send_cq(cq).setup_recv_cq(cq).setup_max_send_wr(BATCH).setup_max_recv_wr(BATCH);
    builder.setup_max_inline_data(Values::new().length);
    Ok(builder)
}

/// Adds the completions that the first round polls to the queue.
fn make_ready(cq: &impl CompletionQueue, task: Task) {
    let completions = match task {
        Task::Empty => 0,
        task if task.posts_sends() => 0,
        Task::Refill => BATCH.into(),
        // More than any run polls.
        _ => u64::MAX / 2,
    };
    // SAFETY: this device created the queue, and nothing polls it.
    unsafe { device::fill(cq.cq().as_ptr(), completions) };
}
