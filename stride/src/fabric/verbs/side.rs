//! A side: opened, connected, and run at one size after another.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::Ipv6Addr;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, anyhow, bail, ensure};
use sideway::ibverbs::device::DeviceInfo;
use sideway::ibverbs::device_context::{DeviceContext, Mtu};
use sideway::ibverbs::protection_domain::ProtectionDomain;

use super::connect::{ByHand, Joint, Manager};
use super::contents;
use super::corner::Corner;
use super::device;
use super::memory::Source;
use super::step::{self, Outcome};
use super::{vendor, worker};
use crate::fabric::counters::Counters;
use crate::fabric::numa;
use crate::fabric::{Changes, End, Ends, Facts, Glimpse, Path, Role, Side};
use crate::plan::{Amount, Place, Plan, cpus};
use crate::run::{Intervals, Scale, Signal, Stamp, Window, length};
use crate::stats::{Bandwidth, Figures};

/// How often what is done is told where nobody asks for more, and at most: it is part of what is measured where processors are few. The server
/// hears then that the client is done.
const TICK: Duration = Duration::from_millis(100);
const SERVERS_TICK: Duration = Duration::from_millis(20);
/// Of the time of an interval, which is looked at as it ends.
const TICKS: u32 = 5;

/// A side of sideway.
pub(super) struct VerbsSide {
    plan: Plan,
    role: Role,
    port: u8,
    facts: Facts,
    memory: Source,
    pub(super) corners: Vec<Corner>,
    ends: Option<Ends>,
    /// Where the connection manager connects the queue pairs.
    manager: Option<Manager>,
    /// What the plan wants counted.
    counters: Option<Counters>,
    pd: Arc<ProtectionDomain>,
}

impl VerbsSide {
    pub(super) fn open(plan: &Plan, place: &Place, role: Role) -> Result<Self> {
        numa::check(place.cpus.as_deref().unwrap_or_default())?;
        // The first of all, from which it is known how long a tick is when the test begins.
        Stamp::now();
        let (context, port, manager) = if plan.by_address {
            let (context, port, manager) = Manager::open(plan, place, role)?;
            (context, port, Some(manager))
        } else {
            let (context, port) = device::open_one(place, |context| vendor::has(context, plan.transport))?;
            (context, port, None)
        };
        device::can(&context, plan)?;
        let mut facts = device::facts(&context, port, place)?;
        if plan.by_address {
            facts.partition = None;
        }
        let whose = format!("port {port} of {}", facts.device);
        let folder = context.sysfs_path().map(|path| path.join("ports").join(port.to_string()));
        let counters = Counters::open(folder, &plan.counters, &whose).map_err(Error::msg)?;
        if role == Role::Client && counters.is_none() && !plan.counters.is_empty() {
            bail!(
                "--counters: {whose} has no counters, or none that can be read: leave it out, or name another device with -d"
            );
        }
        facts.longest = vendor::check(&context, plan, &facts, role)?;
        let pd = context.alloc_pd()?;
        let memory = Source::open(&pd, plan, place)?;
        memory.describe(&mut facts);
        Ok(Self {
            plan: plan.clone(),
            role,
            port,
            facts,
            memory,
            corners: Vec::new(),
            ends: None,
            manager,
            counters,
            pd,
        })
    }

    /// Whether what a place names is there.
    pub(super) fn look(place: &Place) -> Result<()> {
        numa::check(place.cpus.as_deref().unwrap_or_default())?;
        // The first of all, from which it is known how long a tick is when the test begins.
        Stamp::now();
        let (context, port) = device::open(place)?;
        let facts = device::facts(&context, port, place)?;
        if let Some(index) = place.gid_index
            && !facts.gids.iter().any(|gid| gid.index == index)
        {
            bail!("--gid-index {index}: port {port} of {} has no such GID: see `stride-perf devices`", facts.device);
        }
        Source::find(&context.alloc_pd()?, place).map(drop)
    }

