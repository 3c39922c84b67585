//! The counts as Prometheus text, over HTTP.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rdma_mummy_sys::process;

use crate::count::{Operation, PairSummary, Summary};

/// How long a client may take to send its request, and to read the answer.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 3600 } else { 2 });
/// The largest request.
const REQUEST: usize = 8 << 10;

/// A server, until it is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    address: SocketAddr,
    listener: TcpListener,
    state: Arc<Mutex<State>>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread shares with the server.
#[derive(Debug, Default)]
struct State {
    is_ended: bool,
    /// The client that is being answered.
    client: Option<TcpStream>,
}

impl State {
    /// Whether the client may be answered.
    fn begin(&mut self, client: &TcpStream) -> bool {
        self.client = client.try_clone().ok();
        !self.is_ended && self.client.is_some()
    }
}

impl Server {
    /// Answers each request at `address` with the text that `text` returns.
    pub(crate) fn start(address: SocketAddr, text: impl Fn() -> String + Send + 'static) -> io::Result<Self> {
        Self::with_patience(address, text, PATIENCE)
    }

    fn with_patience(
        address: SocketAddr,
        text: impl Fn() -> String + Send + 'static,
        patience: Duration,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let state = Arc::new(Mutex::new(State::default()));
        let (own, shared) = (listener.try_clone()?, Arc::clone(&state));
        let serve = move || {
            while !lock(&shared).is_ended {
                // A client that ends early loses only its own answer. Other errors, as without descriptors, may last.
                match own.accept() {
                    Ok((client, _)) if lock(&shared).begin(&client) => _ = answer(client, &text, patience),
                    Err(_) if !lock(&shared).is_ended => thread::sleep(Duration::from_millis(100)),
                    _ => {}
                }
                lock(&shared).client = None;
            }
        };
        let builder = thread::Builder::new().name("lens-metrics".to_owned());
        let thread = Some(process::without_signals(|| builder.spawn(serve))?);
        Ok(Self { address, listener, state, thread })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let client = {
            let mut state = lock(&self.state);
            state.is_ended = true;
            state.client.take()
        };
        // The thread must not wait for a slow client, nor for the next one. A client that has ended is not connected.
        if let Some(client) = client {
            let _ = client.shutdown(Shutdown::Both);
        }
        // SAFETY: the descriptor is open. The call only ends the calls of `accept` on it.
        unsafe { libc::shutdown(self.listener.as_raw_fd(), libc::SHUT_RDWR) };
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been reported.
            let _ = thread.join();
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn answer(mut client: TcpStream, text: &impl Fn() -> String, patience: Duration) -> io::Result<()> {
    let deadline = Instant::now() + patience;
    // A timeout of zero is an error of `set_read_timeout`.
    let left = || deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    let mut request = Vec::new();
    let mut part = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.len() < REQUEST {
        client.set_read_timeout(Some(left()))?;
        if Instant::now() > deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match client.read(&mut part)? {
            0 => break,
            count => request.extend_from_slice(&part[..count]),
        }
    }
    let is_get = request.starts_with(b"GET /metrics ") || request.starts_with(b"GET / ");
    let (status, body) = if is_get { ("200 OK", text()) } else { ("404 Not Found", "see /metrics\n".to_owned()) };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    // The time of the whole answer: a client that reads a little now and then must not keep others waiting.
    let deadline = Instant::now() + patience;
    let text = head + &body;
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        client.set_write_timeout(Some(left))?;
        let written = client.write(rest)?;
        rest = &rest[written..];
    }
    Ok(())
}

/// The server of this process.
static SERVER: Mutex<Option<Server>> = Mutex::new(None);

fn server() -> MutexGuard<'static, Option<Server>> {
    SERVER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the server of this process.
pub(crate) fn start(address: SocketAddr, text: impl Fn() -> String + Send + 'static) -> io::Result<()> {
    *server() = Some(Server::start(address, text)?);
    Ok(())
}

/// The address of the server of this process, whose port the system may have chosen.
pub(crate) fn address() -> Option<SocketAddr> {
    server().as_ref().map(Server::address)
}

pub(crate) fn stop() {
    *server() = None;
}

/// The counts in the text format of Prometheus.
pub(crate) struct Text<'a>(pub(crate) &'a Summary);

