//! Establishes connections, as the side that accepts and as the side that connects.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::time::{SystemTime, UNIX_EPOCH};

use trespass::{ConnectionId, Kind};

use crate::core::{Connection, IdMap, Side};
use crate::memory::MemoryPool;
use crate::wire::Hello;

use super::super::link::Readable;
use super::super::{Link, Reply, Runner, Security, TransportInfo};
use super::tls::Session;
use super::{Driver, Entry, Listening, Ready};

/// Time limit for a peer's hello, in microseconds.
const HELLO: u64 = 10_000_000;

pub(super) struct Connecting {
    pub(super) host: String,
    pub(super) addresses: Vec<SocketAddr>,
    /// The transports to try for each address, in this order.
    pub(super) kinds: &'static [Kind],
    /// The indices of this attempt's address and transport.
    pub(super) at: (usize, usize),
    pub(super) attempt: Option<ConnectionId>,
    /// Whether this attempt was already repeated over another device.
    pub(super) has_crossed: bool,
    pub(super) until: u64,
    pub(super) deadline: u64,
    /// The reason why the previous transport failed.
    pub(super) reason: Option<io::Error>,
    pub(super) runner: Option<Box<dyn Runner>>,
    pub(super) reply: Option<Ready>,
}

impl Driver {
    pub(super) fn accept(&mut self) {
        for number in 0..self.listeners.len() {
            let Listening { id: Some(id), runner, .. } = self.listeners[number] else { continue };
            while let Some(connection) = self.worker.accept(id) {
                self.add(connection, Side::Server, Some(runner), Some(number as u32), None, "");
            }
        }
    }

    /// Continues to establish the connections of all pending attempts.
    pub(super) fn connect(&mut self) {
        let mut at = 0;
        while at < self.connecting.len() {
            let mut connecting = self.connecting.swap_remove(at);
            match self.advance(&mut connecting) {
                None => {
                    self.connecting.push(connecting);
                    let last = self.connecting.len() - 1;
                    self.connecting.swap(at, last);
                    at += 1;
                }
                Some(Ok((id, fallback))) => {
                    let runner = connecting.runner.take().map(|runner| self.add_runner(runner));
                    let ready = connecting.reply.take();
                    self.add(id, Side::Client, runner, None, ready.map(|ready| (ready, fallback)), &connecting.host);
                }
                Some(Err(error)) => {
                    if let Some(reply) = connecting.reply.take() {
                        reply.send(Err(error));
                    }
                }
            }
        }
    }

    /// Tries the addresses in turn, and for each address the transports in turn.
    pub(super) fn advance(
        &mut self,
        connecting: &mut Connecting,
    ) -> Option<io::Result<(ConnectionId, Option<String>)>> {
        let kinds = connecting.kinds;
        loop {
            let now = self.shared.now();
            let (address, kind) = connecting.at;
            let error = if let Some(id) = connecting.attempt {
                match self.worker.is_established(id) {
                    Ok(true) => {
                        let reason = connecting.reason.take().map(|reason| reason.to_string());
                        return Some(Ok((id, reason)));
                    }
                    Ok(false) if now < connecting.until && !connecting.is_given_up() => return None,
                    Ok(false) => {
                        self.worker.close(id, 0, "");
                        io::Error::new(io::ErrorKind::TimedOut, "the peer does not answer")
                    }
                    Err(error) => {
                        self.worker.close(id, 0, "");
                        error
                    }
                }
            } else {
                let Some(&address) = connecting.addresses.get(address) else {
                    let none = || io::Error::new(io::ErrorKind::InvalidInput, "the name has no address");
                    return Some(Err(connecting.reason.take().unwrap_or_else(none)));
                };
                // Each attempt gets an equal share of the remaining time.
                let left = (connecting.addresses.len() - connecting.at.0) * kinds.len() - kind;
                connecting.until = now + connecting.deadline.saturating_sub(now) / left.max(1) as u64;
                self.next = self.next.min(connecting.until);
                match self.worker.connect(kinds[kind], address) {
                    Ok(id) => {
                        connecting.attempt = Some(id);
                        continue;
                    }
                    Err(error) => error,
                }
            };
            if connecting.is_given_up() {
                return Some(Err(error));
            }
            connecting.attempt = None;
            if error.kind() == io::ErrorKind::CrossesDevices && !std::mem::replace(&mut connecting.has_crossed, true) {
                // The worker now uses the other device.
                continue;
            }
            connecting.has_crossed = false;
            // `Unsupported` means that a reachable peer has refused the connection, so it would refuse it over the
            // other transport too.
            let next = kind + 1 < kinds.len() && error.kind() != io::ErrorKind::Unsupported;
            connecting.at = if next { (address, kind + 1) } else { (address + 1, 0) };
            connecting.reason = Some(match connecting.reason.take() {
                Some(rdma) if kind != 0 => {
                    io::Error::new(error.kind(), format!("{error}; over RDMA before that: {rdma}"))
                }
                _ => error,
            });
            if !next && connecting.at.0 < connecting.addresses.len() {
                connecting.reason = None;
            }
        }
    }

