//! One step of a thread. The functions that other crates call here are not generic, so the loops are compiled in this
//! crate.

mod choice;
mod measure;

use std::time::Duration;

use anyhow::Result;
use sideway::ibverbs::completion::GenericCompletionQueue;
use sideway::ibverbs::memory_region::{LocalKey, RemoteKey};

pub use self::choice::{Pair, Pairs};
use crate::amount::Amount;
use crate::bandwidth::Window;
use crate::gap::Gap;
use crate::latency::{LossTimeout, Samples};
use crate::list_queue::ListQueue;
use crate::qp_driver::{Drive, Places, Posting, QpDriver};
use crate::receive::{Intake, Receives, Refill};
use crate::request::{Memory, Request};
use crate::signal::Signal;
use crate::wait::{CompletionEvents, Waiting};

/// The operation of each message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// RDMA write.
    Write,
    /// RDMA write with immediate data.
    WriteImmediate,
    /// RDMA read.
    Read,
    /// Send.
    Send,
    /// Send with immediate data.
    SendImmediate,
    /// Fetch-and-add.
    FetchAdd,
    /// Compare-and-swap. Each swap stores the value that it expects.
    CompareSwap,
    /// Compare-and-swap that is validated. Each swap expects the value that the previous one stored.
    ChainedSwap,
}

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub enum Measure {
    /// How many messages are sent in a time.
    Bandwidth(Bandwidth),
    /// How long a message takes.
    Latency(Latency),
}

/// How a bandwidth is measured.
#[derive(Clone, Copy, Debug)]
pub struct Bandwidth {
    /// Length of the intervals in which messages are counted. If absent, the intervals are short at first, and become
    /// longer in a long run.
    pub interval: Option<Duration>,
    /// Maximum number of messages per second on this thread.
    pub rate: Option<f64>,
    /// Number of messages that may be sent in one burst under the rate limit.
    pub burst: u32,
    /// Whether the result contains the number of messages sent, because some may be lost.
    pub counts_sent: bool,
    /// Whether the result contains the number of messages that arrived, because some may be lost.
    pub counts_arrivals: bool,
}

/// How a latency is measured.
#[derive(Clone, Copy, Debug)]
pub struct Latency {
    /// How the arrival of a message is detected.
    pub arrival: Arrival,
    /// Whether this side sends the first message.
    pub begins: bool,
    /// Length of the intervals that are reported.
    pub interval: Duration,
    /// How long to wait for a missing message, if the transport may lose messages.
    pub loss_timeout: Option<LossTimeout>,
    /// The pause before each message except the first.
    pub gap: Option<Gap>,
}

/// How a latency test detects that a message has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// By the completion of the request. Only one side sends.
    Acknowledged,
    /// By the completion of a receive. Both sides send in turn.
    Received,
    /// By the last byte of the message in memory, which the processor must be able to access. Both sides send in turn.
    Written,
}

/// The result of a thread in a step.
#[derive(Debug)]
pub enum Outcome {
    /// What the thread counted in a bandwidth test.
    Window(Window),
    /// Latency samples in ticks of [`Tsc`](crate::Tsc).
    Times(Samples),
    /// The thread measured nothing.
    Nothing,
}

/// The memory of a queue pair on both sides.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// Address of the outgoing messages.
    pub outgoing: u64,
    /// Local key of the outgoing messages.
    pub outgoing_key: LocalKey,
    /// Address of the incoming messages.
    pub incoming: u64,
    /// Local key of the incoming messages.
    pub incoming_key: LocalKey,
    /// Address of the peer's memory.
    pub remote: u64,
    /// Remote key of the peer's memory.
    pub remote_key: RemoteKey,
}

/// The data that a thread needs for a step.
#[derive(Debug)]
pub struct Step<'s> {
    /// The operation of each message.
    pub operation: Operation,
    /// What is measured.
    pub measure: Measure,
    /// How much is measured.
    pub amount: Amount,
    /// Size of each message in bytes.
    pub size: u64,
    /// Whether this side sends.
    pub sends: bool,
    /// Whether this side posts receives.
    pub receives: bool,
    /// The memory of each queue pair.
    pub ends: Vec<End>,
    /// Whether all messages of a queue pair share one slot.
    pub has_one_slot: bool,
    /// Whether messages use all slots in turn, even if lists of requests are posted.
    pub visits_all: bool,
    /// Whether messages are sent inline.
    pub is_inline: bool,
    /// Number of requests in flight per queue pair.
    pub depth: u32,
    /// Number of requests that are posted together.
    pub list: u32,
    /// One in `moderation` requests is signaled.
    pub moderation: u32,
    /// Number of receives that are posted together.
    pub receive_list: u32,
    /// Size of each receive in bytes.
    pub receive_size: u32,
    /// The state that all threads of the side share.
    pub signal: &'s Signal,
    /// For each queue pair, how many receives still have to be posted.
    pub unposted: &'s mut [u32],
    /// For each queue pair, how many requests the step has posted.
    pub posted: &'s mut [u64],
    /// Set if requests are still in flight when the step ends.
    pub has_in_flight: &'s mut bool,
}

