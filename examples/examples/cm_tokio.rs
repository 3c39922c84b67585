//! Drives hundreds of connections by IP address in an async runtime. Each connection is a task that contains no code
//! for the other connections.
//!
//! One task reads the events from the channel, and sends each event to the queue of its identifier.

mod watched;

use std::convert::Infallible;
use std::future::Future;
use std::io::Write;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use sideway::ibverbs::completion::CompletionChannel;
use sideway::rdmacm::communication_manager::{
    ConnectionParameter, Event, EventChannel, EventKind, EventType, Identifier, PortSpace,
};
use sideway_examples::connections::{ConnectionOptions, Link, Role, Shape};
use sideway_examples::{Timeout, payload};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use self::watched::Watched;

const ABOUT: &str = "\
Makes many connections by IP address, each in a task of the tokio runtime, and serves them with tasks as well: an accept loop spawns a \
task per request. Each connection sends a message back and forth.

Without HOST, both sides are in this program. With --listen, the program serves --connections connections \
and exits; with HOST, it makes that number of connections.";

const EXAMPLES: &str = "\
Examples:
  cm_tokio                                 200 connections within this program, on the first device
  cm_tokio --listen -n 500                 on the first machine
  cm_tokio -n 500 server.example.org       on the second

Exit status: 0 if every message came back, 1 on failure, 2 for invalid arguments.";

/// Make and serve many connections in an async runtime
#[derive(Clone, Debug, Parser)]
#[command(name = "cm_tokio", version, long_about = ABOUT, after_help = EXAMPLES, max_term_width = 110)]
struct Arguments {
    #[command(flatten)]
    options: ConnectionOptions,
}

fn main() -> ExitCode {
    sideway_examples::program(run)
}

fn run(Arguments { options }: Arguments, out: &mut dyn Write) -> Result<()> {
    softrnic::register()?;
    let role = options.role()?;
    // One thread runs all tasks.
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the runtime")?;
    runtime.block_on(run_both(&options, role, out))
}

async fn run_both(options: &ConnectionOptions, role: Role, out: &mut dyn Write) -> Result<()> {
    let channel = EventChannel::new()?;
    let listener = role.listen.map(|address| Socket::listen(&channel, address)).transpose()?;
    if let Some(address) = listener.as_ref().and_then(|listener| listener.id.local_address()) {
        writeln!(out, "listening on {address}")?;
        out.flush()?;
    }
    let destination = role.destination(listener.as_ref().map(|listener| &*listener.id));

    let start = Instant::now();
    let mut router = tokio::spawn(route(Arc::clone(&channel)));
    let stop = Notify::new();
    let made = async {
        let made = make(options, &channel, role.source, destination).await;
        // A failed connection may not have sent its request. Stop this program's listener, which would otherwise wait
        // for that request.
        if !made.failures.is_empty() {
            stop.notify_one();
        }
        made
    };
    let both = async { tokio::join!(made, serve(options, listener, &stop)) };
    let ended = tokio::select! {
        ended = within(options.timeout, "not all connections ended", both) => ended,
        // Without events no connection can progress, so a failure of the router ends the run.
        failure = &mut router => return failure.context("cannot read events")?.map(|never| match never {}),
    };
    router.abort();
    // Ignores the result, which only reports the abort.
    let _ = router.await;
    // Every identifier, and every queue pair created through one, holds a reference to the channel.
    let is_clean = Arc::into_inner(channel).is_some();

    let (made, served) = ended?;
    for (name, count) in [("made", made.count), ("served", served.count)] {
        if count > 0 {
            writeln!(out, "{count} connections {name}")?;
        }
    }
    writeln!(out, "{:.2} seconds", start.elapsed().as_secs_f64())?;
    out.flush()?;
    let failures: Vec<_> = made.failures.into_iter().chain(served.failures).collect();
    match failures.as_slice() {
        [] if is_clean => Ok(()),
        [] => bail!("the event channel is still in use after all connections ended"),
        [first, ..] => bail!("failed connections: {}; the first: {first}", failures.len()),
    }
}

/// The results of one side.
#[derive(Debug, Default)]
struct Results {
    count: u32,
    failures: Vec<String>,
}

