//! A step of a thread: from the plan to the loop that does it.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use sideway::ibverbs::completion::{CompletionQueue, GenericCompletionQueue};
use sideway::ibverbs::memory_region::{LocalKey, RemoteKey};
use sideway::ibverbs::queue_pair::{GenericSendQueue, SendQueue};
use sideway::ibverbs::work_request::ReceiveQueue;

use super::contents;
use super::corner::{Corner, Pairs};
use crate::fabric::{End, Role};
use crate::plan::{Amount, Measure, Operation, Plan, Semantics};
use crate::run::{
    Bell, CompareSwap, DatagramSendImmediate, FetchAdd, Lane, Memory, Places, Poll, Read, Receives, Refill, Request,
    Samples, Send, SendImmediate, SendPlain, Signal, Until, Window, Write, WriteImmediate, acknowledged, by_memory,
    by_receives, receive, send,
};

/// When nothing has come for so long after a side's own last message, the other one has ended too, or what it sent was lost.
const QUIET: Duration = Duration::from_millis(500);
/// Times are kept for so many messages where their number is not known.
const ROOM: usize = 16 << 20;

/// What a thread brings back.
pub(super) enum Outcome {
    Window(Window),
    /// Nanoseconds.
    Times(Vec<u32>),
    Nothing,
}

/// What a side does in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) sends: bool,
    pub(super) receives: bool,
}

pub(super) fn part(plan: &Plan, role: Role) -> Part {
    let is_client = role == Role::Client;
    let in_turn =
        matches!(plan.measure, Measure::Latency(Semantics::Oneway | Semantics::Rtt)) && !plan.operation.fetches();
    let both = in_turn || plan.is_bidirectional;
    let takes = plan.operation.takes_receive();
    Part { sends: is_client || both, receives: takes && (!is_client || both) }
}

/// Makes ready for a step: zeros where a side looks for a counter, and receives.
pub(super) fn prepare(corner: &mut Corner, plan: &Plan, role: Role, size: u64) -> Result<()> {
    if plan.is_validated {
        contents::fill(corner, plan, role, size)?;
    }
    for lane in 0..corner.unposted.len() {
        if contents::is_in_one_place(plan) {
            // Where a side looks for a counter.
            let offset = corner.memory.offset(lane) + size.max(1) - 1;
            corner.memory.incoming.write_at(offset, &[0])?;
        }
    }
    if part(plan, role).receives {
        with_step(corner, plan, role, size, &Signal::default(), true)?;
    }
    Ok(())
}

/// Does the step.
pub(super) fn run(corner: &mut Corner, plan: &Plan, role: Role, size: u64, signal: &Signal) -> Result<Outcome> {
    with_step(corner, plan, role, size, signal, false)
}

fn with_step(
    corner: &mut Corner,
    plan: &Plan,
    role: Role,
    size: u64,
    signal: &Signal,
    is_preparing: bool,
) -> Result<Outcome> {
    let places = (0..corner.unposted.len()).map(|lane| corner.memory.places(lane)).collect();
    let room = corner.room();
    let Corner { pairs, sends, receives, bell, memory, theirs, inline, unposted, .. } = corner;
    let mut step = Step {
        plan,
        role,
        size,
        signal,
        places,
        theirs,
        outgoing: memory.outgoing.lkey(),
        incoming: memory.incoming.lkey(),
        is_host: memory.is_host(),
        is_inline: size > 0 && size <= u64::from(*inline),
        room,
        is_preparing,
        unposted,
    };
    match (sends, receives) {
        (GenericCompletionQueue::Extended(sends), GenericCompletionQueue::Extended(receives)) => {
            step.at(bell.as_ref(), pairs, sends, receives)
        }
        (GenericCompletionQueue::Basic(sends), GenericCompletionQueue::Basic(receives)) => {
            step.at(bell.as_ref(), pairs, sends, receives)
        }
        _ => bail!("the device makes completion queues now of one kind and now of the other"),
    }
}

