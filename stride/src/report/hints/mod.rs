//! What likely limits a test, and which option to try.

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

/// What the hints are drawn from.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a> {
    /// What was asked for.
    pub plan: &'a Plan,
    /// How the queue pairs are connected.
    pub path: &'a Path,
    /// The client and the server.
    pub sides: [&'a PortInfo; 2],
    /// What came out.
    pub rows: &'a [Row],
    /// Sizes that were done, and of which nothing came out.
    pub unmeasured: &'a [u64],
}

/// What likely limits a test. As text it is a sentence of what is, and one of what to try.
#[derive(Clone, Debug, PartialEq)]
pub enum Hint {
    /// There was no device, or softrnic's was asked for.
    Softrnic {
        /// Whether a user asked for it.
        is_chosen: bool,
    },
    /// The GPU of a side is far from its device.
    GpuFar {
        /// Name of the machine.
        host: String,
        /// The GPU.
        gpu: GpuInfo,
        /// Its node.
        node: u32,
        /// Name of the device.
        device: String,
        /// The device's node, another one.
        device_node: u32,
        /// The option that takes another device.
        option: &'static str,
    },
    /// The threads of a side run far from its device.
    Far {
        /// Name of the machine.
        host: String,
        /// Name of the device.
        device: String,
        /// The node of the device.
        node: u32,
        /// Another node, on which a thread may run.
        thread: u32,
        /// The option that moves them.
        option: &'static str,
        /// The processors that it takes; empty where they are not known.
        near: String,
    },
    /// Several of the client's parts of a test go over one port.
    SamePort {
        /// The port.
        name: String,
        /// How many of them do.
        times: usize,
    },
    /// The packets are smaller than they might be, as the plan says so.
    MtuAsked(u32),
    /// The packets are smaller than they might be, as a port is set up so.
    MtuOfPort {
        /// Name of the machine.
        host: String,
        /// Bytes of a packet.
        mtu: u32,
        /// Whether the port has its MTU from a network interface.
        is_ethernet: bool,
    },
    /// Nothing was measured at a size, of so many bytes.
    Nothing(u64),
    /// Posting limits small messages.
    Posting {
        /// The largest of them, in bytes.
        size: u64,
        /// Messages a second.
        rate: f64,
        /// What to try.
        remedy: Remedy,
        /// Ports of each side.
        ports: u32,
    },
    /// Each small message has a completion of its own.
    EachSignaled,
    /// Few sends are under way.
    Shallow(u32),
    /// The device may not write in any order.
    Ordered,
    /// Windows were short.
    ShortWindow {
        /// The size with the shortest one, in bytes.
        size: u64,
        /// That window, in seconds.
        seconds: f64,
        /// At how many sizes.
        sizes: usize,
    },
    /// The ports of a test were not all under way for the whole window of a size.
    Apart {
        /// The size, in bytes.
        size: u64,
        /// Gigabits a second in the window of all.
        average: f64,
        /// What the ports come to together, each in its own window.
        ports: f64,
    },
    /// Few completions came in the window of a size, each of several messages.
    FewCompletions {
        /// The size, in bytes.
        size: u64,
        /// Messages of the window.
        messages: u64,
        /// Messages that have one completion.
        each: u64,
    },
    /// The intervals of a size differ much.
    Jitter {
        /// The size, in bytes.
        size: u64,
        /// The slowest interval, in gigabits a second.
        slowest: f64,
        /// The one in the middle.
        median: f64,
    },
    /// Messages were lost.
    Lost {
        /// The size, in bytes.
        size: u64,
        /// How many came.
        arrived: u64,
        /// Of how many.
        sent: u64,
        /// What they were sent by.
        service: Transport,
    },
    /// All messages were lost.
    NoneArrived {
        /// The size, in bytes.
        size: u64,
        /// How many there were.
        sent: u64,
        /// What they were sent by.
        service: Transport,
    },
    /// Messages may have been lost, and nobody has counted them where they arrive. What they were sent by.
    Unknown(Transport),
    /// More messages may be under way on a queue pair than the other side has receives for.
    FewReceives {
        /// Receives of a queue pair.
        receives: u32,
        /// Sends of one.
        sends: u32,
    },
    /// There are too few samples for the last percentile.
    FewSamples(u64),
    /// Some samples are much longer than most.
    Tail {
        /// What sets the frequency of the processors of a side, where it is not `performance`.
        governor: Option<String>,
        /// The size, in bytes.
        size: u64,
        /// The median, in nanoseconds.
        p50: f64,
        /// The 99.9th percentile.
        p99_9: f64,
    },
    /// Threads slept meanwhile.
    Slept,
    /// Intervals of this length were asked for, and no bandwidth took two of them.
    NoTwoIntervals(Duration),
    /// And no latency took half of one.
    NoInterval(Duration),
}

