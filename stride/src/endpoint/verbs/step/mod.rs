//! A step of a thread: from the plan to the loop that does it.

mod choice;
mod measure;

use anyhow::Result;
use sideway::ibverbs::memory_region::{LocalKey, RemoteKey};
use sideway::ibverbs::queue_pair::SendQueue;

use self::choice::Both;
use super::contents;
use super::worker_resources::WorkerResources;
use crate::endpoint::{QpAddress, Role};
use crate::plan::{Measure, Plan, Semantics};
use crate::run::{
    Intake, Memory, Places, Poll, QpDriver, Receives, Refill, Request, Samples, Signal, Waiting, Window, with_peer,
};

/// What a thread brings back.
pub(super) enum Outcome {
    Window(Window),
    /// Ticks of the clock, as `Tsc` counts them.
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

/// Whether the figures of a test are of this side, or of both.
pub(super) fn measures(plan: &Plan, role: Role) -> bool {
    plan.workload.direction.is_both() || (role == Role::Client) != plan.workload.direction.is_reversed()
}

/// Makes ready for a step: zeros where a side looks for a counter, and receives.
pub(super) fn prepare(worker: &mut WorkerResources, plan: &Plan, role: Role, size: u64) -> Result<()> {
    worker.posted.fill(0);
    worker.has_under_way = false;
    if plan.workload.is_validated {
        contents::fill(worker, plan, role, size)?;
    } else if plan.looks_for_arrivals() {
        contents::mark(worker, plan, role, size)?;
    }
    for lane in 0..worker.unposted.len() {
        if contents::is_in_one_place(plan) {
            // Where a side looks for a counter.
            let offset = worker.memory.offset(lane) + size.max(1) - 1;
            worker.memory.of_mut(lane).incoming.write_at(offset, &[0])?;
        }
    }
    if part(plan, role).receives {
        with_step(worker, plan, role, size, &Signal::default(), true)?;
    }
    Ok(())
}

/// Does the step.
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

/// The same, which does not say of a request that failed who was at the other end.
fn unnamed(
    worker: &mut WorkerResources,
    plan: &Plan,
    role: Role,
    size: u64,
    signal: &Signal,
    is_preparing: bool,
) -> Result<Outcome> {
    let lanes = 0..worker.unposted.len();
    let places = lanes.clone().map(|lane| worker.memory.places(lane)).collect();
    let pairs = lanes.map(|lane| worker.memory.of(lane));
    let keys = pairs.map(|pair| (pair.outgoing.lkey(), pair.incoming.lkey())).collect();
    let room = worker.room();
    let WorkerResources {
        pairs, sends, receives, bell, memory, theirs, inline, unposted, posted, has_under_way, ..
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
        room,
        is_preparing,
        unposted,
        posted,
        has_under_way,
    };
    let bell = bell.as_ref();
    step.with(pairs, &mut Waiting::new(sends, bell), &mut Waiting::new(receives, bell))
}

/// A step of a thread.
struct Step<'s> {
    plan: &'s Plan,
    role: Role,
    size: u64,
    signal: &'s Signal,
    /// Where messages go out from, and come in.
    places: Vec<(u64, u64)>,
    theirs: &'s [QpAddress],
    /// The keys of both.
    keys: Vec<(LocalKey, LocalKey)>,
    /// The processor can look at both.
    is_host: bool,
    is_inline: bool,
    /// Bytes of a receive.
    room: u32,
    /// Receives are posted, and nothing else is done.
    is_preparing: bool,
    unposted: &'s mut [u32],
    posted: &'s mut [u64],
    has_under_way: &'s mut bool,
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
        S: SendQueue,
        R: Request<Service = S::Service>,
        C: Poll,
    {
        let Part { sends: is_sending, receives: is_receiving } = part(self.plan, self.role);
        let (mut lanes, mut refills) = (Vec::new(), Vec::new());
        for (lane, (send, intake)) in queues.into_iter().enumerate() {
            // SAFETY: the memory goes after the queue pairs, and its places are as large as the largest message. No peer reaches what goes
            // out, so that inline data is read while nobody writes it. In what comes in, the other side's writes and this one's may meet,
            // and nobody looks at the bytes but for a counter.
            unsafe {
                lanes.push(self.lane(lane, send, request(lane)));
                refills.push(self.refill(lane, intake));
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
        for (posted, lane) in self.posted.iter_mut().zip(&lanes) {
            *posted = lane.posted;
            *self.has_under_way |= lane.under_way() > 0;
        }
        for (unposted, used) in self.unposted.iter_mut().zip(receives.clear()?) {
            *unposted += used;
        }
        outcome
    }

    /// # Safety
    ///
    /// As for [`QpDriver::new`].
    unsafe fn lane<'q, S, R>(&self, lane: usize, send: &'q mut S, request: R) -> QpDriver<'q, S, R>
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
            lkey: self.keys[lane].0,
            rkey: RemoteKey::from(their.rkey),
            length: self.size as u32,
            is_inline: self.is_inline,
        };
        let moderation =
            if matches!(self.plan.workload.measure, Measure::Latency(_)) { 1 } else { self.plan.moderation(self.size) };
        // SAFETY: the caller's promise.
        unsafe { QpDriver::new(send, request, memory, places, lane as u32, moderation) }
    }

    /// # Safety
    ///
    /// As for [`Refill::new`].
    unsafe fn refill<'q>(&self, lane: usize, intake: Intake<'q>) -> Refill<'q> {
        let batch = self.plan.queues.receive_list.unwrap_or(self.plan.queues.rx_depth / 4);
        // SAFETY: the caller's promise.
        unsafe { Refill::new(intake, self.keys[lane].1, self.places[lane].1, self.room, batch) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Direction, Workload};

    #[test]
    fn figures_are_of_who_sends() {
        let of = |direction| {
            let plan = Plan { workload: Workload { direction, ..Workload::default() }, ..Plan::default() };
            [Role::Client, Role::Server].map(|role| measures(&plan, role))
        };
        assert_eq!(of(Direction::Forward), [true, false]);
        assert_eq!(of(Direction::Reversed), [false, true]);
        assert_eq!(of(Direction::Both), [true, true]);
    }
}
