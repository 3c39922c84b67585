//! All connections, from the first step to the last.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::rdmacm::communication_manager::{
    ConnectionInfo, ConnectionParameter, Event, EventChannel, EventKind, Identifier, PortSpace,
};
use sideway_examples::cm::{Deadline, Link, Shape, SharedReceives, resolve};

use super::arguments::Arguments;
use super::connection::{Connection, Side};
use super::greeting::Greeting;

/// For a step of the kernel's; the program as a whole has a time-out of its own.
const STEP: Duration = Duration::from_secs(2);

/// Which connection an identifier is; kept with the identifier.
struct Index(usize);

/// Everything.
#[derive(Debug)]
pub(crate) struct Game<'a> {
    arguments: &'a Arguments,
    connections: Vec<Connection>,
    shared: Option<Arc<SharedReceives>>,
    pd: Option<Arc<ProtectionDomain>>,
    listener: Option<Arc<Identifier>>,
    channel: Arc<EventChannel>,
    deadline: Deadline,
    side: Side,
}

impl<'a> Game<'a> {
    /// Listens, or begins to resolve the address for all connections.
    pub(crate) fn new(arguments: &'a Arguments) -> Result<Self> {
        let channel = EventChannel::new()?;
        let side = if arguments.server.is_some() { Side::Client } else { Side::Server };
        let deadline = Deadline::after(arguments.timeout);
        let mut game = Self {
            arguments,
            connections: Vec::new(),
            shared: None,
            pd: None,
            listener: None,
            channel,
            deadline,
            side,
        };
        match &arguments.server {
            Some(host) => game.resolve(host)?,
            None => {
                let listener = game.channel.create_id(PortSpace::Tcp)?;
                listener.bind_addr(arguments.listen_on())?;
                listener.listen(0)?;
                game.listener = Some(listener);
            }
        }
        Ok(game)
    }

    fn resolve(&mut self, host: &str) -> Result<()> {
        let destination = resolve(host, self.arguments.port)?;
        for _ in 0..self.arguments.connections {
            let id = self.channel.create_id(PortSpace::Tcp)?;
            id.resolve_addr(self.arguments.source(), destination, STEP)?;
            self.enter(id);
        }
        Ok(())
    }

    /// The next connection. Its events are found by what is kept with the identifier.
    fn enter(&mut self, id: Arc<Identifier>) -> usize {
        let index = self.connections.len();
        id.setup_context(Index(index));
        self.connections.push(Connection::new(id, self.side, self.arguments.size));
        index
    }

    /// Where it listens.
    pub(crate) fn listens_on(&self) -> Option<SocketAddr> {
        self.listener.as_ref()?.local_address()
    }

    /// Connections that are with this program, rather than with another.
    pub(crate) fn peers_of_ours(&self) -> usize {
        self.connections.iter().filter(|connection| connection.peer.is_some()).count()
    }