/// What to try where posting is the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Requests that are posted together.
    PostList,
    /// More threads.
    Threads,
    /// More queue pairs, as each can have only so many reads under way.
    Reads(u32),
}

/// Whether the threads of a side may run far from its device. `option` is the one that moves them.
pub fn far(facts: &PortInfo, option: &'static str) -> Option<Hint> {
    let node = facts.numa_node?;
    let thread = *facts.thread_nodes.iter().find(|other| **other != node)?;
    let (host, device, near) = (facts.host.clone(), facts.device.clone(), facts.near_cpus.clone());
    Some(Hint::Far { host, device, node, thread, option, near })
}

/// The same of both sides of a test, as its client can say it: of each port.
pub fn far_sides(sides: [&PortInfo; 2]) -> impl Iterator<Item = Hint> {
    let sides = sides.into_iter().zip(["--cpu", "--remote-cpu"]);
    sides.flat_map(|(facts, option)| facts.all().filter_map(move |port| far(port, option)))
}

/// The first of a side's ports that it has several times.
pub fn same_port(facts: &PortInfo) -> Option<Hint> {
    let names: Vec<_> = facts.all().map(PortInfo::name).collect();
    let times = |name: &String| names.iter().filter(|other| *other == name).count();
    let name = names.iter().find(|name| times(name) > 1)?;
    Some(Hint::SamePort { name: name.clone(), times: times(name) })
}

/// Whether softrnic's device was asked for, or stands in, where a side has it.
pub fn softrnic(plan: &Plan, sides: [&PortInfo; 2]) -> Option<Hint> {
    let is_chosen = [&plan.placement.client, &plan.placement.server].iter().any(|place| place.device.is_some());
    sides.iter().any(|facts| facts.all().any(PortInfo::is_soft)).then_some(Hint::Softrnic { is_chosen })
}

/// All hints of a test, the weightiest first.
pub fn hints(given: &Given<'_>) -> Vec<Hint> {
    let mut all = sides::hints(given);
    all.extend(given.unmeasured.first().map(|size| Hint::Nothing(*size)));
    all.extend(bandwidth::hints(given));
    all.extend(latency::hints(given));
    all.extend(intervals::hint(given));
    all
}

impl Given<'_> {
    /// What both sides are said to carry, in gigabits a second: of each pair of ports the slower, all together, and no more than the
    /// ports of either side, of which several may be connected with the same one. softrnic's carry what they can.
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

    /// Whether a row is far below what the link carries.
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

    /// What hints are drawn from, to be changed by a test.
    pub(super) struct Case {
        pub(super) plan: Plan,
        pub(super) path: Path,
        pub(super) sides: [PortInfo; 2],
        pub(super) rows: Vec<Row>,
        pub(super) unmeasured: Vec<u64>,
    }

    impl Case {
        /// Of bandwidths, about which there is nothing to say.
        pub(super) fn bandwidth() -> Self {
            // 368 Gb/s, of a port of 400.
            let rows = vec![sample::bandwidth_row(65_536, 702_000)];
            Self {
                plan: sample::plan(Measure::Bandwidth),
                path: sample::path(),
                sides: ["one", "two"].map(sample::facts),
                rows,
                unmeasured: Vec::new(),
            }
        }

        /// Of latencies, about which there is nothing to say.
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
    fn a_good_run_needs_none() {
        assert_eq!(Case::bandwidth().hints(), []);
        assert_eq!(Case::latency().hints(), []);
    }

    #[test]
    fn several_ports_carry_more_than_one() {
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
        // Both of the client's are connected with one of the server's.
        case.sides[1].others = vec![case.sides[1].clone()];
        assert_eq!(link(&case), Some(400.0));
        case.sides[0].others[0].gigabits = None;
        assert_eq!(link(&case), None);
    }

    #[test]
    fn nothing_came_out() {
        let mut case = Case::bandwidth();
        case.rows.clear();
        assert_eq!(case.hints(), []);
        case.unmeasured = vec![4096, 8 << 20];
        assert_eq!(case.hints(), [Hint::Nothing(4096)]);
    }
}
