//! Drives hundreds of connections by IP address on one thread, with one event channel. The program sleeps in poll(2)
//! until an event or a completion arrives, and then advances the connection to which it belongs.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Parser;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sideway::ibverbs::completion::{CompletionChannel, CompletionQueue};
use sideway::ibverbs::device_context::DeviceContext;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::rdmacm::communication_manager::{
    ConnectionParameter, Event, EventChannel, EventKind, Identifier, PortSpace,
};
use sideway_examples::connections::{ConnectionOptions, Link, Role, Shape, key};
use sideway_examples::{Deadline, payload, wait_readable};

const ABOUT: &str = "\
Makes many connections by IP address, sends a message back and forth on each, and disconnects, on one thread and one event channel.

Without HOST, both sides are in this program. With --listen, the program serves --connections connections \
and exits; with HOST, it makes that number of connections.";

const EXAMPLES: &str = "\
Examples:
  cm_many                                 200 connections within this program, on the first device
  cm_many -n 1000 --at-once 100           1000, at most 100 at a time
  cm_many --listen -n 500                 on the first machine
  cm_many -n 500 server.example.org       on the second

Exit status: 0 if every message came back, 1 on failure, 2 for invalid arguments.";

/// Drive many connections on one thread, with poll(2)
#[derive(Clone, Debug, Parser)]
#[command(name = "cm_many", version, long_about = ABOUT, after_help = EXAMPLES, max_term_width = 110)]
struct Arguments {
    #[command(flatten)]
    options: ConnectionOptions,

    /// Number of concurrent connections; the backlog of a listener is 1024
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    at_once: u32,
}

fn main() -> ExitCode {
    sideway_examples::program(run)
}

fn run(arguments: Arguments, out: &mut dyn Write) -> Result<()> {
    // softrnic uses a socket for each connection to another host. Many systems allow 1,024 open files, and more on
    // request.
    let limit = Rlimit { current: getrlimit(Resource::Nofile).maximum, ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, limit).context("cannot raise the limit of open files")?;
    softrnic::register()?;
    let role = arguments.options.role()?;
    let mut connections = Connections::new(arguments, role)?;
    if let Some(address) = connections.listener.as_ref().and_then(|listener| listener.local_address()) {
        writeln!(out, "listening on {address}")?;
        out.flush()?;
    }
    let start = Instant::now();
    let ended = connections.run();
    let tally = &connections.tally;
    write!(out, "{tally}")?;
    ended?;
    let ends = match tally.now(|_, _| true) {
        1 => "1 end of a connection".to_owned(),
        ends => format!("{ends} ends of connections"),
    };
    writeln!(out, "{ends} in {:.2} seconds", start.elapsed().as_secs_f64())?;
    match connections.failures.as_slice() {
        [] => Ok(()),
        [first, ..] => bail!("failed connections: {}; the first: {first}", connections.failures.len()),
    }
}

/// The limit of one step of the kernel's connection manager; the whole run has its own limit.
const STEP: Duration = Duration::from_secs(10);

/// The objects that all connections on a device share: a protection domain and the completion channel.
#[derive(Debug)]
struct Shared {
    context: Arc<DeviceContext>,
    pd: Arc<ProtectionDomain>,
    channel: Arc<CompletionChannel>,
}

/// The open devices. The first connection on a device adds the device.
#[derive(Debug, Default)]
struct Devices(Vec<Shared>);

impl Devices {
    /// Creates the link of an identifier, with one message of `size` bytes in each direction.
    fn link(&mut self, id: &Arc<Identifier>, size: u32) -> Result<Link> {
        let context = id
            .get_device_context()
            .context("the identifier has no RDMA device; resolve an address that leads to one")?;
        if !self.0.iter().any(|shared| Arc::ptr_eq(&shared.context, &context)) {
            let (pd, channel) = (context.alloc_pd()?, context.create_comp_channel()?);
            self.0.push(Shared { context: Arc::clone(&context), pd, channel });
        }
        let shared = self.0.iter().find(|shared| Arc::ptr_eq(&shared.context, &context));
        let Shared { pd, channel, .. } = shared.context("the device is no longer listed")?;
        // The key in a completion event identifies the connection.
        Link::new(id, pd, &Shape { size, messages: 1, events: Some((channel, key(id))), shared: None })
    }
}

