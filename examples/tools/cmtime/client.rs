//! The client: completes each step for all connections before the next step starts.

use std::fmt;
use std::io::Write;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use sideway::error::VerbError;
use sideway::ibverbs::queue_pair::BasicQueuePair;
use sideway::rdmacm::communication_manager::{
    ConnectionParameter, Event, EventChannel, EventKind, EventType, Identifier, PortSpace,
};

use super::{Arguments, Domain, device};

pub(crate) fn run(arguments: &Arguments, server: &str, out: &mut dyn Write) -> Result<()> {
    Client::new(arguments, resolve(server, arguments)?)?.run(out)
}

/// The address of the server, in the family of the local address.
fn resolve(server: &str, arguments: &Arguments) -> Result<SocketAddr> {
    let addresses = (server, arguments.port).to_socket_addrs().with_context(|| format!("cannot resolve {server}"))?;
    let mut addresses =
        addresses.filter(|address| arguments.bind.is_none_or(|bind| bind.is_ipv4() == address.is_ipv4()));
    addresses.next().with_context(|| match arguments.bind {
        Some(bind) => format!("{server} has no address of the same family as {bind}; give another address to bind"),
        None => format!("{server} has no address; check the name"),
    })
}

/// A step, which completes for all connections before the next starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    CreateId,
    Bind,
    ResolveAddress,
    ResolveRoute,
    CreateQueuePair,
    Connect,
    Disconnect,
    Destroy,
}

impl Step {
    /// Returns the step's name in the table, the line that announces the step, and the event that completes it. Steps
    /// without an event end with their call.
    fn texts(self) -> (&'static str, &'static str, Option<EventType>) {
        match self {
            Self::CreateId => ("create id", "creating id", None),
            Self::Bind => ("bind addr", "binding source address", None),
            Self::ResolveAddress => ("resolve addr", "resolving address", Some(EventType::AddressResolved)),
            Self::ResolveRoute => ("resolve route", "resolving route", Some(EventType::RouteResolved)),
            Self::CreateQueuePair => ("create qp", "creating qp", None),
            Self::Connect => ("connect", "connecting", Some(EventType::Established)),
            Self::Disconnect => ("disconnect", "disconnecting", Some(EventType::Disconnected)),
            Self::Destroy => ("destroy", "destroying id", None),
        }
    }

    fn event(self) -> Option<EventType> {
        self.texts().2
    }
}

/// The state of the client.
struct Client {
    threads: Vec<ClientThread>,
    has_source: bool,
    rows: Vec<Row>,
}

impl Client {
    fn new(arguments: &Arguments, destination: SocketAddr) -> Result<Self> {
        let count = arguments.connections.unwrap_or(100) as usize;
        let threads = usize::from(arguments.threads).min(count);
        let threads = (0..threads).map(|thread| {
            // If the connections do not divide evenly, the first threads get one more each.
            let share = count / threads + usize::from(thread < count % threads);
            let mut parameter = ConnectionParameter::new();
            parameter.setup_responder_resources(1).setup_initiator_depth(1).setup_retry_count(arguments.retries.min(7));
            Ok(ClientThread {
                channel: EventChannel::new()?,
                source: arguments.bind.map(|address| SocketAddr::new(address, 0)),
                destination,
                timeout: Duration::from_millis(arguments.timeout.into()),
                parameter,
                domain: None,
                connections: (0..share).map(|_| Connection::default()).collect(),
                retries: arguments.retries,
                patience: arguments.patience.0,
                waiting: 0,
                failures: Failures::default(),
            })
        });
        let threads = threads.collect::<Result<_>>()?;
        Ok(Self { threads, has_source: arguments.bind.is_some(), rows: Vec::new() })
    }

    fn run(mut self, out: &mut dyn Write) -> Result<()> {
        for step in [Step::CreateId, Step::Bind, Step::ResolveAddress, Step::ResolveRoute] {
            if step != Step::Bind || self.has_source {
                self.take(step, out)?;
            }
        }
        // The domains of the queue pairs are created before their step is timed.
        let mut connections = self.threads.iter().flat_map(|thread| &thread.connections);
        let on_device = connections.find_map(|connection| connection.id.as_ref().filter(|_| !connection.has_failed));
        if let Some(id) = on_device {
            let domain = Arc::new(Domain::new(device(id)?)?);
            self.threads.iter_mut().for_each(|thread| thread.domain = Some(Arc::clone(&domain)));
        }
        for step in [Step::CreateQueuePair, Step::Connect, Step::Disconnect, Step::Destroy] {
            self.take(step, out)?;
        }
        writeln!(out, "step              total ms     max ms     min us  us / conn")?;
        self.rows.iter().try_for_each(|row| writeln!(out, "{row}"))?;

        let count: usize = self.threads.iter().map(|thread| thread.connections.len()).sum();
        let mut failures = Failures::default();
        for Failure { step, why, count } in self.threads.into_iter().flat_map(|thread| thread.failures.0) {
            failures.add(step, why, count);
        }
        match failures.0.iter().map(|failure| failure.count).sum() {
            0_usize => Ok(()),
            failed => bail!("{failed} of {count} connections failed: {failures}"),
        }
    }

