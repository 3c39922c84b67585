//! One side of a test that uses sideway. A side is opened and connected once, and then run for each size.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::Ipv6Addr;
use std::os::fd::BorrowedFd;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use sideway::ibverbs::device::DeviceInfo;
use sideway::ibverbs::device_context::Mtu;
use stride_run::{Outcome, Scale, Signal};

use super::arrival;
use super::connect::{Addresses, Manager, Manual, Shared};
use super::part::part;
use super::port_context::{self, PortContext};
use super::ports;
use super::step;
use super::sum::sum;
use super::worker_resources::{self, WorkerResources};
use super::worker_wait::{WorkerCount, WorkerWait};
use super::{contents, device};
use super::{vendor, worker};
use crate::endpoint::counters::Counters;
use crate::endpoint::interval::{Intervals, SHORTEST, length};
use crate::endpoint::numa::{self, Nodes};
use crate::endpoint::{Changes, Endpoint, Path, PeerInfo, PortInfo, QpAddress, Role, StepProgress};
use crate::plan::{Plan, RunLength, SideConfig, cpus};
use crate::stats::Figures;

/// Interval of progress reports. More frequent reports would disturb the measurement on a machine with few processors.
const TICK: Duration = Duration::from_millis(200);
/// Interval of progress reports if the control channel has no readable descriptor. In that case, messages of the peer
/// are read only at these reports.
const READ_TICK: Duration = Duration::from_millis(100);
/// Interval of progress reports on a side that measures nothing and continues when the peer has finished.
const WAITING_TICK: Duration = Duration::from_millis(20);
/// Minimum number of progress reports during each interval of the test. The delay between the end of an interval and
/// its report is therefore at most a fifth of the interval.
const TICKS: u32 = 5;

/// One side of a test that uses sideway.
pub(super) struct VerbsEndpoint {
    plan: Plan,
    role: Role,
    /// The description of the first port, which also contains the further ports.
    port_info: PortInfo,
    /// The resources of each thread. The threads of the first port come first.
    pub(super) resources: Vec<WorkerResources>,
    ends: Option<PeerInfo>,
    /// The state of librdmacm, if librdmacm connects the queue pairs.
    manager: Option<Manager>,
    ports: Vec<PortContext>,
    /// The time at which the step began.
    began: Option<Instant>,
}

impl VerbsEndpoint {
    pub(super) fn open(plan: &Plan, config: &SideConfig, role: Role) -> Result<Self> {
        let named = match role {
            Role::Client => "--cpu",
            Role::Server => "the client's --remote-cpu or the server's --cpu",
        };
        numa::check(config.cpus.as_deref().unwrap_or_default(), named)?;
        // Starts the calibration of the clock first, so that the length of a tick is known when the test starts.
        Scale::begin();
        let mut manager = None;
        let configs = port_context::configs(plan, config);
        let found = if plan.attributes.uses_rdma_cm {
            let (context, port, found) = Manager::open(plan, config, role)?;
            manager = Some(found);
            vec![(context, port)]
        } else {
            let found = ports::open(&configs, role, |context| vendor::has(context, plan.attributes.transport))?;
            found.iter().try_for_each(|(context, _)| device::connects(&context.name(), context.transport_type()))?;
            found
        };
        let (mut ports, mut all) = (Vec::new(), Vec::new());
        for ((context, port), config) in found.iter().zip(&configs) {
            let (port_context, port_info) = PortContext::new(context, *port, plan, config, role)?;
            ports.push(port_context);
            all.push(port_info);
        }
        let mut all = all.into_iter();
        let mut port_info = all.next().context("each side has a port")?;
        port_info.others = all.collect();
        let resources = Vec::new();
        Ok(Self { plan: plan.clone(), role, port_info, resources, ends: None, manager, ports, began: None })
    }

    /// Checks that the devices, processors and GPUs that `config` names exist.
    pub(super) fn look(config: &SideConfig) -> Result<()> {
        numa::check(config.cpus.as_deref().unwrap_or_default(), "--cpu")?;
        let configs = config.each_port();
        // With `Role::Client`, errors name the options of this side, such as `--device`.
        let found = ports::open(&configs, Role::Client, |_| true)?;
        found.iter().zip(&configs).try_for_each(|((context, port), config)| port_context::look(context, *port, config))
    }

