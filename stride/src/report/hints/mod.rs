//! Hints: what probably limits a test, and which option to try.

mod bandwidth;
mod intervals;
mod latency;
mod sides;
mod text;

use std::time::Duration;

pub use self::text::OPTIONS;
use super::Row;
use crate::endpoint::{GpuInfo, Path, PortInfo};
use crate::plan::{Operation, Plan, Transport};

/// The inputs of hints.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// The path of the queue pairs.
    pub path: &'a Path,
    /// The client and the server.
    pub sides: [&'a PortInfo; 2],
    /// The results.
    pub rows: &'a [Row],
    /// Sizes that were completed without a result.
    pub unmeasured: &'a [u64],
}

/// A hint. The text has one sentence for the cause and one for the remedy.
#[derive(Clone, Debug, PartialEq)]
pub enum Hint {
    /// softrnic is in use, either by default or because the user requested it.
    Softrnic {
        /// Whether the user requested softrnic.
        is_chosen: bool,
    },
    /// The GPU of a side is far from its device.
    GpuFar {
        /// Host name.
        host: String,
        /// The GPU.
        gpu: GpuInfo,
        /// NUMA node of the GPU.
        node: u32,
        /// Device name.
        device: String,
        /// NUMA node of the device.
        device_node: u32,
        /// The option for another device.
        option: &'static str,
    },
    /// The threads of a side run far from its device.
    Far {
        /// Host name.
        host: String,
        /// Device name.
        device: String,
        /// NUMA node of the device.
        node: u32,
        /// Another node on which a thread may run.
        thread: u32,
        /// The option for the threads' processors.
        option: &'static str,
        /// Processors near the device; empty if unknown.
        near: String,
    },
    /// Several ports of the client's test are the same port.
    SamePort {
        /// The port.
        name: String,
        /// How often the options name this port.
        times: usize,
    },
    /// The path MTU is below the maximum, as given with -m.
    MtuAsked(u32),
    /// The path MTU is below the maximum, because a port limits it.
    MtuOfPort {
        /// Host name.
        host: String,
        /// The MTU in bytes.
        mtu: u32,
        /// Whether the limit comes from a network interface.
        is_ethernet: bool,
    },
    /// Nothing was measured for this size in bytes.
    Nothing(u64),
    /// Posting limits small messages.
    Posting {
        /// The largest affected size in bytes.
        size: u64,
        /// Messages per second.
        rate: f64,
        /// The remedy.
        remedy: Remedy,
        /// Ports per side.
        ports: u32,
    },
    /// Each small message requests a completion.
    EachSignaled,
    /// Few sends are in flight.
    Shallow(u32),
    /// Relaxed ordering is off.
    Ordered,
    /// Windows were short.
    ShortWindow {
        /// The size with the shortest window, in bytes.
        size: u64,
        /// The shortest window in seconds.
        seconds: f64,
        /// Number of affected sizes.
        sizes: usize,
    },
    /// The ports did not run at the same time for the whole window.
    Apart {
        /// The size in bytes.
        size: u64,
        /// Average Gb/s in the common window.
        average: f64,
        /// Total Gb/s of the ports in their own windows.
        ports: f64,
    },
    /// Few completions arrived in a window, each covering several messages.
    FewCompletions {
        /// The size in bytes.
        size: u64,
        /// Messages in the window.
        messages: u64,
        /// Messages per completion.
        each: u64,
    },
    /// The intervals of a size differ much.
    Jitter {
        /// The size in bytes.
        size: u64,
        /// The slowest interval in Gb/s.
        slowest: f64,
        /// The median interval in Gb/s.
        median: f64,
    },
    /// Messages were lost.
    Lost {
        /// The size in bytes.
        size: u64,
        /// Messages that arrived.
        arrived: u64,
        /// Messages that were sent.
        sent: u64,
        /// The transport.
        service: Transport,
    },
    /// All messages were lost.
    NoneArrived {
        /// The size in bytes.
        size: u64,
        /// Messages that were sent.
        sent: u64,
        /// The transport.
        service: Transport,
    },
    /// Messages may have been lost, and arrivals are not counted over this transport.
    Unknown(Transport),
    /// More messages may be in flight per queue pair than the peer has receives.
    FewReceives {
        /// Receives per queue pair.
        receives: u32,
        /// Sends per queue pair.
        sends: u32,
    },
    /// Too few samples for the last percentile.
    FewSamples(u64),
    /// Some samples are much longer than most.
    Tail {
        /// The frequency governor of a side, if not `performance`.
        governor: Option<String>,
        /// The size in bytes.
        size: u64,
        /// The median in nanoseconds.
        p50: f64,
        /// The 99.9th percentile in nanoseconds.
        p99_9: f64,
    },
    /// Threads slept until events arrived.
    Slept,
    /// No bandwidth window had two of the requested intervals.
    NoTwoIntervals(Duration),
    /// Each latency size ended within half of a requested interval.
    NoInterval(Duration),
}

