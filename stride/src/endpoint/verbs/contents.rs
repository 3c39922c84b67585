//! The bytes of messages, where they are checked: written before a step, and looked at after it.

use anyhow::{Result, anyhow, ensure};

use super::memory;
use super::step::{Part, part};
use super::worker_resources::{HEADROOM, WorkerResources};
use crate::endpoint::Role;
use crate::plan::{Measure, Operation, Plan, RunLength, Semantics, Transport};
use crate::run::{Places, cas_check, pattern};

/// What stands in an area of a queue pair's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Area {
    /// Messages.
    Filled,
    /// Room for them, in which no byte is right.
    Blank,
    /// Zeros.
    Zero,
    /// What swaps begin with.
    CasCheck,
    /// Room for what they return.
    Returned,
}

/// What a side's two areas hold before a step: that which messages go out from, and that where those of the other side come in.
fn areas(plan: &Plan, Part { sends, .. }: Part) -> (Area, Area) {
    match plan.workload.operation {
        Operation::FetchAdd => (Area::Zero, Area::Zero),
        Operation::CompareSwap => (Area::Returned, Area::CasCheck),
        Operation::Read => (Area::Blank, Area::Filled),
        _ if sends => (Area::Filled, Area::Blank),
        _ => (Area::Zero, Area::Blank),
    }
}

/// Writes the memory of a side for messages of so many bytes.
pub(super) fn fill(worker: &mut WorkerResources, plan: &Plan, role: Role, size: u64) -> Result<()> {
    let (outgoing, incoming) = areas(plan, part(plan, role));
    for lane in 0..worker.unposted.len() {
        let place = worker.memory.offset(lane);
        let memory = worker.memory.of_mut(lane);
        for (area, memory) in [(outgoing, &mut memory.outgoing), (incoming, &mut memory.incoming)] {
            let bytes = 0..size as usize;
            let message = |number| match area {
                Area::Filled => bytes.clone().map(|index| pattern::byte(size, lane, index)).collect(),
                Area::Blank => bytes.clone().map(|index| pattern::blank(size, lane, index)).collect(),
                Area::Zero => vec![0; bytes.len()],
                Area::CasCheck => cas_check::value(lane, number, 0).to_ne_bytes().to_vec(),
                Area::Returned => cas_check::blank(lane, number).to_ne_bytes().to_vec(),
            };
            for (number, offset) in offsets(plan, size, area).into_iter().enumerate() {
                memory.write_at(place + offset, &message(number))?;
            }
        }
    }
    Ok(())
}

/// Makes the last byte of each place where messages of the other side come in another than that of the messages, so that it tells of one that has
/// come; of what no message goes to nothing is written, as each byte may cost a copy by a driver.
pub(super) fn mark(worker: &mut WorkerResources, plan: &Plan, role: Role, size: u64) -> Result<()> {
    let Some(last) = (size as usize).checked_sub(1) else { return Ok(()) };
    let (goes_out, comes_in) = (part(plan, role).sends, part(plan, role.other()).sends);
    for lane in 0..worker.unposted.len() {
        let place = worker.memory.offset(lane);
        let memory = worker.memory.of_mut(lane);
        for offset in Places::offsets(size, false) {
            let end = place + offset + last as u64;
            if goes_out {
                memory.outgoing.write_at(end, &[pattern::byte(size, lane, last)])?;
            }
            if comes_in {
                memory.incoming.write_at(end, &[pattern::blank(size, lane, last)])?;
            }
        }
    }
    Ok(())
}

