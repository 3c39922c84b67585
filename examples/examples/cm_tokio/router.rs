//! Events of the connection manager, from the one channel to the tasks that wait for them.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use sideway::rdmacm::communication_manager::{Event, EventChannel, EventKind, Identifier, PortSpace};
use sideway_examples::watched::ConnectionEvents;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// An identifier, with the events that came for it. Both are its owner's alone.
#[derive(Debug)]
pub(crate) struct Socket {
    id: Arc<Identifier>,
    inbox: UnboundedReceiver<Delivery>,
}

/// What comes to a socket.
#[derive(Debug)]
enum Delivery {
    Event(Event),
    /// Of a listener: somebody wants to connect, by this socket.
    Request(Socket),
}

/// Kept with an identifier: where its events go.
struct Outlet(UnboundedSender<Delivery>);

impl Socket {
    /// A new one.
    pub(crate) fn new(channel: &Arc<EventChannel>) -> Result<Self> {
        Ok(Self::of(channel.create_id(PortSpace::Tcp)?))
    }

    /// One that listens.
    pub(crate) fn listen(channel: &Arc<EventChannel>, address: SocketAddr) -> Result<Self> {
        let socket = Self::new(channel)?;
        socket.id.bind_addr(address)?;
        socket.id.listen(0)?;
        Ok(socket)
    }

    fn of(id: Arc<Identifier>) -> Self {
        let (outlet, inbox) = unbounded_channel();
        id.setup_context(Outlet(outlet));
        Self { id, inbox }
    }

    /// The identifier.
    pub(crate) fn id(&self) -> &Arc<Identifier> {
        &self.id
    }

    /// The next event.
    pub(crate) async fn event(&mut self) -> Result<Event> {
        match self.inbox.recv().await.context("the events have ended")? {
            Delivery::Event(event) => Ok(event),
            Delivery::Request(_) => bail!("a request came to who does not listen"),
        }
    }

    /// The next request.
    pub(crate) async fn accept(&mut self) -> Result<Socket> {
        match self.inbox.recv().await.context("the events have ended")? {
            Delivery::Request(socket) => Ok(socket),
            Delivery::Event(event) => bail!("the listener: {event}"),
        }
    }
}

/// Takes events as they come, until the channel fails, and hands them on.
pub(crate) async fn route(channel: Arc<EventChannel>) -> Result<Infallible> {
    let events = ConnectionEvents::new(channel)?;
    loop {
        let event = events.next().await?;
        // A request's identifier begins with what the listener has: so this is where requests go as well.
        let Some(outlet) = event.cm_id().get_context::<Outlet>() else { continue };
        let delivery = match event.kind() {
            // From here on its events go to a socket of its own.
            EventKind::ConnectRequest(_) => Delivery::Request(Socket::of(Arc::clone(event.cm_id()))),
            _ => Delivery::Event(event),
        };
        // The socket may have gone. An event is then of no use, and a request is rejected as it is dropped.
        let _ = outlet.0.send(delivery);
    }
}