impl Results {
    /// Waits for all tasks.
    async fn of(mut tasks: JoinSet<Result<()>>) -> Self {
        let mut results = Self::default();
        while let Some(ended) = tasks.join_next().await {
            match ended {
                Ok(Ok(())) => results.count += 1,
                Ok(Err(error)) => results.failures.push(format!("{error:#}")),
                Err(error) => results.failures.push(error.to_string()),
            }
        }
        results
    }
}

/// Makes all connections, concurrently.
async fn make(
    options: &ConnectionOptions,
    channel: &Arc<EventChannel>,
    source: Option<SocketAddr>,
    destination: Option<SocketAddr>,
) -> Results {
    let mut tasks = JoinSet::new();
    let numbers = 0..options.connections;
    for (number, destination) in numbers.filter_map(|number| Some((number, destination?))) {
        let timeout = options.timeout;
        let connected = Connection::connect(Arc::clone(channel), source, destination, options.size);
        tasks.spawn(async move {
            let connection = within(timeout, "not connected", connected).await.and_then(|connected| connected);
            let connection = connection.with_context(|| format!("connection {number} to {destination}"))?;
            connection.ask(number).await.with_context(|| format!("connection {number}"))
        });
    }
    Results::of(tasks).await
}

/// The accept loop: a task for each request, until all are served or the loop is stopped.
async fn serve(options: &ConnectionOptions, listener: Option<Socket>, stop: &Notify) -> Results {
    let mut tasks = JoinSet::new();
    let mut failure = None;
    if let Some(mut listener) = listener {
        for number in 0..options.connections {
            let request = tokio::select! {
                request = listener.accept() => request,
                () = stop.notified() => break,
            };
            let socket = match request {
                Ok(socket) => socket,
                Err(error) => {
                    failure = Some(format!("{error:#}"));
                    break;
                }
            };
            let size = options.size;
            tasks.spawn(async move {
                let answered = async { Connection::accept(socket, size).await?.answer().await };
                answered.await.with_context(|| format!("connection {number} of those served"))
            });
        }
        // The listener is dropped here, so later requests are rejected at once.
    }
    let mut results = Results::of(tasks).await;
    results.failures.extend(failure);
    results
}

/// Returns the output of `future`, or an error if it is not ready in time.
async fn within<T>(timeout: Timeout, what: &str, future: impl Future<Output = T>) -> Result<T> {
    let Some(time) = timeout.0 else { return Ok(future.await) };
    match tokio::time::timeout(time, future).await {
        Ok(result) => Ok(result),
        Err(_elapsed) => bail!("{what} within {} s; raise --timeout", time.as_secs_f64()),
    }
}

/// An identifier with a queue of its events.
#[derive(Debug)]
struct Socket {
    id: Arc<Identifier>,
    inbox: UnboundedReceiver<Delivery>,
}

/// An entry of a socket's queue.
#[derive(Debug)]
enum Delivery {
    Event(Event),
    /// For a listener: a connection request, with its own socket.
    Request(Socket),
}

/// The sender of an identifier's queue, kept with the identifier.
struct Outlet(UnboundedSender<Delivery>);

impl Socket {
    fn new(id: Arc<Identifier>) -> Self {
        let (outlet, inbox) = unbounded_channel();
        id.setup_context(Outlet(outlet));
        Self { id, inbox }
    }

    fn listen(channel: &Arc<EventChannel>, address: SocketAddr) -> Result<Self> {
        let socket = Self::new(channel.create_id(PortSpace::Tcp)?);
        socket.id.bind_addr(address)?;
        socket.id.listen(0)?;
        Ok(socket)
    }

    /// The next event.
    async fn event(&mut self) -> Result<Event> {
        match self.inbox.recv().await.context("the event channel is closed")? {
            Delivery::Event(event) => Ok(event),
            Delivery::Request(_) => bail!("a connection request for an identifier that does not listen"),
        }
    }

    /// The next request.
    async fn accept(&mut self) -> Result<Socket> {
        match self.inbox.recv().await.context("the event channel is closed")? {
            Delivery::Request(socket) => Ok(socket),
            Delivery::Event(event) => bail!("the listener: {event}"),
        }
    }

