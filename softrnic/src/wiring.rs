//! Connects QPs and transports.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::ipc::{self, Peers, Processes};
use crate::net::iwarp::engine::Engine;
pub use crate::net::roce::counters::Counters;
use crate::net::roce::engine::Engine as RoceEngine;
use crate::qp::registry::{QpRegistry, ToQueuePairs, Transports};
use crate::sys::fork::PerProcess;
use crate::sys::thread::Reactor;
use crate::wire::condition::Condition;
use crate::wire::transport::{Fabric, Sockets, Transport};

/// The transport to other processes. It delivers the packets that they send to the QPs of this process.
static PEERS: PerProcess<Peers> = PerProcess::new(peers(), || Box::new(peers()));

const fn peers() -> Peers {
    Peers::new(&ToQueuePairs, Reactor::of_process)
}

static PROCESSES: Processes = Processes(&PEERS);

/// The connections to other hosts.
static STREAMS: PerProcess<Engine> = PerProcess::new(engine(), || Box::new(engine()));

const fn engine() -> Engine {
    Engine::new(&ToQueuePairs, Reactor::of_process)
}

/// Whether this process or its parent has called [`streams`]. If not, a poll skips the connections to other hosts.
static HAS_STREAMS: AtomicBool = AtomicBool::new(false);

/// The connections of the process to other hosts.
pub(crate) fn streams() -> &'static Engine {
    HAS_STREAMS.store(true, Ordering::Relaxed);
    STREAMS.get()
}

/// The connections to other hosts by RoCEv2.
static ROCE: PerProcess<RoceEngine> = PerProcess::new(roce_engine(), || Box::new(roce_engine()));

const fn roce_engine() -> RoceEngine {
    RoceEngine::new(&ToQueuePairs, Reactor::of_process)
}

/// Whether this process or its parent has called [`roce`].
static HAS_ROCE: AtomicBool = AtomicBool::new(false);

/// The connections of the process to other hosts by RoCEv2.
pub(crate) fn roce() -> &'static RoceEngine {
    HAS_ROCE.store(true, Ordering::Relaxed);
    ROCE.get()
}

/// Returns the counters of the RoCEv2 devices, or of the connection of one QP.
pub(crate) fn roce_counters(number: Option<u32>) -> Option<Counters> {
    match (Roce.begun(), number) {
        (Some(engine), Some(number)) => engine.counters_of(number),
        (Some(engine), None) => Some(engine.counters()),
        (None, Some(_)) => None,
        (None, None) => Some(Counters::new()),
    }
}

/// Enables QPs to reach other processes and hosts. Other processes see no effect until a QP has a number.
pub(crate) fn connect() {
    static ALL: Transports = Transports { all: &[&PROCESSES, &Streams, &Roce], routes: Some(&PROCESSES) };
    static STREAMS_ONLY: Transports = Transports { all: &[&Streams, &Roce], routes: None };
    QpRegistry::set_transports(if ipc::is_enabled() { &ALL } else { &STREAMS_ONLY });
}

/// Makes the QPs and the connections of a device notice that its condition has changed.
pub(crate) fn condition_changed(condition: &'static Condition) {
    if let Some(engine) = Streams.begun() {
        engine.condition_changed(condition);
    }
    for pair in QpRegistry::of_process().of_device(condition) {
        pair.condition_changed();
    }
}

/// The transport to other hosts, which does nothing before the first connection.
#[derive(Debug)]
struct Streams;

impl Streams {
    #[inline]
    fn begun(&self) -> Option<&'static Engine> {
        HAS_STREAMS.load(Ordering::Relaxed).then(|| STREAMS.get())
    }
}

impl Transport for Streams {
    fn fabric(&self) -> Fabric {
        Fabric::Iwarp
    }

    #[inline]
    fn progress(&self) -> bool {
        self.begun().is_some_and(Engine::progress)
    }

    fn armed(&self) {
        if let Some(engine) = self.begun() {
            engine.armed();
        }
    }

    fn sockets(&self) -> Option<&'static dyn Sockets> {
        Some(self.begun()?)
    }
}

/// The transport to other hosts by RoCEv2, which does nothing before a device is opened.
#[derive(Debug)]
struct Roce;

impl Roce {
    #[inline]
    fn begun(&self) -> Option<&'static RoceEngine> {
        HAS_ROCE.load(Ordering::Relaxed).then(|| ROCE.get())
    }
}

impl Transport for Roce {
    fn fabric(&self) -> Fabric {
        Fabric::Roce
    }

    #[inline]
    fn progress(&self) -> bool {
        self.begun().is_some_and(RoceEngine::progress)
    }

    fn armed(&self) {
        if let Some(engine) = self.begun() {
            engine.armed();
        }
    }

    fn sockets(&self) -> Option<&'static dyn Sockets> {
        Some(self.begun()?)
    }
}
