//! The worker of the process, and attempts to connect over RDMA.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use trespass::{Connection, Generation, Handle, Options, PerProcess, Transport};

use crate::system;

/// How long an attempt may take before the program connects over TCP. A host without a listener refuses at once.
const LIMIT: Duration = Duration::from_millis(500);
/// How long a closed stream keeps its bytes for a peer that answers and does not read.
const LINGER: Duration = Duration::from_secs(600);
/// How long a host counts as unreachable over RDMA after an attempt has taken that long.
const PAUSE: Duration = Duration::from_secs(60);

/// How long the end of the process waits for the ends of its streams at most. It has waited for their bytes before.
const LONGEST: Duration = Duration::from_secs(10);

#[derive(Debug)]
struct State {
    handle: Option<Handle>,
    /// Hosts, and when they did not answer.
    unreachable: Vec<(IpAddr, Instant)>,
}

impl State {
    const NEW: Self = Self { handle: None, unreachable: Vec::new() };
}

fn state() -> MutexGuard<'static, State> {
    static STATE: PerProcess<Mutex<State>> =
        PerProcess::new(Mutex::new(State::NEW), || Box::new(Mutex::new(State::NEW)));
    // Children are counted from here on.
    Generation::this();
    STATE.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// The worker of this process.
pub(crate) fn handle() -> io::Result<Handle> {
    let mut state = state();
    if let Some(handle) = &state.handle {
        return Ok(handle.clone());
    }
    let mut options = Options::default();
    options.transport = Transport::Rdma;
    // As with TCP, a peer that answers gets the bytes of a closed stream, also if it reads late. A peer that never reads
    // does not keep the memory of the stream.
    options.linger = LINGER;
    let handle = system::above_standard(|| Handle::new(&options))?;
    Ok(state.handle.insert(handle).clone())
}

/// Connects, or returns why the program connects over TCP.
pub(crate) fn connect(to: SocketAddr) -> io::Result<Connection> {
    let handle = handle()?;
    let is_unreachable = {
        let unreachable = &mut state().unreachable;
        unreachable.retain(|(_, since)| since.elapsed() < PAUSE);
        unreachable.iter().any(|(host, _)| *host == to.ip())
    };
    if is_unreachable {
        return Err(io::Error::new(ErrorKind::HostUnreachable, "the host did not answer over RDMA before"));
    }
    let connected = system::above_standard(|| Connection::connect_on(&handle, to, Some(LIMIT)));
    if matches!(&connected, Err(error) if error.kind() == ErrorKind::TimedOut) {
        state().unreachable.push((to.ip(), Instant::now()));
    }
    connected
}

/// Waits until the peers have what the process has sent and ended.
pub(crate) fn drain() {
    let handle = state().handle.clone();
    // Fails if they have not within the time.
    _ = handle.map(|handle| handle.drain(LONGEST));
}
