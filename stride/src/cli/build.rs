//! Builds the plan of a test from the options of the command line.

use std::time::Duration;

use super::options::{Atomic, Load, Messages, Test};
use super::preset::Preset;
use crate::plan::values::{self, Length};
use crate::plan::{
    BANDWIDTH_MESSAGES, Contradiction, Given, LARGE, LATENCY_MESSAGES, LONGEST, Measure, Memory, NAMED, Operation,
    Placement, Plan, Queues, RunLength, SWEPT, Semantics, SideConfig, Transport, Workload, size,
};

/// The operation of a test, which is the first word of its command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Write,
    Read,
    Send,
    Atomic,
    Message,
}

/// Builds and checks the plan of a test. Missing options get perftest's default values, unless such a value would not
/// make sense. Also returns a note that lists the values that `--like-perftest` has set.
pub(super) fn plan(
    verb: Verb,
    is_latency: bool,
    test: &Test,
    given: &Given,
    client: SideConfig,
    server: SideConfig,
) -> Result<(Plan, Option<String>), Contradiction> {
    let (messages, load) = (&test.messages, &test.load);
    let (transport, mtu) = (test.attributes.transport, test.attributes.mtu);
    let operation = operation(verb, messages)?;
    let measure = measure(operation, is_latency, messages, [&client, &server])?;
    let tx_depth = load.tx_depth.unwrap_or(if is_latency { 1 } else { 128 });
    let watches =
        operation == Operation::Write && matches!(measure, Measure::Latency(Semantics::Oneway | Semantics::Rtt));
    let (sizes, is_sweep) = sizes(operation, transport, watches, is_latency, messages, mtu)?;
    // By default, a bandwidth test has one thread per port, and a latency test has one thread in total.
    let ports = u32::try_from(client.count()).unwrap_or(u32::MAX);
    let threads = load.threads.unwrap_or(if is_latency { 1 } else { ports });
    let preset = Preset::of(test, given, operation, is_latency, transport);
    let is_endless = messages.run_infinitely || messages.duration == Some(Length::Forever);
    let amount = amount(is_latency, tx_depth, is_endless, messages, &preset)?;
    let list = given.has(&["--post-list"]).then_some(test.queues.post_list);
    let (cq_moderation, is_each_large_signaled) = match messages.like_perftest {
        true => {
            let is_large = !is_sweep && sizes.iter().all(|size| *size > LARGE);
            let is_each = is_large && !test.queues.sleeps_on_events;
            (perftest_moderation(load, transport, tx_depth, list, is_each), false)
        }
        false => moderation(load, transport, tx_depth, list),
    };
    let direction = load.direction();
    let mut plan = Plan {
        workload: Workload { operation, measure, sizes, amount, is_endless, direction, ..test.workload.clone() },
        queues: Queues {
            queue_pairs: load.qp_count.unwrap_or(threads),
            threads,
            tx_depth,
            rx_depth: preset.receives(amount).unwrap_or(test.queues.rx_depth),
            receive_list: test.queues.receive_list.or(preset.receive_list),
            cq_moderation,
            is_each_large_signaled,
            inline: test.queues.inline.or(preset.inline),
            ..test.queues.clone()
        },
        attributes: test.attributes.clone(),
        sampling: test.sampling.clone(),
        placement: Placement { client, server, ..test.placement.clone() },
    };
    if let Some(timeout) = test.contact.timeout {
        plan.sampling.timeout = timeout;
    }
    plan.placement.is_relaxed &= !plan.polls_memory();
    plan.check_named(if is_sweep && messages.msg_size.is_none() { SWEPT } else { NAMED })?;
    let note = preset.note(test, &plan);
    Ok((plan, note))
}

/// Returns the number of messages per completion. The value of `--cq-mod` has priority. Without this option, the number
/// is 1 if the transport completes messages in any order. Otherwise the number is the length of the post list if that
/// was given, or else 100, but not more than the depth of the send queue. Also returns whether each large message
/// requests a completion.
fn moderation(load: &Load, transport: Transport, tx_depth: u32, post_list: Option<u32>) -> (u32, bool) {
    match (load.cq_mod, post_list) {
        (Some(given), _) => (given, false),
        (None, _) if !transport.is_ordered() => (1, false),
        (None, Some(list)) => (list, false),
        (None, None) => (tx_depth.min(100), tx_depth > 1),
    }
}

/// Returns the number of messages per completion as perftest chooses it. perftest requests a completion for each
/// message (`is_each`) only if the threads poll, and all sizes are large and were listed by the user.
fn perftest_moderation(load: &Load, transport: Transport, tx_depth: u32, list: Option<u32>, is_each: bool) -> u32 {
    match moderation(load, transport, tx_depth, list) {
        (_, true) if is_each => 1,
        (every, _) => every,
    }
}

fn operation(verb: Verb, messages: &Messages) -> Result<Operation, Contradiction> {
    if messages.atomic.is_some() && verb != Verb::Atomic {
        return Err(Contradiction("--atomic applies to `stride-perf atomic` only; leave it out".to_owned()));
    }
    match (verb, messages.imm) {
        (Verb::Write, false) => Ok(Operation::Write),
        (Verb::Write, true) => Ok(Operation::WriteWithImmediate),
        (Verb::Send, false) => Ok(Operation::Send),
        (Verb::Send, true) => Ok(Operation::SendWithImmediate),
        (Verb::Read, false) => Ok(Operation::Read),
        (Verb::Message, false) => Ok(Operation::Message),
        (Verb::Atomic, false) => Ok(match messages.atomic {
            Some(Atomic::Cswap) => Operation::CompareSwap,
            Some(Atomic::Fadd) | None => Operation::FetchAdd,
        }),
        (Verb::Read | Verb::Atomic | Verb::Message, true) => Err(Contradiction(
            "--imm applies to `write` and `send` only: reads and atomics carry no immediate data; leave it out"
                .to_owned(),
        )),
    }
}

