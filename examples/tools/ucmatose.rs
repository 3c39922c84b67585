//! Makes many connections by IP address on one thread with one event channel, and sends messages back and forth on all
//! of them. Interoperates with rdma-core's `ucmatose`.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::rdmacm::communication_manager::{
    ConnectionInfo, ConnectionParameter, Event, EventChannel, EventKind, Identifier, PortSpace,
};
use sideway_examples::connections::{Link, Shape, SharedReceives, resolve};
use sideway_examples::options::{parse_message_size, parse_timeout};
use sideway_examples::{Deadline, Timeout, payload};

const ABOUT: &str = "\
Makes connections by IP address on one thread and one event channel, sends messages back and forth on all of them, and disconnects. The \
server sends first.

The peer may be rdma-core's ucmatose, which has the same short options. Both sides require the same -c, -C and -S. The data is \
checked if both sides are this program.";

const EXAMPLES: &str = "\
Examples:
  ucmatose -c 100                                on the first machine: the server
  ucmatose -c 100 -s server.example.org          on the second
  ucmatose -c 8 -C 1000 -S 64k --srq             all connections share one receive queue
  ucmatose -m                                    moves all identifiers to another event channel before disconnecting

Exit status: 0 if all messages were exchanged, 1 on failure, 2 for invalid arguments.";

/// Make many connections by IP address, and send messages back and forth
#[derive(Clone, Debug, Parser)]
#[command(name = "ucmatose", version, long_about = ABOUT, after_help = EXAMPLES, max_term_width = 110)]
struct Arguments {
    /// Host of the server, as a name or an address; without it, this program is the server
    #[arg(short, long, value_name = "HOST")]
    server: Option<String>,

    /// Own address [default: any]
    #[arg(short, long, value_name = "ADDRESS")]
    bind: Option<IpAddr>,

    /// Port of the server
    #[arg(short, long, default_value_t = 7471, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,

    /// Connections
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    connections: u32,

    /// Messages in either direction on each connection
    #[arg(short = 'C', long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    messages: u32,

    /// Bytes in a message; k, M and G are powers of 1024
    #[arg(short = 'S', long, value_name = "SIZE", default_value = "100", value_parser = parse_message_size)]
    size: u32,

    /// Client: type of service of packets, such as 0x68
    #[arg(short, long, value_name = "TOS", value_parser = parse_byte)]
    tos: Option<u8>,

    /// Client: local ACK timeout, 4.096 us * 2^N
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u8).range(..=31))]
    ack_timeout: Option<u8>,

    /// Move all identifiers to a new event channel before disconnecting
    #[arg(short, long)]
    migrate: bool,

    /// Take the receives of all connections from one shared receive queue
    #[arg(long)]
    srq: bool,

    /// Limit of the whole run; 0 = no limit
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = parse_timeout)]
    timeout: Timeout,
}

/// A number of 8 bits, decimal or hexadecimal.
fn parse_byte(text: &str) -> Result<u8, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u8::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.map_err(|_| "not a type of service, 0 to 255 or 0x0 to 0xff".to_owned())
}

fn main() -> ExitCode {
    sideway_examples::program(run)
}

fn run(arguments: Arguments, out: &mut dyn Write) -> Result<()> {
    softrnic::register()?;
    let mut print = |text: &str| -> Result<()> {
        writeln!(out, "{text}")?;
        Ok(out.flush()?)
    };
    let is_client = arguments.server.is_some();
    let mut all = Connections::new(&arguments)?;
    match all.listener.as_ref().and_then(|listener| listener.local_address()) {
        Some(address) => print(&format!("listening on {address}"))?,
        None => print("connecting")?,
    }
    all.connect()?;
    let is_checked = all.members.iter().all(|connection| connection.peer.is_some());
    let checked = if is_checked { "checked" } else { "not checked: the peer is another program" };
    print(&format!("{} connected; the messages are {checked}", arguments.connections))?;
    let messages = arguments.messages;
    let has_received = |connection: &Connection| connection.received >= messages;
    if is_client {
        all.poll_until(has_received, "not all messages arrived")?;
        all.each(|connection| connection.send(messages))?;
    } else {
        all.each(|connection| connection.send(messages))?;
        all.poll_until(Connection::has_sent, "not all sends completed")?;
        all.poll_until(has_received, "not all messages arrived")?;
    }
    let total = u64::from(arguments.connections) * u64::from(messages);
    print(&format!("{total} messages of {} bytes sent, and as many received", arguments.size))?;
    if arguments.migrate {
        all.migrate()?;
        print("moved to another event channel")?;
    }
    all.disconnect()?;
    print("disconnected")
}

