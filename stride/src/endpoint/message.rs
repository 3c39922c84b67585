//! Sends messages of the trespass library over one connection (`stride-perf msg`). The results can be compared with
//! those of raw verbs, which the other commands use.
//!
//! The client connects to the IP address that the server's GID contains. The library creates its own queue pairs and
//! buffers on the device. Messages above the library's copy limit are sent from its registered buffers, and received
//! into them, without a copy.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use trespass::{ConnectionId, Kind, ListenId, Options, Worker};

use super::{Endpoint, Listening, Path, PeerInfo, PortInfo, QpAddress, Role, StepProgress, Unsupported};
use crate::plan::{Measure, Plan, RunLength, Semantics};
use crate::run::{Samples, Scale, Signal, Tsc, Until};
use crate::stats::{Bandwidth, Figures};

/// Time limit for connecting.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Interval at which the control channel is checked for messages of the peer.
const TICK: Duration = Duration::from_millis(20);
/// Largest message that the library copies. The library sends larger messages from the program's buffer.
const COPIED: usize = 16 << 10;
/// Number of latency samples that are stored one by one.
const KEPT: u64 = 1 << 20;

/// A side that has one connection of the library.
pub(super) struct MessageEndpoint {
    plan: Plan,
    role: Role,
    facts: PortInfo,
    worker: Worker,
    listener: Option<ListenId>,
    connection: Option<ConnectionId>,
    message: Vec<u8>,
}

impl MessageEndpoint {
    /// Creates a side that uses the port of `facts`.
    pub(super) fn new(plan: &Plan, facts: PortInfo, role: Role) -> Result<Self> {
        let is_one = plan.queues.queue_pairs == 1 && plan.queues.threads == 1;
        let is_ack = plan.workload.measure == Measure::Latency(Semantics::Ack);
        let is_one_way = !plan.workload.direction.is_both() && !plan.workload.direction.is_reversed();
        if !is_one || !is_one_way || plan.workload.is_validated || is_ack {
            let text = "msg measures one connection from the client to the server; leave out --qp-count, --threads, --bidirectional, \
                        --reversed, --validate and --latency ack";
            return Err(Unsupported(text.to_owned()).into());
        }
        let largest = plan.workload.sizes.iter().max().copied().unwrap_or(0) as usize;
        let mut options = Options::default();
        options.transport = trespass::Transport::Rdma;
        options.device = Some(facts.device.clone());
        options.send_high_water = (plan.queues.tx_depth as usize * largest).clamp(64 << 10, 256 << 20);
        let worker = Worker::new(&options)?;
        Ok(Self { plan: plan.clone(), role, facts, worker, listener: None, connection: None, message: Vec::new() })
    }

    /// Returns the address of this side's port on the path, also in the form of a GID.
    fn address(&self, path: &Path) -> Result<(IpAddr, String)> {
        let index = if self.role == Role::Client { path.client_gid } else { path.server_gid };
        let gid = self.facts.gids.iter().find(|gid| Some(gid.index) == index);
        let text = gid.map(|gid| gid.gid.clone()).context("msg connects by IP addresses, and the port has no GID")?;
        Ok((ip(&text)?, text))
    }

    /// Polls the worker until `done` returns a value.
    fn wait<T>(&mut self, mut done: impl FnMut(&mut Worker) -> io::Result<Option<T>>) -> Result<T> {
        let begun = Instant::now();
        loop {
            self.worker.poll();
            if let Some(value) = done(&mut self.worker)? {
                return Ok(value);
            }
            if begun.elapsed() > TIMEOUT {
                bail!(
                    "no connection within {} s; check that the server still runs and that no firewall drops its TCP port",
                    TIMEOUT.as_secs()
                );
            }
            self.worker.wait(TICK)?;
        }
    }
}

impl Endpoint for MessageEndpoint {
    fn facts(&self) -> &PortInfo {
        &self.facts
    }

