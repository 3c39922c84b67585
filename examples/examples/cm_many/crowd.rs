//! All connections, and the loop that drives them.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use sideway::ibverbs::completion::CompletionQueue;
use sideway::rdmacm::communication_manager::{Event, EventChannel, EventKind, Identifier, PortSpace};
use sideway_examples::cm::{Deadline, Role, key};

use super::arguments::Arguments;
use super::connection::Connection;
use super::lane::Lanes;
use super::poll;
use super::tally::{Side, State, Tally};

/// For resolving an address; the program as a whole has a time-out of its own.
const STEP: Duration = Duration::from_secs(10);

/// Everything.
#[derive(Debug)]
pub(crate) struct Crowd {
    /// By [`key`]: an event names its identifier, and a completion event the number that the link was given.
    connections: HashMap<usize, Connection>,
    lanes: Lanes,
    listener: Option<Arc<Identifier>>,
    channel: Arc<EventChannel>,
    role: Role,
    /// How many are to be made, or served, and how many were begun.
    wanted: u32,
    made: u32,
    served: u32,
    at_once: u32,
    size: u32,
    deadline: Deadline,
    tally: Tally,
    failures: Vec<String>,
}

impl Crowd {
    /// Listens, if that is its role.
    pub(crate) fn new(arguments: &Arguments, role: Role) -> Result<Self> {
        let channel = EventChannel::new()?;
        let listener = match role.listen {
            Some(address) => {
                let id = channel.create_id(PortSpace::Tcp)?;
                id.bind_addr(address)?;
                // As many as there is room for may wait.
                id.listen(0)?;
                Some(id)
            }
            None => None,
        };
        Ok(Self {
            connections: HashMap::new(),
            lanes: Lanes::default(),
            listener,
            channel,
            role,
            wanted: arguments.crowd.connections,
            made: 0,
            served: 0,
            at_once: arguments.at_once,
            size: arguments.crowd.size,
            deadline: arguments.crowd.deadline(),
            tally: Tally::default(),
            failures: Vec::new(),
        })
    }

    /// Where it listens.
    pub(crate) fn listens_on(&self) -> Option<SocketAddr> {
        self.listener.as_ref()?.local_address()
    }

    /// How many are where.
    pub(crate) fn tally(&self) -> Tally {
        self.tally.clone()
    }

    /// What went wrong, by connection.
    pub(crate) fn failures(&self) -> &[String] {
        &self.failures
    }

    /// Drives all connections to their end.
    pub(crate) fn run(&mut self) -> Result<()> {
        while !self.is_done() {
            self.make_more()?;
            let left = self
                .deadline
                .left("not all connections came to their end")
                .with_context(|| format!("still on their way: {}", self.tally.unfinished()))?;
            let completions = self.lanes.channels().map(|channel| channel.as_fd());
            let descriptors: Vec<_> = std::iter::once(self.channel.as_fd()).chain(completions).collect();
            poll::wait(&descriptors, left)?;
            while let Some(event) = self.channel.try_get_cm_event()? {
                self.on_event(event)?;
            }
            self.on_completions()?;
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        let is_over = |side| self.tally.ended(side) >= self.wanted;
        let has_made = self.role.connect.is_none() || is_over(Side::Connecting);
        // Of connections that could not be made here, the listener here does not hear.
        let is_hopeless = self.role.connect.is_some() && !self.failures.is_empty();
        has_made && (self.role.listen.is_none() || is_over(Side::Listening) || is_hopeless)
    }

    /// Begins connections, as many as may be under way.
    fn make_more(&mut self) -> Result<()> {
        let Some(destination) = self.role.destination(self.listener.as_deref()) else { return Ok(()) };
        while self.made < self.wanted && self.tally.under_way(Side::Connecting) < self.at_once {
            let id = self.channel.create_id(PortSpace::Tcp)?;
            id.resolve_addr(self.role.source, destination, STEP)?;
            self.enter(Connection::new(Arc::clone(&id), self.made, self.size), &id);
            self.made += 1;
        }
        Ok(())
    }

    fn enter(&mut self, connection: Connection, id: &Arc<Identifier>) {
        self.tally.moved(connection.side, None, connection.state);
        self.connections.insert(key(id), connection);
    }

    fn on_event(&mut self, event: Event) -> Result<()> {
        if event.listener_id().is_some() {
            return self.on_request(&event);
        }
        if self.listener.as_ref().is_some_and(|listener| Arc::ptr_eq(listener, event.cm_id())) {
            bail!("the listener: {event}");
        }
        self.step(key(event.cm_id()), |connection, lanes| connection.on_event(&event, lanes));
        Ok(())
    }

    fn on_request(&mut self, event: &Event) -> Result<()> {
        if !matches!(event.kind(), EventKind::ConnectRequest(_)) {
            return Ok(());
        }
        let id = event.cm_id();
        if self.served == self.wanted {
            // Whoever comes late is told, rather than left to guess.
            return Ok(id.reject(b"all connections are taken")?);
        }
        let number = self.served;
        self.served += 1;
        match Connection::accept(Arc::clone(id), number, self.size, &mut self.lanes) {
            Ok(connection) => self.enter(connection, id),
            // The request is dropped, and with it rejected.
            Err(error) => {
                self.tally.moved(Side::Listening, None, State::Failed);
                self.failures.push(format!("connection {number} of those accepted: {error:#}"));
            }
        }
        Ok(())
    }

    fn on_completions(&mut self) -> Result<()> {
        let mut told = Vec::new();
        for channel in self.lanes.channels() {
            while let Some(event) = channel.try_get_cq_event()? {
                told.push(event.cq_context());
            }
        }
        for number in told {
            self.step(number, |connection, _| connection.on_completion());
        }
        Ok(())
    }

    /// Takes a connection a step further. One that fails is counted, and the others go on.
    fn step(&mut self, number: usize, step: impl FnOnce(&mut Connection, &mut Lanes) -> Result<State>) {
        // What comes for a connection that has ended interests nobody.
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let from = connection.state;
        let to = step(connection, &mut self.lanes).unwrap_or_else(|error| {
            self.failures.push(format!("{}: {error:#}", connection.name()));
            State::Failed
        });
        if to != from {
            connection.state = to;
            self.tally.moved(connection.side, Some(from), to);
        }
        if to.is_end() {
            self.connections.remove(&number);
        }
    }
}
