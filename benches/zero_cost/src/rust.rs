//! The loops with sideway, as in a program.

use std::hint::black_box;

use anyhow::{Error, Result, anyhow, bail};
use sideway::ibverbs::completion::{
    BasicCompletionQueue, ExtendedCompletionQueue, GenericCompletionQueue, PollCompletionQueueError, PollCompletions,
    WorkCompletion, WorkCompletionStatus,
};
use sideway::ibverbs::queue_pair::{
    BasicSendQueue, ExtendedSendQueue, GenericQueuePair, GenericSendQueue, PostSendGuard, SendQueue,
};
use sideway::ibverbs::work_request::{ReceiveQueue, WorkRequestFlags};

use crate::allocations::none_in;
use crate::objects;
use crate::work::{BATCH, Interface, Task, Values};

const SIGNALED: WorkRequestFlags = WorkRequestFlags::Signaled;

/// How a loop selects the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Queues of one type.
    Type,
    /// Generic queues, with a match in each batch and each poll.
    Choice,
    /// Generic queues, with a match in each step.
    ChoiceInEachStep,
    /// Generic queues, with a match before the loop.
    ChoiceBeforeTheLoop,
}

/// Runs a loop; returns the sum of the fields of its completions.
///
/// # Errors
///
/// A verb failed, or the loop allocated.
pub fn run(by: By, interface: Interface, task: Task, rounds: u64) -> Result<u64> {
    let values = &Values::new();
    match (by, interface) {
        (By::Type, Interface::Extended) => {
            let (mut qp, mut cq) = objects::extended(task)?;
            let (send, recv) = qp.queues();
            none_in(|| extended::run(task, send, recv, &mut cq, values, rounds))
        }
        (By::Type, Interface::Basic) if task.is_prepared() => {
            let (mut qp, mut cq) = objects::basic(task)?;
            let send = qp.queues().0;
            let mut list = prepared::list(send, values, task.requests())?;
            none_in(|| prepared::run(task, send, &mut list, &mut cq, values, rounds))
        }
        (By::Type, Interface::Basic) => {
            let (mut qp, mut cq) = objects::basic(task)?;
            let (send, recv) = qp.queues();
            none_in(|| basic::run(task, send, recv, &mut cq, values, rounds))
        }
        (By::Choice, _) => {
            let (mut qp, mut cq) = either(interface, task)?;
            let (send, recv) = qp.queues();
            none_in(|| generic::run(task, send, recv, &mut cq, values, rounds))
        }
        (By::ChoiceInEachStep, _) => {
            let (mut qp, mut cq) = either(interface, task)?;
            let (send, recv) = qp.queues();
            none_in(|| generic_steps::run(task, send, recv, &mut cq, values, rounds))
        }
        (By::ChoiceBeforeTheLoop, _) => {
            let (mut qp, mut cq) = either(interface, task)?;
            let (send, recv) = qp.queues();
            match (send, &mut cq) {
                (GenericSendQueue::Extended(send), GenericCompletionQueue::Extended(cq)) => {
                    none_in(|| extended::run(task, send, recv, cq, values, rounds))
                }
                (GenericSendQueue::Basic(send), GenericCompletionQueue::Basic(cq)) => {
                    none_in(|| basic::run(task, send, recv, cq, values, rounds))
                }
                _ => bail!("the queue pair and the completion queue differ in kind"),
            }
        }
    }
}

fn either(interface: Interface, task: Task) -> Result<(GenericQueuePair, GenericCompletionQueue)> {
    Ok(match interface {
        Interface::Extended => {
            let (qp, cq) = objects::extended(task)?;
            (qp.into(), cq.into())
        }
        Interface::Basic => {
            let (qp, cq) = objects::basic(task)?;
            (qp.into(), cq.into())
        }
    })
}

#[cold]
#[inline(never)]
fn failed(status: WorkCompletionStatus) -> Error {
    anyhow!("a request ended with: {status}")
}

/// Adds a field to a sum in which the order of the fields matters.
macro_rules! add {
    ($sum:ident, $value:expr) => {
        $sum = $sum.wrapping_add(u64::from($value)).rotate_left(5);
    };
}