    /// Returns the index of this side's GID.
    fn gid_index(&self, path: &Path) -> Option<u32> {
        match self.role {
            Role::Client => path.client_gid,
            Role::Server => path.server_gid,
        }
    }

    /// Returns the number of threads per port.
    fn threads(&self) -> u32 {
        (self.plan.queues.threads / self.plan.ports()).max(1)
    }

    /// Creates the queue pairs of a port for all of its threads.
    fn make_ends_at(&self, at: usize, port_info: &PortInfo, path: &Path) -> Result<(Vec<WorkerResources>, PeerInfo)> {
        let (near, nodes) = (near(port_info), Nodes::of_system());
        let (plan, port_context, threads) = (&self.plan, &self.ports[at], self.threads());
        // Queue pairs are distributed evenly among the threads. If their number is not a multiple of the number of
        // threads, the first threads have one queue pair more.
        let queue_pairs = plan.queues.queue_pairs / plan.ports();
        let share = |thread: u32| queue_pairs / threads + u32::from(thread < queue_pairs % threads);
        let make = |thread| {
            // Memory is allocated near the processor that uses it first. This thread may use the whole node, because
            // threads that a driver starts here stay bound.
            let _bound = numa::bind(&nodes.around(worker::processors(port_info, &near, thread as usize)));
            WorkerResources::new(&port_context.pd, plan, &port_context.memory, thread, share(thread))
        };
        let resources: Vec<WorkerResources> = (0..threads).map(make).collect::<Result<_>>()?;
        let gid = match self.gid_index(path) {
            Some(index) => {
                Some(Ipv6Addr::from(port_context.context().query_gid(port_context.port, index)?).to_string())
            }
            None => None,
        };
        let reads = port_info.reads[1].min(u8::MAX.into()) as u8;
        let listening = self.manager.as_ref().and_then(Manager::listening);
        // The inline limit is the same on all threads.
        let inline = resources.first().map_or(0, |worker| worker.inline);
        let (queue_pairs, others) = (Vec::new(), Vec::new());
        let mut ends = PeerInfo { lid: port_info.lid, gid, reads, queue_pairs, inline, listening, others };
        // A DC target has a number only after it has been made ready, so this happens before the numbers are sent. To
        // make a target ready, only the address of this side is required.
        let here = Manual::new(plan, port_info, self.gid_index(path), &ends)?;
        resources.iter().try_for_each(|worker| here.open_targets(&worker.pairs, plan, packets(path)?))?;
        for worker in &resources {
            for (qp, (number, intake)) in worker.pairs.numbers()?.into_iter().enumerate() {
                let psn = (RandomState::new().hash_one(number) & 0xff_ffff) as u32;
                ends.queue_pairs.push(QpAddress {
                    number,
                    psn,
                    address: worker.memory.places(qp).1,
                    rkey: worker.memory.of(qp).incoming.rkey().into(),
                    intake,
                });
            }
        }
        Ok((resources, ends))
    }
}

impl Endpoint for VerbsEndpoint {
    fn port_info(&self) -> &PortInfo {
        &self.port_info
    }

    fn create_queue_pairs(&mut self, path: &Path) -> Result<PeerInfo> {
        let (ports, ways) = (self.ports.len(), path.all().count());
        ensure!(ports == ways, "{ways} paths for {ports} ports of this side");
        let (mut resources, mut all) = (Vec::new(), Vec::new());
        for (at, (port_info, path)) in self.port_info.all().zip(path.all()).enumerate() {
            let (made, ends) = self.make_ends_at(at, port_info, path)?;
            resources.extend(made);
            all.push(ends);
        }
        self.port_info.inline = all.first().map(|ends| ends.inline);
        for (port_info, ends) in self.port_info.others.iter_mut().zip(all.iter().skip(1)) {
            port_info.inline = Some(ends.inline);
        }
        let mut all = all.into_iter();
        let mut ends = all.next().context("each side has a port")?;
        ends.others = all.collect();
        (self.resources, self.ends) = (resources, Some(ends.clone()));
        Ok(ends)
    }