fn measure(
    operation: Operation,
    is_latency: bool,
    messages: &Messages,
    configs: [&SideConfig; 2],
) -> Result<Measure, Contradiction> {
    if !is_latency {
        return match messages.latency {
            None => Ok(Measure::Bandwidth),
            Some(_) => Err(Contradiction("--latency applies to `lat` only; leave it out".to_owned())),
        };
    }
    let on_gpu = configs.iter().any(|config| matches!(config.memory, Some(Memory::Cuda(_))));
    let default = match operation {
        Operation::Write if on_gpu => Semantics::Ack,
        _ if operation.fetches() => Semantics::Ack,
        _ => Semantics::Oneway,
    };
    Ok(Measure::Latency(messages.latency.unwrap_or(default)))
}

/// Returns the sizes to test, and whether they form a sweep. If the receiver polls memory and packets may arrive out of
/// order, each message is limited to one packet.
fn sizes(
    operation: Operation,
    transport: Transport,
    watches: bool,
    is_latency: bool,
    messages: &Messages,
    mtu: Option<u32>,
) -> Result<(Vec<u64>, bool), Contradiction> {
    let swept = swept(messages);
    let is_sweep = !swept.is_empty();
    if let Some(sizes) = &messages.msg_size {
        if let Some((last, first)) = swept.split_last() {
            let (others, them) = match first {
                [] => ((*last).to_owned(), "it"),
                first => (format!("{} and {last}", first.join(", ")), "them"),
            };
            return Err(Contradiction(format!("--msg-size conflicts with {others}; leave out --msg-size, or {them}")));
        }
        return Ok((sizes.clone(), sizes.len() > 1));
    }
    let is_datagram = transport == Transport::Ud;
    let is_packet = is_datagram || watches && !transport.is_ordered();
    if is_sweep {
        if operation.is_atomic() {
            return Err(Contradiction("atomics have eight bytes; leave out --all-sizes and its options".to_owned()));
        }
        let largest = if is_packet { u64::from(mtu.unwrap_or(4096)) } else { 8 << 20 };
        let (from, to) = (messages.min_msg_size, messages.max_msg_size.unwrap_or(largest));
        if let Some(from) = from
            && from > to
        {
            let option = if messages.max_msg_size.is_some() { "--max-msg-size" } else { "the largest size," };
            return Err(Contradiction(format!(
                "--min-msg-size {from} is above {option} {to}; give --max-msg-size {from} or more"
            )));
        }
        let from = from.unwrap_or(2).min(to);
        return Ok((size::sweep(from, to, messages.step_factor.unwrap_or(2.0)), true));
    }
    let size = match is_latency {
        _ if operation.is_atomic() => 8,
        true => 2,
        false if is_datagram => u64::from(mtu.unwrap_or(1024)),
        // The default limit is the largest message that all devices support.
        false if transport == Transport::Srd && matches!(operation, Operation::Send | Operation::SendWithImmediate) => {
            4096
        }
        false => 64 << 10,
    };
    Ok((vec![size], false))
}

/// Returns the names of the options of a sweep that the user gave.
fn swept(messages: &Messages) -> Vec<&'static str> {
    let all = [
        ("--all-sizes", messages.all_sizes),
        ("--min-msg-size", messages.min_msg_size.is_some()),
        (SWEPT, messages.max_msg_size.is_some()),
        ("--step-factor", messages.step_factor.is_some()),
    ];
    all.into_iter().filter(|(_, is_given)| *is_given).map(|(option, _)| option).collect()
}

fn amount(
    is_latency: bool,
    tx_depth: u32,
    is_endless: bool,
    messages: &Messages,
    preset: &Preset,
) -> Result<RunLength, Contradiction> {
    let wrong = |text: &str, why: String| Contradiction(format!("--warm-up {text:?}: {why}"));
    let time = match messages.duration {
        _ if is_endless => Some(LONGEST),
        Some(Length::Time(time)) => Some(time),
        Some(Length::Forever) | None => None,
    };
    if let Some(time) = time {
        if messages.iters.is_some() {
            return Err(Contradiction("--duration and --iters conflict; give one of them".to_owned()));
        }
        let warm_up = match &messages.warm_up {
            Some(text) => values::duration(text).map_err(|why| wrong(text, why))?,
            None if is_endless => Duration::from_secs(2),
            None => preset.warm_up_of(time).unwrap_or_else(|| (time / 10).min(Duration::from_secs(2))),
        };
        return Ok(RunLength::Time { time, warm_up });
    }
    let count =
        messages.iters.or(preset.count).unwrap_or(if is_latency { LATENCY_MESSAGES } else { BANDWIDTH_MESSAGES });
    let warm_up = match &messages.warm_up {
        Some(text) => values::number(text)
            .map_err(|why| wrong(text, format!("without --duration, --warm-up is a number of messages: {why}")))?,
        None => preset.warm_up().unwrap_or(if is_latency { count / 10 } else { tx_depth.into() }),
    };
    Ok(RunLength::Messages { count, warm_up })
}