/// Adds the fields that every completion has, with a function that is generic over its kind.
#[inline(always)]
fn add_standard_fields(sum: &mut u64, wc: &impl WorkCompletion) {
    let mut total = *sum;
    add!(total, wc.wr_id());
    add!(total, wc.status().raw());
    add!(total, wc.opcode().raw());
    add!(total, wc.vendor_err());
    add!(total, wc.byte_len());
    add!(total, wc.imm_data());
    add!(total, wc.qp_num());
    add!(total, wc.src_qp());
    add!(total, wc.wc_flags().bits());
    add!(total, wc.slid());
    add!(total, wc.sl());
    add!(total, wc.dlid_path_bits());
    *sum = total;
}

/// Passes up to `most` completions of one poll to a block.
macro_rules! each {
    // Uses a method from the trait that all queues implement.
    (by_queue, $cq:ident, $most:expr, |$wc:ident| $body:block) => {
        PollCompletions::poll_each($cq, $most, |$wc| {
            $body
            Ok::<_, Error>(())
        })?
    };
    // Calls the block once for each completion.
    (by_steps, $cq:ident, $most:expr, |$wc:ident| $body:block) => {{
        let mut taken = 0;
        match $cq.start_poll() {
            Ok(mut poller) => {
                while taken < $most
                    && let Some($wc) = poller.next()?
                {
                    $body
                    taken += 1;
                }
            }
            Err(PollCompletionQueueError::CompletionQueueEmpty) => {}
            Err(error) => return Err(error.into()),
        }
        taken
    }};
}

/// Passes `count` completions to a block, in as many polls as required. The queue receives no more than `count`.
macro_rules! all {
    (by_queue, $cq:ident, $count:ident, |$wc:ident| $body:block) => {
        while $count > 0 {
            $count -= each!(by_queue, $cq, $count, |$wc| $body);
        }
    };
    (by_steps, $cq:ident, $count:ident, |$wc:ident| $body:block) => {
        while $count > 0 {
            let mut poller = match $cq.start_poll() {
                Ok(poller) => poller,
                Err(PollCompletionQueueError::CompletionQueueEmpty) => continue,
                Err(error) => return Err(error.into()),
            };
            while let Some($wc) = poller.next()? {
                $body
                $count -= 1;
            }
        }
    };
}

