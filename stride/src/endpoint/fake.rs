//! Endpoints that have no device, and compute their figures from the plan. All tests of this crate use them, except for
//! those of the measuring loops.

use std::os::fd::BorrowedFd;
use std::thread::{sleep, yield_now};
use std::time::Duration;

use anyhow::{Error, Result, bail};

use super::counters::{self, Changes};
use super::{
    Endpoint, EndpointFactory, GidInfo, Intake, Partition, Path, PeerInfo, PortInfo, QpAddress, Role, StepProgress,
    Unsupported,
};
use crate::plan::{ALL_COUNTERS, Measure, Memory, Operation, Plan, RunLength, Semantics, SideConfig, Transport};
use crate::stats::{Bandwidth, Figures, Interval, Latency, Seen};

/// The stages at which an endpoint can be configured to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The endpoint opens its device.
    Open,
    /// The endpoint creates its queue pairs.
    MakeEnds,
    /// The endpoint connects its queue pairs.
    Connect,
    /// The endpoint prepares a step.
    Prepare,
    /// The endpoint runs a step.
    Run,
}

/// A factory of endpoints that have no device.
#[derive(Clone, Debug, Default)]
pub struct Fake {
    /// The side that fails, and the stage at which it fails.
    pub fails: Option<(Role, Stage)>,
    /// The side whose run ends only when it is stopped.
    pub waits: Option<Role>,
    /// The side whose run takes much longer than the other's.
    pub late: Option<Role>,
    /// Whether neither side measures anything.
    pub is_idle: bool,
    /// The MTU in bytes, if less than 4096.
    pub mtu: Option<u32>,
    /// Whether the port is InfiniBand instead of Ethernet.
    pub is_infiniband: bool,
    /// The operation that the device does not support.
    pub lacks: Option<Operation>,
    /// The name of the device's kernel driver, if it is not the default.
    pub provider: Option<&'static str>,
    /// The length of the longest message of each side in bytes, if it is limited.
    pub longest: [Option<u32>; 2],
}

/// The P_Keys in the table of a port.
const PKEYS: [u16; 3] = [0xffff, 0x8001, 0x0001];

/// The counters of a port. The last one never changes.
const COUNTERS: [&str; 3] = ["counters/port_rcv_data", "counters/port_xmit_data", "hw_counters/out_of_buffer"];

/// Interval between two reports of a late side. During this time, messages of the peer arrive.
const BEAT: Duration = Duration::from_millis(50);

/// Time that a message of zero bytes takes, in nanoseconds.
const BASE: f64 = 1000.0;

/// Speed in bytes per nanosecond, which is 100 Gb/s.
const SPEED: f64 = 12.5;

impl EndpointFactory for Fake {
    fn open(&self, plan: &Plan, config: &SideConfig, role: Role) -> Result<Box<dyn Endpoint>> {
        let ports = config.each_port();
        let mut ports = ports.iter().map(|config| self.port(plan, config, role)).collect::<Result<Vec<_>>>()?;
        let mut port_info = ports.remove(0);
        port_info.others = ports;
        counters::find(&COUNTERS.map(str::to_owned), &plan.sampling.counters, "port 1 of fake0").map_err(Error::msg)?;
        let side = FakeEndpoint { factory: self.clone(), plan: plan.clone(), role, port_info, prepared: None };
        if self.lacks == Some(plan.workload.operation) {
            return Err(
                Unsupported(format!("{} does not support {}", side.port_info.device, plan.workload.operation)).into()
            );
        }
        side.reach(Stage::Open)?;
        Ok(Box::new(side))
    }
}

impl Fake {
    fn port(&self, plan: &Plan, config: &SideConfig, role: Role) -> Result<PortInfo> {
        let mut port_info = port_info(config, role);
        port_info.mtu = self.mtu.unwrap_or(port_info.mtu);
        port_info.provider = self.provider.unwrap_or(&port_info.provider).to_owned();
        if self.is_infiniband {
            port_info.link_layer = "InfiniBand".to_owned();
            port_info.lid = if role == Role::Client { 1 } else { 2 };
            port_info.gids.truncate(1);
            port_info.gids.iter_mut().for_each(|gid| gid.kind = "IB".to_owned());
        }
        port_info.check_dlid().map_err(Error::msg)?;
        let (index, length) = (config.pkey_index.unwrap_or(0), PKEYS.len() as u16);
        let key = |index: u16| PKEYS.get(usize::from(index)).copied();
        let partition = Partition::find(index, length, key, "port 1 of fake0").map_err(Error::msg)?;
        port_info.partition = Some(partition).filter(|_| !plan.attributes.uses_rdma_cm);
        port_info.longest = self.longest[usize::from(role == Role::Server)];
        Ok(port_info)
    }
}

struct FakeEndpoint {
    factory: Fake,
    plan: Plan,
    role: Role,
    port_info: PortInfo,
    prepared: Option<u64>,
}