/// The prefix of the private data.
const NAME: &[u8; 16] = b"sideway ucmatose";

/// The private data of a request and of its reply if both sides are this program; rdma-core's program sends none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hello {
    /// The index of the client's connection.
    number: u32,
    messages: u32,
    size: u32,
}

impl Hello {
    fn to_bytes(self) -> Vec<u8> {
        let numbers = [self.number, self.messages, self.size];
        NAME.iter().copied().chain(numbers.into_iter().flat_map(u32::to_be_bytes)).collect()
    }

    /// Decodes the private data, which the transport may have padded.
    fn read(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(NAME)?;
        let number = |at: usize| Some(u32::from_be_bytes(*rest.get(at * 4..)?.first_chunk()?));
        Some(Self { number: number(0)?, messages: number(1)?, size: number(2)? })
    }
}

/// One connection.
#[derive(Debug)]
struct Connection {
    // The link also holds a reference to the identifier.
    link: Option<Link>,
    id: Arc<Identifier>,
    is_client: bool,
    /// The private data of the peer, if it is this program.
    peer: Option<Hello>,
    is_over: bool,
    received: u32,
    size: u32,
}

impl Connection {
    /// Sends this side's messages.
    fn send(&mut self, messages: u32) -> Result<()> {
        for index in 0..messages {
            let message = payload::of(self.size, self.seed(self.is_client, index));
            self.link()?.send(&message)?;
        }
        Ok(())
    }

    /// Polls, and checks the received messages.
    fn poll(&mut self) -> Result<()> {
        for message in self.link()?.poll()? {
            ensure!(
                message.len() == self.size as usize,
                "a message of {} bytes arrived, expected {}; give both sides the same -S",
                message.len(),
                self.size
            );
            let expected = self.seed(!self.is_client, self.received);
            if self.peer.is_some() && message != payload::of(self.size, expected) {
                bail!("wrong data in message {}", self.received);
            }
            self.received += 1;
        }
        Ok(())
    }

    fn has_sent(&self) -> bool {
        self.link.as_ref().is_some_and(Link::has_sent)
    }

    fn link(&mut self) -> Result<&mut Link> {
        self.link.as_mut().context("no queue pair exists")
    }

    /// Returns the seed of a message; each message has a different seed.
    fn seed(&self, is_client: bool, index: u32) -> u64 {
        let number = self.peer.map_or(0, |peer| peer.number);
        u64::from(number) << 32 | u64::from(index) << 1 | u64::from(is_client)
    }
}

/// The limit of one step of the kernel's connection manager; the whole run has its own limit.
const STEP: Duration = Duration::from_secs(2);

/// The index of an identifier's connection, kept with the identifier.
struct Index(usize);

/// The state of all connections during the whole run.
#[derive(Debug)]
struct Connections<'a> {
    arguments: &'a Arguments,
    members: Vec<Connection>,
    shared: Option<Arc<SharedReceives>>,
    pd: Option<Arc<ProtectionDomain>>,
    listener: Option<Arc<Identifier>>,
    channel: Arc<EventChannel>,
    deadline: Deadline,
}

impl<'a> Connections<'a> {
    /// Listens, or starts to resolve the address of all connections.
    fn new(arguments: &'a Arguments) -> Result<Self> {
        let channel = EventChannel::new()?;
        let deadline = Deadline::after(arguments.timeout);
        let mut all =
            Self { arguments, members: Vec::new(), shared: None, pd: None, listener: None, channel, deadline };
        match &arguments.server {
            Some(host) => {
                let destination = resolve(host, arguments.port)?;
                for _ in 0..arguments.connections {
                    let id = all.channel.create_id(PortSpace::Tcp)?;
                    let source = arguments.bind.map(|address| SocketAddr::new(address, 0));
                    id.resolve_addr(source, destination, STEP)?;
                    all.add(id);
                }
            }
            None => {
                let listener = all.channel.create_id(PortSpace::Tcp)?;
                let address = arguments.bind.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
                listener.bind_addr(SocketAddr::new(address, arguments.port))?;
                listener.listen(0)?;
                all.listener = Some(listener);
            }
        }
        Ok(all)
    }