    fn connect(&mut self, path: &Path, theirs: &PeerInfo) -> Result<()> {
        let own = self.ends.clone().context("queue pairs exist before they are connected")?;
        let counts = |ends: &PeerInfo| {
            let counts = ends.all().map(|ends| ends.queue_pairs.len().to_string());
            counts.collect::<Vec<_>>().join(" and ")
        };
        let (here, there) = (counts(&own), counts(theirs));
        ensure!(
            here == there,
            "the peer has {there} queue pairs, and this side {here}; run the same version on both sides"
        );
        let threads = self.threads() as usize;
        let indices: Vec<_> = path.all().map(|path| self.gid_index(path)).collect();
        let ports = self.ports.iter().zip(self.port_info.all()).zip(path.all().zip(indices));
        let ends = own.all().zip(theirs.all());
        let resources = self.resources.chunks_mut(threads);
        for (((port_context, port_info), (path, index)), ((own, theirs), resources)) in ports.zip(ends.zip(resources)) {
            let by_hand = Manual::new(&self.plan, port_info, index, theirs)?;
            let mtu = packets(path)?;
            let initiator_depth = port_info.reads[0].min(theirs.reads.into()).min(255) as u8;
            let shared = Shared { plan: &self.plan, mtu, initiator_depth, responder_resources: own.reads };
            let there = worker_resources::at(theirs.gid.as_deref(), port_info.dlid.unwrap_or(theirs.lid));
            let mut pairs = Vec::with_capacity(own.queue_pairs.len());
            let mut rest = theirs.queue_pairs.as_slice();
            for worker in resources {
                let (theirs, others) = rest.split_at(worker.unposted.len().min(rest.len()));
                (worker.theirs, rest) = (theirs.to_vec(), others);
                worker.there.clone_from(&there);
                pairs.extend(worker.pairs.unconnected());
            }
            match &mut self.manager {
                Some(manager) => manager.connect(&shared, &port_context.pd, pairs, own, theirs, &by_hand)?,
                None => {
                    let mut pairs = pairs.into_iter().zip(Addresses::all(own, theirs));
                    pairs.try_for_each(|(pair, addresses)| {
                        by_hand.connect(&shared, &port_context.pd, pair, addresses)
                    })?;
                }
            }
        }
        Ok(())
    }

    fn end(&mut self) {
        if let Some(manager) = &mut self.manager {
            manager.end();
        }
    }

    fn prepare(&mut self, size: u64) -> Result<()> {
        let (plan, role, threads) = (&self.plan, self.role, self.threads() as usize);
        let nodes = Nodes::of_system();
        for (port_info, resources) in self.port_info.all().zip(self.resources.chunks_mut(threads)) {
            let near = near(port_info);
            for (thread, worker) in resources.iter_mut().enumerate() {
                // With on-demand paging, the pages of the memory are used here for the first time.
                let _bound = numa::bind(&nodes.around(worker::processors(port_info, &near, thread)));
                step::prepare(worker, plan, role, size)?;
            }
        }
        self.ports.iter_mut().filter_map(|port_context| port_context.counters.as_mut()).for_each(Counters::begin);
        Ok(())
    }

    fn counted(&mut self) -> Option<Changes> {
        let each = self.ports.iter().zip(self.port_info.all());
        Changes::of_ports(
            each.map(|(port_context, port_info)| (port_info, port_context.counters.as_ref().map(Counters::changes))),
        )
    }

    fn check(&mut self, size: u64) -> Result<()> {
        if self.plan.workload.is_validated && size > 0 {
            self.resources.iter().try_for_each(|worker| contents::check(worker, &self.plan, self.role, size))?;
        }
        Ok(())
    }