    /// Processors where its threads run that have none of their own, and where its memory is touched first; empty where the system decides.
    fn near(&self) -> Vec<u32> {
        if self.facts.is_bound { cpus::parse(&self.facts.near_cpus).unwrap_or_default() } else { Vec::new() }
    }

    fn context(&self) -> &Arc<DeviceContext> {
        self.pd.device_context()
    }

    /// Index of the GID of this side.
    fn gid_index(&self, path: &Path) -> Option<u32> {
        match self.role {
            Role::Client => path.client_gid,
            Role::Server => path.server_gid,
        }
    }
}

impl Side for VerbsSide {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn make_ends(&mut self, path: &Path) -> Result<Ends> {
        let _bound = numa::bind(&self.near());
        let (plan, threads) = (&self.plan, self.plan.threads.max(1));
        // As many on each thread as can be, and one more on the first.
        let share = |thread: u32| plan.queue_pairs / threads + u32::from(thread < plan.queue_pairs % threads);
        let make = |thread| Corner::new(&self.pd, plan, &self.memory, thread, share(thread));
        let corners: Vec<Corner> = (0..threads).map(make).collect::<Result<_>>()?;
        let gid = match self.gid_index(path) {
            Some(index) => Some(Ipv6Addr::from(self.context().query_gid(self.port, index)?).to_string()),
            None => None,
        };
        let reads = self.facts.reads[1].min(u8::MAX.into()) as u8;
        let listening = self.manager.as_ref().and_then(Manager::listening);
        // The same on all threads.
        let inline = corners.first().map_or(0, |corner| corner.inline);
        let mut ends = Ends { lid: self.facts.lid, gid, reads, queue_pairs: Vec::new(), inline, listening };
        // A target has a number once it is ready, which takes this side's own address and no other.
        let here = ByHand::new(plan, &self.facts, self.gid_index(path), &ends)?;
        corners.iter().try_for_each(|corner| here.open_targets(&corner.pairs, plan, packets(path)?))?;
        for corner in &corners {
            for (lane, (number, intake)) in corner.pairs.numbers()?.into_iter().enumerate() {
                let psn = (RandomState::new().hash_one(number) & 0xff_ffff) as u32;
                ends.queue_pairs.push(End {
                    number,
                    psn,
                    address: corner.memory.places(lane).1,
                    rkey: corner.memory.of(lane).incoming.rkey().into(),
                    intake,
                });
            }
        }
        self.facts.inline = Some(inline);
        (self.corners, self.ends) = (corners, Some(ends.clone()));
        Ok(ends)
    }

    fn connect(&mut self, path: &Path, theirs: &Ends) -> Result<()> {
        let own = self.ends.clone().context("the queue pairs are made before they are connected")?;
        let (here, there) = (own.queue_pairs.len(), theirs.queue_pairs.len());
        ensure!(here == there, "the other side has {there} queue pairs, and this one {here}");
        let by_hand = ByHand::new(&self.plan, &self.facts, self.gid_index(path), theirs)?;
        let mtu = packets(path)?;
        let asks = self.facts.reads[0].min(theirs.reads.into()).min(255) as u8;
        let joint = Joint { plan: &self.plan, mtu, asks, answers: own.reads };
        let mut pairs = Vec::with_capacity(here);
        let mut rest = theirs.queue_pairs.as_slice();
        for corner in &mut self.corners {
            let (theirs, others) = rest.split_at(corner.unposted.len().min(rest.len()));
            (corner.theirs, rest) = (theirs.to_vec(), others);
            pairs.extend(corner.pairs.loose());
        }
        match &mut self.manager {
            Some(manager) => manager.connect(&joint, &self.pd, pairs, (&own, theirs), &by_hand),
            None => {
                let ends = own.queue_pairs.iter().zip(&theirs.queue_pairs);
                pairs.into_iter().zip(ends).try_for_each(|(pair, ends)| by_hand.connect(&joint, &self.pd, pair, ends))
            }
        }
    }

    fn end(&mut self) {
        if let Some(manager) = &mut self.manager {
            manager.end();
        }
    }