impl FakeEndpoint {
    fn reach(&self, stage: Stage) -> Result<()> {
        if self.factory.fails == Some((self.role, stage)) {
            bail!("{} fails at {stage:?}, as configured", self.port_info.device);
        }
        Ok(())
    }

    /// Whether this side measures. A side that sends or receives does.
    fn measures(&self) -> bool {
        let is_sender = (self.role == Role::Client) != self.plan.workload.direction.is_reversed();
        is_sender || self.plan.workload.direction.is_both() || self.plan.workload.operation.takes_receive()
    }

    /// Returns an interval of a step. A step has one interval, or one per report if the run does not end by itself.
    fn interval(&self, size: u64, index: u32) -> Interval {
        let seen = match self.figures(size) {
            Figures::Bandwidth(_) => Seen::Bandwidth { messages: (1e9 / gap(size)) as u64 },
            Figures::Latency(Latency { samples, min, mean, max, .. }) => Seen::Latency { samples, min, mean, max },
        };
        Interval { start: index.into(), end: (index + 1).into(), seen }
    }

    fn figures(&self, size: u64) -> Figures {
        match self.plan.workload.measure {
            Measure::Bandwidth => Figures::Bandwidth(bandwidth(&self.plan, size)),
            Measure::Latency(semantics) => Figures::Latency(latency(&self.plan, semantics, size)),
        }
    }
}

impl Endpoint for FakeEndpoint {
    fn port_info(&self) -> &PortInfo {
        &self.port_info
    }

    fn create_queue_pairs(&mut self, path: &Path) -> Result<PeerInfo> {
        self.reach(Stage::MakeEnds)?;
        let intake = |number| match self.plan.attributes.transport {
            Transport::Xrc => Some(Intake::Xrc { number, srq: number }),
            Transport::Dc => Some(Intake::Dc { number, key: u64::MAX - u64::from(number) }),
            Transport::Rc | Transport::Uc | Transport::Ud | Transport::Srd => None,
        };
        let end = |number| QpAddress { number, psn: 0, address: 0x1000, rkey: 1, intake: intake(number) };
        let inline = self.plan.queues.inline.unwrap_or(0);
        let of = |(port_info, path): (&PortInfo, &Path)| {
            let index = if self.role == Role::Client { path.client_gid } else { path.server_gid };
            let gid = port_info.gids.iter().find(|gid| Some(gid.index) == index).map(|gid| gid.gid.clone());
            let queue_pairs = (0..self.plan.queues.queue_pairs / self.plan.ports()).map(end).collect();
            PeerInfo { lid: port_info.lid, gid, reads: 16, queue_pairs, inline, listening: None, others: Vec::new() }
        };
        let mut all: Vec<_> = self.port_info.all().zip(path.all()).map(of).collect();
        let mut ends = all.remove(0);
        ends.others = all;
        self.port_info.inline = Some(inline);
        self.port_info.others.iter_mut().for_each(|port_info| port_info.inline = Some(inline));
        Ok(ends)
    }

    fn connect(&mut self, _path: &Path, theirs: &PeerInfo) -> Result<()> {
        self.reach(Stage::Connect)?;
        let there: usize = theirs.all().map(|ends| ends.queue_pairs.len()).sum();
        if there != self.plan.queues.queue_pairs as usize {
            bail!("{} queue pairs cannot be connected with {there}", self.plan.queues.queue_pairs);
        }
        Ok(())
    }

    fn prepare(&mut self, size: u64) -> Result<()> {
        self.reach(Stage::Prepare)?;
        self.prepared = Some(size);
        Ok(())
    }

    fn counted(&mut self) -> Option<Changes> {
        let names = counters::find(&COUNTERS.map(str::to_owned), &self.plan.sampling.counters, "").ok()?;
        let of = |name: &str| if name == COUNTERS[2] { 0 } else { 1 + i64::from(name.len() as u32) };
        let changes = names.into_iter().map(|name| (of(&name), name)).map(|(change, name)| (name, change));
        let is_all = self.plan.sampling.counters == [ALL_COUNTERS];
        let changes = changes.filter(|(_, change)| !is_all || *change != 0);
        let changes = Changes(changes.map(|(name, change)| (name, Some(change))).collect());
        (!self.plan.sampling.counters.is_empty()).then_some(changes)
    }