/// All connections, and the loop that drives them.
#[derive(Debug)]
struct Connections {
    /// The connections by [`key`]. A connection event contains the identifier, a completion event the key.
    all: HashMap<usize, Connection>,
    devices: Devices,
    listener: Option<Arc<Identifier>>,
    channel: Arc<EventChannel>,
    arguments: Arguments,
    role: Role,
    /// The number of connections started.
    made: u32,
    served: u32,
    deadline: Deadline,
    tally: Tally,
    failures: Vec<String>,
}

impl Connections {
    /// Creates the state, and listens if the role requires it.
    fn new(arguments: Arguments, role: Role) -> Result<Self> {
        let channel = EventChannel::new()?;
        let listener = match role.listen {
            Some(address) => {
                let id = channel.create_id(PortSpace::Tcp)?;
                id.bind_addr(address)?;
                // 0 requests the largest backlog.
                id.listen(0)?;
                Some(id)
            }
            None => None,
        };
        Ok(Self {
            all: HashMap::new(),
            devices: Devices::default(),
            listener,
            channel,
            deadline: Deadline::after(arguments.options.timeout),
            arguments,
            role,
            made: 0,
            served: 0,
            tally: Tally::default(),
            failures: Vec::new(),
        })
    }

    /// Runs all connections until they end.
    fn run(&mut self) -> Result<()> {
        while !self.is_done() {
            self.make_more()?;
            self.deadline
                .left("not all connections ended")
                .map_err(|error| anyhow!("{error}; unfinished: {}", self.tally.unfinished()))?;
            let completions = self.devices.0.iter().map(|shared| shared.channel.as_raw_fd());
            let descriptors: Vec<_> = std::iter::once(self.channel.as_raw_fd()).chain(completions).collect();
            wait_readable(&descriptors, self.deadline.end())?;
            while let Some(event) = self.channel.try_get_cm_event()? {
                self.on_event(&event)?;
            }
            let mut completed = Vec::new();
            for Shared { channel, .. } in &self.devices.0 {
                while let Some(event) = channel.try_get_cq_event()? {
                    completed.push(event.cq_context());
                }
            }
            for number in completed {
                self.step(number, |connection, _| connection.on_completion());
            }
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        let is_over =
            |side| self.tally.now(|of, state| of == side && state.is_end()) >= self.arguments.options.connections;
        let connects = self.role.destination(None).is_some();
        // The listener of this program receives no request from a connection that failed earlier.
        let is_hopeless = connects && !self.failures.is_empty();
        (!connects || is_over(Side::Connecting))
            && (self.role.listen.is_none() || is_over(Side::Listening) || is_hopeless)
    }

    /// Starts connections until the maximum number exists.
    fn make_more(&mut self) -> Result<()> {
        let Some(destination) = self.role.destination(self.listener.as_deref()) else { return Ok(()) };
        let Arguments { options, at_once } = self.arguments.clone();
        let unfinished = |of, state: State| of == Side::Connecting && !state.is_end();
        while self.made < options.connections && self.tally.now(unfinished) < at_once {
            let id = self.channel.create_id(PortSpace::Tcp)?;
            id.resolve_addr(self.role.source, destination, STEP)?;
            let (side, state) = (Side::Connecting, State::ResolvingAddress);
            self.add(Connection {
                side,
                state,
                number: self.made,
                size: options.size,
                has_answered: false,
                link: None,
                id,
            });
            self.made += 1;
        }
        Ok(())
    }

    fn add(&mut self, connection: Connection) {
        self.tally.moved(connection.side, None, connection.state);
        self.all.insert(key(&connection.id), connection);
    }

    fn on_event(&mut self, event: &Event) -> Result<()> {
        if event.listener_id().is_some() {
            return if matches!(event.kind(), EventKind::ConnectRequest(_)) {
                self.on_request(event.cm_id())
            } else {
                Ok(())
            };
        }
        if self.listener.as_ref().is_some_and(|listener| Arc::ptr_eq(listener, event.cm_id())) {
            bail!("the listener: {event}");
        }
        self.step(key(event.cm_id()), |connection, devices| connection.on_event(event, devices));
        Ok(())
    }

    fn on_request(&mut self, id: &Arc<Identifier>) -> Result<()> {
        let ConnectionOptions { connections, size, .. } = self.arguments.options;
        if self.served == connections {
            return Ok(id.reject(b"all connections are taken")?);
        }
        let number = self.served;
        self.served += 1;
        let (side, state) = (Side::Listening, State::Accepting);
        let accepted = self.devices.link(id, size).and_then(|link| {
            id.accept(&ConnectionParameter::default())?;
            let (id, link) = (Arc::clone(id), Some(link));
            Ok(Connection { side, state, number, size, has_answered: false, link, id })
        });
        match accepted {
            Ok(connection) => self.add(connection),
            // Dropping the request rejects it.
            Err(error) => {
                self.tally.moved(side, None, State::Failed);
                self.failures.push(format!("connection {number} of those accepted: {error:#}"));
            }
        }
        Ok(())
    }

    /// Advances a connection. A failure is counted, and the other connections continue.
    fn step(&mut self, number: usize, step: impl FnOnce(&mut Connection, &mut Devices) -> Result<State>) {
        // Events of a connection that has ended are ignored.
        let Some(connection) = self.all.get_mut(&number) else { return };
        let from = connection.state;
        let to = step(connection, &mut self.devices).unwrap_or_else(|error| {
            let side = if connection.side == Side::Listening { " of those accepted" } else { "" };
            self.failures.push(format!("connection {}{side}, {from}: {error:#}", connection.number));
            State::Failed
        });
        if to != from {
            connection.state = to;
            self.tally.moved(connection.side, Some(from), to);
        }
        if to.is_end() {
            self.all.remove(&number);
        }
    }
}

/// An end of a connection.
#[derive(Debug)]
struct Connection {
    side: Side,
    state: State,
    /// The number of the connection, which is also the seed of its message.
    number: u32,
    size: u32,
    /// Whether this side has echoed the peer's message.
    has_answered: bool,
    link: Option<Link>,
    id: Arc<Identifier>,
}

impl Connection {
    /// Handles an event of the identifier, and returns the new state.
    fn on_event(&mut self, event: &Event, devices: &mut Devices) -> Result<State> {
        Ok(match (self.state, event.kind()) {
            (State::ResolvingAddress, EventKind::AddressResolved) => {
                self.id.resolve_route(STEP)?;
                State::ResolvingRoute
            }
            (State::ResolvingRoute, EventKind::RouteResolved) => {
                // The receive is posted before the peer can send.
                self.link = Some(devices.link(&self.id, self.size)?);
                self.id.connect(&ConnectionParameter::default())?;
                State::Requesting
            }
            (State::Requesting, EventKind::Established(_)) => {
                let message = self.message();
                self.link()?.send(&message)?;
                State::Exchanging
            }
            // A message of the peer may arrive before this event.
            (State::Accepting | State::Exchanging, EventKind::Established(_)) => State::Exchanging,
            (State::Exchanging, EventKind::Disconnected(_)) if self.side == Side::Listening => {
                ensure!(self.has_answered, "the peer disconnected before its message arrived; see its error message");
                // The peer has received this side's message, and waits until this side disconnects too.
                self.id.disconnect()?;
                State::Done
            }
            (State::Disconnecting, EventKind::Disconnected(_)) => State::Done,
            // A changed hardware address affects only later connections; this program does not reuse the queue pair.
            (state, EventKind::AddressChange | EventKind::TimewaitExit) => state,
            _ => bail!("{event}"),
        })
    }