/// Remedies for a posting limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Post several requests together.
    PostList,
    /// Use more threads.
    Threads,
    /// Use more queue pairs, because each has this limit on outstanding reads.
    Reads(u32),
}

/// Whether the threads of a side may run far from its device; `option` sets their processors.
pub fn far(facts: &PortInfo, option: &'static str) -> Option<Hint> {
    let node = facts.numa_node?;
    let thread = *facts.thread_nodes.iter().find(|other| **other != node)?;
    let (host, device, near) = (facts.host.clone(), facts.device.clone(), facts.near_cpus.clone());
    Some(Hint::Far { host, device, node, thread, option, near })
}

/// Hints for threads far from their device, for each port of both sides.
pub fn far_sides(sides: [&PortInfo; 2]) -> impl Iterator<Item = Hint> {
    let sides = sides.into_iter().zip(["--cpu", "--remote-cpu"]);
    sides.flat_map(|(facts, option)| facts.all().filter_map(move |port| far(port, option)))
}

/// The first port that a side uses several times.
pub fn same_port(facts: &PortInfo) -> Option<Hint> {
    let names: Vec<_> = facts.all().map(PortInfo::name).collect();
    let times = |name: &String| names.iter().filter(|other| *other == name).count();
    let name = names.iter().find(|name| times(name) > 1)?;
    Some(Hint::SamePort { name: name.clone(), times: times(name) })
}

/// Whether softrnic's device is in use, by default or as requested.
pub fn softrnic(plan: &Plan, sides: [&PortInfo; 2]) -> Option<Hint> {
    let is_chosen = [&plan.placement.client, &plan.placement.server].iter().any(|place| place.device.is_some());
    sides.iter().any(|facts| facts.all().any(PortInfo::is_soft)).then_some(Hint::Softrnic { is_chosen })
}

/// All hints of a test, the most important first.
pub fn hints(given: &Given<'_>) -> Vec<Hint> {
    let mut all = sides::hints(given);
    all.extend(given.unmeasured.first().map(|size| Hint::Nothing(*size)));
    all.extend(bandwidth::hints(given));
    all.extend(latency::hints(given));
    all.extend(intervals::hint(given));
    all
}