    /// Waits for the next event, which must have this type.
    async fn expect(&mut self, event_type: EventType) -> Result<()> {
        loop {
            let event = self.event().await?;
            match event.kind() {
                EventKind::AddressChange | EventKind::TimewaitExit => {}
                _ if event.event_type() == event_type => return Ok(()),
                _ => bail!("{event} (expected {event_type})"),
            }
        }
    }
}

/// Reads events and sends each to its queue, until the channel fails.
async fn route(channel: Arc<EventChannel>) -> Result<Infallible> {
    let events = Watched::new(channel)?;
    loop {
        let event = events.next().await?;
        // A new identifier inherits the context of the listener, so its request goes to the listener's queue.
        let Some(outlet) = event.cm_id().get_context::<Outlet>() else { continue };
        let delivery = match event.kind() {
            // From now on, events of the new identifier go to its own socket.
            EventKind::ConnectRequest(_) => Delivery::Request(Socket::new(Arc::clone(event.cm_id()))),
            _ => Delivery::Event(event),
        };
        // If the receiving socket was dropped, this drops the delivery. A dropped event is ignored; a dropped request
        // is rejected.
        let _ = outlet.0.send(delivery);
    }
}

/// The limit of one step of the kernel's connection manager; the whole run has its own limit.
const STEP: Duration = Duration::from_secs(10);

/// An established connection.
struct Connection {
    link: Link,
    events: Watched<Arc<CompletionChannel>>,
    socket: Socket,
    size: u32,
}

impl Connection {
    /// Connects. Dropping the future releases everything, so a time-out around it is sufficient.
    async fn connect(
        channel: Arc<EventChannel>,
        source: Option<SocketAddr>,
        destination: SocketAddr,
        size: u32,
    ) -> Result<Self> {
        let mut socket = Socket::new(channel.create_id(PortSpace::Tcp)?);
        socket.id.resolve_addr(source, destination, STEP)?;
        socket.expect(EventType::AddressResolved).await?;
        socket.id.resolve_route(STEP)?;
        socket.expect(EventType::RouteResolved).await?;
        let mut connection = Self::new(socket, size)?;
        connection.socket.id.connect(&ConnectionParameter::default())?;
        connection.socket.expect(EventType::Established).await?;
        Ok(connection)
    }

    /// Accepts a request.
    async fn accept(socket: Socket, size: u32) -> Result<Self> {
        let mut connection = Self::new(socket, size)?;
        connection.socket.id.accept(&ConnectionParameter::default())?;
        connection.socket.expect(EventType::Established).await?;
        Ok(connection)
    }

    fn new(socket: Socket, size: u32) -> Result<Self> {
        let context = socket
            .id
            .get_device_context()
            .context("the identifier has no RDMA device; resolve an address that leads to one")?;
        // Each connection has its own descriptor, which wakes only the task of the connection.
        let channel = context.create_comp_channel()?;
        let shape = Shape { size, messages: 1, events: Some((&channel, 0)), shared: None };
        let link = Link::new(&socket.id, &context.alloc_pd()?, &shape)?;
        Ok(Self { link, events: Watched::new(channel)?, socket, size })
    }

    /// Sends a message, checks that the same message comes back, and disconnects.
    async fn ask(mut self, number: u32) -> Result<()> {
        let message = payload::of(self.size, number.into());
        self.link.send(&message)?;
        ensure!(self.receive().await? == message, "the message that came back differs");
        self.socket.id.disconnect()?;
        self.socket.expect(EventType::Disconnected).await
    }

    /// Echoes a message, and waits until the peer disconnects.
    async fn answer(mut self) -> Result<()> {
        let message = self.receive().await?;
        self.link.send(&message)?;
        self.socket.expect(EventType::Disconnected).await?;
        Ok(self.socket.id.disconnect()?)
    }

    /// Sleeps until a message arrives, or the peer disconnects.
    async fn receive(&mut self) -> Result<Vec<u8>> {
        loop {
            // A completion after the following request raises an event, even if it arrives before the poll.
            self.link.req_notify()?;
            if let Some(message) = self.link.poll()?.into_iter().next() {
                return Ok(message);
            }
            tokio::select! {
                event = self.events.next() => drop(event?),
                event = self.socket.event() => bail!("{} before the message arrived; see the peer's error message", event?),
            }
        }
    }
}