    /// Adds a connection; returns its index.
    fn add(&mut self, id: Arc<Identifier>) -> usize {
        let index = self.members.len();
        id.setup_context(Index(index));
        let (is_client, size) = (self.arguments.server.is_some(), self.arguments.size);
        self.members.push(Connection { link: None, id, is_client, peer: None, is_over: false, received: 0, size });
        index
    }

    fn member(&mut self, index: usize) -> Result<&mut Connection> {
        self.members.get_mut(index).context("no such connection")
    }

    /// Handles events until all connections are established.
    fn connect(&mut self) -> Result<()> {
        let mut missing = self.arguments.connections;
        while missing > 0 {
            let event = self.next_event("not all connections were made")?;
            if let EventKind::ConnectRequest(info) = event.kind() {
                self.on_request(event.cm_id(), info)?;
                continue;
            }
            let index = index_of(&event)?;
            let id = event.cm_id();
            match event.kind() {
                EventKind::AddressResolved => {
                    // The type of service affects the route, and the ACK timeout affects the queue pair.
                    self.arguments.tos.map_or(Ok(()), |tos| id.set_type_of_service(tos))?;
                    self.arguments.ack_timeout.map_or(Ok(()), |code| id.set_ack_timeout(code))?;
                    id.resolve_route(STEP)?;
                }
                EventKind::RouteResolved => {
                    self.make_link(index)?;
                    id.connect(self.parameter(index as u32).setup_retry_count(5))?;
                }
                EventKind::Established(info) => {
                    if self.arguments.server.is_some() {
                        self.member(index)?.peer = Hello::read(info.private_data());
                    }
                    missing -= 1;
                }
                EventKind::Rejected(rejection) => match rejection.private_data().trimmed() {
                    [] => bail!("connection {index}: {event}"),
                    words => bail!("connection {index}: {event}: {}", String::from_utf8_lossy(words)),
                },
                EventKind::AddressChange => {}
                _ => bail!("connection {index}: {event}"),
            }
        }
        Ok(())
    }

    /// Accepts a request, or rejects it with the reason.
    fn on_request(&mut self, id: &Arc<Identifier>, info: &ConnectionInfo) -> Result<()> {
        let Arguments { connections, messages, size, .. } = *self.arguments;
        let peer = Hello::read(info.private_data());
        if self.members.len() as u32 >= connections {
            return Ok(id.reject(format!("the server was started with -c {connections}").as_bytes())?);
        }
        if peer.is_some_and(|peer| (peer.messages, peer.size) != (messages, size)) {
            id.reject(format!("the server was started with -C {messages} -S {size}").as_bytes())?;
            bail!("the client has another -C or -S; give both sides the same");
        }
        let index = self.add(Arc::clone(id));
        self.make_link(index)?;
        id.accept(&self.parameter(peer.map_or(0, |peer| peer.number)))?;
        self.member(index)?.peer = peer;
        Ok(())
    }

    /// The parameters of rdma-core's program, and the private data of this one.
    fn parameter(&self, number: u32) -> ConnectionParameter {
        let hello = Hello { number, messages: self.arguments.messages, size: self.arguments.size };
        let mut parameter = ConnectionParameter::default();
        parameter.setup_private_data(&hello.to_bytes());
        parameter
    }

    fn make_link(&mut self, index: usize) -> Result<()> {
        let Arguments { connections, messages, size, srq, .. } = *self.arguments;
        let id = Arc::clone(&self.member(index)?.id);
        let context = id
            .get_device_context()
            .context("the identifier has no RDMA device; resolve an address that leads to one")?;
        let pd = match &self.pd {
            Some(pd) if Arc::ptr_eq(pd.device_context(), &context) => Arc::clone(pd),
            _ => context.alloc_pd()?,
        };
        if srq && self.shared.is_none() {
            let all = connections.checked_mul(messages).context("-c times -C is too large")?;
            self.shared = Some(Arc::new(SharedReceives::new(&pd, size, all)?));
        }
        let shape = Shape { size, messages, events: None, shared: self.shared.as_ref() };
        let link = Link::new(&id, &pd, &shape)?;
        self.member(index)?.link = Some(link);
        self.pd = Some(pd);
        Ok(())
    }

