//! The contents of messages for `--validate`, which are written before a step and checked after it.

use anyhow::{Context as _, Result, anyhow, ensure};
use stride_run::{cas_check, pattern, slot_offsets};

use super::memory;
use super::part::{Part, part};
use super::worker_resources::{HEADROOM, WorkerResources};
use crate::endpoint::Role;
use crate::plan::{Measure, Operation, Plan, RunLength, Semantics, Transport};

/// What an area of a queue pair's memory contains before a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Area {
    /// The area contains the messages to send.
    Filled,
    /// The area contains bytes that differ from every correct message.
    Blank,
    /// The area contains zeros.
    Zero,
    /// The area contains the initial values for compare-and-swaps.
    CasCheck,
    /// The area contains a value that no swap can return.
    Returned,
}

/// Returns what the outgoing and the incoming area contain before a step.
fn areas(plan: &Plan, Part { sends, .. }: Part) -> (Area, Area) {
    match plan.workload.operation {
        Operation::FetchAdd => (Area::Zero, Area::Zero),
        Operation::CompareSwap => (Area::Returned, Area::CasCheck),
        Operation::Read => (Area::Blank, Area::Filled),
        _ if sends => (Area::Filled, Area::Blank),
        _ => (Area::Zero, Area::Blank),
    }
}

/// Returns a copy of a message, or an error if there is no memory for it: the client chooses its size, and the server must
/// survive it.
fn copy(size: u64, byte: impl Fn(usize) -> u8) -> Result<Vec<u8>> {
    let (mut bytes, size) = (Vec::new(), usize::try_from(size)?);
    bytes.try_reserve_exact(size).with_context(|| format!("--validate: {size} bytes for the copy of a message"))?;
    bytes.extend((0..size).map(byte));
    Ok(bytes)
}

/// Fills the memory of a side, for messages of `size` bytes.
pub(super) fn fill(worker: &mut WorkerResources, plan: &Plan, role: Role, size: u64) -> Result<()> {
    let (outgoing, incoming) = areas(plan, part(plan, role));
    for qp in 0..worker.unposted.len() {
        let start = worker.memory.offset(qp);
        let memory = worker.memory.of_mut(qp);
        for (area, memory) in [(outgoing, &mut memory.outgoing), (incoming, &mut memory.incoming)] {
            let message = |number| match area {
                Area::Filled => copy(size, |at| pattern::byte(size, qp, at)),
                Area::Blank => copy(size, |at| pattern::blank(size, qp, at)),
                Area::Zero => copy(size, |_| 0),
                Area::CasCheck => Ok(cas_check::value(qp, number, 0).to_ne_bytes().to_vec()),
                Area::Returned => Ok(cas_check::blank(qp, number).to_ne_bytes().to_vec()),
            };
            for (number, offset) in offsets(plan, size, area).into_iter().enumerate() {
                memory.write_at(start + offset, &message(number)?)?;
            }
        }
    }
    Ok(())
}

/// Changes the last byte of each incoming slot to a value that no message has at this position. A message that arrives
/// can therefore be detected. Writes no other memory, because the driver may have to copy each byte.
pub(super) fn mark(worker: &mut WorkerResources, plan: &Plan, role: Role, size: u64) -> Result<()> {
    let Some(last) = (size as usize).checked_sub(1) else { return Ok(()) };
    let (goes_out, comes_in) = (part(plan, role).sends, part(plan, role.other()).sends);
    for qp in 0..worker.unposted.len() {
        let start = worker.memory.offset(qp);
        let memory = worker.memory.of_mut(qp);
        for offset in slot_offsets(size, false) {
            let end = start + offset + last as u64;
            if goes_out {
                memory.outgoing.write_at(end, &[pattern::byte(size, qp, last)])?;
            }
            if comes_in {
                memory.incoming.write_at(end, &[pattern::blank(size, qp, last)])?;
            }
        }
    }
    Ok(())
}