    /// Handles a completion event, and returns the new state.
    fn on_completion(&mut self) -> Result<State> {
        // After disconnecting, flushed receives are expected.
        if self.state == State::Disconnecting {
            return Ok(self.state);
        }
        let link = self.link()?;
        link.req_notify()?;
        let Some(message) = link.poll()?.into_iter().next() else { return Ok(self.state) };
        match self.side {
            Side::Listening => {
                self.link()?.send(&message)?;
                self.has_answered = true;
                Ok(State::Exchanging)
            }
            Side::Connecting => {
                ensure!(message == self.message(), "the message that came back differs");
                self.id.disconnect()?;
                Ok(State::Disconnecting)
            }
        }
    }

    fn message(&self) -> Vec<u8> {
        payload::of(self.size, self.number.into())
    }

    fn link(&mut self) -> Result<&mut Link> {
        self.link.as_mut().context("no queue pair exists")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    Connecting,
    Listening,
}

/// The progress of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    ResolvingAddress,
    ResolvingRoute,
    /// The request was sent.
    Requesting,
    /// The request was accepted.
    Accepting,
    /// A message is in flight.
    Exchanging,
    /// This side disconnected, and waits for the peer.
    Disconnecting,
    Done,
    Failed,
}

impl State {
    fn is_end(self) -> bool {
        matches!(self, Self::Done | Self::Failed)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ResolvingAddress => "resolving the address",
            Self::ResolvingRoute => "resolving the route",
            Self::Requesting => "requesting",
            Self::Accepting => "accepting",
            Self::Exchanging => "exchanging",
            Self::Disconnecting => "disconnecting",
            Self::Done => "done",
            Self::Failed => "failed",
        })
    }
}