/// A step of a thread.
struct Step<'s> {
    plan: &'s Plan,
    role: Role,
    size: u64,
    signal: &'s Signal,
    /// Where messages go out from, and come in.
    places: Vec<(u64, u64)>,
    theirs: &'s [End],
    /// The keys of both.
    outgoing: LocalKey,
    incoming: LocalKey,
    /// The processor can look at both.
    is_host: bool,
    is_inline: bool,
    /// Bytes of a receive.
    room: u32,
    /// Receives are posted, and nothing else is done.
    is_preparing: bool,
    unposted: &'s mut [u32],
}

/// The queues of a queue pair.
type Both<'q, S> = (&'q mut S, &'q mut ReceiveQueue);

/// Those of all, of one kind.
enum Kinds<'q, T> {
    Basic(Vec<Both<'q, sideway::ibverbs::queue_pair::BasicSendQueue<T>>>),
    Extended(Vec<Both<'q, sideway::ibverbs::queue_pair::ExtendedSendQueue<T>>>),
}

fn kinds<'q, T>(queues: impl Iterator<Item = Both<'q, GenericSendQueue<T>>>) -> Result<Kinds<'q, T>> {
    let (mut basic, mut extended) = (Vec::new(), Vec::new());
    for (send, receive) in queues {
        match send {
            GenericSendQueue::Basic(send) => basic.push((send, receive)),
            GenericSendQueue::Extended(send) => extended.push((send, receive)),
        }
    }
    match (basic.is_empty(), extended.is_empty()) {
        (_, true) => Ok(Kinds::Basic(basic)),
        (true, _) => Ok(Kinds::Extended(extended)),
        _ => bail!("the device makes queue pairs now of one kind and now of the other"),
    }
}