/// Whether any message has come: the last byte of a place is another than before.
pub(super) fn has_come(worker: &WorkerResources, size: u64) -> Result<bool> {
    let Some(last) = (size as usize).checked_sub(1) else { return Ok(true) };
    for lane in 0..worker.unposted.len() {
        for offset in Places::offsets(size, false) {
            let mut byte = [0];
            let end = worker.memory.offset(lane) + offset + last as u64;
            worker.memory.of(lane).incoming.read_at(end, &mut byte)?;
            if byte != [pattern::blank(size, lane, last)] {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Where messages begin in an area. What is received has one place.
fn offsets(plan: &Plan, size: u64, area: Area) -> Vec<u64> {
    let is_received =
        matches!(plan.workload.operation, Operation::Send | Operation::SendWithImmediate) && area == Area::Blank;
    let headroom = if plan.attributes.transport == Transport::Ud { HEADROOM } else { 0 };
    if is_received { vec![headroom] } else { Places::offsets(size, is_in_one_place(plan)).collect() }
}

/// Whether all messages have one place.
pub(super) fn is_in_one_place(plan: &Plan) -> bool {
    matches!(plan.workload.measure, Measure::Latency(_)) && plan.workload.operation == Operation::Write
}

/// Looks at what has come to a side, after both are done. Where requests are under way still, as where the user has ended a test without an end
/// of its own and the other side takes nothing in any more, nobody can say what is to be there.
pub(super) fn check(worker: &WorkerResources, plan: &Plan, role: Role, size: u64) -> Result<()> {
    if worker.has_under_way {
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

/// The queue pairs of a thread that messages go over: of latencies one alone.
fn lanes(worker: &WorkerResources, plan: &Plan) -> usize {
    if matches!(plan.workload.measure, Measure::Latency(_)) { 1 } else { worker.unposted.len() }
}

/// The messages of a queue pair, where their number is known.
fn total(plan: &Plan) -> Option<u64> {
    match plan.workload.amount {
        RunLength::Messages { count, warm_up } => Some(count + warm_up),
        RunLength::Time { .. } => None,
    }
}

/// The messages that each queue pair has at least, in a time: places are used in turn, so that the first is used, and none after one that is
/// not. Where a rate is limited the time may be over before each has had its turn.
fn least(plan: &Plan, lane: usize) -> u64 {
    u64::from(plan.workload.rate_limit.is_none() || lane == 0)
}

/// The eight bytes at each place of a queue pair.
fn words(
    worker: &WorkerResources,
    lane: usize,
    size: u64,
    memory: fn(&memory::Pair) -> &memory::Area,
) -> Result<Vec<u64>> {
    let word = |offset| {
        let mut word = [0; 8];
        memory(worker.memory.of(lane)).read_at(worker.memory.offset(lane) + offset, &mut word)?;
        Ok(u64::from_ne_bytes(word))
    };
    Places::offsets(size, false).map(word).collect()
}

fn check_area(
    worker: &WorkerResources,
    plan: &Plan,
    size: u64,
    memory: fn(&memory::Pair) -> &memory::Area,
) -> Result<()> {
    // The last byte is a counter where a side waits for it.
    let in_turn = matches!(plan.workload.measure, Measure::Latency(Semantics::Oneway | Semantics::Rtt));
    let spare = usize::from(in_turn && plan.workload.operation == Operation::Write);
    for lane in 0..lanes(worker, plan) {
        let place = worker.memory.offset(lane);
        let mut messages = Vec::new();
        for offset in offsets(plan, size, Area::Blank) {
            let mut message = vec![0; size as usize];
            memory(worker.memory.of(lane)).read_at(place + offset, &mut message)?;
            messages.push(message);
        }
        pattern::check_all(&messages, total(plan).unwrap_or_else(|| least(plan, lane)), lane, spare)
            .map_err(|wrong| anyhow!("{wrong}"))?;
    }
    Ok(())
}

/// As many additions as there were requests are in the counters.
fn check_sum(worker: &WorkerResources, plan: &Plan, size: u64) -> Result<()> {
    let Some(expected) = total(plan) else { return Ok(()) };
    for lane in 0..lanes(worker, plan) {
        // A peer can write anything there.
        let sum = words(worker, lane, size, |pair| &pair.incoming)?.into_iter().fold(0, u64::wrapping_add);
        ensure!(
            sum == expected,
            "the counters of queue pair {lane} of a thread hold {sum} after {expected} additions of one: additions were \
              lost or duplicated"
        );
    }
    Ok(())
}

/// The places hold what so many compare-and-swaps leave there, each of which has found what the one before it had left.
fn check_left(worker: &WorkerResources, plan: &Plan, size: u64) -> Result<()> {
    for lane in 0..lanes(worker, plan) {
        let words = words(worker, lane, size, |pair| &pair.incoming)?;
        cas_check::check_left(&words, total(plan), least(plan, lane), lane).map_err(|wrong| anyhow!("{wrong}"))?;
    }
    Ok(())
}

/// What the last swap at each place has brought back is what stood there before it.
fn check_returned(worker: &WorkerResources, size: u64) -> Result<()> {
    for (lane, &posted) in worker.posted.iter().enumerate() {
        let words = words(worker, lane, size, |pair| &pair.outgoing)?;
        cas_check::check_returned(&words, posted, lane).map_err(|wrong| anyhow!("{wrong}"))?;
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
        let place = SideConfig { device: Some("soft0".to_owned()), ..SideConfig::default() };
        let plan = Plan {
            workload: Workload { operation: Operation::CompareSwap, sizes: vec![8], amount, ..Workload::default() },
            ..Plan::default()
        };
        Plan {
            workload: Workload { is_validated: true, ..plan.workload },
            placement: Placement { client: place.clone(), server: place, ..plan.placement },
            ..plan
        }
    }

    /// Both sides of a test by one thread, after it; `meddle` has the server's before.
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

    fn said(side: &mut VerbsEndpoint) -> String {
        side.check(8).map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn what_swaps_leave_and_return_is_looked_at() {
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
            assert_eq!([said(&mut client), said(&mut server)], ["", ""]);
            let lane = queue_pairs as usize - 1;
            let at = server.resources[0].memory.offset(lane) + 64 * 5;
            server.resources[0].memory.of_mut(lane).incoming.write_at(at, &[0; 8]).unwrap();
            let (told, start) = (said(&mut server), format!("slot 5 of queue pair {lane} of its thread holds 0x0000"));
            assert!(told.starts_with(&start) && told.contains("the first wrong value"), "{told}");
            assert_eq!(said(&mut client), "");
            client.resources[0].memory.of_mut(lane).outgoing.write_at(at, &[0; 8]).unwrap();
            let told = said(&mut client);
            let expected = format!("in slot 5 of queue pair {lane} of its thread returned 0x0000000000000000");
            assert!(told.starts_with("compare-and-swap ") && told.contains(&expected), "{told}");
        }
    }

    #[test]
    fn queue_pairs_whose_turn_did_not_come_within_a_time_are_no_error() {
        let time = std::time::Duration::from_millis(5);
        let swaps = swaps(RunLength::Time { time, warm_up: std::time::Duration::ZERO });
        // One message in half a minute.
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
                assert_eq!([said(&mut client), said(&mut server)], ["", ""], "{operation} {threads}");
            }
        }
    }

    #[test]
    fn what_is_under_way_still_is_not_checked() {
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
        // The server's queue pairs never come up: nothing is answered, and what is drained is given up.
        client.run(8, None, &mut |_| false).unwrap();
        assert_eq!(said(&mut client), "");
        assert!(client.resources[0].has_under_way);
        client.prepare(8).unwrap();
        assert!(!client.resources[0].has_under_way);
    }

    #[test]
    fn only_places_that_messages_leave_or_come_to_are_marked() {
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
    fn a_swap_that_finds_another_value_is_told_by_both_sides() {
        let plan = swaps(RunLength::Messages { count: 100, warm_up: 0 });
        let other = 7_u64.to_ne_bytes();
        let [mut client, mut server] = played(&plan, |server| {
            server.resources[0].memory.of_mut(0).incoming.write_at(2 * 64, &other).unwrap();
        });
        let told = said(&mut server);
        assert!(told.starts_with("slot 2 of queue pair 0 of its thread holds 0x0000000000000007"), "{told}");
        let told = said(&mut client);
        assert!(told.starts_with("compare-and-swap 2 in slot 2 of queue pair 0 of its thread returned"), "{told}");
    }
}
