//! Combines the results of a side's threads, for each port and in total.

use std::time::Duration;

use stride_run::{Outcome, Scale, Window};

use crate::plan::{Plan, RunLength};
use crate::stats::{Bandwidth, Figures, Latency};

/// Returns the combined result of all threads.
pub(super) fn sum(outcomes: Vec<Outcome>, plan: &Plan, size: u64) -> Option<Figures> {
    let mut times = None;
    let windows: Vec<Vec<Window>> = outcomes
        .into_iter()
        .map(|outcome| match outcome {
            Outcome::Window(window) => vec![window],
            // Latency tests have one thread.
            Outcome::Times(samples) => {
                times = Some(samples.tally());
                Vec::new()
            }
            Outcome::Nothing => Vec::new(),
        })
        .collect();
    if let crate::plan::Measure::Latency(semantics) = plan.workload.measure {
        return Latency::of_tally(&times?, Scale::now().tick(), semantics).map(Figures::Latency);
    }
    let bandwidth = of_windows(&windows.concat(), plan, size)?;
    let ports = plan.ports() as usize;
    if ports == 1 {
        return Some(Figures::Bandwidth(bandwidth));
    }
    // The threads of each port follow each other in the list.
    let threads = (plan.queues.threads as usize / ports).max(1);
    let of_port = |windows: &[Vec<Window>]| of_windows(&windows.concat(), plan, size).unwrap_or_default();
    let ports = windows.chunks(threads).map(of_port).collect();
    Some(Figures::Bandwidth(Bandwidth { ports, ..bandwidth }))
}

/// Returns the combined result of some threads.
fn of_windows(windows: &[Window], plan: &Plan, size: u64) -> Option<Bandwidth> {
    let arrived = |windows: &[Window]| windows.iter().map(|window| window.arrived).sum();
    let has_length = |window: &&Window| window.ended > window.started;
    // If a thread has received messages but has no window of its own, the sender's figures are used instead.
    let is_late = |window: &Window| window.sent.is_none() && window.arrived > Some(0) && !has_length(&window);
    if windows.iter().any(is_late) {
        return Some(Bandwidth { arrived: arrived(windows), ..Bandwidth::default() });
    }
    // The window of a thread may be too short to have a length. If other windows are longer, it is left out.
    let is_any_long = windows.iter().any(|window| has_length(&window));
    let of_some = || windows.iter().filter(|window| !is_any_long || has_length(window));
    let started = of_some().map(|window| window.started).min()?;
    let ended = of_some().map(|window| window.ended).max()?;
    let messages: u64 = windows.iter().map(|window| window.messages).sum();
    let mut seconds = (ended - started).as_secs_f64();
    if matches!(plan.workload.amount, RunLength::Time { .. }) {
        // Each thread's window starts and ends with completions of that thread, so the total rate is the sum of the
        // rates.
        let rate = |window: &Window| window.messages as f64 / (window.ended - window.started).as_secs_f64();
        let rates: f64 = windows.iter().map(rate).filter(|rate| rate.is_finite()).sum();
        seconds = if rates > 0.0 { messages as f64 / rates } else { seconds };
    }
    let interval = windows.iter().map(|window| window.interval).max()?.as_secs_f64();
    let of = |window: &Window| Bandwidth {
        intervals: window.intervals.clone(),
        interval: window.interval.as_secs_f64(),
        ..Bandwidth::default()
    };
    let parts: Vec<_> = windows.iter().map(|window| of(window).with_interval(interval).intervals).collect();
    let count = parts.iter().map(Vec::len).min().unwrap_or(0);
    let intervals = (0..count).map(|at| parts.iter().map(|part| part[at]).sum()).collect();
    let cpu: Duration = windows.iter().map(|window| window.cpu).sum();
    let bandwidth = Bandwidth {
        messages,
        seconds,
        intervals,
        interval,
        cpu: (seconds > 0.0).then(|| cpu.as_secs_f64() / seconds),
        sent: windows.iter().map(|window| window.sent).sum(),
        arrived: arrived(windows),
        ports: Vec::new(),
    };
    Some(if plan.interval_kept().is_some() { bandwidth } else { bandwidth.settled(plan.moderation(size)) })
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::plan::{Placement, Queues, Workload};

    #[test]
    fn port_figures_are_those_of_its_threads() {
        let started = Instant::now();
        let of = |milliseconds, messages| {
            Outcome::Window(Window {
                started,
                ended: started + Duration::from_millis(milliseconds),
                messages,
                intervals: vec![messages],
                interval: Duration::from_millis(1),
                cpu: Duration::from_millis(1),
                sent: None,
                arrived: None,
            })
        };
        let plan = Plan { queues: Queues { threads: 4, queue_pairs: 4, ..Queues::default() }, ..Plan::default() };
        let plan =
            Plan { placement: Placement { client: plan.placement.client.clone().spread(2), ..plan.placement }, ..plan };
        let sum = |outcomes: [Outcome; 4]| match sum(outcomes.into(), &plan, 64) {
            Some(Figures::Bandwidth(bandwidth)) => {
                let ports = bandwidth.ports.iter().map(|port| (port.messages, port.seconds));
                (bandwidth.messages, bandwidth.seconds, ports.collect::<Vec<_>>())
            }
            other => panic!("{other:?}"),
        };
        let all = sum([of(10, 100), of(20, 100), of(40, 300), of(40, 500)]);
        assert_eq!(all, (1000, 0.04, vec![(200, 0.02), (800, 0.04)]));
        // A thread that has no result still counts as a thread of its port.
        let all = sum([Outcome::Nothing, of(20, 100), of(40, 300), of(40, 500)]);
        assert_eq!(all.2, [(100, 0.02), (800, 0.04)]);
    }

    #[test]
    fn thread_without_window_uses_the_senders_time() {
        let started = Instant::now();
        let of = |milliseconds, messages, arrived| Window {
            started,
            ended: started + Duration::from_millis(milliseconds),
            messages,
            intervals: Vec::new(),
            interval: Duration::from_millis(1),
            cpu: Duration::ZERO,
            sent: None,
            arrived,
        };
        let plan = Plan {
            workload: Workload { amount: RunLength::Messages { count: 200, warm_up: 10 }, ..Workload::default() },
            ..Plan::default()
        };
        let sum = |windows: [Window; 2]| match sum(windows.map(Outcome::Window).into(), &plan, 64) {
            Some(Figures::Bandwidth(bandwidth)) => (bandwidth.messages, bandwidth.seconds, bandwidth.arrived),
            other => panic!("{other:?}"),
        };
        assert_eq!(sum([of(20, 400, Some(420)), of(10, 200, Some(210))]), (600, 0.02, Some(630)));
        assert_eq!(sum([of(20, 400, Some(420)), of(0, 0, Some(210))]), (0, 0.0, Some(630)));
        // One of the two threads received nothing.
        assert_eq!(sum([of(20, 400, Some(420)), of(0, 0, Some(0))]), (400, 0.02, Some(420)));
        // The window of one of the senders is too short to have a length.
        assert_eq!(sum([of(20, 400, None), of(0, 0, None)]), (400, 0.02, None));
    }
}
