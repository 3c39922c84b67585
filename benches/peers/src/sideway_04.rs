//! The loops of sideway 0.4.

use anyhow::{Context, Result, bail, ensure};
use sideway_04::ibverbs::completion::{
    BasicCompletionQueue, ExtendedCompletionQueue, GenericCompletionQueue, PollCompletionQueueError,
};
use sideway_04::ibverbs::device::DeviceList;
use sideway_04::ibverbs::device_context::DeviceContext;
use sideway_04::ibverbs::queue_pair::{
    BasicQueuePair, ExtendedQueuePair, GenericQueuePair, PostSendGuard, QueuePair, QueuePairBuilder,
    SendOperationFlags, SetInlineData, SetScatterGatherEntry, WorkRequestFlags,
};
use std::sync::Arc;

pub(crate) fn run(is_extended: bool, task: &str, rounds: u64) -> Result<u64> {
    let context = open()?;
    let mut cq = context.create_cq_builder();
    cq.setup_cqe(64);
    if is_extended {
        let cq = cq.build_ex()?;
        let mut qp = builder(&context, cq.clone().into())?.build_ex()?;
        extended::run(&mut qp, &cq, task, rounds)
    } else {
        let cq = cq.build()?;
        let mut qp = builder(&context, cq.clone().into())?.build()?;
        basic::run(&mut qp, &cq, task, rounds)
    }
}

pub(crate) fn run_generic(is_extended: bool, task: &str, rounds: u64) -> Result<u64> {
    let context = open()?;
    let mut cq = context.create_cq_builder();
    cq.setup_cqe(64);
    let cq: GenericCompletionQueue = if is_extended { cq.build_ex()?.into() } else { cq.build()?.into() };
    let qp = builder(&context, cq.clone())?;
    let mut qp: GenericQueuePair = if is_extended { qp.build_ex()?.into() } else { qp.build()?.into() };
    generic::run(&mut qp, &cq, task, rounds)
}

fn open() -> Result<Arc<DeviceContext>> {
    let list = DeviceList::new()?;
    let device = list.iter().next().context("no device found")?;
    Ok(device.open()?)
}

fn builder(context: &Arc<DeviceContext>, cq: GenericCompletionQueue) -> Result<QueuePairBuilder> {
    let mut builder = context.alloc_pd()?.create_qp_builder();
    builder.setup_send_cq(cq.clone()).setup_recv_cq(cq).setup_max_send_wr(32).setup_max_inline_data(32);
    builder.setup_send_ops_flags(SendOperationFlags::Send | SendOperationFlags::Write);
    Ok(builder)
}

macro_rules! loops {
    ($kind:ident, $Qp:ty, $Cq:ty) => {
        mod $kind {
            use super::*;

            pub(super) fn run(qp: &mut $Qp, cq: &$Cq, task: &str, rounds: u64) -> Result<u64> {
                match task {
                    "post1" => post(qp, cq, 1, rounds),
                    "post32" => post(qp, cq, 32, rounds),
                    "inline" => inline(qp, cq, b"thirty-two bytes of inline data.", rounds),
                    "empty" => empty(cq, rounds),
                    _ => bail!("no loop {task}"),
                }
            }

            #[inline(always)]
            fn take(cq: &$Cq, mut count: u64, sum: &mut u64) -> Result<()> {
                while count > 0 {
                    let mut poller = match cq.start_poll() {
                        Ok(poller) => poller,
                        Err(PollCompletionQueueError::CompletionQueueEmpty) => continue,
                        Err(error) => return Err(error.into()),
                    };
                    for completion in &mut poller {
                        ensure!(completion.status() == 0, "a request failed");
                        *sum = sum.wrapping_add(completion.wr_id());
                        count -= 1;
                    }
                }
                Ok(())
            }

            #[inline(never)]
            fn post(qp: &mut $Qp, cq: &$Cq, batch: u64, rounds: u64) -> Result<u64> {
                let mut sum = 0;
                for _ in 0..rounds {
                    let mut guard = qp.start_post_send();
                    for number in 0..batch {
                        let request = guard.construct_wr(number, WorkRequestFlags::Signaled).setup_write(9, 0x5000);
                        // SAFETY: the device accesses no memory.
                        unsafe { request.setup_sge(7, 0x4000, 32) };
                    }
                    guard.post()?;
                    take(cq, batch, &mut sum)?;
                }
                Ok(sum)
            }

            #[inline(never)]
            fn inline(qp: &mut $Qp, cq: &$Cq, data: &[u8], rounds: u64) -> Result<u64> {
                let mut sum = 0;
                for round in 0..rounds {
                    let mut guard = qp.start_post_send();
                    let request = guard.construct_wr(round, WorkRequestFlags::Signaled | WorkRequestFlags::Inline);
                    request.setup_send().setup_inline_data(data);
                    guard.post()?;
                    take(cq, 1, &mut sum)?;
                }
                Ok(sum)
            }

            #[inline(never)]
            fn empty(cq: &$Cq, rounds: u64) -> Result<u64> {
                let mut sum = 0;
                for _ in 0..rounds {
                    match cq.start_poll() {
                        Ok(_) => {}
                        Err(PollCompletionQueueError::CompletionQueueEmpty) => sum += 1,
                        Err(error) => return Err(error.into()),
                    }
                }
                Ok(sum)
            }
        }
    };
}

loops!(basic, BasicQueuePair, BasicCompletionQueue);
loops!(extended, ExtendedQueuePair, ExtendedCompletionQueue);
loops!(generic, GenericQueuePair, GenericCompletionQueue);
