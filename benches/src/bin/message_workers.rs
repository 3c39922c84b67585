//! Measures trespass workers that poll, between two processes on softrnic: connecting in comparison with bare rdma_cm, pipelined
//! echoes, and 100 active connections alone and among idle ones.

use std::io::{self, BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use clap::Parser;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sideway::ibverbs::completion::GenericCompletionQueue;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::GenericQueuePair;
use sideway::ibverbs::shared_receive_queue::SharedReceiveQueue;
use sideway::rdmacm::{ConnectionParameter, EventChannel, EventKind, Identifier, PortSpace};
use sideway_benches::measure::middle;
use trespass::{ConnectionId, Kind, Options, Transport, Worker};

/// Measure trespass workers that poll, between two processes on softrnic
#[derive(Debug, Parser)]
#[command(name = "message_workers", version, max_term_width = 110)]
struct Arguments {
    /// Rounds
    #[arg(short = 'n', long, value_name = "N", default_value_t = 5)]
    rounds: usize,
    /// Idle connections
    #[arg(short, long, value_name = "N", default_value_t = 1000)]
    idle: usize,
    /// Workers of each process; with `ulimit -l 8192`, a worker has receives for about 1,000 connections
    #[arg(short, long, value_name = "N", default_value_t = 2)]
    workers: usize,
    /// Run as the server of trespass, or of bare rdma_cm
    #[arg(long, value_name = "NAME", hide = true)]
    server: Option<String>,
}

/// Connections that a round of the connect row adds.
const CONNECTS: usize = 100;
/// Active connections, and the messages that each has in flight.
const ACTIVE: usize = 100;
const ACTIVE_DEPTH: usize = 4;
/// Messages in flight on the connection of the echo row.
const DEPTH: usize = 64;
/// Duration of a measurement of echoes.
const PERIOD: Duration = Duration::from_millis(500);
const MESSAGE: [u8; 64] = [7; 64];
const LIMIT: Duration = Duration::from_secs(60);
/// Number of turns without events after which the server sleeps.
const SPIN: u32 = 200;

fn main() -> ExitCode {
    sideway_benches::ended(run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<()> {
    softrnic::register().map_err(|error| anyhow!("{error}"))?;
    match arguments.server.as_deref() {
        Some("rdma_cm") => return serve_bare(),
        Some(_) => return serve(arguments.workers),
        None => {}
    }
    let mut out = io::stdout();
    let (mut single, bare_server) = (Pair::start(1)?, Server::start("rdma_cm", 1)?);
    let mut bare = Bare::new()?;
    let (mut messages, mut plain) = (Vec::new(), Vec::new());
    for _ in 0..arguments.rounds {
        let begun = Instant::now();
        let connections = single.connect(CONNECTS)?;
        messages.push(begun.elapsed().as_nanos() as f64 / 1e3 / CONNECTS as f64);
        single.client.close(connections)?;
        let begun = Instant::now();
        let connections: Vec<_> =
            (0..CONNECTS).map(|_| bare.connect(bare_server.addresses[0])).collect::<Result<_>>()?;
        plain.push(begun.elapsed().as_nanos() as f64 / 1e3 / CONNECTS as f64);
        drop(connections);
    }
    let ratios = messages.iter().zip(&plain).map(|(messages, plain)| messages / plain).collect();
    let (ratio, messages, plain) = (middle(ratios), middle(messages), middle(plain));
    writeln!(out, "connect: trespass {messages:.1} us, bare rdma_cm {plain:.1} us, ratio {ratio:.2}")?;
    drop(bare_server);
    let mut one = single.connect(1)?;
    let echoes: Vec<_> = (0..arguments.rounds).map(|_| single.client.echo(&mut one, DEPTH)).collect::<Result<_>>()?;
    writeln!(out, "64 B echo, {DEPTH} in flight: {:.3} M/s", middle(echoes))?;
    drop(single);
    let (mut alone, mut among) = (Pair::start(arguments.workers)?, Pair::start(arguments.workers)?);
    let (mut of_alone, mut of_among) = (alone.connect(ACTIVE)?, among.connect(ACTIVE)?);
    let before = among.server.resident()?;
    let begun = Instant::now();
    let idle = among.connect(arguments.idle)?;
    let seconds = begun.elapsed().as_secs_f64();
    let bytes = among.server.resident()?.saturating_sub(before) as f64;
    writeln!(
        out,
        "{} idle connections in {seconds:.1} s: {:.1} MiB resident at the server, {:.1} KiB each",
        idle.len(),
        bytes / f64::from(1 << 20),
        bytes / idle.len() as f64 / 1024.0
    )?;
    // The two rates of a round are measured one after the other, so other work affects both.
    let mut rates = Vec::new();
    for _ in 0..arguments.rounds {
        let alone = alone.client.echo(&mut of_alone, ACTIVE_DEPTH)?;
        rates.push([alone, among.client.echo(&mut of_among, ACTIVE_DEPTH)?]);
    }
    let [alone, among] = [0, 1].map(|index| middle(rates.iter().map(|rates| rates[index]).collect()));
    let ratio = middle(rates.iter().map(|[alone, among]| among / alone).collect());
    writeln!(
        out,
        "64 B echoes of {ACTIVE} connections: {alone:.3} M/s alone, {among:.3} M/s among the idle ones, ratio {ratio:.2}"
    )?;
    Ok(())
}

/// A server, and the client that connects to it.
struct Pair {
    server: Server,
    client: Client,
}

impl Pair {
    fn start(count: usize) -> Result<Pair> {
        Ok(Pair { server: Server::start("trespass", count)?, client: Client { workers: workers(count)? } })
    }

    fn connect(&mut self, count: usize) -> Result<Vec<Flow>> {
        self.client.connect(&self.server.addresses, count)
    }
}

/// A connection of the client, and its messages in flight.
struct Flow {
    worker: usize,
    id: ConnectionId,
    in_flight: usize,
}

struct Client {
    workers: Vec<Worker>,
}

fn workers(count: usize) -> Result<Vec<Worker>> {
    let mut options = Options::default();
    options.transport = Transport::Rdma;
    options.backlog = 1024;
    (0..count).map(|_| Ok(Worker::new(&options)?)).collect()
}

impl Client {
    /// Connects one after the other, to the server's workers in turn.
    fn connect(&mut self, addresses: &[SocketAddr], count: usize) -> Result<Vec<Flow>> {
        let mut flows = Vec::new();
        for number in 0..count {
            let worker = number % addresses.len();
            let client = &mut self.workers[worker];
            let id = client.connect(Kind::Rdma, addresses[worker])?;
            while !client.is_established(id)? {
                if client.poll() == 0 {
                    client.wait(LIMIT)?;
                }
            }
            flows.push(Flow { worker, id, in_flight: 0 });
        }
        Ok(flows)
    }

    fn close(&mut self, flows: Vec<Flow>) -> Result<()> {
        flows.iter().for_each(|flow| self.workers[flow.worker].close(flow.id, 0, ""));
        let begun = Instant::now();
        while self.workers.iter().any(|worker| worker.connections() > 0) {
            if begun.elapsed() > LIMIT {
                bail!("connections were not closed");
            }
            self.workers.iter_mut().for_each(|worker| _ = worker.poll());
        }
        Ok(())
    }

    /// Keeps `depth` messages of each connection in flight; returns the rate of echoes in millions a second.
    fn echo(&mut self, flows: &mut [Flow], depth: usize) -> Result<f64> {
        let (begun, mut count) = (Instant::now(), 0_u64);
        let mut bytes = MESSAGE;
        while begun.elapsed() < PERIOD {
            self.workers.iter_mut().for_each(|worker| _ = worker.poll());
            for Flow { worker, id, in_flight } in flows.iter_mut() {
                let worker = &mut self.workers[*worker];
                while receive(worker, *id, &mut bytes)? {
                    *in_flight -= 1;
                    count += 1;
                }
                while *in_flight < depth && send(worker, *id)? {
                    *in_flight += 1;
                }
            }
        }
        Ok(count as f64 / begun.elapsed().as_micros() as f64)
    }
}

/// Receives a message, if one has arrived.
fn receive(worker: &mut Worker, id: ConnectionId, bytes: &mut [u8]) -> Result<bool> {
    match worker.try_recv_into(id, bytes) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn send(worker: &mut Worker, id: ConnectionId) -> Result<bool> {
    match worker.try_send(id, &MESSAGE) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Answers messages until the client ends the process, on the connections of each worker that were accepted first.
fn serve(count: usize) -> Result<()> {
    let mut workers = workers(count)?;
    let mut listeners = Vec::new();
    for worker in &mut workers {
        let listener = worker.listen(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let address = worker.local_addr(listener).context("the listener has no address")?;
        writeln!(io::stdout(), "{address}")?;
        listeners.push(listener);
    }
    // The active connections of a worker, and the one of the echo row.
    let active = ACTIVE.div_ceil(count) + 1;
    let mut connections: Vec<Vec<ConnectionId>> = vec![Vec::new(); count];
    let mut quiet = 0;
    loop {
        quiet += 1;
        for ((worker, listener), own) in workers.iter_mut().zip(&listeners).zip(&mut connections) {
            if worker.poll() > 0 {
                quiet = 0;
                own.extend(std::iter::from_fn(|| worker.accept(*listener)));
                let rest = own.split_off(own.len().min(active));
                own.retain(|&id| answer(worker, id).is_ok());
                own.extend(rest);
            }
        }
        if quiet > SPIN {
            sleep(&mut workers)?;
            quiet = 0;
        }
    }
}

/// Answers the messages of a connection that have arrived; closes the connection at its end.
fn answer(worker: &mut Worker, id: ConnectionId) -> Result<()> {
    let mut bytes = MESSAGE;
    let answered = loop {
        match receive(worker, id, &mut bytes) {
            Ok(false) => return Ok(()),
            Ok(true) => while !send(worker, id)? {},
            Err(error) => break error,
        }
    };
    worker.close(id, 0, "");
    Err(answered)
}

/// Sleeps until a worker has an event.
fn sleep(workers: &mut [Worker]) -> Result<()> {
    let mut time = LIMIT;
    for worker in workers.iter_mut() {
        time = time.min(worker.arm()?);
    }
    let mut fds: Vec<_> = workers.iter().map(|worker| PollFd::from_borrowed_fd(worker.fd(), PollFlags::IN)).collect();
    poll(&mut fds, Some(&Timespec::try_from(time)?))?;
    Ok(())
}

/// A server in a process of its own; the drop kills it.
struct Server {
    child: Child,
    addresses: Vec<SocketAddr>,
}

impl Server {
    fn start(name: &str, workers: usize) -> Result<Server> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child =
            command.args(["--server", name, "--workers", &workers.to_string()]).stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().context("the server has no output")?;
        let lines = BufReader::new(output).lines().take(workers);
        let addresses = lines.map(|line| Ok(line?.parse()?)).collect::<Result<_>>();
        Ok(Server { child, addresses: addresses? })
    }

    /// Bytes of the server in memory.
    fn resident(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS in its status")?;
        Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Either fails only if the server has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Connects without trespass, with queues of the same size.
struct Bare {
    channel: Arc<EventChannel>,
    queues: Option<Queues>,
}

/// The queues that all connections share.
struct Queues {
    pd: Arc<ProtectionDomain>,
    cq: GenericCompletionQueue,
    srq: SharedReceiveQueue,
}

impl Bare {
    fn new() -> Result<Bare> {
        Ok(Bare { channel: EventChannel::new()?, queues: None })
    }

    fn queue_pair(&mut self, id: &Arc<Identifier>) -> Result<GenericQueuePair> {
        let queues = match &mut self.queues {
            Some(queues) => queues,
            None => {
                let context = id.get_device_context().context("the identifier has no device")?;
                let pd = context.alloc_pd()?;
                let cq = context.create_cq_builder().setup_cqe(32_768).build_generic()?;
                let srq = pd.create_srq_builder().setup_max_wr(16_384).setup_max_sge(1).build()?;
                self.queues.insert(Queues { pd, cq, srq })
            }
        };
        let mut builder = queues.pd.create_qp_builder();
        builder.setup_send_cq(&queues.cq).setup_recv_cq(&queues.cq).setup_srq(&queues.srq);
        builder.setup_max_send_wr(64).setup_max_recv_wr(0).setup_max_inline_data(96);
        Ok(id.create_qp_generic(&builder)?)
    }

    fn connect(&mut self, address: SocketAddr) -> Result<(Arc<Identifier>, GenericQueuePair)> {
        let id = self.channel.create_id(PortSpace::Tcp)?;
        id.resolve_addr(None, address, LIMIT)?;
        self.expect("AddressResolved", |kind| matches!(kind, EventKind::AddressResolved))?;
        id.resolve_route(LIMIT)?;
        self.expect("RouteResolved", |kind| matches!(kind, EventKind::RouteResolved))?;
        let queue_pair = self.queue_pair(&id)?;
        id.connect(ConnectionParameter::new().setup_srq(true))?;
        self.expect("Established", |kind| matches!(kind, EventKind::Established(_)))?;
        Ok((id, queue_pair))
    }

    fn expect(&self, name: &str, is_it: impl Fn(&EventKind) -> bool) -> Result<()> {
        loop {
            match self.channel.get_cm_event(Some(LIMIT))?.into_parts().1 {
                kind if is_it(&kind) => return Ok(()),
                // Of an earlier connection.
                EventKind::Disconnected(_) => {}
                kind => bail!("{kind:?} in place of {name}"),
            }
        }
    }
}

/// Accepts connections of bare rdma_cm until the client ends the process.
fn serve_bare() -> Result<()> {
    let mut bare = Bare::new()?;
    let listener = bare.channel.create_id(PortSpace::Tcp)?;
    listener.bind_addr(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    listener.listen(1024)?;
    writeln!(io::stdout(), "127.0.0.1:{}", listener.port())?;
    let mut held = Vec::new();
    loop {
        let (id, kind) = bare.channel.get_cm_event(None)?.into_parts();
        match kind {
            EventKind::ConnectRequest(_) => {
                let queue_pair = bare.queue_pair(&id)?;
                id.accept(ConnectionParameter::new().setup_srq(true))?;
                held.push((id, queue_pair));
            }
            EventKind::Disconnected(_) => held.retain(|(other, _)| !Arc::ptr_eq(other, &id)),
            _ => {}
        }
    }
}
