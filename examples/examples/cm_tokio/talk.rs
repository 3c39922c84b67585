//! What the two ends of a connection do.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use sideway::rdmacm::communication_manager::{ConnectionParameter, EventChannel, EventKind, EventType};
use sideway_examples::cm::{Link, Shape};
use sideway_examples::noise;
use sideway_examples::watched::CompletionEvents;

use super::router::Socket;

/// For a step of the kernel's; what is made of them has a time-out of its own.
const STEP: Duration = Duration::from_secs(10);

/// A connection.
pub(crate) struct Connection {
    link: Link,
    events: CompletionEvents,
    socket: Socket,
    size: u32,
}

/// Makes a connection. Dropped before it is there, it leaves nothing behind: so a time-out around it is all that it takes.
pub(crate) async fn connect(
    channel: Arc<EventChannel>,
    source: Option<SocketAddr>,
    destination: SocketAddr,
    size: u32,
) -> Result<Connection> {
    let mut socket = Socket::new(&channel)?;
    socket.id().resolve_addr(source, destination, STEP)?;
    expect(&mut socket, EventType::AddressResolved).await?;
    socket.id().resolve_route(STEP)?;
    expect(&mut socket, EventType::RouteResolved).await?;
    let mut connection = Connection::new(socket, size)?;
    connection.socket.id().connect(&ConnectionParameter::default())?;
    expect(&mut connection.socket, EventType::Established).await?;
    Ok(connection)
}

/// Says yes to a request.
pub(crate) async fn accept(socket: Socket, size: u32) -> Result<Connection> {
    let mut connection = Connection::new(socket, size)?;
    connection.socket.id().accept(&ConnectionParameter::default())?;
    expect(&mut connection.socket, EventType::Established).await?;
    Ok(connection)
}

/// The next event is of this type.
async fn expect(socket: &mut Socket, event_type: EventType) -> Result<()> {
    loop {
        let event = socket.event().await?;
        match event.kind() {
            EventKind::AddressChange | EventKind::TimewaitExit => {}
            _ if event.event_type() == event_type => return Ok(()),
            _ => bail!("{event} (waiting for: {event_type})"),
        }
    }
}

impl Connection {
    fn new(socket: Socket, size: u32) -> Result<Self> {
        let context = socket.id().get_device_context().context("the identifier is on no device")?;
        // A descriptor for each, which wakes its task alone.
        let channel = context.create_comp_channel()?;
        let shape = Shape { size, messages: 1, told: Some((&channel, 0)), shared: None };
        let link = Link::new(socket.id(), &context.alloc_pd()?, &shape)?;
        Ok(Self { link, events: CompletionEvents::new(channel)?, socket, size })
    }

    /// Sends a message of its own, and sees to it that it comes back. Hangs up.
    pub(crate) async fn ask(mut self, number: u32) -> Result<()> {
        let mut message = vec![0; self.size as usize];
        noise::fill(&mut message, number.into());
        self.link.send(&message)?;
        ensure!(self.receive().await? == message, "another message came back than was sent");
        self.socket.id().disconnect()?;
        expect(&mut self.socket, EventType::Disconnected).await
    }

    /// Sends back what comes, and waits until the peer hangs up.
    pub(crate) async fn answer(mut self) -> Result<()> {
        let message = self.receive().await?;
        self.link.send(&message)?;
        expect(&mut self.socket, EventType::Disconnected).await?;
        Ok(self.socket.id().disconnect()?)
    }

    /// Sleeps until a message is there, or the peer has gone.
    async fn receive(&mut self) -> Result<Vec<u8>> {
        loop {
            // First the request, then the look: what completes in between raises an event.
            self.link.req_notify()?;
            if let Some(&place) = self.link.poll()?.received.first() {
                return self.link.message(place);
            }
            tokio::select! {
                event = self.events.next() => drop(event?),
                event = self.socket.event() => bail!("{}, before the message came", event?),
            }
        }
    }
}
