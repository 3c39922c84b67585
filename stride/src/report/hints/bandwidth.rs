//! Hints for bandwidth tests.

use super::{Given, Hint, Remedy};
use crate::plan::{BANDWIDTH_MESSAGES, Plan, RunLength};
use crate::report::Row;
use crate::stats::Rates;

/// Size up to which messages are usually limited by the rate of requests, not by the number of bytes.
const SMALL: u64 = 4096;

/// If a row reaches this fraction of the link speed, the link is what limits it.
const ENOUGH: f64 = 0.9;

/// Length in seconds of the shortest window that gives a stable figure.
const WINDOW: f64 = 0.1;

/// Length in seconds of the shortest window that gives a rough figure.
const LOOK: f64 = 0.01;

/// If a window has at least this number of completions, an error of one completion is negligible.
const COMPLETIONS: u64 = 20;

/// If the slowest interval reaches this fraction of the median, it counts as normal.
const STEADY: f64 = 0.8;

/// The number of sends in flight that is enough for most links.
const DEEP: u32 = 32;

pub(super) fn hints(given: &Given<'_>) -> Vec<Hint> {
    let rows = || given.rows.iter().filter(|row| row.bandwidth().is_some());
    if rows().next().is_none() {
        return Vec::new();
    }
    let plan = given.plan;
    let mut all = Vec::new();
    all.extend(rows().filter_map(|row| lost(plan, row)).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, hint)| hint));
    let is_unknown = |row: &Row| row.bandwidth().is_some_and(|bandwidth| bandwidth.arrived.is_none());
    if plan.looks_for_arrivals() && rows().any(is_unknown) {
        all.push(Hint::Unknown(plan.attributes.transport));
    }
    let is_free = plan.workload.rate_limit.is_none();
    let slow = || rows().filter(|row| is_free && given.is_below_link(row, ENOUGH));
    if plan.workload.operation.takes_receive()
        && plan.attributes.transport.is_reliable()
        && plan.queues.tx_depth > plan.queues.rx_depth
        && slow().next().is_some()
    {
        all.push(Hint::FewReceives { receives: plan.queues.rx_depth, sends: plan.queues.tx_depth });
    }
    let is_shallow = plan.queues.tx_depth < DEEP && slow().next().is_some() && !given.fetches();
    if is_shallow {
        all.push(Hint::Shallow(plan.queues.tx_depth));
    }
    let small = slow().filter(|row| row.size <= SMALL).max_by_key(|row| row.size);
    if let Some(row) = small
        && !is_shallow
    {
        all.extend(posting(given, row));
        if plan.queues.cq_moderation == 1 && plan.queues.post_list == 1 && plan.attributes.transport.is_ordered() {
            all.push(Hint::EachSignaled);
        }
    }
    if !plan.placement.is_relaxed && slow().any(|row| row.size > SMALL) {
        all.push(Hint::Ordered);
    }
    all.extend(short(plan, rows()));
    all.extend(rows().filter_map(|row| apart(plan, row)).min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, hint)| hint));
    all.extend(rows().find_map(|row| coarse(plan, row)));
    all.extend(rows().filter_map(jitter).min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, hint)| hint));
    all
}

/// Returns a hint if small messages are probably limited by the rate at which requests are posted.
fn posting(given: &Given<'_>, row: &Row) -> Option<Hint> {
    let plan = given.plan;
    let remedy = match plan {
        // SRD is excluded, because EFA does not report how many reads may be outstanding.
        _ if given.fetches() && plan.queues.queue_pairs == plan.ports() && plan.attributes.transport.is_ordered() => {
            let [client, server] = given.sides;
            let least = client.all().zip(server.all()).map(|(ours, theirs)| ours.reads[0].min(theirs.reads[1])).min();
            Remedy::Reads(least?)
        }
        _ if plan.queues.post_list == 1 => Remedy::PostList,
        _ if plan.queues.threads == plan.ports() => Remedy::Threads,
        _ => return None,
    };
    Some(Hint::Posting { size: row.size, rate: row.average()?.messages_per_second, remedy, ports: plan.ports() })
}