/// The number of connections in each state, and the number that have reached it so far.
#[derive(Debug, Default)]
struct Tally(BTreeMap<(Side, State), (u32, u32)>);

impl Tally {
    /// Counts a connection that enters a state, from its previous state if it has one.
    fn moved(&mut self, side: Side, from: Option<State>, to: State) {
        if let Some((now, _)) = from.and_then(|from| self.0.get_mut(&(side, from))) {
            *now = now.saturating_sub(1);
        }
        let (now, ever) = self.0.entry((side, to)).or_default();
        *now += 1;
        *ever += 1;
    }

    /// The connections that are in these states.
    fn now(&self, which: impl Fn(Side, State) -> bool) -> u32 {
        self.0.iter().filter(|((side, state), _)| which(*side, *state)).map(|(_, (now, _))| now).sum()
    }

    /// The connections that have not ended: `3 requesting, 12 exchanging`.
    fn unfinished(&self) -> String {
        let all = self.0.iter().filter(|((_, state), (now, _))| !state.is_end() && *now > 0);
        let all: Vec<_> = all.map(|((_, state), (now, _))| format!("{now} {state}")).collect();
        if all.is_empty() { "none".to_owned() } else { all.join(", ") }
    }
}

/// Returns a line for each side: how many connections have reached each state, and how many are still in it.
impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (side, name) in [(Side::Connecting, "connecting side"), (Side::Listening, "listening side")] {
            let states = self.0.iter().filter(|((of, _), _)| *of == side).map(|((_, state), (now, ever))| {
                let still = if *now > 0 && !state.is_end() { format!(" ({now} still)") } else { String::new() };
                format!("{ever} {state}{still}")
            });
            let states: Vec<_> = states.collect();
            if !states.is_empty() {
                writeln!(f, "{name}: {}", states.join(", "))?;
            }
        }
        Ok(())
    }
}
