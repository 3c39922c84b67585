//! A side: opened, connected, and run at one size after another.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::Ipv6Addr;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::address::{AddressHandleAttribute, Gid};
use sideway::ibverbs::device_context::{DeviceContext, Mtu};
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{QueuePair, QueuePairAttribute, QueuePairState};

use super::contents;
use super::corner::{Corner, Pairs};
use super::device;
use super::test::{self, Outcome};
use crate::fabric::numa;
use crate::fabric::{End, Ends, Facts, Path, Role, Side};
use crate::plan::{Amount, Memory, Place, Plan, Transport};
use crate::run::{DatagramSend, Signal, Window};
use crate::stats::{Bandwidth, Figures, Latency};

/// How far a packet may travel, in routers.
const HOP_LIMIT: u8 = 64;
/// The key of all datagrams of the tool.
const QKEY: u32 = 0x1111_1111;
/// `min_rnr_timer`: 0.64 ms.
const RNR_TIMER: u8 = 12;
/// How often what is done is told.
const TICK: Duration = Duration::from_millis(20);

/// A side of sideway.
pub(super) struct VerbsSide {
    plan: Plan,
    role: Role,
    port: u8,
    facts: Facts,
    corners: Vec<Corner>,
    ends: Option<Ends>,
    pd: Arc<ProtectionDomain>,
}

impl VerbsSide {
    pub(super) fn open(plan: &Plan, place: &Place, role: Role) -> Result<Self> {
        numa::check(place.cpus.as_deref().unwrap_or_default())?;
        let (context, port) = device::open(place)?;
        let facts = device::facts(&context, port, place)?;
        for (is_asked, option) in
            [(matches!(facts.memory, Memory::Cuda(_)), "--use-cuda"), (plan.by_address, "--rdma-cm")]
        {
            ensure!(!is_asked, "{option} is not there yet");
        }
        let pd = context.alloc_pd()?;
        Ok(Self { plan: plan.clone(), role, port, facts, corners: Vec::new(), ends: None, pd })
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

    /// The way to the other side.
    fn way(&self, path: &Path, theirs: &Ends) -> Result<AddressHandleAttribute> {
        let mut way = AddressHandleAttribute::new();
        way.setup_port(self.port).setup_service_level(self.plan.service_level).setup_dest_lid(theirs.lid);
        if let (Some(index), Some(gid)) = (self.gid_index(path), &theirs.gid) {
            let gid: Ipv6Addr = gid.parse().with_context(|| format!("the other side's GID is `{gid}`"))?;
            let index = u8::try_from(index).context("the index of a GID has 8 bits")?;
            way.setup_grh(&Gid::from(gid), 0, index, HOP_LIMIT, self.plan.traffic_class);
        }
        Ok(way)
    }
}

impl Side for VerbsSide {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn make_ends(&mut self, path: &Path) -> Result<Ends> {
        let (plan, threads) = (&self.plan, self.plan.threads.max(1));
        // As many on each thread as can be, and one more on the first.
        let share = |thread: u32| plan.queue_pairs / threads + u32::from(thread < plan.queue_pairs % threads);
        let make = |thread| Corner::new(&self.pd, plan, &self.facts.memory, share(thread));
        let corners: Vec<Corner> = (0..threads).map(make).collect::<Result<_>>()?;
        let mut queue_pairs = Vec::new();
        for corner in &corners {
            for (lane, number) in corner.numbers().into_iter().enumerate() {
                let psn = (RandomState::new().hash_one(number) & 0xff_ffff) as u32;
                queue_pairs.push(End {
                    number,
                    psn,
                    address: corner.places(lane).1,
                    rkey: corner.memory.rkey().into(),
                });
            }
        }
        let gid = match self.gid_index(path) {
            Some(index) => Some(Ipv6Addr::from(self.context().query_gid(self.port, index)?).to_string()),
            None => None,
        };
        let reads = self.facts.reads[1].min(u8::MAX.into()) as u8;
        let ends = Ends { lid: self.facts.lid, gid, reads, queue_pairs };
        (self.corners, self.ends) = (corners, Some(ends.clone()));
        Ok(ends)
    }

    fn connect(&mut self, path: &Path, theirs: &Ends) -> Result<()> {
        let own = self.ends.clone().context("the queue pairs are made before they are connected")?;
        let (here, there) = (own.queue_pairs.len(), theirs.queue_pairs.len());
        ensure!(here == there, "the other side has {there} queue pairs, and this one {here}");
        let way = self.way(path, theirs)?;
        let mtu = Mtu::from_bytes(path.mtu).with_context(|| format!("an MTU of {} bytes", path.mtu))?;
        let (plan, port, reads) = (&self.plan, self.port, self.facts.reads);
        let joint = Joint {
            plan,
            port,
            mtu,
            way: &way,
            asks: reads[0].min(theirs.reads.into()).min(255) as u8,
            answers: own.reads,
        };
        let mut ends = own.queue_pairs.iter().zip(&theirs.queue_pairs);
        for corner in &mut self.corners {
            corner.theirs.clear();
            match &mut corner.pairs {
                Pairs::Connected(pairs) => {
                    for (pair, (own, their)) in pairs.iter().zip(&mut ends) {
                        joint.connect(pair, own, their)?;
                        corner.theirs.push(*their);
                    }
                }
                Pairs::Datagram(pairs) => {
                    for ((pair, target), (own, their)) in pairs.iter_mut().zip(&mut ends) {
                        joint.make_ready(pair, own)?;
                        let way = self.pd.create_ah(&way)?;
                        *target = Some(DatagramSend { way, number: their.number, qkey: QKEY });
                        corner.theirs.push(*their);
                    }
                }
            }
        }
        Ok(())
    }

