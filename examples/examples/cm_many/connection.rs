//! One connection: what comes takes it a step further.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use sideway::rdmacm::communication_manager::{ConnectionParameter, Event, EventKind, Identifier};
use sideway_examples::cm::Link;
use sideway_examples::noise;

use super::lane::Lanes;
use super::tally::{Side, State};

/// For a step of the kernel's; the program as a whole has a time-out of its own.
const STEP: Duration = Duration::from_secs(10);

/// An end of a connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) side: Side,
    pub(crate) state: State,
    /// Which one it is: what is sent depends on it.
    number: u32,
    size: u32,
    /// Whether the message of the peer was sent back.
    has_answered: bool,
    link: Option<Link>,
    id: Arc<Identifier>,
}

impl Connection {
    /// One that is to be made, and whose address is being resolved.
    pub(crate) fn new(id: Arc<Identifier>, number: u32, size: u32) -> Self {
        Self {
            side: Side::Connecting,
            state: State::ResolvingAddress,
            number,
            size,
            has_answered: false,
            link: None,
            id,
        }
    }

    /// One that was asked for, and is accepted here.
    pub(crate) fn accept(id: Arc<Identifier>, number: u32, size: u32, lanes: &mut Lanes) -> Result<Self> {
        let link = lanes.link(&id, size)?;
        id.accept(&ConnectionParameter::default())?;
        Ok(Self {
            side: Side::Listening,
            state: State::Accepting,
            number,
            size,
            has_answered: false,
            link: Some(link),
            id,
        })
    }

    /// The state after an event of the identifier.
    pub(crate) fn on_event(&mut self, event: &Event, lanes: &mut Lanes) -> Result<State> {
        Ok(match (self.state, event.kind()) {
            (State::ResolvingAddress, EventKind::AddressResolved) => {
                self.id.resolve_route(STEP)?;
                State::ResolvingRoute
            }
            (State::ResolvingRoute, EventKind::RouteResolved) => {
                // Its receive is posted before the peer can know of it.
                self.link = Some(lanes.link(&self.id, self.size)?);
                self.id.connect(&ConnectionParameter::default())?;
                State::Asking
            }
            (State::Asking, EventKind::Established(_)) => {
                let message = self.message();
                self.link()?.send(&message)?;
                State::Exchanging
            }
            // What the peer sends may be quicker than its word that it is ready.
            (State::Accepting | State::Exchanging, EventKind::Established(_)) => State::Exchanging,
            (State::Exchanging, EventKind::Disconnected(_)) if self.side == Side::Listening => {
                ensure!(self.has_answered, "the peer hung up before its message came");
                // The peer has its message, and waits for this answer.
                self.id.disconnect()?;
                State::Done
            }
            (State::HangingUp, EventKind::Disconnected(_)) => State::Done,
            // The hardware address changes for later connections; the queue pair is not used again.
            (state, EventKind::AddressChange | EventKind::TimewaitExit) => state,
            _ => bail!("{event}"),
        })
    }

    /// The state after a completion event, or where one may have been missed.
    pub(crate) fn on_completion(&mut self) -> Result<State> {
        // Whose connection has ended does not look at what is flushed.
        if self.state == State::HangingUp {
            return Ok(self.state);
        }
        let link = self.link()?;
        link.req_notify()?;
        let completed = link.poll()?;
        let Some(&place) = completed.received.first() else { return Ok(self.state) };
        let message = link.message(place)?;
        match self.side {
            Side::Listening => {
                self.link()?.send(&message)?;
                self.has_answered = true;
                Ok(State::Exchanging)
            }
            Side::Connecting if message != self.message() => bail!("another message came back than was sent"),
            Side::Connecting => {
                self.id.disconnect()?;
                Ok(State::HangingUp)
            }
        }
    }

    /// Which one it is, for the user.
    pub(crate) fn name(&self) -> String {
        let side = match self.side {
            Side::Connecting => "",
            Side::Listening => " of those accepted",
        };
        format!("connection {}{side}, {}", self.number, self.state.name())
    }

    fn message(&self) -> Vec<u8> {
        let mut message = vec![0; self.size as usize];
        noise::fill(&mut message, self.number.into());
        message
    }

    fn link(&mut self) -> Result<&mut Link> {
        self.link.as_mut().context("there is no queue pair yet")
    }
}