/// The completion queues of a thread.
#[derive(Debug)]
pub struct CompletionQueues<'q> {
    /// The queue on which sends complete.
    pub sends: &'q mut GenericCompletionQueue,
    /// The queue on which receives complete.
    pub receives: &'q mut GenericCompletionQueue,
    /// The events of both queues, if the thread sleeps until an event.
    pub events: Option<&'q CompletionEvents>,
}

impl Step<'_> {
    /// Posts the receives of the step.
    ///
    /// # Errors
    ///
    /// Returns an error if a receive cannot be posted or has failed.
    ///
    /// # Safety
    ///
    /// The memory of [`ends`](Self::ends) must be registered with the keys there until the queue pairs are destroyed,
    /// and a slot of incoming memory must be as large as `receive_size`. No reference to the memory may exist.
    pub unsafe fn prepare(&mut self, pairs: Pairs<'_>, queues: CompletionQueues<'_>) -> Result<()> {
        let mut receiving = Waiting::new(queues.receives, queues.events);
        // SAFETY: the caller guarantees the memory.
        let mut receives = Receives::new(&mut receiving, unsafe { self.refills(pairs.intakes()) });
        self.recall(&mut receives)?;
        receives.add(self.unposted)
    }

    /// Measures. If a request fails, the error is a [`Failed`](crate::Failed).
    ///
    /// # Errors
    ///
    /// Returns an error if a request cannot be posted or has failed, or if a message was lost.
    ///
    /// # Safety
    ///
    /// The requirements of [`prepare`](Self::prepare) apply. Outgoing memory must contain the messages, or receive what
    /// the operation fetches, and no peer may access it. With [`Arrival::Written`], the processor must be able to access
    /// the memory.
    pub unsafe fn run(&mut self, pairs: Pairs<'_>, queues: CompletionQueues<'_>) -> Result<Outcome> {
        let mut sends = Waiting::new(queues.sends, queues.events);
        let mut receives = Waiting::new(queues.receives, queues.events);
        if !self.sends {
            // SAFETY: the caller guarantees the memory.
            let mut receives = Receives::new(&mut receives, unsafe { self.refills(pairs.intakes()) });
            let outcome = self.watch(&mut receives);
            self.recall(&mut receives)?;
            return outcome;
        }
        // SAFETY: the caller guarantees the memory.
        unsafe { self.with(pairs, &mut sends, &mut receives) }
    }

    /// Receives messages that have arrived since the loop ended, and counts the receives that were used.
    fn recall(&mut self, receives: &mut Receives<'_, Queue<'_>>) -> Result<()> {
        for (unposted, used) in self.unposted.iter_mut().zip(receives.clear()?) {
            *unposted += used;
        }
        Ok(())
    }

    /// # Safety
    ///
    /// The requirements of [`prepare`](Self::prepare) apply.
    unsafe fn refills<'q>(&self, intakes: Vec<Intake<'q>>) -> Vec<Refill<'q>> {
        let refill = |(intake, end): (_, &End)| {
            // SAFETY: the caller guarantees what `Refill::new` requires.
            unsafe { Refill::new(intake, end.incoming_key, end.incoming, self.receive_size, self.receive_list) }
        };
        intakes.into_iter().zip(&self.ends).map(refill).collect()
    }

    /// # Safety
    ///
    /// The requirements of [`run`](Self::run) apply.
    unsafe fn driver<'q, S, R>(&self, qp: usize, send: &'q mut S, request: &'q R) -> Result<QpDriver<'q, S, R>>
    where
        S: ListQueue,
        R: Request<Service = S::Service>,
    {
        let (memory, places, posting) = self.posting(&self.ends[qp]);
        // SAFETY: the caller guarantees what `QpDriver::new` requires.
        unsafe { QpDriver::new(send, request, memory, places, qp as u32, posting) }
    }

    fn posting(&self, end: &End) -> (Memory, Places, Posting) {
        let places = if self.has_one_slot {
            Places::one(end.outgoing, end.remote)
        } else {
            Places::new(self.size, end.outgoing, end.remote)
        };
        let (length, is_inline) = (self.size as u32, self.is_inline);
        let memory = Memory { lkey: end.outgoing_key, rkey: end.remote_key, length, is_inline };
        let (moderation, list) = match self.measure {
            Measure::Latency(_) => (1, 1),
            Measure::Bandwidth(_) => (self.moderation, self.list),
        };
        (memory, places, Posting { moderation, list, visits_all: self.visits_all })
    }

    /// Measures with these queue pairs, and stores the number of requests that they have posted.
    fn act<'q, D: Drive>(
        &mut self,
        mut qps: Vec<D>,
        sends: &mut Queue<'q>,
        receives: &mut Receives<'_, Queue<'q>>,
    ) -> Result<Outcome> {
        let outcome = self.measure(&mut qps, sends, receives);
        for (posted, qp) in self.posted.iter_mut().zip(&qps) {
            *posted = qp.posted();
            *self.has_in_flight |= qp.in_flight() > 0;
        }
        self.recall(receives)?;
        outcome
    }
}

/// A completion queue of a step.
type Queue<'q> = Waiting<'q, GenericCompletionQueue>;
