//! The bytes of messages, where they are checked: written before a step, and looked at after it.

use anyhow::{Result, anyhow, ensure};

use super::corner::{Corner, HEADROOM};
use super::memory;
use super::step::{Part, part};
use crate::fabric::Role;
use crate::plan::{Amount, Measure, Operation, Plan, Semantics, Transport};
use crate::run::{Places, pattern};

/// What stands in an area of a queue pair's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Area {
    /// Messages.
    Filled,
    /// Room for them, in which no byte is right.
    Blank,
    /// Zeros.
    Zero,
}

/// What a side's two areas hold before a step: that which messages go out from, and that where those of the other side come in.
fn areas(plan: &Plan, Part { sends, .. }: Part) -> (Area, Area) {
    match plan.operation {
        Operation::FetchAdd | Operation::CompareSwap => (Area::Zero, Area::Zero),
        Operation::Read => (Area::Blank, Area::Filled),
        _ if sends => (Area::Filled, Area::Blank),
        _ => (Area::Zero, Area::Blank),
    }
}

/// Writes the memory of a side for messages of so many bytes.
pub(super) fn fill(corner: &mut Corner, plan: &Plan, role: Role, size: u64) -> Result<()> {
    let (outgoing, incoming) = areas(plan, part(plan, role));
    for lane in 0..corner.unposted.len() {
        let place = corner.memory.offset(lane);
        let memory = corner.memory.of_mut(lane);
        for (area, memory) in [(outgoing, &mut memory.outgoing), (incoming, &mut memory.incoming)] {
            let message: Vec<u8> = (0..size as usize)
                .map(|index| match area {
                    Area::Filled => pattern::byte(size, lane, index),
                    Area::Blank => pattern::blank(size, lane, index),
                    Area::Zero => 0,
                })
                .collect();
            for offset in offsets(plan, size, area) {
                memory.write_at(place + offset, &message)?;
            }
        }
    }
    Ok(())
}

/// Where messages begin in an area. What is received has one place.
fn offsets(plan: &Plan, size: u64, area: Area) -> Vec<u64> {
    let is_received = matches!(plan.operation, Operation::Send | Operation::SendWithImmediate) && area == Area::Blank;
    let headroom = if plan.transport == Transport::Ud { HEADROOM } else { 0 };
    if is_received { vec![headroom] } else { Places::offsets(size, is_in_one_place(plan)).collect() }
}

/// Whether all messages have one place.
pub(super) fn is_in_one_place(plan: &Plan) -> bool {
    matches!(plan.measure, Measure::Latency(_)) && plan.operation == Operation::Write
}

/// Looks at what has come to a side, after both are done.
pub(super) fn check(corner: &Corner, plan: &Plan, role: Role, size: u64) -> Result<()> {
    let Part { sends, .. } = part(plan, role);
    let other = part(plan, if role == Role::Client { Role::Server } else { Role::Client });
    match plan.operation {
        Operation::FetchAdd if other.sends => check_sum(corner, plan, size),
        Operation::FetchAdd | Operation::CompareSwap => Ok(()),
        Operation::Read if sends => check_area(corner, plan, size, |pair| &pair.outgoing),
        Operation::Read => Ok(()),
        _ if other.sends => check_area(corner, plan, size, |pair| &pair.incoming),
        _ => Ok(()),
    }
}

fn check_area(corner: &Corner, plan: &Plan, size: u64, memory: fn(&memory::Pair) -> &memory::Area) -> Result<()> {
    // The last byte is a counter where a side waits for it.
    let in_turn = matches!(plan.measure, Measure::Latency(Semantics::Oneway | Semantics::Rtt));
    let spare = usize::from(in_turn && plan.operation == Operation::Write);
    // Places are used in turn. How far a time goes is not known, but the first is used, and none after one that is not.
    let least = match plan.amount {
        Amount::Messages { count, warm_up } => count + warm_up,
        Amount::Time { .. } => 1,
    };
    // Of one queue pair alone, latencies are.
    let lanes = if matches!(plan.measure, Measure::Latency(_)) { 1 } else { corner.unposted.len() };
    for lane in 0..lanes {
        let place = corner.memory.offset(lane);
        let mut messages = Vec::new();
        for offset in offsets(plan, size, Area::Blank) {
            let mut message = vec![0; size as usize];
            memory(corner.memory.of(lane)).read_at(place + offset, &mut message)?;
            messages.push(message);
        }
        pattern::check_all(&messages, least, lane, spare).map_err(|wrong| anyhow!("{wrong}"))?;
    }
    Ok(())
}

/// As many additions as there were requests are in the counters.
fn check_sum(corner: &Corner, plan: &Plan, size: u64) -> Result<()> {
    let Amount::Messages { count, warm_up } = plan.amount else { return Ok(()) };
    let lanes = if matches!(plan.measure, Measure::Latency(_)) { 1 } else { corner.unposted.len() };
    for lane in 0..lanes {
        let place = corner.memory.offset(lane);
        let mut sum = 0_u64;
        for offset in Places::offsets(size, false) {
            let mut word = [0; 8];
            corner.memory.of(lane).incoming.read_at(place + offset, &mut word)?;
            // A peer can write anything there.
            sum = sum.wrapping_add(u64::from_ne_bytes(word));
        }
        let expected = count + warm_up;
        ensure!(
            sum == expected,
            "{expected} additions of one were made by queue pair {lane} of a thread, and the counters hold {sum}: some were \
             lost or made twice"
        );
    }
    Ok(())
}