type Value<T> = (&'static str, &'static str, &'static str, fn(&T) -> u64);

const OF_OPERATIONS: [Value<Operation>; 4] = [
    ("rdma_requests_total", "counter", "Requests that were posted", |row| row.requests),
    ("rdma_request_bytes_total", "counter", "Bytes of requests", |row| row.bytes),
    ("rdma_completions_total", "counter", "Requests that completed", |row| row.completions),
    ("rdma_request_errors_total", "counter", "Requests that failed", |row| row.errors),
];

const OF_PAIRS: [Value<PairSummary>; 5] = [
    ("rdma_received_total", "counter", "Messages that arrived", |pair| pair.received),
    ("rdma_received_bytes_total", "counter", "Bytes of messages that arrived", |pair| pair.received_bytes),
    ("rdma_refused_total", "counter", "Requests that the device refused", |pair| pair.refused),
    ("rdma_failures_total", "counter", "Completions with an error of unknown requests", |pair| pair.failures),
    ("rdma_in_flight", "gauge", "Signaled requests that have not completed", |pair| pair.in_flight),
];

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary { verbs, pairs, .. } = self.0;
        // A series has one value, also if a number was used again.
        let mut series: BTreeMap<(&str, Option<u32>), PairSummary> = BTreeMap::new();
        for pair in pairs {
            series
                .entry((&pair.device, pair.qp))
                .and_modify(|sum| *sum = sum.clone().with(pair))
                .or_insert_with(|| pair.clone());
        }
        let pairs: Vec<PairSummary> = series.into_values().collect();
        let pairs = &pairs[..];
        head(f, ("rdma_verb_calls_total", "counter", "Calls of a verb"))?;
        for verb in verbs {
            writeln!(f, "rdma_verb_calls_total{{verb=\"{}\"}} {}", verb.verb, verb.calls)?;
        }
        head(f, ("rdma_verb_errors_total", "counter", "Calls of a verb that failed"))?;
        for verb in verbs {
            writeln!(f, "rdma_verb_errors_total{{verb=\"{}\"}} {}", verb.verb, verb.errors)?;
        }
        for (name, kind, help, value) in OF_OPERATIONS {
            head(f, (name, kind, help))?;
            for (pair, row) in rows(pairs) {
                let labels = format!("{},operation=\"{}\"", labels(pair), row.name);
                writeln!(f, "{name}{{{labels}}} {}", value(row))?;
            }
        }
        let name = "rdma_request_seconds";
        head(f, (name, "gauge", "Time from the post to the completion"))?;
        for (pair, row) in rows(pairs) {
            for (quantile, time) in [("0.5", row.median), ("0.99", row.p99)] {
                if let Some(time) = time {
                    let seconds = time as f64 / 1e9;
                    let labels = format!("{},operation=\"{}\",quantile=\"{quantile}\"", labels(pair), row.name);
                    writeln!(f, "{name}{{{labels}}} {seconds:.9}")?;
                }
            }
        }
        for (name, kind, help, value) in OF_PAIRS {
            head(f, (name, kind, help))?;
            for pair in pairs {
                writeln!(f, "{name}{{{}}} {}", labels(pair), value(pair))?;
            }
        }
        Ok(())
    }
}

fn labels(pair: &PairSummary) -> String {
    let qp = pair.qp.map_or_else(|| "others".to_owned(), |qp| format!("{qp:#x}"));
    format!("device=\"{}\",qp=\"{qp}\"", pair.device)
}

fn rows(pairs: &[PairSummary]) -> impl Iterator<Item = (&PairSummary, &Operation)> {
    pairs.iter().flat_map(|pair| pair.operations.iter().map(move |row| (pair, row)))
}

fn head(f: &mut fmt::Formatter<'_>, (name, kind, help): (&str, &str, &str)) -> fmt::Result {
    writeln!(f, "# HELP {name} {help}\n# TYPE {name} {kind}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn client_that_reads_slowly_gets_no_more_than_its_time() {
        const LENGTH: usize = 64 << 20;
        let patience = Duration::from_millis(100);
        let text = || "t".repeat(LENGTH);
        let server = Server::with_patience("127.0.0.1:0".parse().unwrap(), text, patience).unwrap();
        let mut client = TcpStream::connect(server.address()).unwrap();
        client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut part = vec![0; 64 << 10];
        let mut found = 0;
        for _ in 0..100 {
            // A reset is an error.
            found += client.read(&mut part).unwrap_or(0);
            thread::sleep(Duration::from_millis(10));
        }
        let mut left = Vec::new();
        let _ = client.read_to_end(&mut left);
        found += left.len();
        assert!(found < LENGTH, "{found}");
    }

    /// Without an end of the server, each of them would have an hour.
    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn slow_clients_do_not_delay_the_end() {
        let server = || Server::start("127.0.0.1:0".parse().unwrap(), || "text\n".repeat(10 << 20)).unwrap();
        let ends = |server: Server, mut client: TcpStream| {
            drop(server);
            // Nothing more arrives.
            let _ = io::copy(&mut client, &mut io::sink());
        };
        let idle = server();
        let silent = TcpStream::connect(idle.address()).unwrap();
        ends(idle, silent);
        let busy = server();
        let mut reader = TcpStream::connect(busy.address()).unwrap();
        reader.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        reader.read_exact(&mut [0; 8]).unwrap();
        ends(busy, reader);
        drop(server());
    }
}