    fn create_queue_pairs(&mut self, path: &Path) -> Result<PeerInfo> {
        let (address, gid) = self.address(path)?;
        let listening = match self.role {
            Role::Client => None,
            Role::Server => {
                let listener = self.worker.listen(SocketAddr::new(address, 0))?;
                self.listener = Some(listener);
                let port = self.worker.local_addr(listener).map_or(0, |address| address.port());
                Some(Listening { port, token: 0 })
            }
        };
        self.facts.inline = None;
        // The queue pair has no number yet, because the library creates it when it connects.
        let queue_pairs = vec![QpAddress { number: 0, psn: 0, address: 0, rkey: 0, intake: None }];
        let reads = u8::try_from(self.facts.reads[1]).unwrap_or(u8::MAX);
        Ok(PeerInfo {
            lid: self.facts.lid,
            gid: Some(gid),
            reads,
            queue_pairs,
            inline: 0,
            listening,
            others: Vec::new(),
        })
    }

    fn connect(&mut self, _path: &Path, theirs: &PeerInfo) -> Result<()> {
        let connection = match self.listener {
            Some(listener) => self.wait(|worker| Ok(worker.accept(listener)))?,
            None => {
                let Some(Listening { port, .. }) = theirs.listening else {
                    bail!("the server sent no port for msg; run the same version on both sides")
                };
                let address = ip(theirs.gid.as_deref().unwrap_or_default())?;
                let id = self.worker.connect(Kind::Rdma, SocketAddr::new(address, port))?;
                self.wait(|worker| Ok(worker.is_established(id)?.then_some(id)))?
            }
        };
        self.connection = Some(connection);
        Ok(())
    }

    fn prepare(&mut self, size: u64) -> Result<()> {
        self.message = vec![0x5a; usize::try_from(size)?];
        Ok(())
    }

    fn run(
        &mut self,
        _size: u64,
        readable_fd: Option<BorrowedFd<'_>>,
        report: &mut dyn FnMut(StepProgress<'_>) -> bool,
    ) -> Result<Option<Figures>> {
        let id = self.connection.context("not connected")?;
        let whole = match self.plan.workload.amount {
            RunLength::Messages { count, warm_up } => count + warm_up,
            RunLength::Time { .. } => 0,
        };
        let (signal, begun) = (Signal::default(), Instant::now());
        let Self { plan, role, worker, message, .. } = self;
        let mut turns = Loop { plan, worker, id, message, signal: &signal };
        thread::scope(|scope| {
            let measuring = scope.spawn(move || match (role, turns.plan.workload.measure) {
                (Role::Client, Measure::Latency(semantics)) => turns.ping(semantics).map(Some),
                (Role::Client, Measure::Bandwidth) => turns.send().map(Some),
                (Role::Server, measure) => turns.serve(matches!(measure, Measure::Latency(_))).map(|()| None),
            });
            while !measuring.is_finished() {
                wait_readable(readable_fd);
                let done = match plan.workload.amount {
                    RunLength::Messages { .. } => signal.done() as f64 / whole.max(1) as f64,
                    RunLength::Time { time, warm_up } => begun.elapsed().as_secs_f64() / (time + warm_up).as_secs_f64(),
                };
                if !report(StepProgress { done: done.min(1.0), intervals: &[] }) {
                    signal.stop();
                }
            }
            measuring.join().map_err(|_| anyhow!("the measuring thread panicked"))?
        })
    }

    fn end(&mut self) {
        let Some(id) = self.connection.take() else { return };
        self.worker.close(id, 0, "");
        let begun = Instant::now();
        while self.worker.is_established(id).is_ok() && begun.elapsed() < TIMEOUT {
            self.worker.poll();
        }
    }
}

/// The loops of a step, which run on a thread of their own.
struct Loop<'l> {
    plan: &'l Plan,
    worker: &'l mut Worker,
    id: ConnectionId,
    message: &'l [u8],
    signal: &'l Signal,
}