/// Returns the hint and the fraction of the messages that did not arrive.
fn lost(plan: &Plan, row: &Row) -> Option<(f64, Hint)> {
    let (sent, arrived) = row.bandwidth().and_then(|bandwidth| bandwidth.sent.zip(bandwidth.arrived))?;
    let (size, service) = (row.size, plan.attributes.transport);
    let hint = match arrived {
        0 => Hint::NoneArrived { size, sent, service },
        _ => Hint::Lost { size, arrived, sent, service },
    };
    (arrived < sent).then(|| (1.0 - arrived as f64 / sent as f64, hint))
}

fn short<'r>(plan: &Plan, rows: impl Iterator<Item = &'r Row>) -> Option<Hint> {
    // The default number of messages only gives a rough figure, which is accepted.
    let is_default = matches!(plan.workload.amount, RunLength::Messages { count: BANDWIDTH_MESSAGES, .. });
    let enough = if is_default { LOOK } else { WINDOW };
    let windows = rows.filter_map(|row| Some((row.size, row.bandwidth()?.seconds)));
    let short: Vec<_> = windows.filter(|(_, seconds)| *seconds < enough).collect();
    let (size, seconds) = short.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(Hint::ShortWindow { size, seconds, sizes: short.len() })
}

/// Returns the hint and the ratio of the row to the total of the ports. In a timed test, all ports run until the end,
/// so there is no hint. With a fixed number of messages, ports that finish first wait for the others.
fn apart(plan: &Plan, row: &Row) -> Option<(f64, Hint)> {
    let is_counted = matches!(plan.workload.amount, RunLength::Messages { .. });
    let average = row.average().filter(|_| is_counted)?.gigabits_per_second;
    let ports: f64 = row.port_averages().iter().map(|rates| rates.gigabits_per_second).sum();
    let hint = Hint::Apart { size: row.size, average, ports };
    (average < ENOUGH * ports).then_some((average / ports, hint))
}

/// Returns a hint if the window of a timed test has few completions. In such a test, either all messages of a
/// completion count or none.
fn coarse(plan: &Plan, row: &Row) -> Option<Hint> {
    let bandwidth = row.bandwidth()?;
    if bandwidth.arrived.is_some() {
        // There is no hint if arrivals are counted, because they are counted one by one.
        return None;
    }
    let messages = bandwidth.messages;
    let each = u64::from(plan.moderation(row.size));
    let is_coarse = each > 1 && messages < COMPLETIONS * each && matches!(plan.workload.amount, RunLength::Time { .. });
    is_coarse.then_some(Hint::FewCompletions { size: row.size, messages, each })
}

/// Returns the hint and the ratio of the slowest interval to the median. Short windows are left out.
fn jitter(row: &Row) -> Option<(f64, Hint)> {
    row.bandwidth().filter(|bandwidth| bandwidth.seconds >= WINDOW)?;
    let [slowest, median, _] = row.jitter()?.map(|rates: Rates| rates.gigabits_per_second);
    (slowest < STEADY * median).then_some((slowest / median, Hint::Jitter { size: row.size, slowest, median }))
}

#[cfg(test)]
mod tests {
    use super::super::tests::Case;
    use super::*;
    use crate::endpoint::PortInfo;
    use crate::plan::{Direction, Operation, Transport};
    use crate::report::sample;
    use crate::stats::Figures;

    /// Returns a case with five million messages a second, of sizes up to 4 KiB.
    fn small() -> Case {
        let mut case = Case::bandwidth();
        let rows = [64, 1024, 4096].map(|size| sample::bandwidth_row(size, 5_000_000));
        case.rows.extend(rows);
        case
    }

    fn posting(remedy: Remedy) -> Hint {
        Hint::Posting { size: 4096, rate: 5e6, remedy, ports: 1 }
    }

