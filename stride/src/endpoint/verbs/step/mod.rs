//! One step of a thread, from the plan to the loop that runs the step.

mod choice;
mod measure;

use anyhow::Result;
use sideway::ibverbs::memory_region::{LocalKey, RemoteKey};

use self::choice::Both;
use super::contents;
use super::worker_resources::WorkerResources;
use crate::endpoint::{QpAddress, Role};
use crate::plan::{Measure, Plan, Semantics};
use crate::run::{
    Intake, ListQueue, Memory, Places, Poll, Posting, QpDriver, Receives, Refill, Request, Samples, Signal, Waiting,
    Window, with_peer,
};

/// The result of a thread in a step.
pub(super) enum Outcome {
    Window(Window),
    /// Latency samples in ticks of [`Tsc`](crate::run::Tsc).
    Times(Samples),
    Nothing,
}

/// What a side does in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) sends: bool,
    pub(super) receives: bool,
}

pub(super) fn part(plan: &Plan, role: Role) -> Part {
    let is_sender = if role == Role::Client { plan.client_sends() } else { plan.workload.direction.is_reversed() };
    let in_turn = matches!(plan.workload.measure, Measure::Latency(Semantics::Oneway | Semantics::Rtt))
        && !plan.workload.operation.fetches();
    let both = in_turn || plan.workload.direction.is_both();
    let takes = plan.workload.operation.takes_receive();
    Part { sends: is_sender || both, receives: takes && (!is_sender || both) }
}

/// Whether the figures of a test are those of this side.
pub(super) fn measures(plan: &Plan, role: Role) -> bool {
    plan.workload.direction.is_both() || (role == Role::Client) != plan.workload.direction.is_reversed()
}

/// Prepares a step: writes the initial contents of memory and posts receives.
pub(super) fn prepare(worker: &mut WorkerResources, plan: &Plan, role: Role, size: u64) -> Result<()> {
    worker.posted.fill(0);
    worker.has_in_flight = false;
    if plan.workload.is_validated {
        contents::fill(worker, plan, role, size)?;
    } else if plan.looks_for_arrivals() {
        contents::mark(worker, plan, role, size)?;
    }
    for qp in 0..worker.unposted.len() {
        if contents::is_in_one_place(plan) {
            // Clears the last byte of the message, because the receiver polls this byte.
            let offset = worker.memory.offset(qp) + size.max(1) - 1;
            worker.memory.of_mut(qp).incoming.write_at(offset, &[0])?;
        }
    }
    if part(plan, role).receives {
        with_step(worker, plan, role, size, &Signal::default(), true)?;
    }
    Ok(())
}

/// Runs the step.
pub(super) fn run(
    worker: &mut WorkerResources,
    plan: &Plan,
    role: Role,
    size: u64,
    signal: &Signal,
) -> Result<Outcome> {
    with_step(worker, plan, role, size, signal, false)
}

fn with_step(
    worker: &mut WorkerResources,
    plan: &Plan,
    role: Role,
    size: u64,
    signal: &Signal,
    is_preparing: bool,
) -> Result<Outcome> {
    let outcome = unnamed(worker, plan, role, size, signal, is_preparing);
    outcome.map_err(|error| with_peer(error, |failed| worker.peer(failed)))
}

/// Runs the step. If a request fails, the error does not yet name the remote queue pair.
fn unnamed(
    worker: &mut WorkerResources,
    plan: &Plan,
    role: Role,
    size: u64,
    signal: &Signal,
    is_preparing: bool,
) -> Result<Outcome> {
    let qps = 0..worker.unposted.len();
    let places = qps.clone().map(|qp| worker.memory.places(qp)).collect();
    let pairs = qps.map(|qp| worker.memory.of(qp));
    let keys = pairs.map(|pair| (pair.outgoing.lkey(), pair.incoming.lkey())).collect();
    let slot_size = worker.slot_size();
    let WorkerResources {
        pairs, sends, receives, events, memory, theirs, inline, unposted, posted, has_in_flight, ..
    } = worker;
    let mut step = Step {
        plan,
        role,
        size,
        signal,
        places,
        theirs,
        keys,
        is_host: memory.is_host(),
        is_inline: size > 0 && size <= u64::from(*inline),
        slot_size,
        is_preparing,
        unposted,
        posted,
        has_in_flight,
    };
    let events = events.as_ref();
    step.with(pairs, &mut Waiting::new(sends, events), &mut Waiting::new(receives, events))
}

