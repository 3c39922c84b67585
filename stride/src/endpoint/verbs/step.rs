//! One step of a thread, from the plan to the loop that runs the step.

use anyhow::{Result, bail, ensure};
use sideway::ibverbs::memory_region::RemoteKey;
use stride_run::{
    Arrival, Bandwidth, CompletionQueues, End, Gap, Latency, LossTimeout, Measure, Operation, Outcome, Pairs, Signal,
    Step, with_peer,
};

use super::contents;
use super::part::{Part, part};
use super::worker_resources::WorkerResources;
use crate::endpoint::Role;
use crate::endpoint::interval::length;
use crate::plan::{self, Plan, Semantics};

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
        with_step(worker, plan, role, size, &Signal::default(), |step, pairs, queues| {
            // SAFETY: the memory is dropped after the queue pairs, a slot is as large as the largest message, and no
            // code references it. Its bytes are read only after the step.
            unsafe { step.prepare(pairs, queues) }
        })?;
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
    let is_host = worker.memory.is_host();
    with_step(worker, plan, role, size, signal, |step, pairs, queues| {
        let is_polled = matches!(step.measure, Measure::Latency(Latency { arrival: Arrival::Written, .. }));
        ensure!(is_host || !is_polled, "the processor cannot poll GPU memory; give --imm, or --latency ack");
        // SAFETY: the memory is dropped after the queue pairs, and a slot is as large as the largest message. No peer
        // accesses outgoing memory, so nothing writes inline data while it is read. Writes of both sides may overlap in
        // incoming memory, whose bytes are not read, except for a counter. The counter is in host memory.
        unsafe { step.run(pairs, queues) }
    })
}

/// Calls `act` with the step, the queue pairs and the completion queues of a thread.
fn with_step<T>(
    worker: &mut WorkerResources,
    plan: &Plan,
    role: Role,
    size: u64,
    signal: &Signal,
    act: impl FnOnce(&mut Step<'_>, Pairs<'_>, CompletionQueues<'_>) -> Result<T>,
) -> Result<T> {
    let ends = (0..worker.unposted.len()).map(|qp| end(worker, qp)).collect();
    let receive_size = worker.slot_size();
    let WorkerResources { pairs, sends, receives, events, theirs, inline, unposted, posted, has_in_flight, .. } =
        worker;
    let Part { sends: is_sending, receives: is_receiving } = part(plan, role);
    let mut step = Step {
        operation: operation(plan)?,
        measure: measure(plan, role, size),
        amount: plan.workload.amount.into(),
        size,
        sends: is_sending,
        receives: is_receiving,
        ends,
        has_one_slot: contents::is_in_one_place(plan),
        visits_all: plan.workload.is_validated,
        is_inline: size > 0 && size <= u64::from(*inline),
        depth: plan.queues.tx_depth,
        list: plan.queues.post_list,
        moderation: plan.moderation(size),
        receive_list: plan.queues.receive_list.unwrap_or(plan.queues.rx_depth / 4),
        receive_size,
        signal,
        unposted,
        posted,
        has_in_flight,
    };
    let outcome = act(&mut step, pairs.queues(theirs), CompletionQueues { sends, receives, events: events.as_ref() });
    outcome.map_err(|error| with_peer(error, |failed| worker.peer(failed)))
}

/// Returns the memory of a queue pair. While the peer is unknown, the addresses of its memory are zero.
fn end(worker: &WorkerResources, qp: usize) -> End {
    let ((outgoing, incoming), memory) = (worker.memory.places(qp), worker.memory.of(qp));
    let their = worker.theirs.get(qp);
    End {
        outgoing,
        outgoing_key: memory.outgoing.lkey(),
        incoming,
        incoming_key: memory.incoming.lkey(),
        remote: their.map_or(0, |their| their.address),
        remote_key: RemoteKey::from(their.map_or(0, |their| their.rkey)),
    }
}

fn operation(plan: &Plan) -> Result<Operation> {
    Ok(match plan.workload.operation {
        plan::Operation::Write => Operation::Write,
        plan::Operation::WriteWithImmediate => Operation::WriteImmediate,
        plan::Operation::Read => Operation::Read,
        plan::Operation::Send => Operation::Send,
        plan::Operation::SendWithImmediate => Operation::SendImmediate,
        plan::Operation::FetchAdd => Operation::FetchAdd,
        plan::Operation::CompareSwap if plan.workload.is_validated => Operation::ChainedSwap,
        plan::Operation::CompareSwap => Operation::CompareSwap,
        plan::Operation::Message => bail!("messages of trespass have an endpoint of their own"),
    })
}

fn measure(plan: &Plan, role: Role, size: u64) -> Measure {
    let Plan { workload, queues, attributes, sampling, .. } = plan;
    match workload.measure {
        plan::Measure::Bandwidth => Measure::Bandwidth(Bandwidth {
            interval: plan.interval_kept(),
            rate: rate(plan, size),
            burst: workload.burst_size.unwrap_or(1),
            counts_sent: plan.counts_arrivals() || plan.looks_for_arrivals(),
            counts_arrivals: plan.counts_arrivals(),
        }),
        plan::Measure::Latency(semantics) => Measure::Latency(Latency {
            arrival: match workload.operation {
                operation if semantics == Semantics::Ack || operation.fetches() => Arrival::Acknowledged,
                operation if operation.takes_receive() => Arrival::Received,
                _ => Arrival::Written,
            },
            begins: role == Role::Client,
            interval: length(plan),
            loss_timeout: (!attributes.transport.is_reliable())
                .then(|| LossTimeout { most: sampling.timeout, transport: attributes.transport.name() }),
            gap: workload.gap.map(|length| Gap { length, sleeps: queues.sleeps_on_events }),
        }),
    }
}

/// Returns the part of the rate limit that applies to a thread, in messages per second.
fn rate(plan: &Plan, size: u64) -> Option<f64> {
    let bytes = plan.workload.rate_limit? * 1e9 / 8.0;
    Some(bytes / size.max(1) as f64 / f64::from(plan.queues.threads.max(1)))
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