    fn poll_until(&mut self, is_done: impl Fn(&Connection) -> bool, what: &str) -> Result<()> {
        while !self.members.iter().all(&is_done) {
            self.each(Connection::poll)?;
            // A peer that has disconnected sends no further messages.
            if let Some(event) = self.channel.try_get_cm_event()? {
                match event.kind() {
                    EventKind::ConnectRequest(_) | EventKind::AddressChange => {}
                    _ => bail!("connection {}: {event} before all messages were exchanged", index_of(&event)?),
                }
            }
            self.deadline.left(what)?;
            thread::yield_now();
        }
        Ok(())
    }

    fn each(&mut self, mut call: impl FnMut(&mut Connection) -> Result<()>) -> Result<()> {
        for (index, connection) in self.members.iter_mut().enumerate() {
            call(connection).with_context(|| format!("connection {index}"))?;
        }
        Ok(())
    }

    /// Moves all identifiers, with their pending events, to a new channel. The old channel then closes; the channel of
    /// a listener closes with the listener.
    fn migrate(&mut self) -> Result<()> {
        let channel = EventChannel::new()?;
        for id in self.listener.iter().chain(self.members.iter().map(|connection| &connection.id)) {
            id.migrate(&channel)?;
        }
        let old = std::mem::replace(&mut self.channel, channel);
        let is_closed = Arc::into_inner(old).is_some();
        ensure!(is_closed || self.listener.is_some(), "the old event channel is still in use");
        Ok(())
    }

    /// Ends all connections: the server disconnects first.
    fn disconnect(&mut self) -> Result<()> {
        let is_client = self.arguments.server.is_some();
        if !is_client {
            self.each(|connection| Ok(connection.id.disconnect()?))?;
        }
        while self.members.iter().any(|connection| !connection.is_over) {
            let event = self.next_event("not all connections have ended")?;
            match event.kind() {
                EventKind::Disconnected(_) => {
                    let connection = self.member(index_of(&event)?)?;
                    connection.is_over = true;
                    // The server waits for this disconnect.
                    if is_client {
                        connection.id.disconnect()?;
                    }
                }
                // Dropping the request rejects it.
                EventKind::ConnectRequest(_) | EventKind::AddressChange | EventKind::TimewaitExit => {}
                _ => bail!("connection {}: {event}", index_of(&event)?),
            }
        }
        Ok(())
    }

    fn next_event(&self, what: &str) -> Result<Event> {
        match self.channel.get_cm_event(self.deadline.left(what)?) {
            Err(error) if error.errno().raw() == libc::ETIMEDOUT => {
                self.deadline.left(what)?;
                Err(error.into())
            }
            event => Ok(event?),
        }
    }
}

/// Returns the index of the connection to which an event belongs.
fn index_of(event: &Event) -> Result<usize> {
    let index = event.cm_id().get_context::<Index>();
    Ok(index.with_context(|| format!("the listener: {event}"))?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_service_are_decimal_or_hexadecimal() {
        assert_eq!((parse_byte("104"), parse_byte("0x68")), (Ok(104), Ok(104)));
        for wrong in ["", "256", "0x100", "0x", "-1", "x"] {
            assert!(parse_byte(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_padded_hello_is_decoded_and_other_data_is_not() {
        let hello = Hello { number: 7, messages: 10, size: 0x01_00_00_00 };
        let mut bytes = hello.to_bytes();
        assert_eq!((bytes.len(), Hello::read(&bytes)), (28, Some(hello)));
        bytes.resize(56, 0);
        assert_eq!(Hello::read(&bytes), Some(hello));
        for wrong in [&bytes[..27], &bytes[1..], &[0; 56], &[]] {
            assert_eq!(Hello::read(wrong), None);
        }
    }
}