    fn prepare(&mut self, size: u64) -> Result<()> {
        // What is paged on demand is touched here.
        let _bound = numa::bind(&self.near());
        let (plan, role) = (&self.plan, self.role);
        self.corners.iter_mut().try_for_each(|corner| step::prepare(corner, plan, role, size))?;
        self.counters.iter_mut().for_each(Counters::begin);
        Ok(())
    }

    fn counted(&mut self) -> Option<Changes> {
        self.counters.as_ref().map(Counters::changes)
    }

    fn check(&mut self, size: u64) -> Result<()> {
        if self.plan.is_validated && size > 0 {
            self.corners.iter().try_for_each(|corner| contents::check(corner, &self.plan, self.role, size))?;
        }
        Ok(())
    }

    fn run(&mut self, size: u64, tell: &mut dyn FnMut(Glimpse<'_>) -> bool) -> Result<Option<Figures>> {
        let near = self.near();
        let Self { plan, role, corners, facts, .. } = self;
        let (signal, count) = (Signal::default(), corners.len());
        let most = if *role == Role::Client { TICK } else { SERVERS_TICK };
        let tick = most.min(length(plan) / TICKS);
        let (expected, started, mut intervals) = (expected(plan), Instant::now(), Intervals::new(plan));
        let outcomes = thread::scope(|scope| {
            let (mut threads, mut starts) = (Vec::with_capacity(count), Vec::with_capacity(count));
            let (up, are_up) = mpsc::channel();
            for (index, corner) in corners.iter_mut().enumerate() {
                let (signal, plan, role, near, facts) = (&signal, &*plan, *role, &*near, &*facts);
                let (start, started) = mpsc::channel();
                let up = up.clone();
                let body = move || {
                    worker::begin(facts, near, index);
                    // All begin together, or none does where one of them could not be had.
                    if up.send(()).is_err() || started.recv().is_err() {
                        return Ok(Outcome::Nothing);
                    }
                    let outcome = step::run(corner, plan, role, size, signal);
                    if outcome.is_err() {
                        signal.stop();
                    }
                    outcome
                };
                let thread = thread::Builder::new().spawn_scoped(scope, body).with_context(|| {
                    let number = index + 1;
                    format!("thread {number} of {count}: give fewer --threads, or allow more (`ulimit -u`, `pids.max` of a container)")
                })?;
                threads.push(thread);
                starts.push(start);
            }
            drop(up);
            // What has ended before it began is found when it is joined.
            let _ = are_up.iter().take(count).count();
            for start in starts {
                let _ = start.send(());
            }
            // Each thread has its end of the channel until it is over.
            while are_up.recv_timeout(tick) == Err(mpsc::RecvTimeoutError::Timeout) {
                let done = match expected {
                    Expected::Messages(messages) => signal.done() as f64 / messages as f64,
                    Expected::Time(time) => started.elapsed().as_secs_f64() / time.as_secs_f64(),
                };
                let seen = intervals.look(&signal, Instant::now());
                if !tell(Glimpse { done: done.clamp(0.0, 1.0), intervals: &seen }) {
                    signal.stop();
                }
            }
            let seen = intervals.look(&signal, Instant::now());
            if !seen.is_empty() {
                // It is over, whatever is said to that.
                tell(Glimpse { done: 1.0, intervals: &seen });
            }
            let end = |thread: thread::ScopedJoinHandle<'_, Result<Outcome>>| {
                thread.join().unwrap_or_else(|_| Err(anyhow!("a thread of the test has panicked")))
            };
            threads.into_iter().map(end).collect::<Result<Vec<_>>>()
        })?;
        Ok(sum(outcomes, plan, size))
    }
}

/// The packets of a path.
fn packets(path: &Path) -> Result<Mtu> {
    Mtu::from_bytes(path.mtu).with_context(|| format!("an MTU of {} bytes", path.mtu))
}

/// What is done when all is.
enum Expected {
    Messages(u64),
    Time(Duration),
}

