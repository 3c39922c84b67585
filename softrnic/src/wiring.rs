//! Connects QPs and transports.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::ipc::{self, Peers, Processes};
use crate::net::iwarp::engine::Engine;
use crate::qp::registry::{QpRegistry, ToQueuePairs};
use crate::sys::errno::Errno;
use crate::sys::fork::PerProcess;
use crate::wire::address::Gid;
use crate::wire::transport::{Carrier, Sockets, Transport};

/// The transport to other processes. It delivers the packets that they send to the QPs of this process.
static PEERS: PerProcess<Peers> = PerProcess::new(Peers::new(&ToQueuePairs), || Box::new(Peers::new(&ToQueuePairs)));

static PROCESSES: Processes = Processes(&PEERS);

/// The connections to other hosts.
static STREAMS: PerProcess<Engine> =
    PerProcess::new(Engine::new(&ToQueuePairs), || Box::new(Engine::new(&ToQueuePairs)));

/// Whether this process or its parent has called [`streams`]. If not, a poll skips the connections to other hosts.
static HAS_STREAMS: AtomicBool = AtomicBool::new(false);

/// The connections of the process to other hosts.
pub(crate) fn streams() -> &'static Engine {
    HAS_STREAMS.store(true, Ordering::Relaxed);
    STREAMS.get()
}

/// Enables QPs to reach other processes. Other processes see no effect until a QP has a number.
pub(crate) fn connect() {
    static ALL: Both = Both(Some(&PROCESSES));
    static STREAMS_ONLY: Both = Both(None);
    QpRegistry::set_transport(if ipc::is_enabled() { &ALL } else { &STREAMS_ONLY });
}

/// The transport to other processes, if it is enabled. It also polls the connections to other hosts, which have their
/// own carriers.
#[derive(Debug)]
struct Both(Option<&'static Processes>);

impl Transport for Both {
    fn claim(&self) -> Option<u32> {
        self.0?.claim()
    }

    fn carrier(&self, destination: Gid, number: u32) -> Option<Arc<dyn Carrier>> {
        self.0?.carrier(destination, number)
    }

    fn reach(&self, number: u32) -> Result<(), Errno> {
        self.0.ok_or(Errno(libc::ENETUNREACH))?.reach(number)
    }

    fn group(&self, group: Gid) -> Vec<Arc<dyn Carrier>> {
        self.0.map(|processes| processes.group(group)).unwrap_or_default()
    }

    fn joined(&self, group: Gid) {
        if let Some(processes) = self.0 {
            processes.joined(group);
        }
    }

    fn left(&self, group: Gid) {
        if let Some(processes) = self.0 {
            processes.left(group);
        }
    }

    #[inline]
    fn progress(&self) -> bool {
        let has_found = self.0.is_some_and(Transport::progress);
        has_found | (HAS_STREAMS.load(Ordering::Relaxed) && STREAMS.get().progress())
    }

    #[inline]
    fn armed(&self) {
        if let Some(processes) = self.0 {
            processes.armed();
        }
        if HAS_STREAMS.load(Ordering::Relaxed) {
            STREAMS.get().armed();
        }
    }

    fn sockets(&self, is_iwarp: bool) -> Option<&'static dyn Sockets> {
        match is_iwarp {
            true => HAS_STREAMS.load(Ordering::Relaxed).then(|| STREAMS.get() as _),
            false => self.0?.sockets(is_iwarp),
        }
    }

    fn settle(&self) {
        if let Some(processes) = self.0 {
            processes.settle();
        }
    }
}