    fn run(
        &mut self,
        size: u64,
        readable_fd: Option<BorrowedFd<'_>>,
        report: &mut dyn FnMut(StepProgress<'_>) -> bool,
    ) -> Result<Option<Figures>> {
        let threads_of_port = self.threads() as usize;
        self.began = Some(Instant::now());
        let Self { plan, role, resources, port_info, .. } = self;
        // For each port, its description and the processors near its device. The threads of the port run on these
        // processors.
        let homes: Vec<_> = port_info.all().map(|port_info| (port_info, near(port_info))).collect();
        let role = *role;
        let (signal, count) = (Signal::default(), resources.len());
        let tick = match readable_fd {
            Some(_) => TICK,
            None if step::measures(plan, role) => READ_TICK,
            None => WAITING_TICK,
        };
        let workers = WorkerCount::new()?;
        let mut wait = WorkerWait::new(&workers, readable_fd, tick.min(length(plan) / TICKS));
        let (expected, started, mut intervals) = (expected(plan), Instant::now(), Intervals::new(plan));
        let outcomes = thread::scope(|scope| {
            let (mut threads, mut starts) = (Vec::with_capacity(count), Vec::with_capacity(count));
            let (up, are_up) = mpsc::channel();
            let first = workers.join();
            for (index, worker) in resources.iter_mut().enumerate() {
                let (signal, plan, role) = (&signal, &*plan, role);
                let (home, thread) = (homes.get(index / threads_of_port), index % threads_of_port);
                let (start, started) = mpsc::channel();
                let (up, member) = (up.clone(), workers.join());
                let body = move || {
                    let _member = member;
                    if let Some((port_info, near)) = home {
                        worker::begin(port_info, near, thread);
                    }
                    // Either all threads start together, or none starts because one could not be created.
                    if up.send(()).is_err() || started.recv().is_err() {
                        return Ok(Outcome::Nothing);
                    }
                    let outcome = step::run(worker, plan, role, size, signal);
                    if outcome.is_err() {
                        signal.stop();
                    }
                    outcome
                };
                let thread = thread::Builder::new().spawn_scoped(scope, body).with_context(|| {
                    let number = index + 1;
                    format!(
                        "cannot start thread {number} of {count} (give fewer --threads, or raise `ulimit -u`, `ulimit -v` or the container's `pids.max`)"
                    )
                })?;
                threads.push(thread);
                starts.push(start);
            }
            drop(up);
            // The channel also closes if a thread ended early. Joining the thread detects such a failure.
            let _ = are_up.iter().take(count).count();
            for start in starts {
                let _ = start.send(());
            }
            drop(first);
            while wait.wait(intervals.due()) {
                let done = match expected {
                    Expected::Messages(messages) => signal.done() as f64 / messages as f64,
                    Expected::Time(time) => started.elapsed().as_secs_f64() / time.as_secs_f64(),
                };
                let seen = intervals.look(&signal, Instant::now());
                if !report(StepProgress { done: done.clamp(0.0, 1.0), intervals: &seen }) {
                    signal.stop();
                    wait.ignore_peer();
                }
            }
            let seen = intervals.look(&signal, Instant::now());
            if !seen.is_empty() {
                // The return value is ignored, because the step has already ended.
                report(StepProgress { done: 1.0, intervals: &seen });
            }
            let end = |thread: thread::ScopedJoinHandle<'_, Result<Outcome>>| {
                thread.join().unwrap_or_else(|_| Err(anyhow!("a thread of the test has panicked")))
            };
            threads.into_iter().map(end).collect::<Result<Vec<_>>>()
        })?;
        Ok(sum(outcomes, plan, size))
    }

    fn settle(
        &mut self,
        size: u64,
        figures: Option<Figures>,
        was_cut: bool,
        report: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Figures>> {
        if !self.plan.looks_for_arrivals() || !part(&self.plan, self.role.other()).sends {
            return Ok(figures);
        }
        let end = arrival::end(self.began, was_cut);
        let come = arrival::awaited(&self.resources, self.threads() as usize, size, end, report)?;
        Ok(arrival::marked(figures, &self.plan, &come))
    }
}

/// Returns the processors for threads that have none of their own and for the first use of memory. The list is empty if
/// the system chooses.
fn near(port_info: &PortInfo) -> Vec<u32> {
    if port_info.is_bound { cpus::parse(&port_info.near_cpus).unwrap_or_default() } else { Vec::new() }
}

/// Returns the path MTU.
fn packets(path: &Path) -> Result<Mtu> {
    Mtu::from_bytes(path.mtu).with_context(|| format!("an MTU of {} bytes", path.mtu))
}

/// When a step is expected to end.
enum Expected {
    Messages(u64),
    Time(Duration),
}

fn expected(plan: &Plan) -> Expected {
    match plan.workload.amount {
        RunLength::Messages { count, warm_up } => {
            Expected::Messages(((count + warm_up) * u64::from(plan.queues.queue_pairs)).max(1))
        }
        RunLength::Time { time, warm_up } => Expected::Time((time + warm_up).max(SHORTEST)),
    }
}