impl Given<'_> {
    /// The link speed in Gb/s: the sum of the slower port's speed in each pair, but at most the sum over the ports of
    /// either side, because several ports may be connected to the same one. `None` for softrnic.
    fn link(&self) -> Option<f64> {
        let gigabits = |facts: &PortInfo| facts.gigabits.filter(|_| !facts.is_soft());
        let [client, server] = self.sides;
        let pairs = client.all().zip(server.all());
        let pairs: Option<f64> = pairs.map(|(ours, theirs)| Some(gigabits(ours)?.min(gigabits(theirs)?))).sum();
        let of = |side: &PortInfo| {
            let mut seen = Vec::new();
            let once = side.all().filter(|port| {
                let is_new = !seen.contains(&(&port.device, port.port));
                seen.push((&port.device, port.port));
                is_new
            });
            once.map(gigabits).sum::<Option<f64>>()
        };
        Some(pairs?.min(of(client)?).min(of(server)?))
    }

    /// Whether a row is far below the link speed.
    fn is_below_link(&self, row: &Row, share: f64) -> bool {
        let directions = if self.plan.workload.direction.is_both() { 2.0 } else { 1.0 };
        let average = row.average().map(|rates| rates.gigabits_per_second);
        average.zip(self.link()).is_some_and(|(average, link)| average < share * link * directions)
    }

    fn fetches(&self) -> bool {
        Operation::fetches(self.plan.workload.operation)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::plan::{Measure, Semantics};
    use crate::report::sample;

    /// Inputs of hints, to be changed by a test.
    pub(super) struct Case {
        pub(super) plan: Plan,
        pub(super) path: Path,
        pub(super) sides: [PortInfo; 2],
        pub(super) rows: Vec<Row>,
        pub(super) unmeasured: Vec<u64>,
    }

    impl Case {
        /// A bandwidth test without hints.
        pub(super) fn bandwidth() -> Self {
            // 368 Gb/s on a port of 400.
            let rows = vec![sample::bandwidth_row(65_536, 702_000)];
            Self {
                plan: sample::plan(Measure::Bandwidth),
                path: sample::path(),
                sides: ["one", "two"].map(sample::facts),
                rows,
                unmeasured: Vec::new(),
            }
        }

        /// A latency test without hints.
        pub(super) fn latency() -> Self {
            let plan = sample::plan(Measure::Latency(Semantics::Oneway));
            let ticks = (0..100_000u64).map(|i| 1000 + i % 100);
            let latency = crate::stats::Latency::of(ticks, 1.0, Semantics::Oneway).unwrap();
            let rows = vec![Row::new(8, crate::stats::Figures::Latency(latency))];
            Self { plan, rows, ..Self::bandwidth() }
        }

        pub(super) fn hints(&self) -> Vec<Hint> {
            let [client, server] = &self.sides;
            let sides = [client, server];
            hints(&Given { plan: &self.plan, path: &self.path, sides, rows: &self.rows, unmeasured: &self.unmeasured })
        }
    }

    #[test]
    fn good_run_causes_no_hints() {
        assert_eq!(Case::bandwidth().hints(), []);
        assert_eq!(Case::latency().hints(), []);
    }

    #[test]
    fn link_speed_is_the_total_of_the_ports() {
        let mut case = Case::bandwidth();
        let link = |case: &Case| {
            let [client, server] = &case.sides;
            let sides = [client, server];
            Given { plan: &case.plan, path: &case.path, sides, rows: &case.rows, unmeasured: &[] }.link()
        };
        assert_eq!(link(&case), Some(400.0));
        let second = |facts: &PortInfo, gigabits| {
            vec![PortInfo { device: "mlx5_1".to_owned(), gigabits: Some(gigabits), ..facts.clone() }]
        };
        case.sides[0].others = second(&case.sides[0], 400.0);
        case.sides[1].others = second(&case.sides[1], 100.0);
        assert_eq!(link(&case), Some(500.0));
        // Both ports of the client are connected to the same port of the server.
        case.sides[1].others = vec![case.sides[1].clone()];
        assert_eq!(link(&case), Some(400.0));
        case.sides[0].others[0].gigabits = None;
        assert_eq!(link(&case), None);
    }

    #[test]
    fn unmeasured_size_causes_a_hint() {
        let mut case = Case::bandwidth();
        case.rows.clear();
        assert_eq!(case.hints(), []);
        case.unmeasured = vec![4096, 8 << 20];
        assert_eq!(case.hints(), [Hint::Nothing(4096)]);
    }
}