    fn run(
        &mut self,
        size: u64,
        _: Option<BorrowedFd<'_>>,
        report: &mut dyn FnMut(StepProgress<'_>) -> bool,
    ) -> Result<Option<Figures>> {
        self.reach(Stage::Run)?;
        if self.prepared.take() != Some(size) {
            bail!("not prepared for {size} bytes");
        }
        let waits = self.factory.waits == Some(self.role) || self.plan.workload.is_endless;
        let mut done = 0.0;
        let (measures, mut index) = (self.measures(), 0);
        let mut see = |done: f64| {
            let is_due = measures && (0.5..0.75).contains(&done);
            let interval = is_due.then(|| self.interval(size, index));
            index += u32::from(is_due);
            report(StepProgress { done, intervals: interval.as_slice() })
        };
        while see(done) && (waits || done < 1.0) {
            done = if waits { 0.5 } else { done + 0.25 };
            if self.factory.late == Some(self.role) { sleep(BEAT) } else { yield_now() }
        }
        let mut figures = self.figures(size);
        if let Figures::Bandwidth(bandwidth) = &mut figures
            && !waits
        {
            // A run that was stopped early has measured less than planned.
            bandwidth.messages = (bandwidth.messages as f64 * done) as u64;
            bandwidth.seconds *= done;
            let ports = self.plan.ports();
            if ports > 1 {
                // The second port sends twice as many messages as the first, the third three times as many, and so on.
                let all = u64::from(ports * (ports + 1) / 2);
                let of =
                    |at: u32| Bandwidth { messages: bandwidth.messages * u64::from(at) / all, ..bandwidth.clone() };
                bandwidth.ports = (1..=ports).map(of).collect();
            }
        }
        Ok((self.measures() && !self.factory.is_idle).then_some(figures))
    }
}

fn port_info(config: &SideConfig, role: Role) -> PortInfo {
    let gid = |index, gid: &str, kind: &str| GidInfo {
        index,
        gid: gid.to_owned(),
        kind: kind.to_owned(),
        interface: "eth0".to_owned(),
        prefix: Some(24),
    };
    let last = if role == Role::Client { 1 } else { 2 };
    PortInfo {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        host: "fake, Linux".to_owned(),
        kernel: "6.0".to_owned(),
        machine: "fake".to_owned(),
        cpu_model: "Fake".to_owned(),
        cpu_governor: String::new(),
        device: config.device.clone().unwrap_or_else(|| "fake0".to_owned()),
        provider: "fake".to_owned(),
        firmware: String::new(),
        vendor_id: 0,
        vendor_part_id: 0,
        port: config.port.unwrap_or(1),
        link_layer: "Ethernet".to_owned(),
        gigabits: Some(100.0),
        mtu: 4096,
        longest: None,
        lid: 0,
        dlid: config.dlid,
        partition: None,
        gids: vec![
            gid(0, &format!("fe80::{last}"), "RoCE v1"),
            gid(1, &format!("fe80::{last}"), "RoCE v2"),
            gid(2, &format!("::ffff:192.0.2.{last}"), "RoCE v1"),
            gid(3, &format!("::ffff:192.0.2.{last}"), "RoCE v2"),
        ],
        memory: config.memory.clone().unwrap_or(Memory::Host),
        gpu: None,
        registration: None,
        numa_node: Some(0),
        cpus: config.cpus.clone().unwrap_or_default(),
        thread_nodes: vec![0],
        near_cpus: "0-7".to_owned(),
        is_bound: false,
        reads: [16, 16],
        inline: None,
        others: Vec::new(),
    }
}

/// Returns the time between two messages in nanoseconds.
fn gap(size: u64) -> f64 {
    (size as f64 / SPEED).max(BASE / 100.0)
}

fn bandwidth(plan: &Plan, size: u64) -> Bandwidth {
    let interval = plan.sampling.interval.unwrap_or(Duration::from_secs(1)).as_secs_f64();
    let (messages, seconds) = match plan.workload.amount {
        RunLength::Messages { count, .. } => {
            let messages = count * u64::from(plan.queues.queue_pairs);
            (messages, messages as f64 * gap(size) / 1e9)
        }
        RunLength::Time { time, .. } => ((time.as_secs_f64() * 1e9 / gap(size)) as u64, time.as_secs_f64()),
    };
    let whole = ((seconds / interval) as usize).min(1000);
    let each = (interval * 1e9 / gap(size)) as u64;
    // Every fourth interval is slower, so that the intervals differ.
    let intervals = (0..whole).map(|index| if index % 4 == 1 { each - each / 10 } else { each }).collect();
    Bandwidth { messages, seconds, intervals, interval, cpu: Some(1.0), ..Bandwidth::default() }
}

fn latency(plan: &Plan, semantics: Semantics, size: u64) -> Latency {
    let times = if semantics == Semantics::Rtt { 2.0 } else { 1.0 };
    let base = (BASE + size as f64 / SPEED) * times;
    let samples = match plan.workload.amount {
        RunLength::Messages { count, .. } => count,
        RunLength::Time { time, .. } => (time.max(Duration::from_micros(1)).as_secs_f64() * 1e9 / base) as u64,
    };
    Latency {
        samples,
        min: base,
        mean: base * 1.1,
        stdev: base * 0.05,
        p50: base * 1.05,
        p90: base * 1.2,
        p99: base * 1.5,
        p99_9: base * 2.0,
        p99_99: base * 3.0,
        max: base * 4.0,
        histogram: vec![(base * 1.05, samples - samples / 2), (base * 1.5, samples / 2)],
    }
}
