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
use stride_run::{Messages, Scale, Signal};
use trespass::{ConnectionId, Kind, ListenId, Options, Worker};

use super::{Endpoint, Listening, Path, PeerInfo, PortInfo, QpAddress, Role, StepProgress, Unsupported};
use crate::plan::{Measure, Plan, RunLength, Semantics};
use crate::stats::{Bandwidth, Figures, Latency};
use crate::thread::start_in;

/// Time limit for connecting.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Interval at which the control channel is checked for messages of the peer.
const TICK: Duration = Duration::from_millis(20);

/// A side that has one connection of the library.
struct MessageEndpoint {
    plan: Plan,
    role: Role,
    port_info: PortInfo,
    worker: Worker,
    listener: Option<ListenId>,
    connection: Option<ConnectionId>,
    message: Vec<u8>,
}

/// Opens a side that uses the port of `port_info`.
pub(super) fn open(plan: &Plan, port_info: PortInfo, role: Role) -> Result<Box<dyn Endpoint>> {
    Ok(Box::new(MessageEndpoint::new(plan, port_info, role)?))
}

impl MessageEndpoint {
    fn new(plan: &Plan, port_info: PortInfo, role: Role) -> Result<Self> {
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
        options.device = Some(port_info.device.clone());
        options.send_high_water = (plan.queues.tx_depth as usize * largest).clamp(64 << 10, 256 << 20);
        let worker = Worker::new(&options)?;
        Ok(Self { plan: plan.clone(), role, port_info, worker, listener: None, connection: None, message: Vec::new() })
    }

    /// Returns the address of this side's port on the path, also in the form of a GID.
    fn address(&self, path: &Path) -> Result<(IpAddr, String)> {
        let index = if self.role == Role::Client { path.client_gid } else { path.server_gid };
        let gid = self.port_info.gids.iter().find(|gid| Some(gid.index) == index);
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
    fn port_info(&self) -> &PortInfo {
        &self.port_info
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
        self.port_info.inline = None;
        // The queue pair has no number yet, because the library creates it when it connects.
        let queue_pairs = vec![QpAddress { number: 0, psn: 0, address: 0, rkey: 0, intake: None }];
        let reads = u8::try_from(self.port_info.reads[1]).unwrap_or(u8::MAX);
        Ok(PeerInfo {
            lid: self.port_info.lid,
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
        let (amount, sleeps_on_events) = (plan.workload.amount.into(), plan.queues.sleeps_on_events);
        let mut messages = Messages { worker, id, message, amount, sleeps_on_events, signal: &signal };
        let measure = plan.workload.measure;
        thread::scope(|scope| {
            let measuring = start_in(scope, move || match (role, measure) {
                (Role::Client, Measure::Latency(semantics)) => {
                    let latency = Latency::of_tally(&messages.ping()?.tally(), Scale::now().tick(), semantics);
                    latency.map(|latency| Some(Figures::Latency(latency))).context("no message was answered")
                }
                (Role::Client, Measure::Bandwidth) => {
                    let (messages, time) = messages.send()?;
                    let (seconds, interval) = (time.as_secs_f64(), time.as_secs_f64());
                    Ok(Some(Figures::Bandwidth(Bandwidth { messages, seconds, interval, ..Bandwidth::default() })))
                }
                (Role::Server, measure) => messages.serve(matches!(measure, Measure::Latency(_))).map(|()| None),
            })?;
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