fn expected(plan: &Plan) -> Expected {
    match plan.amount {
        Amount::Messages { count, warm_up } => {
            Expected::Messages(((count + warm_up) * u64::from(plan.queue_pairs)).max(1))
        }
        Amount::Time { time, warm_up } => Expected::Time((time + warm_up).max(TICK)),
    }
}

/// What all threads have done together.
fn sum(outcomes: Vec<Outcome>, plan: &Plan, size: u64) -> Option<Figures> {
    let mut windows: Vec<Window> = Vec::new();
    let mut times = None;
    for outcome in outcomes {
        match outcome {
            Outcome::Window(window) => windows.push(window),
            // A latency has one thread.
            Outcome::Times(samples) => times = Some(samples.tally()),
            Outcome::Nothing => {}
        }
    }
    if let crate::plan::Measure::Latency(semantics) = plan.measure {
        return times?.latency(Scale::now().tick(), semantics).map(Figures::Latency);
    }
    let arrived = |windows: &[Window]| windows.iter().map(|window| window.arrived).sum();
    let has_length = |window: &&Window| window.ended > window.started;
    // What a thread took in without a window of its own is in none: the time is that of who has sent it.
    let is_late = |window: &Window| window.sent.is_none() && window.arrived > Some(0) && !has_length(&window);
    if windows.iter().any(is_late) {
        return Some(Figures::Bandwidth(Bandwidth { arrived: arrived(&windows), ..Bandwidth::default() }));
    }
    // A thread that has seen too little for a window has none, and no part in that of all.
    let is_any_long = windows.iter().any(|window| has_length(&window));
    let of_some = || windows.iter().filter(|window| !is_any_long || has_length(window));
    let started = of_some().map(|window| window.started).min()?;
    let ended = of_some().map(|window| window.ended).max()?;
    let messages: u64 = windows.iter().map(|window| window.messages).sum();
    let mut seconds = (ended - started).as_secs_f64();
    if matches!(plan.amount, Amount::Time { .. }) {
        // Each thread's window ends with a completion of its own: all that they do is done at the sum of their rates.
        let rate = |window: &Window| window.messages as f64 / (window.ended - window.started).as_secs_f64();
        let rates: f64 = windows.iter().map(rate).filter(|rate| rate.is_finite()).sum();
        seconds = if rates > 0.0 { messages as f64 / rates } else { seconds };
    }
    let interval = windows.iter().map(|window| window.interval).max()?.as_secs_f64();
    let of = |window: &mut Window| Bandwidth {
        intervals: std::mem::take(&mut window.intervals),
        interval: window.interval.as_secs_f64(),
        ..Bandwidth::default()
    };
    let parts: Vec<_> = windows.iter_mut().map(|window| of(window).with_interval(interval).intervals).collect();
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
        arrived: arrived(&windows),
    };
    Some(Figures::Bandwidth(if plan.interval_kept().is_some() {
        bandwidth
    } else {
        bandwidth.settled(plan.moderation(size))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_without_a_window_leaves_the_time_to_the_sender() {
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
        let plan = Plan { amount: Amount::Messages { count: 200, warm_up: 10 }, ..Plan::example() };
        let sum = |windows: [Window; 2]| match sum(windows.map(Outcome::Window).into(), &plan, 64) {
            Some(Figures::Bandwidth(bandwidth)) => (bandwidth.messages, bandwidth.seconds, bandwidth.arrived),
            other => panic!("{other:?}"),
        };
        assert_eq!(sum([of(20, 400, Some(420)), of(10, 200, Some(210))]), (600, 0.02, Some(630)));
        assert_eq!(sum([of(20, 400, Some(420)), of(0, 0, Some(210))]), (0, 0.0, Some(630)));
        // To which nothing came at all.
        assert_eq!(sum([of(20, 400, Some(420)), of(0, 0, Some(0))]), (400, 0.02, Some(420)));
        // Who sends may have had too short a time.
        assert_eq!(sum([of(20, 400, None), of(0, 0, None)]), (400, 0.02, None));
    }
}