impl Step<'_> {
    /// Polling or sleeping: the choice is made here, and not in the loop.
    fn at<C: Poll + CompletionQueue>(
        &mut self,
        bell: Option<&Bell>,
        pairs: &mut Pairs,
        sends: &mut C,
        receives: &mut C,
    ) -> Result<Outcome> {
        match bell {
            None => self.with(pairs, sends, receives),
            Some(bell) => self.with(pairs, &mut bell.at(sends), &mut bell.at(receives)),
        }
    }

    /// With completion queues of one kind, as above.
    fn with<C: Poll>(&mut self, pairs: &mut Pairs, sends: &mut C, receives: &mut C) -> Result<Outcome> {
        match pairs {
            Pairs::Connected(pairs) => match kinds(pairs.iter_mut().map(|pair| pair.queues()))? {
                Kinds::Basic(queues) => self.connected(queues, sends, receives),
                Kinds::Extended(queues) => self.connected(queues, sends, receives),
            },
            Pairs::Datagram(pairs) => {
                let targets: Vec<_> = pairs.iter().filter_map(|(_, target)| target.clone()).collect();
                match kinds(pairs.iter_mut().map(|(pair, _)| pair.queues()))? {
                    Kinds::Basic(queues) => self.datagrams(queues, targets, sends, receives),
                    Kinds::Extended(queues) => self.datagrams(queues, targets, sends, receives),
                }
            }
        }
    }

    fn connected<S, C>(&mut self, queues: Vec<Both<'_, S>>, sends: &mut C, receives: &mut C) -> Result<Outcome>
    where
        S: SendQueue<Service = sideway::ibverbs::queue_pair::Connected>,
        C: Poll,
    {
        match self.plan.operation {
            Operation::Write => self.act(queues, |_| Write, sends, receives),
            Operation::WriteWithImmediate => self.act(queues, |_| WriteImmediate, sends, receives),
            Operation::Read => self.act(queues, |_| Read, sends, receives),
            Operation::Send => self.act(queues, |_| SendPlain, sends, receives),
            Operation::SendWithImmediate => self.act(queues, |_| SendImmediate, sends, receives),
            Operation::FetchAdd => self.act(queues, |_| FetchAdd, sends, receives),
            Operation::CompareSwap => self.act(queues, |_| CompareSwap, sends, receives),
        }
    }

    fn datagrams<S, C>(
        &mut self,
        queues: Vec<Both<'_, S>>,
        targets: Vec<crate::run::DatagramSend>,
        sends: &mut C,
        receives: &mut C,
    ) -> Result<Outcome>
    where
        S: SendQueue<Service = sideway::ibverbs::queue_pair::Datagram>,
        C: Poll,
    {
        match self.plan.operation {
            Operation::SendWithImmediate => {
                self.act(queues, |lane| DatagramSendImmediate(targets[lane].clone()), sends, receives)
            }
            _ => self.act(queues, |lane| targets[lane].clone(), sends, receives),
        }
    }

    fn act<S, R, C>(
        &mut self,
        queues: Vec<Both<'_, S>>,
        request: impl Fn(usize) -> R,
        sends: &mut C,
        receives: &mut C,
    ) -> Result<Outcome>
    where
        S: SendQueue,
        R: Request<Service = S::Service>,
        C: Poll,
    {
        let Part { sends: is_sending, receives: is_receiving } = part(self.plan, self.role);
        let (mut lanes, mut refills) = (Vec::new(), Vec::new());
        for (lane, (send, receive)) in queues.into_iter().enumerate() {
            // SAFETY: the memory goes after the queue pairs, and its places are as large as the largest message. No peer reaches what goes
            // out, so that inline data is read while nobody writes it. In what comes in, the other side's writes and this one's may meet,
            // and nobody looks at the bytes but for a counter.
            unsafe {
                lanes.push(self.lane(lane, send, request(lane)));
                refills.push(self.refill(lane, receive));
            }
        }
        let mut receives = Receives::new(receives, refills);
        if self.is_preparing {
            for (unposted, used) in self.unposted.iter_mut().zip(receives.clear()?) {
                *unposted += used;
            }
            receives.add(self.unposted)?;
            return Ok(Outcome::Nothing);
        }
        let outcome = self.measure(&mut lanes, sends, &mut receives, (is_sending, is_receiving));
        for (unposted, used) in self.unposted.iter_mut().zip(receives.clear()?) {
            *unposted += used;
        }
        outcome
    }

    fn measure<S, R, C>(
        &self,
        lanes: &mut [Lane<'_, S, R>],
        sends: &mut C,
        receives: &mut Receives<'_, C>,
        (is_sending, is_receiving): (bool, bool),
    ) -> Result<Outcome>
    where
        S: SendQueue,
        R: Request<Service = S::Service>,
        C: Poll,
    {
        match self.plan.measure {
            Measure::Bandwidth if is_sending => {
                let rules = Send {
                    amount: self.plan.amount,
                    depth: self.plan.tx_depth.into(),
                    list: self.plan.post_list,
                    interval: self.plan.interval,
                    rate: self.rate(),
                };
                let window = send(lanes, sends, is_receiving.then_some(&mut *receives), &rules, self.signal)?;
                if is_receiving {
                    // The other side may not have sent all of its own.
                    receive(receives, self.messages(), Some(QUIET), self.signal)?;
                }
                Ok(Outcome::Window(window))
            }
            Measure::Bandwidth if is_receiving => {
                receive(receives, self.messages(), None, self.signal)?;
                Ok(Outcome::Nothing)
            }
            Measure::Latency(semantics) => self.time(semantics, lanes, sends, receives, is_sending),
            Measure::Bandwidth => Ok(self.wait()),
        }
    }

    /// The share of this thread of the messages a second that are allowed.
    fn rate(&self) -> Option<f64> {
        let bytes = self.plan.rate_limit? * 1e9 / 8.0;
        Some(bytes / self.size.max(1) as f64 / f64::from(self.plan.threads.max(1)))
    }

    /// As many messages as come.
    fn messages(&self) -> u64 {
        match self.plan.amount {
            Amount::Messages { count, warm_up } => (count + warm_up) * self.places.len() as u64,
            Amount::Time { .. } => u64::MAX,
        }
    }

    fn time<S, R, C>(
        &self,
        semantics: Semantics,
        lanes: &mut [Lane<'_, S, R>],
        sends: &mut C,
        receives: &mut Receives<'_, C>,
        is_sending: bool,
    ) -> Result<Outcome>
    where
        S: SendQueue,
        R: Request<Service = S::Service>,
        C: Poll,
    {
        let Some(lane) = lanes.first_mut() else { return Ok(Outcome::Nothing) };
        let begins = self.role == Role::Client;
        let (until, mut samples) = match self.plan.amount {
            Amount::Messages { count, warm_up } => {
                let samples = if begins { Samples::new(count as usize, warm_up) } else { Samples::none() };
                (Until::Count(count + warm_up), samples)
            }
            Amount::Time { time, warm_up } => {
                // Its memory takes time, which is no part of the test's, and only one side uses it: the other waits meanwhile.
                let samples = if begins { Samples::new(ROOM, 0) } else { Samples::none() };
                let begin = Instant::now() + warm_up;
                (Until::Time(begin + time), samples.from(begin))
            }
        };
        if semantics == Semantics::Ack || self.plan.operation.fetches() {
            if !is_sending {
                if self.plan.operation.takes_receive() {
                    receive(receives, self.messages(), None, self.signal)?;
                    return Ok(Outcome::Nothing);
                }
                return Ok(self.wait());
            }
            acknowledged(lane, sends, until, &mut samples, self.signal)?;
        } else if self.plan.operation.takes_receive() {
            by_receives(lane, sends, receives, begins, until, &mut samples, self.signal)?;
        } else {
            ensure!(self.is_host, "a GPU's memory is not looked at by the processor: give --imm, or --latency ack");
            let (outgoing, incoming) = self.places[0];
            let last = |start: u64| std::ptr::with_exposed_provenance_mut((start + self.size - 1) as usize);
            // SAFETY: the last bytes of both places are within the memory, which is the host's, and this thread is the only one of the process that uses them.
            unsafe {
                by_memory(lane, sends, (last(outgoing), last(incoming)), begins, until, &mut samples, self.signal)?;
            }
        }
        Ok(if begins { Outcome::Times(samples.into_times()) } else { Outcome::Nothing })
    }

    /// The other side does it all.
    fn wait(&self) -> Outcome {
        while !self.signal.has_stopped() {
            std::thread::sleep(Duration::from_millis(1));
        }
        Outcome::Nothing
    }

    /// # Safety
    ///
    /// As for [`Lane::new`].
    unsafe fn lane<'q, S, R>(&self, lane: usize, send: &'q mut S, request: R) -> Lane<'q, S, R>
    where
        S: SendQueue,
        R: Request<Service = S::Service>,
    {
        let local = self.places[lane].0;
        let their = self.theirs[lane];
        let places = if contents::is_in_one_place(self.plan) {
            Places::one(local, their.address)
        } else {
            Places::new(self.size, local, their.address)
        };
        let memory = Memory {
            lkey: self.outgoing,
            rkey: RemoteKey::from(their.rkey),
            length: self.size as u32,
            is_inline: self.is_inline,
        };
        let moderation = if matches!(self.plan.measure, Measure::Latency(_)) { 1 } else { self.plan.cq_moderation };
        // SAFETY: the caller's promise.
        unsafe { Lane::new(send, request, memory, places, lane as u32, moderation) }
    }

    /// # Safety
    ///
    /// As for [`Refill::new`].
    unsafe fn refill<'q>(&self, lane: usize, queue: &'q mut ReceiveQueue) -> Refill<'q> {
        // SAFETY: the caller's promise.
        unsafe { Refill::new(queue, self.incoming, self.places[lane].1, self.room, self.plan.rx_depth) }
    }
}