    fn prepare(&mut self, size: u64) -> Result<()> {
        let (plan, role) = (&self.plan, self.role);
        self.corners.iter_mut().try_for_each(|corner| test::prepare(corner, plan, role, size))
    }

    fn check(&mut self, size: u64) -> Result<()> {
        if self.plan.is_validated && size > 0 {
            self.corners.iter().try_for_each(|corner| contents::check(corner, &self.plan, self.role, size))?;
        }
        Ok(())
    }

    fn run(&mut self, size: u64, tell: &mut dyn FnMut(f64) -> bool) -> Result<Option<Figures>> {
        let Self { plan, role, corners, facts, .. } = self;
        let (signal, start) = (Signal::default(), Barrier::new(corners.len()));
        let (expected, started) = (expected(plan), Instant::now());
        let outcomes = thread::scope(|scope| {
            let mut threads = Vec::with_capacity(corners.len());
            for (index, corner) in corners.iter_mut().enumerate() {
                let (signal, start, plan, role, cpus) = (&signal, &start, &*plan, *role, &*facts.cpus);
                threads.push(scope.spawn(move || {
                    pin(cpus, index);
                    start.wait();
                    let outcome = test::run(corner, plan, role, size, signal);
                    if outcome.is_err() {
                        signal.stop();
                    }
                    outcome
                }));
            }
            while !threads.iter().all(|thread| thread.is_finished()) {
                let done = match expected {
                    Expected::Messages(messages) => signal.done() as f64 / messages as f64,
                    Expected::Time(time) => started.elapsed().as_secs_f64() / time.as_secs_f64(),
                };
                if !tell(done.clamp(0.0, 1.0)) {
                    signal.stop();
                }
                thread::sleep(TICK);
            }
            let end = |thread: thread::ScopedJoinHandle<'_, Result<Outcome>>| {
                thread.join().unwrap_or_else(|_| Err(anyhow!("a thread of the test has panicked")))
            };
            threads.into_iter().map(end).collect::<Result<Vec<_>>>()
        })?;
        Ok(sum(outcomes, plan))
    }
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
fn sum(outcomes: Vec<Outcome>, plan: &Plan) -> Option<Figures> {
    let mut windows: Vec<Window> = Vec::new();
    let mut times = Vec::new();
    for outcome in outcomes {
        match outcome {
            Outcome::Window(window) => windows.push(window),
            Outcome::Times(more) => times.extend(more),
            Outcome::Nothing => {}
        }
    }
    if let crate::plan::Measure::Latency(semantics) = plan.measure {
        return Latency::of(times, 1.0, semantics).map(Figures::Latency);
    }
    let started = windows.iter().map(|window| window.started).min()?;
    let ended = windows.iter().map(|window| window.ended).max()?;
    let seconds = (ended - started).as_secs_f64();
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
        messages: windows.iter().map(|window| window.messages).sum(),
        seconds,
        intervals,
        interval,
        cpu: (seconds > 0.0).then(|| cpu.as_secs_f64() / seconds),
    };
    Some(Figures::Bandwidth(if plan.interval.is_some() { bandwidth } else { bandwidth.settled(plan.cq_moderation) }))
}

/// Has this thread run on one of these processors.
fn pin(cpus: &[u32], thread: usize) {
    if let Some(cpu) = cpus.get(thread % cpus.len().max(1)) {
        // It could when the side was opened.
        let _ = numa::pin(*cpu);
    }
}

/// How the queue pairs of a side are connected.
struct Joint<'p> {
    plan: &'p Plan,
    port: u8,
    mtu: Mtu,
    way: &'p AddressHandleAttribute,
    /// Reads and atomics under way, of this side, and of the other.
    asks: u8,
    answers: u8,
}

impl Joint<'_> {
    fn connect(&self, pair: &impl QueuePair, own: &End, their: &End) -> Result<()> {
        let is_reliable = self.plan.transport == Transport::Rc;
        let mut init = QueuePairAttribute::new();
        let access = AccessFlags::RemoteWrite
            | if is_reliable { AccessFlags::RemoteRead | AccessFlags::RemoteAtomic } else { AccessFlags::empty() };
        init.setup_state(QueuePairState::Init).setup_pkey_index(0).setup_port(self.port).setup_access_flags(access);
        pair.modify(&init)?;
        let mut receive = QueuePairAttribute::new();
        receive
            .setup_state(QueuePairState::ReadyToReceive)
            .setup_path_mtu(self.mtu)
            .setup_dest_qp_num(their.number)
            .setup_rq_psn(their.psn)
            .setup_address_vector(self.way);
        let mut send = QueuePairAttribute::new();
        send.setup_state(QueuePairState::ReadyToSend).setup_sq_psn(own.psn);
        if is_reliable {
            receive.setup_max_dest_read_atomic(self.answers).setup_min_rnr_timer(RNR_TIMER);
            send.setup_timeout(self.plan.qp_timeout)
                .setup_retry_cnt(7)
                .setup_rnr_retry(7)
                .setup_max_read_atomic(self.asks);
        }
        pair.modify(&receive)?;
        Ok(pair.modify(&send)?)
    }

    fn make_ready(&self, pair: &impl QueuePair, own: &End) -> Result<()> {
        let mut init = QueuePairAttribute::new();
        init.setup_state(QueuePairState::Init).setup_pkey_index(0).setup_port(self.port).setup_qkey(QKEY);
        pair.modify(&init)?;
        let mut receive = QueuePairAttribute::new();
        pair.modify(receive.setup_state(QueuePairState::ReadyToReceive))?;
        let mut send = QueuePairAttribute::new();
        Ok(pair.modify(send.setup_state(QueuePairState::ReadyToSend).setup_sq_psn(own.psn))?)
    }
}