    #[test]
    fn small_messages_cause_a_posting_hint() {
        let mut case = small();
        assert_eq!(case.hints(), [posting(Remedy::PostList)]);
        case.plan.queues.post_list = 16;
        assert_eq!(case.hints(), [posting(Remedy::Threads)]);
        case.plan.queues.threads = 2;
        assert_eq!(case.hints(), []);
    }

    #[test]
    fn posting_hint_counts_threads_per_port() {
        let mut case = small();
        case.plan.placement.client = case.plan.placement.client.spread(2);
        (case.plan.queues.threads, case.plan.queues.post_list) = (2, 16);
        let hint = Hint::Posting { size: 4096, rate: 5e6, remedy: Remedy::Threads, ports: 2 };
        assert_eq!(case.hints(), std::slice::from_ref(&hint));
        assert!(hint.to_string().ends_with("Try --threads 4 with -q 4."), "{hint}");
        case.plan.queues.threads = 4;
        assert_eq!(case.hints(), []);
    }

    #[test]
    fn outstanding_reads_cause_a_hint() {
        let mut case = small();
        case.plan.workload.operation = Operation::Read;
        case.sides[1].reads = [128, 8];
        assert_eq!(case.hints(), [posting(Remedy::Reads(8))]);
        case.plan.queues.queue_pairs = 4;
        assert_eq!(case.hints(), [posting(Remedy::PostList)]);
    }

    #[test]
    fn lowest_read_limit_of_ports_applies() {
        let mut case = small();
        (case.plan.workload.operation, case.plan.queues.queue_pairs, case.plan.queues.threads) =
            (Operation::Read, 2, 2);
        case.plan.placement.client = case.plan.placement.client.spread(2);
        let first = case.sides.clone();
        for (asks, answers, least) in [(4, 16, 4), (16, 2, 2)] {
            case.sides[0].others = vec![PortInfo { port: 2, reads: [asks, 16], ..first[0].clone() }];
            case.sides[1].others = vec![PortInfo { reads: [16, answers], ..first[1].clone() }];
            let hint = Hint::Posting { size: 4096, rate: 5e6, remedy: Remedy::Reads(least), ports: 2 };
            assert_eq!(case.hints(), [hint]);
        }
    }

    #[test]
    fn completion_per_message_causes_a_hint() {
        let mut case = small();
        case.plan.queues.cq_moderation = 1;
        assert_eq!(case.hints(), [posting(Remedy::PostList), Hint::EachSignaled]);
        // SRD gets no hint about requesting fewer completions, because it completes messages in any order. SRD also
        // gets no hint about reads, because EFA does not report how many may be outstanding.
        case.plan.attributes.transport = Transport::Srd;
        assert_eq!(case.hints(), [posting(Remedy::PostList)]);
        (case.plan.workload.operation, case.plan.queues.queue_pairs) = (Operation::Read, 1);
        assert_eq!(case.hints(), [posting(Remedy::PostList)]);
    }

    #[test]
    fn few_completions_in_a_window_cause_a_hint() {
        let mut case = small();
        case.plan.queues.cq_moderation = 100;
        case.rows = vec![sample::bandwidth_row(8 << 20, 300)];
        case.plan.workload.rate_limit = Some(10.0);
        let time = std::time::Duration::from_secs(1);
        case.plan.workload.amount = RunLength::Messages { count: 300, warm_up: 0 };
        assert_eq!(case.hints(), []);
        case.plan.workload.amount = RunLength::Time { time, warm_up: time / 10 };
        assert_eq!(case.hints(), [Hint::FewCompletions { size: 8 << 20, messages: 300, each: 100 }]);
        let Figures::Bandwidth(bandwidth) = &mut case.rows[0].figures else { unreachable!("a bandwidth") };
        (bandwidth.sent, bandwidth.arrived) = (Some(300), Some(300));
        assert_eq!(case.hints(), [], "arrivals are counted individually");
        case.rows = vec![sample::bandwidth_row(8 << 20, 300)];
        case.plan.queues.is_each_large_signaled = true;
        assert_eq!(case.hints(), []);
        (case.plan.queues.cq_moderation, case.plan.queues.is_each_large_signaled) = (1, false);
        assert_eq!(case.hints(), []);
    }