/// The data that a thread needs for a step.
struct Step<'s> {
    plan: &'s Plan,
    role: Role,
    size: u64,
    signal: &'s Signal,
    /// For each queue pair, the addresses of its outgoing and its incoming messages.
    places: Vec<(u64, u64)>,
    theirs: &'s [QpAddress],
    /// For each queue pair, the local keys of the memory for outgoing and for incoming messages.
    keys: Vec<(LocalKey, LocalKey)>,
    /// Whether the processor can access the memory of the messages.
    is_host: bool,
    is_inline: bool,
    /// Size of a receive buffer in bytes.
    slot_size: u32,
    /// Whether the step is only being prepared: it then posts receives but does not measure.
    is_preparing: bool,
    unposted: &'s mut [u32],
    posted: &'s mut [u64],
    has_in_flight: &'s mut bool,
}

impl Step<'_> {
    fn act<S, R, C>(
        &mut self,
        queues: Vec<Both<'_, S>>,
        request: impl Fn(usize) -> R,
        sends: &mut C,
        receives: &mut C,
    ) -> Result<Outcome>
    where
        S: ListQueue,
        R: Request<Service = S::Service>,
        C: Poll,
    {
        let Part { sends: is_sending, receives: is_receiving } = part(self.plan, self.role);
        let requests: Vec<R> = (0..queues.len()).map(request).collect();
        let (mut qps, mut refills) = (Vec::new(), Vec::new());
        for (qp, ((send, intake), request)) in queues.into_iter().zip(&requests).enumerate() {
            // SAFETY: the memory is dropped after the queue pairs, and its slots are as large as the largest message.
            // No peer accesses outgoing memory, so nothing writes inline data while it is read. Writes of both sides
            // may overlap in incoming memory, whose bytes are not read, except for a counter.
            unsafe {
                qps.push(self.driver(qp, send, request, is_sending)?);
                refills.push(self.refill(qp, intake));
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
        let outcome = self.measure(&mut qps, sends, &mut receives, (is_sending, is_receiving));
        for (posted, qp) in self.posted.iter_mut().zip(&qps) {
            *posted = qp.posted;
            *self.has_in_flight |= qp.in_flight() > 0;
        }
        for (unposted, used) in self.unposted.iter_mut().zip(receives.clear()?) {
            *unposted += used;
        }
        outcome
    }

    /// # Safety
    ///
    /// The requirements of [`QpDriver::new`] apply.
    unsafe fn driver<'q, S, R>(
        &self,
        qp: usize,
        send: &'q mut S,
        request: &'q R,
        is_sending: bool,
    ) -> Result<QpDriver<'q, S, R>>
    where
        S: ListQueue,
        R: Request<Service = S::Service>,
    {
        let local = self.places[qp].0;
        let their = self.theirs[qp];
        let places = if contents::is_in_one_place(self.plan) {
            Places::one(local, their.address)
        } else {
            Places::new(self.size, local, their.address)
        };
        let memory = Memory {
            lkey: self.keys[qp].0,
            rkey: RemoteKey::from(their.rkey),
            length: self.size as u32,
            is_inline: self.is_inline,
        };
        let visits_all = self.plan.workload.is_validated;
        let mut posting = match self.plan.workload.measure {
            Measure::Latency(_) => Posting { moderation: 1, list: 1, visits_all },
            Measure::Bandwidth => {
                Posting { moderation: self.plan.moderation(self.size), list: self.plan.queues.post_list, visits_all }
            }
        };
        if !is_sending || self.is_preparing {
            posting.list = 0;
        }
        // SAFETY: the caller guarantees what `QpDriver::new` requires.
        unsafe { QpDriver::new(send, request, memory, places, qp as u32, posting) }
    }

    /// # Safety
    ///
    /// The requirements of [`Refill::new`] apply.
    unsafe fn refill<'q>(&self, qp: usize, intake: Intake<'q>) -> Refill<'q> {
        let batch = self.plan.queues.receive_list.unwrap_or(self.plan.queues.rx_depth / 4);
        // SAFETY: the caller guarantees what `Refill::new` requires.
        unsafe { Refill::new(intake, self.keys[qp].1, self.places[qp].1, self.slot_size, batch) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Direction, Workload};

    #[test]
    fn sender_reports_the_figures() {
        let of = |direction| {
            let plan = Plan { workload: Workload { direction, ..Workload::default() }, ..Plan::default() };
            [Role::Client, Role::Server].map(|role| measures(&plan, role))
        };
        assert_eq!(of(Direction::Forward), [true, false]);
        assert_eq!(of(Direction::Reversed), [false, true]);
        assert_eq!(of(Direction::Both), [true, true]);
    }
}