impl Loop<'_> {
    /// Runs the client of a latency test, which sends a message and waits for the reply.
    fn ping(&mut self, semantics: Semantics) -> Result<Figures> {
        let (mut samples, until) = match self.plan.workload.amount {
            RunLength::Messages { count, warm_up } => {
                (Samples::new(count.min(KEPT) as usize, warm_up), Until::Count(count + warm_up))
            }
            RunLength::Time { time, warm_up } => {
                let begin = Tsc::now().after(warm_up);
                (Samples::new(KEPT as usize, 0).from(begin), Until::Time(begin.after(time)))
            }
        };
        let mut count = 0;
        while !until.is_reached(count, samples.stamp(self.signal)) && self.send_one()? && self.receive_one()? {
            count += 1;
            self.signal.add(1);
        }
        let latency = samples.tally().latency(Scale::now().tick(), semantics);
        latency.map(Figures::Latency).context("no message was answered")
    }

    /// Runs the client of a bandwidth test, which sends until the peer's device has received everything.
    fn send(&mut self) -> Result<Figures> {
        let (warm_up, until) = match self.plan.workload.amount {
            RunLength::Messages { count, warm_up } => {
                self.send_until(|sent, _| sent >= warm_up)?;
                (Duration::ZERO, Until::Count(count))
            }
            RunLength::Time { time, warm_up } => (warm_up, Until::Time(Tsc::now().after(warm_up + time))),
        };
        let begin = Tsc::now().after(warm_up);
        self.send_until(|_, now| now >= begin)?;
        let begun = Instant::now();
        let messages = self.send_until(|sent, now| until.is_reached(sent, now))?;
        while !self.worker.is_flushed(self.id)? {
            self.worker.poll();
        }
        let seconds = begun.elapsed().as_secs_f64();
        Ok(Figures::Bandwidth(Bandwidth { messages, seconds, interval: seconds, ..Bandwidth::default() }))
    }

    fn send_until(&mut self, mut is_over: impl FnMut(u64, Tsc) -> bool) -> Result<u64> {
        let mut sent = 0;
        while !is_over(sent, Tsc::now()) && self.send_one()? {
            sent += 1;
            self.signal.add(1);
        }
        Ok(sent)
    }

    /// Runs the server, which replies to each message or discards it.
    fn serve(&mut self, answers: bool) -> Result<()> {
        while self.receive_one()? && (!answers || self.send_one()?) {
            self.signal.add(1);
        }
        Ok(())
    }

    /// Sends a message. Returns `false` if the step was stopped before.
    #[inline]
    fn send_one(&mut self) -> Result<bool> {
        if self.message.len() > COPIED {
            return self.send_buffer();
        }
        loop {
            match self.worker.try_send(self.id, self.message) {
                Ok(()) => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.worker.poll(),
                Err(error) => return Err(error.into()),
            };
            if self.signal.has_stopped() {
                return Ok(false);
            }
        }
    }

    /// Sends a message from a registered buffer, as a program does that creates its messages in such a buffer.
    fn send_buffer(&mut self) -> Result<bool> {
        let mut buffer = self.worker.alloc(self.id, self.message.len());
        loop {
            match self.worker.try_send_buf(self.id, buffer) {
                Ok(()) => return Ok(true),
                Err((error, back)) if error.kind() == io::ErrorKind::WouldBlock => buffer = back,
                Err((error, _)) => return Err(error.into()),
            }
            self.worker.poll();
            if self.signal.has_stopped() {
                return Ok(false);
            }
        }
    }

    /// Receives a message. Returns `false` if the step was stopped before.
    #[inline]
    fn receive_one(&mut self) -> Result<bool> {
        loop {
            match self.worker.try_recv(self.id) {
                Ok(_) => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
            // Until an event occurs, there is no message to receive.
            while self.worker.poll() == 0 {
                if self.signal.has_stopped() {
                    return Ok(false);
                }
                if self.plan.queues.sleeps_on_events {
                    self.worker.wait(TICK)?;
                }
            }
        }
    }
}

/// Converts a GID to an IP address.
fn ip(gid: &str) -> Result<IpAddr> {
    let address: Ipv6Addr = gid.parse().with_context(|| format!("{gid:?} is not a GID"))?;
    Ok(address.to_canonical())
}

fn wait_readable(fd: Option<BorrowedFd<'_>>) {
    let time = Timespec { tv_sec: 0, tv_nsec: TICK.as_nanos() as i64 };
    // A signal may end the wait early. This is harmless, because the caller checks again.
    _ = match fd {
        Some(fd) => poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&time)),
        None => poll(&mut [], Some(&time)),
    };
}