    #[test]
    fn chosen_short_windows_cause_a_hint() {
        let mut case = Case::bandwidth();
        let of = |case: &mut Case, count, seconds| {
            case.plan.workload.amount = RunLength::Messages { count, warm_up: 0 };
            let Figures::Bandwidth(bandwidth) = &mut case.rows[0].figures else { unreachable!("a bandwidth") };
            bandwidth.seconds = seconds;
            case.hints().iter().filter(|hint| matches!(hint, Hint::ShortWindow { .. })).count()
        };
        assert_eq!([of(&mut case, 5001, 0.05), of(&mut case, 5001, 0.2)], [1, 0]);
        assert_eq!([of(&mut case, 5000, 0.05), of(&mut case, 5000, 0.005)], [0, 1]);
    }

    #[test]
    fn ports_running_apart_cause_a_hint() {
        let mut case = Case::bandwidth();
        case.plan.workload.amount = RunLength::Messages { count: 702_000, warm_up: 0 };
        case.rows = vec![sample::ports_row(65_536, 702_000), sample::ports_row(131_072, 351_000)];
        assert_eq!(case.hints(), [], "the ports add up to the row");
        for (row, share) in case.rows.iter_mut().zip([4.0, 8.0]) {
            let Figures::Bandwidth(bandwidth) = &mut row.figures else { unreachable!("a bandwidth") };
            bandwidth.ports[0].seconds /= share;
        }
        let hints = case.hints();
        let [hint @ Hint::Apart { size: 131_072, .. }] = &hints[..] else { panic!("{hints:?}") };
        assert_eq!(
            hint.to_string(),
            "128 KiB: the ports ran at the same time for only part of the window, so the row shows 368.050 Gb/s and the ports \
             1012.138 Gb/s in their own windows. Try -D 5."
        );
        case.plan.workload.amount = Case::bandwidth().plan.workload.amount;
        assert_eq!(case.hints(), [], "in a timed test, each port runs to the end");
    }

    #[test]
    fn few_sends_in_flight_cause_a_hint() {
        let mut case = small();
        case.plan.queues.tx_depth = 4;
        assert_eq!(case.hints(), [Hint::Shallow(4)]);
    }

    #[test]
    fn requested_rate_limit_causes_no_hint() {
        let mut case = small();
        case.plan.workload.rate_limit = Some(10.0);
        assert_eq!(case.hints(), []);
    }

    #[test]
    fn validation_causes_no_hint() {
        let mut case = small();
        case.plan.workload.is_validated = true;
        assert_eq!(case.hints(), small().hints());
    }

    #[test]
    fn lost_datagrams_cause_a_hint() {
        let mut case = Case::bandwidth();
        (case.plan.workload.operation, case.plan.attributes.transport) = (Operation::Send, Transport::Ud);
        case.rows.push(case.rows[0].clone());
        for (row, arrived) in case.rows.iter_mut().zip([990, 1000]) {
            let Figures::Bandwidth(bandwidth) = &mut row.figures else { unreachable!("a bandwidth") };
            (bandwidth.sent, bandwidth.arrived) = (Some(1000), Some(arrived));
        }
        let lost = Hint::Lost { size: 65_536, arrived: 990, sent: 1000, service: Transport::Ud };
        assert_eq!(case.hints(), std::slice::from_ref(&lost));
        assert!(
            lost.to_string().starts_with("64 KiB: 990 of 1000 messages arrived; UD does not retransmit."),
            "{lost}"
        );
        case.rows.remove(0);
        assert_eq!(case.hints(), []);
    }