    /// Runs a step for all connections that have not failed.
    fn take(&mut self, step: Step, out: &mut dyn Write) -> Result<()> {
        writeln!(out, "{}", step.texts().1)?;
        out.flush()?;
        let connections = self.threads.iter_mut().flat_map(|thread| &mut thread.connections);
        connections.for_each(|connection| (connection.began, connection.ended, connection.retries) = (None, None, 0));
        let began = Instant::now();
        match self.threads.as_mut_slice() {
            // These steps are too short to run in threads.
            threads if matches!(step, Step::CreateId | Step::Bind | Step::Destroy) => {
                threads.iter_mut().try_for_each(|thread| thread.take(step))?;
            }
            [thread] => thread.take(step)?,
            threads => thread::scope(|scope| {
                let all: Vec<_> = threads.iter_mut().map(|thread| scope.spawn(move || thread.take(step))).collect();
                all.into_iter().try_for_each(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?)
            })?,
        }
        let mut row = Row { step, total: began.elapsed(), max: Duration::ZERO, min: Duration::MAX, count: 0 };
        for connection in self.threads.iter().flat_map(|thread| &thread.connections) {
            if let (Some(began), Some(ended)) = (connection.began, connection.ended) {
                let time = ended.saturating_duration_since(began);
                (row.max, row.min, row.count) = (row.max.max(time), row.min.min(time), row.count + 1);
            }
        }
        self.rows.push(row);
        Ok(())
    }
}

/// One connection of the client.
#[derive(Debug, Default)]
struct Connection {
    id: Option<Arc<Identifier>>,
    qp: Option<BasicQueuePair>,
    /// Time at which the call of the current step began.
    began: Option<Instant>,
    /// Time of the step's event, or of the end of its call if there is no event.
    ended: Option<Instant>,
    /// Retries in this step.
    retries: u8,
    /// Whether the connection has failed, and takes no further step.
    has_failed: bool,
}

/// A thread of the client, which makes the calls for its connections and reads their events from its own channel.
#[derive(Debug)]
struct ClientThread {
    channel: Arc<EventChannel>,
    source: Option<SocketAddr>,
    destination: SocketAddr,
    timeout: Duration,
    parameter: ConnectionParameter,
    /// `None` until the step that creates queue pairs.
    domain: Option<Arc<Domain>>,
    connections: Vec<Connection>,
    /// The limit of retries in a step.
    retries: u8,
    patience: Option<Duration>,
    /// Number of connections that wait for an event.
    waiting: usize,
    failures: Failures,
}