    /// Takes all connections to where they can be used.
    pub(crate) fn connect(&mut self) -> Result<()> {
        let mut missing = self.arguments.connections;
        while missing > 0 {
            let event = self.next_event("not all connections were made")?;
            if let EventKind::ConnectRequest(info) = event.kind() {
                self.on_request(event.cm_id(), info)?;
                continue;
            }
            let index = self.index_of(&event)?;
            let id = event.cm_id();
            match event.kind() {
                EventKind::AddressResolved => {
                    // The route is looked for with the one, and the queue pair gets the other.
                    self.arguments.tos.map_or(Ok(()), |tos| id.set_type_of_service(tos))?;
                    self.arguments.ack_timeout.map_or(Ok(()), |code| id.set_ack_timeout(code))?;
                    id.resolve_route(STEP)?;
                }
                EventKind::RouteResolved => {
                    self.make_link(index)?;
                    let mut parameter = self.parameter(index as u32);
                    id.connect(parameter.setup_retry_count(5))?;
                }
                EventKind::Established(info) => {
                    if self.side == Side::Client {
                        let connection = self.connections.get_mut(index).context("there is no such connection")?;
                        connection.peer = Greeting::read(info.private_data());
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

    /// Says yes to a request, or why not.
    fn on_request(&mut self, id: &Arc<Identifier>, info: &ConnectionInfo) -> Result<()> {
        let Arguments { connections, messages, size, .. } = *self.arguments;
        let peer = Greeting::read(info.private_data());
        if self.connections.len() as u32 >= connections {
            return Ok(id.reject(format!("the server was started with -c {connections}").as_bytes())?);
        }
        if peer.is_some_and(|peer| (peer.messages, peer.size) != (messages, size)) {
            let words = format!("the server was started with -C {messages} -S {size}");
            id.reject(words.as_bytes())?;
            bail!("the client was started with other -C or -S than this side");
        }
        let index = self.enter(Arc::clone(id));
        self.make_link(index)?;
        let number = peer.map_or(0, |peer| peer.number);
        id.accept(&self.parameter(number))?;
        self.connections.get_mut(index).context("there is no such connection")?.peer = peer;
        Ok(())
    }

    /// What rdma-core's program asks for, and a greeting.
    fn parameter(&self, number: u32) -> ConnectionParameter {
        let greeting = Greeting { number, messages: self.arguments.messages, size: self.arguments.size };
        let mut parameter = ConnectionParameter::default();
        parameter.setup_private_data(&greeting.to_bytes());
        parameter
    }

    fn make_link(&mut self, index: usize) -> Result<()> {
        let Arguments { connections, messages, size, srq, .. } = *self.arguments;
        let connection = self.connections.get_mut(index).context("there is no such connection")?;
        let context = connection.id.get_device_context().context("the identifier is on no device")?;
        let pd = match &self.pd {
            Some(pd) if Arc::ptr_eq(pd.device_context(), &context) => Arc::clone(pd),
            _ => context.alloc_pd()?,
        };
        if srq && self.shared.is_none() {
            let all = connections.checked_mul(messages).context("there is no room for so many messages")?;
            self.shared = Some(Arc::new(SharedReceives::new(&pd, size, all)?));
        }
        let shape = Shape { size, messages, told: None, shared: self.shared.as_ref() };
        connection.set_link(Link::new(&connection.id, &pd, &shape)?);
        self.pd = Some(pd);
        Ok(())
    }

    /// Sends this side's messages on all connections.
    pub(crate) fn send(&mut self) -> Result<()> {
        let messages = self.arguments.messages;
        self.each(|connection| connection.send(messages))
    }

    /// Waits until all messages of this side have arrived.
    pub(crate) fn wait_until_sent(&mut self) -> Result<()> {
        self.poll_until(Connection::has_sent, "not all messages were taken")
    }

    /// Waits until all messages of the peer are here.
    pub(crate) fn wait_until_received(&mut self) -> Result<()> {
        let messages = self.arguments.messages;
        self.poll_until(|connection| connection.received() >= messages, "not all messages came")
    }

    fn poll_until(&mut self, is_done: impl Fn(&Connection) -> bool, what: &str) -> Result<()> {
        while !self.connections.iter().all(&is_done) {
            self.each(Connection::poll)?;
            // A peer that has gone sends nothing more.
            if let Some(event) = self.channel.try_get_cm_event()? {
                match event.kind() {
                    EventKind::ConnectRequest(_) | EventKind::AddressChange => {}
                    _ => bail!("connection {}: {event}, before all messages were exchanged", self.index_of(&event)?),
                }
            }
            self.deadline.left(what)?;
            thread::yield_now();
        }
        Ok(())
    }

    fn each(&mut self, mut call: impl FnMut(&mut Connection) -> Result<()>) -> Result<()> {
        for (index, connection) in self.connections.iter_mut().enumerate() {
            call(connection).with_context(|| format!("connection {index}"))?;
        }
        Ok(())
    }

    /// Moves everything to a new channel; events that nobody has taken yet go with it. The old channel is closed; where it was a
    /// listener's, with the listener.
    pub(crate) fn migrate(&mut self) -> Result<()> {
        let channel = EventChannel::new()?;
        for id in self.listener.iter().chain(self.connections.iter().map(|connection| &connection.id)) {
            id.migrate(&channel)?;
        }
        let old = std::mem::replace(&mut self.channel, channel);
        let is_closed = Arc::into_inner(old).is_some();
        ensure!(is_closed || self.listener.is_some(), "the old event channel is still in use");
        Ok(())
    }

    /// Ends all connections: the server begins.
    pub(crate) fn disconnect(&mut self) -> Result<()> {
        if self.side == Side::Server {
            self.each(|connection| Ok(connection.id.disconnect()?))?;
        }
        while self.connections.iter().any(|connection| !connection.is_over) {
            let event = self.next_event("not all connections have ended")?;
            match event.kind() {
                EventKind::Disconnected(_) => {
                    let index = self.index_of(&event)?;
                    let connection = self.connections.get_mut(index).context("there is no such connection")?;
                    connection.is_over = true;
                    // The peer waits for this answer.
                    if self.side == Side::Client {
                        connection.id.disconnect()?;
                    }
                }
                // A request that is dropped is rejected.
                EventKind::ConnectRequest(_) | EventKind::AddressChange | EventKind::TimewaitExit => {}
                _ => bail!("connection {}: {event}", self.index_of(&event)?),
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

    fn index_of(&self, event: &Event) -> Result<usize> {
        let index = event.cm_id().get_context::<Index>();
        Ok(index.with_context(|| format!("the listener: {event}"))?.0)
    }
}