    #[test]
    fn uncounted_writes_cause_a_hint() {
        let mut case = Case::bandwidth();
        case.plan.attributes.transport = Transport::Uc;
        assert_eq!(case.hints(), [Hint::Unknown(Transport::Uc)]);
        // For one size, it is known that nothing arrived.
        case.rows.push(sample::bandwidth_row(8192, 0));
        let Figures::Bandwidth(bandwidth) = &mut case.rows[1].figures else { unreachable!("a bandwidth") };
        (bandwidth.sent, bandwidth.arrived) = (Some(1000), Some(0));
        let none = Hint::NoneArrived { size: 8192, sent: 1000, service: Transport::Uc };
        assert_eq!(case.hints(), [none.clone(), Hint::Unknown(Transport::Uc)]);
        assert!(none.to_string().starts_with("8 KiB: none of 1000 messages arrived, "), "{none}");
        case.rows.remove(0);
        assert_eq!(case.hints(), [none]);
        case.rows = Case::bandwidth().rows;
        case.plan.workload.operation = Operation::WriteWithImmediate;
        assert_eq!(case.hints(), []);
    }

    #[test]
    fn more_sends_than_receives_cause_a_hint() {
        let mut case = small();
        (case.plan.workload.operation, case.plan.queues.tx_depth, case.plan.queues.rx_depth) =
            (Operation::Send, 128, 64);
        assert_eq!(case.hints(), [Hint::FewReceives { receives: 64, sends: 128 }, posting(Remedy::PostList)]);
        case.plan.workload.operation = Operation::Write;
        assert_eq!(case.hints(), [posting(Remedy::PostList)]);
        // If a row is fast, its sends do not wait for receives.
        let mut case = Case::bandwidth();
        (case.plan.workload.operation, case.plan.queues.rx_depth) = (Operation::Send, 64);
        assert_eq!(case.hints(), []);
    }

    #[test]
    fn port_of_unknown_speed_causes_no_hint() {
        let mut case = small();
        case.sides[0].gigabits = None;
        assert_eq!(case.hints(), []);
    }

    #[test]
    fn bidirectional_link_counts_twice() {
        let mut case = Case::bandwidth();
        case.plan.placement.is_relaxed = false;
        assert_eq!(case.hints(), []);
        case.plan.workload.direction = Direction::Both;
        assert_eq!(case.hints(), [Hint::Ordered]);
    }

    #[test]
    fn strict_ordering_causes_a_hint() {
        let mut case = Case::bandwidth();
        case.plan.placement.is_relaxed = false;
        case.rows = vec![sample::bandwidth_row(65_536, 400_000)];
        assert_eq!(case.hints(), [Hint::Ordered]);
    }

    #[test]
    fn short_windows_cause_a_hint() {
        let mut case = Case::bandwidth();
        if let Figures::Bandwidth(bandwidth) = &mut case.rows[0].figures {
            (bandwidth.messages, bandwidth.seconds) = (7020, 0.01);
        }
        assert_eq!(case.hints(), [Hint::ShortWindow { size: 65_536, seconds: 0.01, sizes: 1 }]);
    }

    #[test]
    fn differing_intervals_cause_a_hint() {
        let mut case = Case::bandwidth();
        case.rows.push(case.rows[0].clone());
        case.rows[1].size = 131_072;
        for (row, slowest) in case.rows.iter_mut().zip([70_000, 35_100]) {
            let Figures::Bandwidth(bandwidth) = &mut row.figures else { unreachable!("a bandwidth") };
            bandwidth.intervals = vec![175_500, slowest, 175_500, 175_500];
        }
        let [Hint::Jitter { size, slowest, median }] = case.hints()[..] else { panic!("{:?}", case.hints()) };
        assert_eq!(size, 131_072);
        assert!((slowest * 5.0 - median).abs() < 1e-6, "{slowest} {median}");
        // The intervals of a short window always differ.
        for row in &mut case.rows {
            let Figures::Bandwidth(bandwidth) = &mut row.figures else { unreachable!("a bandwidth") };
            bandwidth.seconds = 0.05;
        }
        assert_eq!(case.hints(), [Hint::ShortWindow { size: 65_536, seconds: 0.05, sizes: 2 }]);
    }
}
