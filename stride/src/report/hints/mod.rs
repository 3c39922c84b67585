//! Hints for the user about what probably limits a test, and which option to try.

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

/// The data from which hints are derived.
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
    /// The sizes that were completed without a result.
    pub unmeasured: &'a [u64],
}

/// A hint for the user, whose text consists of a sentence about the cause and one about the remedy.
#[derive(Clone, Debug, PartialEq)]
pub enum Hint {
    /// The test uses a device of softrnic within a host, either by default or because the user requested it.
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
        /// The option with which the user can choose another device.
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
        /// Another NUMA node, on which a thread may run.
        thread: u32,
        /// The option with which the user can choose the threads' processors.
        option: &'static str,
        /// The processors near the device. Empty if they are unknown.
        near: String,
    },
    /// The client's options name the same port several times.
    SamePort {
        /// The name of the port.
        name: String,
        /// How many times the options name this port.
        times: usize,
    },
    /// The path MTU is below the maximum, because the user chose it with -m. Contains the path MTU in bytes.
    MtuAsked(u32),
    /// The path MTU is below the maximum, because the MTU of a port limits it.
    MtuOfPort {
        /// Host name.
        host: String,
        /// The MTU in bytes.
        mtu: u32,
        /// Whether the MTU is that of a network interface.
        is_ethernet: bool,
    },
    /// Nothing was measured for this size in bytes.
    Nothing(u64),
    /// The rate at which requests are posted limits small messages.
    Posting {
        /// The largest size to which this applies, in bytes.
        size: u64,
        /// Messages per second.
        rate: f64,
        /// The remedy.
        remedy: Remedy,
        /// Number of ports per side.
        ports: u32,
    },
    /// Each small message requests a completion of its own.
    EachSignaled,
    /// Few sends are in flight. Contains their number.
    Shallow(u32),
    /// The user has disabled relaxed ordering.
    Ordered,
    /// The windows of some sizes were short.
    ShortWindow {
        /// The size with the shortest window, in bytes.
        size: u64,
        /// The length of the shortest window in seconds.
        seconds: f64,
        /// The number of sizes to which this applies.
        sizes: usize,
    },
    /// Some ports finished earlier than others, so not all of them sent during the whole window.
    Apart {
        /// The size in bytes.
        size: u64,
        /// The average in Gb/s over the common window.
        average: f64,
        /// The total in Gb/s of all ports, each over its own window.
        ports: f64,
    },
    /// Few completions fell into a window, and each of them covers several messages.
    FewCompletions {
        /// The size in bytes.
        size: u64,
        /// The number of messages in the window.
        messages: u64,
        /// The number of messages per completion.
        each: u64,
    },
    /// The intervals of a size differ greatly.
    Jitter {
        /// The size in bytes.
        size: u64,
        /// The rate of the slowest interval in Gb/s.
        slowest: f64,
        /// The rate of the median interval in Gb/s.
        median: f64,
    },
    /// Some messages were lost.
    Lost {
        /// The size in bytes.
        size: u64,
        /// The number of messages that arrived.
        arrived: u64,
        /// The number of messages that were sent.
        sent: u64,
        /// The transport.
        service: Transport,
    },
    /// All messages were lost.
    NoneArrived {
        /// The size in bytes.
        size: u64,
        /// The number of messages that were sent.
        sent: u64,
        /// The transport.
        service: Transport,
    },
    /// Messages may have been lost, but over this transport their arrival is not counted.
    Unknown(Transport),
    /// The sender may have more messages in flight per queue pair than the peer has posted receives.
    FewReceives {
        /// The number of receives per queue pair.
        receives: u32,
        /// The number of sends per queue pair.
        sends: u32,
    },
    /// There are too few samples for the last percentile. Contains their number.
    FewSamples(u64),
    /// A few samples are much longer than the others.
    Tail {
        /// The frequency governor of a side, if it is not `performance`.
        governor: Option<String>,
        /// The size in bytes.
        size: u64,
        /// The median in nanoseconds.
        p50: f64,
        /// The 99.9th percentile in nanoseconds.
        p99_9: f64,
    },
    /// The threads slept until events arrived.
    Slept,
    /// No bandwidth window was long enough for two of the requested intervals.
    NoTwoIntervals(Duration),
    /// In a latency test, each size ended before half of a requested interval had passed.
    NoInterval(Duration),
}