    /// Registers an established connection.
    pub(super) fn add(
        &mut self,
        id: ConnectionId,
        side: Side,
        runner: Option<u32>,
        listener: Option<u32>,
        ready: Option<(Ready, Option<String>)>,
        host: &str,
    ) {
        let (ready, fallback) = ready.map_or((None, None), |(ready, fallback)| (Some(ready), fallback));
        let facts = self.worker.stats(id).and_then(|stats| {
            let is_rdma = stats.transport == Kind::Rdma;
            let tls = Session::new(self.shared.options(), side, host, is_rdma);
            let tls = tls.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
            let addresses = self.worker.addresses(id)?;
            let ends = match self.worker.queue_pairs(id) {
                _ if tls.is_none() || !is_rdma => (0, 0),
                Some(numbers) => numbers,
                None => (hash(addresses.0), hash(addresses.1)),
            };
            Ok((stats, addresses, tls, ends))
        });
        let (stats, addresses, tls, ends) = match facts {
            Ok(facts) => facts,
            Err(error) => {
                self.worker.close(id, 0, "");
                if let Some(runner) = runner {
                    self.free_runner(runner);
                }
                if let Some(ready) = ready {
                    ready.send(Err(error));
                }
                return;
            }
        };
        if let Some(reason) = &fallback {
            rdma_mummy_sys::log!(warn, "the connection to {} runs over TCP: no RDMA: {reason}", addresses.1);
        }
        let fallback = fallback.or(stats.fallback);
        let security = match (&tls, stats.transport) {
            (None, _) => Security::None,
            (Some(_), Kind::Rdma) => Security::Authenticated,
            (Some(_), _) => Security::Encrypted,
        };
        let info = TransportInfo { kind: stats.transport, path: stats.path, fallback, addresses, security };
        let methods = runner.and_then(|runner| self.runner(runner)).map_or_else(Vec::new, |runner| runner.methods());
        let hello = Hello {
            versions: (1, 1),
            calls: 0,
            bytes: 0,
            body: 0,
            window: 0,
            attachment: 0,
            nonce: nonce(),
            // The numbers are compared only if the connection uses TLS. Without TLS, a relay could change them in the
            // hello.
            ends,
            methods,
        };
        let now = self.shared.now();
        let core = Connection::new(side, self.shared.options().limits, &hello, now);
        let index = self.free.pop().unwrap_or_else(|| {
            self.links.push(None);
            self.links.len() as u32 - 1
        });
        let readable = Waker::from(Arc::new(Readable { shared: Arc::clone(&self.shared), index }));
        let memory = (self.memory_for(id), Arc::clone(&self.heap));
        let link = Arc::new(Link::new(Arc::clone(&self.shared), index, info, memory, core));
        let hello_until = now + HELLO;
        self.next = self.next.min(hello_until);
        let tasks = IdMap::default();
        self.links[index as usize] =
            Some(Entry { link, id, tls, runner, listener, tasks, readable, ready, hello_until });
        self.transmit(index);
        self.read(index);
    }
}

impl Driver {
    /// Returns the pool of memory that is registered with the device of a connection, or the heap if it has none.
    fn memory_for(&mut self, id: ConnectionId) -> Arc<MemoryPool> {
        let Ok(registrar) = self.worker.registrar(id) else { return Arc::clone(&self.heap) };
        let known = self.registered.iter().find(|pool| pool.registrar() == Some(&registrar)).cloned();
        known.unwrap_or_else(|| {
            let pool = Arc::new(self.heap.registered(registrar));
            self.registered.push(Arc::clone(&pool));
            pool
        })
    }
}

impl Connecting {
    /// Whether the caller has abandoned the attempt.
    fn is_given_up(&self) -> bool {
        self.reply.as_ref().is_none_or(Reply::is_closed)
    }
}

/// Returns the number of one side of an iWARP connection: the CRC32C of its address and port.
fn hash(address: SocketAddr) -> u32 {
    crc32c::crc32c(SocketAddr::new(address.ip().to_canonical(), address.port()).to_string().as_bytes())
}

/// Returns a random number. A peer cannot derive it from another one, because the standard library chooses its hash
/// keys at random.
fn nonce() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u64(COUNT.fetch_add(1, Ordering::Relaxed));
    hasher.write_u128(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos());
    hasher.finish()
}