/// Whether any message has arrived, which is the case if the last byte of a slot has changed.
pub(super) fn has_come(worker: &WorkerResources, size: u64) -> Result<bool> {
    let Some(last) = (size as usize).checked_sub(1) else { return Ok(true) };
    for qp in 0..worker.unposted.len() {
        for offset in slot_offsets(size, false) {
            let mut byte = [0];
            let end = worker.memory.offset(qp) + offset + last as u64;
            worker.memory.of(qp).incoming.read_at(end, &mut byte)?;
            if byte != [pattern::blank(size, qp, last)] {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Returns the offsets of the messages in an area. The messages of sends all arrive in the same slot.
fn offsets(plan: &Plan, size: u64, area: Area) -> Vec<u64> {
    let is_received =
        matches!(plan.workload.operation, Operation::Send | Operation::SendWithImmediate) && area == Area::Blank;
    let headroom = if plan.attributes.transport == Transport::Ud { HEADROOM } else { 0 };
    if is_received { vec![headroom] } else { slot_offsets(size, is_in_one_place(plan)).collect() }
}

/// Whether all messages share one slot.
pub(super) fn is_in_one_place(plan: &Plan) -> bool {
    matches!(plan.workload.measure, Measure::Latency(_)) && plan.workload.operation == Operation::Write
}

/// Checks what a side has received, after both sides have finished. Does nothing if requests are still in flight,
/// because the contents are undefined then. Requests can still be in flight if the user ends an endless test and the
/// peer no longer receives.
pub(super) fn check(worker: &WorkerResources, plan: &Plan, role: Role, size: u64) -> Result<()> {
    if worker.has_in_flight {
        return Ok(());
    }
    let Part { sends, .. } = part(plan, role);
    let other = part(plan, role.other());
    match plan.workload.operation {
        Operation::FetchAdd if other.sends => check_sum(worker, plan, size),
        Operation::FetchAdd => Ok(()),
        Operation::CompareSwap => {
            if sends {
                check_returned(worker, size)?;
            }
            if other.sends { check_left(worker, plan, size) } else { Ok(()) }
        }
        Operation::Read if sends => check_area(worker, plan, size, |pair| &pair.outgoing),
        Operation::Read => Ok(()),
        _ if other.sends => check_area(worker, plan, size, |pair| &pair.incoming),
        _ => Ok(()),
    }
}

/// Returns how many queue pairs of a thread carry messages. In a latency test, only one does.
fn qps(worker: &WorkerResources, plan: &Plan) -> usize {
    if matches!(plan.workload.measure, Measure::Latency(_)) { 1 } else { worker.unposted.len() }
}

/// Returns the number of messages per queue pair, if it is known.
fn total(plan: &Plan) -> Option<u64> {
    match plan.workload.amount {
        RunLength::Messages { count, warm_up } => Some(count + warm_up),
        RunLength::Time { .. } => None,
    }
}

/// Returns the minimum number of messages per queue pair in a timed test. Because slots are used in turn, at least the
/// first slot is used, and no slot is used after an unused one. With a rate limit, the time may end before each queue
/// pair has sent a message.
fn least(plan: &Plan, qp: usize) -> u64 {
    u64::from(plan.workload.rate_limit.is_none() || qp == 0)
}

/// Returns the eight bytes in each slot of a queue pair.
fn words(
    worker: &WorkerResources,
    qp: usize,
    size: u64,
    memory: fn(&memory::Pair) -> &memory::Area,
) -> Result<Vec<u64>> {
    let word = |offset| {
        let mut word = [0; 8];
        memory(worker.memory.of(qp)).read_at(worker.memory.offset(qp) + offset, &mut word)?;
        Ok(u64::from_ne_bytes(word))
    };
    slot_offsets(size, false).map(word).collect()
}

fn check_area(
    worker: &WorkerResources,
    plan: &Plan,
    size: u64,
    memory: fn(&memory::Pair) -> &memory::Area,
) -> Result<()> {
    // If a side polls the last byte of the messages, this byte is a counter and is not checked.
    let in_turn = matches!(plan.workload.measure, Measure::Latency(Semantics::Oneway | Semantics::Rtt));
    let spare = usize::from(in_turn && plan.workload.operation == Operation::Write);
    for qp in 0..qps(worker, plan) {
        let start = worker.memory.offset(qp);
        let mut messages = Vec::new();
        for offset in offsets(plan, size, Area::Blank) {
            let mut message = copy(size, |_| 0)?;
            memory(worker.memory.of(qp)).read_at(start + offset, &mut message)?;
            messages.push(message);
        }
        pattern::check_all(&messages, total(plan).unwrap_or_else(|| least(plan, qp)), qp, spare)
            .map_err(|wrong| anyhow!("{wrong}"))?;
    }
    Ok(())
}

/// Checks that the sum of all counters equals the number of requests.
fn check_sum(worker: &WorkerResources, plan: &Plan, size: u64) -> Result<()> {
    let Some(expected) = total(plan) else { return Ok(()) };
    for qp in 0..qps(worker, plan) {
        // The sum wraps, because the peer can write any value to the counters.
        let sum = words(worker, qp, size, |pair| &pair.incoming)?.into_iter().fold(0, u64::wrapping_add);
        ensure!(
            sum == expected,
            "the counters of queue pair {qp} of a thread hold {sum} after {expected} additions of one: additions were \
              lost or duplicated"
        );
    }
    Ok(())
}

/// Checks the contents of the slots that compare-and-swaps have changed.
fn check_left(worker: &WorkerResources, plan: &Plan, size: u64) -> Result<()> {
    for qp in 0..qps(worker, plan) {
        let words = words(worker, qp, size, |pair| &pair.incoming)?;
        cas_check::check_left(&words, total(plan), least(plan, qp), qp).map_err(|wrong| anyhow!("{wrong}"))?;
    }
    Ok(())
}

/// Checks the value that the last swap at each slot has returned.
fn check_returned(worker: &WorkerResources, size: u64) -> Result<()> {
    for (qp, &posted) in worker.posted.iter().enumerate() {
        let words = words(worker, qp, size, |pair| &pair.outgoing)?;
        cas_check::check_returned(&words, posted, qp).map_err(|wrong| anyhow!("{wrong}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::endpoint::VerbsEndpoint;
    use super::*;
    use crate::endpoint::{Endpoint, Path};
    use crate::plan::{Direction, Placement, QpAttributes, Queues, SideConfig, Workload};

    fn swaps(amount: RunLength) -> Plan {
        let config = SideConfig { device: Some("soft0".to_owned()), ..SideConfig::default() };
        let plan = Plan {
            workload: Workload { operation: Operation::CompareSwap, sizes: vec![8], amount, ..Workload::default() },
            ..Plan::default()
        };
        Plan {
            workload: Workload { is_validated: true, ..plan.workload },
            placement: Placement { client: config.clone(), server: config, ..plan.placement },
            ..plan
        }
    }

    /// Runs both sides of a test on one thread. `meddle` can change the server before the client runs.
    fn played(plan: &Plan, meddle: impl FnOnce(&mut VerbsEndpoint)) -> [VerbsEndpoint; 2] {
        let path = Path { client_gid: Some(0), server_gid: Some(0), mtu: 4096, others: Vec::new() };
        let open = |role| VerbsEndpoint::open(plan, &plan.placement.client, role).unwrap();
        let (mut client, mut server) = (open(Role::Client), open(Role::Server));
        let (near, far) = (client.create_queue_pairs(&path).unwrap(), server.create_queue_pairs(&path).unwrap());
        server.connect(&path, &near).unwrap();
        client.connect(&path, &far).unwrap();
        server.prepare(8).unwrap();
        client.prepare(8).unwrap();
        meddle(&mut server);
        client.run(8, None, &mut |_| true).unwrap();
        [client, server]
    }

    fn checked(side: &mut VerbsEndpoint) -> String {
        side.check(8).map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn changed_swap_results_are_detected() {
        let time = std::time::Duration::from_millis(5);
        for (amount, measure) in [
            (RunLength::Messages { count: 300, warm_up: 20 }, Measure::Bandwidth),
            (RunLength::Time { time, warm_up: time }, Measure::Bandwidth),
            (RunLength::Messages { count: 70, warm_up: 3 }, Measure::Latency(Semantics::Ack)),
        ] {
            let (queue_pairs, tx_depth) = if measure == Measure::Bandwidth { (2, 128) } else { (1, 1) };
            let plan = Plan {
                workload: Workload { measure, ..swaps(amount).workload },
                queues: Queues { queue_pairs, tx_depth, ..swaps(amount).queues },
                ..swaps(amount)
            };
            let [mut client, mut server] = played(&plan, |_| ());
            assert_eq!([checked(&mut client), checked(&mut server)], ["", ""]);
            let qp = queue_pairs as usize - 1;
            let at = server.resources[0].memory.offset(qp) + 64 * 5;
            server.resources[0].memory.of_mut(qp).incoming.write_at(at, &[0; 8]).unwrap();
            let (error, start) =
                (checked(&mut server), format!("slot 5 of queue pair {qp} of its thread holds 0x0000"));
            assert!(error.starts_with(&start) && error.contains("the first wrong value"), "{error}");
            assert_eq!(checked(&mut client), "");
            client.resources[0].memory.of_mut(qp).outgoing.write_at(at, &[0; 8]).unwrap();
            let error = checked(&mut client);
            let expected = format!("in slot 5 of queue pair {qp} of its thread returned 0x0000000000000000");
            assert!(error.starts_with("compare-and-swap ") && error.contains(&expected), "{error}");
        }
    }

    #[test]
    fn unused_queue_pairs_of_a_timed_test_are_valid() {
        let time = std::time::Duration::from_millis(5);
        let swaps = swaps(RunLength::Time { time, warm_up: std::time::Duration::ZERO });
        // The rate limit allows one message in half a minute.
        let swaps = Plan {
            workload: Workload { rate_limit: Some(8.0 * 8.0 / 30e9), ..swaps.workload },
            queues: Queues { queue_pairs: 4, ..swaps.queues },
            ..swaps
        };
        for operation in [Operation::Write, Operation::CompareSwap] {
            for threads in [1, 2] {
                let [mut client, mut server] = played(
                    &Plan {
                        workload: Workload { operation, ..swaps.workload.clone() },
                        queues: Queues { threads, ..swaps.queues.clone() },
                        ..swaps.clone()
                    },
                    |_| (),
                );
                assert_eq!([checked(&mut client), checked(&mut server)], ["", ""], "{operation} {threads}");
            }
        }
    }

    #[test]
    fn requests_in_flight_skip_the_check() {
        let time = std::time::Duration::from_secs(100);
        let plan = Plan {
            workload: Workload {
                is_endless: true,
                ..swaps(RunLength::Time { time, warm_up: std::time::Duration::ZERO }).workload
            },
            attributes: QpAttributes {
                qp_timeout: 20,
                ..swaps(RunLength::Time { time, warm_up: std::time::Duration::ZERO }).attributes
            },
            ..swaps(RunLength::Time { time, warm_up: std::time::Duration::ZERO })
        };
        let path = Path { client_gid: Some(0), server_gid: Some(0), mtu: 4096, others: Vec::new() };
        let mut client = VerbsEndpoint::open(&plan, &plan.placement.client, Role::Client).unwrap();
        let mut server = VerbsEndpoint::open(&plan, &plan.placement.client, Role::Server).unwrap();
        client.create_queue_pairs(&path).unwrap();
        let far = server.create_queue_pairs(&path).unwrap();
        client.connect(&path, &far).unwrap();
        client.prepare(8).unwrap();
        // The server's queue pairs are never connected, so nothing is acknowledged, and the wait for the last requests
        // times out.
        client.run(8, None, &mut |_| false).unwrap();
        assert_eq!(checked(&mut client), "");
        assert!(client.resources[0].has_in_flight);
        client.prepare(8).unwrap();
        assert!(!client.resources[0].has_in_flight);
    }

    #[test]
    fn only_used_slots_are_marked() {
        let amount = RunLength::Messages { count: 1, warm_up: 0 };
        let plan = Plan {
            workload: Workload { operation: Operation::Write, is_validated: false, ..swaps(amount).workload },
            ..swaps(amount)
        };
        let path = Path { client_gid: Some(0), server_gid: Some(0), mtu: 4096, others: Vec::new() };
        for direction in [Direction::Forward, Direction::Reversed, Direction::Both] {
            let plan = Plan {
                attributes: QpAttributes { transport: Transport::Uc, ..plan.attributes.clone() },
                workload: Workload { direction, ..plan.workload.clone() },
                ..plan.clone()
            };
            for (role, sends) in [(Role::Client, plan.client_sends()), (Role::Server, plan.server_sends())] {
                let takes = direction.is_both() || !sends;
                let mut side = VerbsEndpoint::open(&plan, &plan.placement.client, role).unwrap();
                side.create_queue_pairs(&path).unwrap();
                let worker = &mut side.resources[0];
                let (at, none) = (worker.memory.offset(0) + 7, [0x5a]);
                worker.memory.of_mut(0).outgoing.write_at(at, &none).unwrap();
                worker.memory.of_mut(0).incoming.write_at(at, &none).unwrap();
                side.prepare(8).unwrap();
                let memory = side.resources[0].memory.of(0);
                let marked = [&memory.outgoing, &memory.incoming].map(|area| {
                    let mut byte = [0];
                    area.read_at(at, &mut byte).unwrap();
                    byte != none
                });
                assert_eq!(marked, [sends, takes], "{role:?} {direction:?}");
            }
        }
    }

    #[test]
    fn wrong_swap_is_reported_by_both_sides() {
        let plan = swaps(RunLength::Messages { count: 100, warm_up: 0 });
        let other = 7_u64.to_ne_bytes();
        let [mut client, mut server] = played(&plan, |server| {
            server.resources[0].memory.of_mut(0).incoming.write_at(2 * 64, &other).unwrap();
        });
        let error = checked(&mut server);
        assert!(error.starts_with("slot 2 of queue pair 0 of its thread holds 0x0000000000000007"), "{error}");
        let error = checked(&mut client);
        assert!(error.starts_with("compare-and-swap 2 in slot 2 of queue pair 0 of its thread returned"), "{error}");
    }
}