/// What the user can do if the rate of requests limits a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// The user can post several requests together.
    PostList,
    /// The user can use more threads.
    Threads,
    /// The user can use more queue pairs, because each of them can have only this number of reads outstanding.
    Reads(u32),
}

/// Returns a hint if the threads of a side may run far from its device. `option` is the option that selects the
/// processors of the threads.
pub fn far(port_info: &PortInfo, option: &'static str) -> Option<Hint> {
    let node = port_info.numa_node?;
    let thread = *port_info.thread_nodes.iter().find(|other| **other != node)?;
    let (host, device, near) = (port_info.host.clone(), port_info.device.clone(), port_info.near_cpus.clone());
    Some(Hint::Far { host, device, node, thread, option, near })
}

/// Returns the hints about threads far from their device, for each port of both sides.
pub fn far_sides(sides: [&PortInfo; 2]) -> impl Iterator<Item = Hint> {
    let sides = sides.into_iter().zip(["--cpu", "--remote-cpu"]);
    sides.flat_map(|(port_info, option)| port_info.all().filter_map(move |port| far(port, option)))
}

/// Returns a hint about the first port that a side uses several times.
pub fn same_port(port_info: &PortInfo) -> Option<Hint> {
    let names: Vec<_> = port_info.all().map(PortInfo::name).collect();
    let times = |name: &String| names.iter().filter(|other| *other == name).count();
    let name = names.iter().find(|name| times(name) > 1)?;
    Some(Hint::SamePort { name: name.clone(), times: times(name) })
}

/// Returns a hint if the test uses a device of softrnic within a host, either by default or as requested.
pub fn softrnic(plan: &Plan, sides: [&PortInfo; 2]) -> Option<Hint> {
    let is_chosen = [&plan.placement.client, &plan.placement.server].iter().any(|config| config.device.is_some());
    let is_within = |port_info: &PortInfo| port_info.connects_one_host() && !port_info.is_iwarp();
    sides.iter().any(|port_info| port_info.all().any(is_within)).then_some(Hint::Softrnic { is_chosen })
}

/// Returns all hints of a test. The most important ones come first.
pub fn hints(given: &Given<'_>) -> Vec<Hint> {
    let mut all = sides::hints(given);
    all.extend(given.unmeasured.first().map(|size| Hint::Nothing(*size)));
    all.extend(bandwidth::hints(given));
    all.extend(latency::hints(given));
    all.extend(intervals::hint(given));
    all
}

impl Given<'_> {
    /// Returns the link speed in Gb/s. The speed is the sum over all pairs of ports, where the slower port of each pair
    /// counts. Several ports of one side may be connected to the same port. The result is therefore at most the sum
    /// over all different ports of the client, and at most that of the server. `None` for softrnic.
    fn link(&self) -> Option<f64> {
        let gigabits = |port_info: &PortInfo| port_info.gigabits.filter(|_| !port_info.is_soft());
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

    /// Whether the rate of a row is below this share of the link speed.
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

    /// The data for hints, which a test can change.
    pub(super) struct Case {
        pub(super) plan: Plan,
        pub(super) path: Path,
        pub(super) sides: [PortInfo; 2],
        pub(super) rows: Vec<Row>,
        pub(super) unmeasured: Vec<u64>,
    }

    impl Case {
        /// Returns a bandwidth test that gets no hint.
        pub(super) fn bandwidth() -> Self {
            // The row has 368 Gb/s, on a port with 400 Gb/s.
            let rows = vec![sample::bandwidth_row(65_536, 702_000)];
            Self {
                plan: sample::plan(Measure::Bandwidth),
                path: sample::path(),
                sides: ["one", "two"].map(sample::port_info),
                rows,
                unmeasured: Vec::new(),
            }
        }

        /// Returns a latency test that gets no hint.
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
        let second = |port_info: &PortInfo, gigabits| {
            vec![PortInfo { device: "mlx5_1".to_owned(), gigabits: Some(gigabits), ..port_info.clone() }]
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
