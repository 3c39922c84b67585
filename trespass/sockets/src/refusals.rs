//! Servers that have refused RDMA and accepted over TCP.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use trespass::PerProcess;

/// How long the library does not ask a server again. An attempt that is refused takes 100 ms on `soft0`.
const PAUSE: Duration = Duration::from_secs(5);

type Refusals = Mutex<Vec<(SocketAddr, Instant)>>;

fn refusals() -> MutexGuard<'static, Vec<(SocketAddr, Instant)>> {
    static REFUSALS: PerProcess<Refusals> = PerProcess::new(Mutex::new(Vec::new()), Box::default);
    let mut refusals = REFUSALS.get().lock().unwrap_or_else(PoisonError::into_inner);
    refusals.retain(|(_, since)| since.elapsed() < PAUSE);
    refusals
}

pub(crate) fn note(server: SocketAddr) {
    refusals().push((server, Instant::now()));
}

pub(crate) fn has(server: SocketAddr) -> bool {
    refusals().iter().any(|(known, _)| *known == server)
}