impl ClientThread {
    fn take(&mut self, step: Step) -> Result<()> {
        /// Calls between two reads of events.
        const BATCH: usize = 8;
        for index in 0..self.connections.len() {
            self.begin(index, step);
            if index % BATCH == BATCH - 1 && self.waiting > 0 {
                while let Some(event) = self.channel.try_get_cm_event()? {
                    self.handle(step, &event);
                }
            }
        }
        while self.waiting > 0 {
            match self.channel.get_cm_event(self.patience) {
                Ok(event) => self.handle(step, &event),
                Err(error) if error.errno().raw() == libc::ETIMEDOUT => self.give_up(step),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn begin(&mut self, index: usize, step: Step) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        if connection.has_failed && step != Step::Destroy {
            return;
        }
        connection.began = Some(Instant::now());
        let called = self.call(index, step);
        let now = Instant::now();
        match (called, step.event()) {
            (Err(error), _) => self.fail(index, step, &error),
            (Ok(()), Some(_)) => self.waiting += 1,
            (Ok(()), None) => self.connections.get_mut(index).into_iter().for_each(|it| it.ended = Some(now)),
        }
    }

    /// Makes the call of a step.
    fn call(&mut self, index: usize, step: Step) -> Result<(), VerbError> {
        let Some(connection) = self.connections.get_mut(index) else { return Ok(()) };
        if step == Step::CreateId {
            let id = self.channel.create_id(PortSpace::Tcp)?;
            // The context identifies the connection of an event.
            id.setup_context(index);
            connection.id = Some(id);
            return Ok(());
        }
        let Some(id) = &connection.id else { return Ok(()) };
        match (step, self.source, &self.domain) {
            (Step::Bind, Some(source), _) => id.bind_addr(source),
            // The source is already bound.
            (Step::ResolveAddress, ..) => id.resolve_addr(None, self.destination, self.timeout),
            (Step::ResolveRoute, ..) => id.resolve_route(self.timeout),
            (Step::CreateQueuePair, _, Some(domain)) => {
                connection.qp = Some(id.create_qp(&domain.builder)?);
                Ok(())
            }
            (Step::Connect, ..) => id.connect(&self.parameter),
            (Step::Disconnect, ..) => {
                let ended = id.disconnect();
                connection.qp = None;
                ended
            }
            (Step::Destroy, ..) => {
                // The queue pair still exists if an earlier step has failed.
                (connection.qp, connection.id) = (None, None);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn handle(&mut self, step: Step, event: &Event) {
        let Some(index) = event.cm_id().get_context::<usize>().map(|index| *index) else { return };
        let Some(connection) = self.connections.get_mut(index).filter(|connection| !connection.has_failed) else {
            return;
        };
        let is_due = connection.ended.is_none();
        if step.event() == Some(event.event_type()) && is_due {
            connection.ended = Some(Instant::now());
            self.waiting -= 1;
        } else if is_last(event) && !self.retry(index, event) {
            self.waiting -= usize::from(is_due);
            self.fail(index, step, event);
        }
    }

    /// Repeats a resolution that may have been lost; returns whether it did.
    fn retry(&mut self, index: usize, event: &Event) -> bool {
        let step = match event.event_type() {
            EventType::AddressError => Step::ResolveAddress,
            EventType::RouteError => Step::ResolveRoute,
            _ => return false,
        };
        let Some(connection) = self.connections.get_mut(index) else { return false };
        connection.retries = connection.retries.saturating_add(1);
        connection.retries <= self.retries && self.call(index, step).is_ok()
    }

    fn fail(&mut self, index: usize, step: Step, why: impl fmt::Display) {
        if let Some(connection) = self.connections.get_mut(index) {
            connection.has_failed = true;
        }
        self.failures.add(step, why.to_string(), 1);
    }

    /// Fails all connections whose event has not arrived in time.
    fn give_up(&mut self, step: Step) {
        let patience = self.patience.unwrap_or(Duration::MAX).as_secs_f64();
        for index in 0..self.connections.len() {
            if self.connections.get(index).is_some_and(|it| !it.has_failed && it.ended.is_none()) {
                self.fail(index, step, format_args!("no event for {patience} s"));
            }
        }
        self.waiting = 0;
    }
}

/// Whether no event that completes a step can follow on this connection.
fn is_last(event: &Event) -> bool {
    matches!(
        event.kind(),
        EventKind::AddressError(_)
            | EventKind::RouteError(_)
            | EventKind::ConnectError(_)
            | EventKind::Unreachable(_)
            | EventKind::Rejected(_)
            | EventKind::Disconnected(_)
            | EventKind::DeviceRemoval
    )
}

/// Failed connections, counted by cause.
#[derive(Debug, Default)]
struct Failures(Vec<Failure>);

#[derive(Debug)]
struct Failure {
    step: Step,
    why: String,
    count: usize,
}

impl Failures {
    fn add(&mut self, step: Step, why: String, count: usize) {
        match self.0.iter_mut().find(|failure| failure.step == step && failure.why == why) {
            Some(failure) => failure.count += count,
            None => self.0.push(Failure { step, why, count }),
        }
    }
}

/// The causes by frequency: `connect: rejected: ... (2); resolve addr: ...`.
impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 4;
        let mut failures: Vec<&Failure> = self.0.iter().collect();
        failures.sort_by_key(|failure| std::cmp::Reverse(failure.count));
        let hidden = failures.len().saturating_sub(SHOWN);
        let line = |failure: &Failure| format!("{}: {} ({})", failure.step.texts().0, failure.why, failure.count);
        let lines: Vec<_> = failures.into_iter().take(SHOWN).map(line).collect();
        write!(f, "{}", lines.join("; "))?;
        if hidden > 0 { write!(f, "; and {hidden} other causes") } else { Ok(()) }
    }
}

/// A row of the table.
#[derive(Debug)]
struct Row {
    step: Step,
    total: Duration,
    max: Duration,
    min: Duration,
    count: u32,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let min = if self.count == 0 { Duration::ZERO } else { self.min };
        let [total, max, min] = [self.total, self.max, min].map(|time| time.as_secs_f64() * 1e6);
        let each = total / f64::from(self.count.max(1));
        let name = self.step.texts().0;
        write!(f, "{name:<13}: {:11.2}{:11.2}{min:11.2}{each:11.2}", total / 1e3, max / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_counted_by_cause_and_sorted_by_frequency() {
        let mut failures = Failures::default();
        for (step, why, count) in
            [(Step::Connect, "no", 1), (Step::ResolveAddress, "no way", 3), (Step::Connect, "no", 1)]
        {
            failures.add(step, why.to_owned(), count);
        }
        assert_eq!(failures.to_string(), "resolve addr: no way (3); connect: no (2)");
        for why in ["a", "b", "c"] {
            failures.add(Step::Bind, why.to_owned(), 1);
        }
        assert!(failures.to_string().ends_with("bind addr: b (1); and 1 other causes"), "{failures}");
    }

    #[test]
    fn a_row_has_the_format_of_the_c_program() {
        let [total, max, min] = [3000, 1750, 250].map(Duration::from_micros);
        let row = |step, min, count| Row { step, total, max, min, count }.to_string();
        assert_eq!(row(Step::CreateQueuePair, min, 2), "create qp    :        3.00       1.75     250.00    1500.00");
        assert_eq!(row(Step::Connect, Duration::MAX, 0), "connect      :        3.00       1.75       0.00    3000.00");
    }
}