macro_rules! loops {
    ($kind:ident, $Send:ty, $Cq:ty, $all:ident, $some:ident, |$sum:ident, $wc:ident| $further:block) => {
        mod $kind {
            use super::*;

            pub(super) fn run(
                task: Task,
                send: &mut $Send,
                recv: &mut ReceiveQueue,
                cq: &mut $Cq,
                values: &Values,
                rounds: u64,
            ) -> Result<u64> {
                match task {
                    Task::Post1 => post_1(send, cq, values, rounds),
                    Task::Post32 => post_32(send, cq, values, rounds),
                    Task::Prepared1 | Task::Prepared32 | Task::Moved32 => {
                        bail!("only the basic queue has prepared lists")
                    }
                    Task::Steps1 | Task::Steps32 => steps(send, cq, values, task.requests(), rounds),
                    Task::Inline => inline(send, cq, values, rounds),
                    Task::InlineCopy => inline_copy(send, cq, values, rounds),
                    Task::Refill => refill(recv, cq, values, rounds),
                    Task::Standard => standard(cq, rounds),
                    Task::Fields => fields(cq, rounds),
                    Task::Empty => empty(cq, rounds),
                }
            }

            /// Polls one completion, and adds its number.
            #[inline(always)]
            pub(super) fn take_1(cq: &mut $Cq, sum: &mut u64) -> Result<()> {
                while each!($some, cq, 1, |completion| {
                    if completion.status() != WorkCompletionStatus::Success {
                        return Err(failed(completion.status()));
                    }
                    *sum = sum.wrapping_add(completion.wr_id());
                }) == 0
                {}
                Ok(())
            }

            /// Polls `count` completions, and adds their numbers.
            #[inline(always)]
            pub(super) fn take(cq: &mut $Cq, mut count: u32, sum: &mut u64) -> Result<()> {
                all!($all, cq, count, |completion| {
                    if completion.status() != WorkCompletionStatus::Success {
                        return Err(failed(completion.status()));
                    }
                    *sum = sum.wrapping_add(completion.wr_id());
                });
                Ok(())
            }

            #[inline(never)]
            fn post_1(qp: &mut $Send, cq: &mut $Cq, values: &Values, rounds: u64) -> Result<u64> {
                let mut sum = 0_u64;
                for round in 0..rounds {
                    let mut guard = qp.start_post_send();
                    let request = guard.construct_wr(round, SIGNALED).setup_write(values.rkey, values.remote_addr);
                    // SAFETY: the device touches no memory.
                    unsafe { request.setup_sge(values.lkey, values.addr, values.length) };
                    guard.post()?;
                    take_1(cq, &mut sum)?;
                }
                Ok(sum)
            }

            #[inline(never)]
            fn post_32(qp: &mut $Send, cq: &mut $Cq, values: &Values, rounds: u64) -> Result<u64> {
                let mut sum = 0_u64;
                for _ in 0..rounds {
                    let mut guard = qp.start_post_send();
                    for number in 0..u64::from(BATCH) {
                        let request = guard.construct_wr(number, SIGNALED).setup_write(values.rkey, values.remote_addr);
                        // SAFETY: the device touches no memory.
                        unsafe { request.setup_sge(values.lkey, values.addr, values.length) };
                    }
                    guard.post()?;
                    take(cq, BATCH, &mut sum)?;
                }
                Ok(sum)
            }

            /// The first loop of most programs, for batches of a size that is not known at compile time.
            #[inline(never)]
            fn steps(qp: &mut $Send, cq: &mut $Cq, values: &Values, batch: u32, rounds: u64) -> Result<u64> {
                let batch = black_box(batch);
                let mut sum = 0_u64;
                for _ in 0..rounds {
                    let mut guard = qp.start_post_send();
                    for number in 0..u64::from(batch) {
                        let request = guard.construct_wr(number, SIGNALED).setup_write(values.rkey, values.remote_addr);
                        // SAFETY: the device touches no memory.
                        unsafe { request.setup_sge(values.lkey, values.addr, values.length) };
                    }
                    guard.post()?;
                    let mut count = batch;
                    all!(by_steps, cq, count, |completion| {
                        if completion.status() != WorkCompletionStatus::Success {
                            return Err(failed(completion.status()));
                        }
                        sum = sum.wrapping_add(completion.wr_id()).wrapping_add(completion.opcode().raw().into());
                    });
                }
                Ok(sum)
            }

            #[inline(never)]
            fn inline(qp: &mut $Send, cq: &mut $Cq, values: &Values, rounds: u64) -> Result<u64> {
                let data = values.data();
                let mut sum = 0_u64;
                for round in 0..rounds {
                    let mut guard = qp.start_post_send();
                    guard.construct_wr(round, SIGNALED).setup_send().setup_borrowed_inline_data(data);
                    guard.post()?;
                    take_1(cq, &mut sum)?;
                }
                Ok(sum)
            }

            #[inline(never)]
            fn inline_copy(qp: &mut $Send, cq: &mut $Cq, values: &Values, rounds: u64) -> Result<u64> {
                let data = values.data();
                let mut sum = 0_u64;
                for round in 0..rounds {
                    let mut guard = qp.start_post_send();
                    guard.construct_wr(round, SIGNALED).setup_send().setup_inline_data(data);
                    guard.post()?;
                    take_1(cq, &mut sum)?;
                }
                Ok(sum)
            }

            #[inline(never)]
            fn refill(recv: &mut ReceiveQueue, cq: &mut $Cq, values: &Values, rounds: u64) -> Result<u64> {
                let mut sum = 0_u64;
                for _ in 0..rounds {
                    let mut guard = recv.start_post_recv();
                    each!($some, cq, BATCH, |completion| {
                        if completion.status() != WorkCompletionStatus::Success {
                            return Err(failed(completion.status()));
                        }
                        sum = sum.wrapping_add(completion.wr_id());
                        let request = guard.construct_wr(completion.wr_id());
                        // SAFETY: the device touches no memory.
                        unsafe { request.setup_sge(values.lkey, values.addr, values.length) };
                    });
                    guard.post()?;
                }
                Ok(sum)
            }

            #[inline(never)]
            fn standard(cq: &mut $Cq, rounds: u64) -> Result<u64> {
                let mut sum = 0_u64;
                for _ in 0..rounds {
                    each!($some, cq, BATCH, |completion| {
                        add_standard_fields(&mut sum, &completion);
                    });
                }
                Ok(sum)
            }

            #[inline(never)]
            fn fields(cq: &mut $Cq, rounds: u64) -> Result<u64> {
                let mut $sum = 0_u64;
                for _ in 0..rounds {
                    each!($some, cq, BATCH, |$wc| {
                        add_standard_fields(&mut $sum, &$wc);
                        $further
                    });
                }
                Ok($sum)
            }

            /// Counts the polls without a completion, which are all.
            #[inline(never)]
            fn empty(cq: &mut $Cq, rounds: u64) -> Result<u64> {
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

loops!(basic, BasicSendQueue, BasicCompletionQueue, by_steps, by_queue, |sum, wc| {
    add!(sum, wc.pkey_index());
});
loops!(generic, GenericSendQueue, GenericCompletionQueue, by_queue, by_queue, |_sum, _wc| {});
loops!(generic_steps, GenericSendQueue, GenericCompletionQueue, by_steps, by_steps, |_sum, _wc| {});
loops!(extended, ExtendedSendQueue, ExtendedCompletionQueue, by_steps, by_queue, |sum, wc| {
    add!(sum, wc.completion_timestamp()?);
    add!(sum, wc.completion_wallclock_ns()?);
    add!(sum, wc.cvlan()?);
    add!(sum, wc.flow_tag()?);
    let tag = wc.tag_matching_info()?;
    add!(sum, tag.tag);
    add!(sum, tag.private);
});

/// Lists that are built once.
mod prepared {
    use sideway::ibverbs::queue_pair::PreparedSends;

    use super::basic::{take, take_1};
    use super::*;

    pub(super) fn list(send: &mut BasicSendQueue, values: &Values, requests: u32) -> Result<PreparedSends<'static>> {
        let mut list = send.prepare(requests as usize)?;
        let mut guard = list.build();
        for number in 0..u64::from(requests) {
            let request = guard.construct_wr(number, SIGNALED).setup_write(values.rkey, values.remote_addr);
            // SAFETY: the device touches no memory.
            unsafe { request.setup_sge(values.lkey, values.addr, values.length) };
        }
        guard.finish()?;
        Ok(list)
    }

    pub(super) fn run(
        task: Task,
        send: &mut BasicSendQueue,
        list: &mut PreparedSends<'_>,
        cq: &mut BasicCompletionQueue,
        values: &Values,
        rounds: u64,
    ) -> Result<u64> {
        match task {
            Task::Prepared1 => post_1(send, list, cq, rounds),
            Task::Prepared32 => post_32(send, list, cq, rounds),
            _ => moved_32(send, list, cq, values, rounds),
        }
    }

    #[inline(never)]
    fn post_1(
        send: &mut BasicSendQueue,
        list: &mut PreparedSends<'_>,
        cq: &mut BasicCompletionQueue,
        rounds: u64,
    ) -> Result<u64> {
        let mut sum = 0_u64;
        for round in 0..rounds {
            if let Some(mut request) = list.request(0) {
                request.set_wr_id(round);
            }
            // SAFETY: the device touches no memory.
            unsafe { send.post_prepared(list)? };
            take_1(cq, &mut sum)?;
        }
        Ok(sum)
    }

    #[inline(never)]
    fn post_32(
        send: &mut BasicSendQueue,
        list: &mut PreparedSends<'_>,
        cq: &mut BasicCompletionQueue,
        rounds: u64,
    ) -> Result<u64> {
        let mut sum = 0_u64;
        for _ in 0..rounds {
            // SAFETY: the device touches no memory.
            unsafe { send.post_prepared(list)? };
            take(cq, BATCH, &mut sum)?;
        }
        Ok(sum)
    }

    #[inline(never)]
    fn moved_32(
        send: &mut BasicSendQueue,
        list: &mut PreparedSends<'_>,
        cq: &mut BasicCompletionQueue,
        values: &Values,
        rounds: u64,
    ) -> Result<u64> {
        let mut sum = 0_u64;
        for round in 0..rounds {
            for mut request in list.requests() {
                request.set_remote_addr(values.remote_addr + round)?;
            }
            // SAFETY: the device touches no memory.
            unsafe { send.post_prepared(list)? };
            take(cq, BATCH, &mut sum)?;
        }
        Ok(sum)
    }
}
