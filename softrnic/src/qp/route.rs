//! The routes of QPs to their peers, and the connections of QPs that have one of their own.

use std::ptr;
use std::sync::{Arc, Mutex};

use rdma_mummy_sys::ibv_access_flags;

use crate::qp::send::outcome::status_of;
use crate::qp::{Attributes, PairEvent, QpRegistry, QueuePair, Reach, State};
use crate::sys::errno::Errno;
use crate::sys::unpoisoned;
use crate::wire::address::Path;
use crate::wire::message::Refusal;
use crate::wire::packet::STREAM_PEER;
use crate::wire::transport::{Carrier, Dedicated};

/// How the messages of a QP reach its peer.
#[derive(Debug)]
pub(super) enum Route {
    /// The registry finds the peer, or the carrier to its process, by the number of the peer.
    Registry,
    /// The QP has a connection, which is set when the QP is connected. A thread takes this lock after the locks of the QP.
    Connection(Mutex<Option<Arc<dyn Dedicated>>>),
    /// This carrier reaches all peers.
    Carrier(Arc<dyn Carrier>),
}

impl Route {
    pub(super) fn of(reach: &Reach) -> Self {
        match reach {
            Reach::Registry => Self::Registry,
            Reach::Connection => Self::Connection(Mutex::default()),
            Reach::Carrier(carrier) => Self::Carrier(Arc::clone(carrier)),
        }
    }

    /// Whether the registry finds the peers.
    pub(super) fn is_registry(&self) -> bool {
        matches!(self, Self::Registry)
    }

    /// Whether the QP has a connection of its own, on which the length of a message may be known only with its last part.
    pub(super) fn is_connection(&self) -> bool {
        matches!(self, Self::Connection(_))
    }

    #[cold]
    fn connection(&self) -> Option<Arc<dyn Dedicated>> {
        match self {
            Self::Registry | Self::Carrier(_) => None,
            Self::Connection(connection) => unpoisoned(connection.lock()).clone(),
        }
    }

    /// Returns the carrier that reaches all peers, if there is one.
    pub(super) fn shared(&self) -> Option<&Arc<dyn Carrier>> {
        if let Self::Carrier(carrier) = self { Some(carrier) } else { None }
    }

    /// Returns the carrier to the QP `number`, which is not in this process.
    #[cold]
    pub(super) fn carrier(&self, number: u32) -> Option<Arc<dyn Carrier>> {
        match self {
            Self::Registry => QpRegistry::of_process().carrier(number),
            Self::Connection(_) => self.connection().map(|connection| connection as _),
            Self::Carrier(carrier) => Some(Arc::clone(carrier)),
        }
    }

    /// Returns the QP `number` if it is in this process.
    pub(super) fn local(&self, number: u32) -> Option<Arc<QueuePair>> {
        match self {
            Self::Registry => QpRegistry::of_process().find(number),
            Self::Connection(_) | Self::Carrier(_) => None,
        }
    }

    #[cold]
    pub(super) fn end(&self) {
        if let Some(connection) = self.connection() {
            connection.end();
        }
    }

    /// Ends the connection, which the QP does not use any more.
    #[cold]
    pub(super) fn leave(&self) {
        if let Some(connection) = self.connection() {
            connection.leave();
        }
    }

    /// See [`Dedicated::set_depths`].
    pub(super) fn set_depths(&self, own: u8, peer: u8) {
        if let Some(connection) = self.connection() {
            connection.set_depths(own, peer);
        }
    }
}

impl QueuePair {
    /// Gives a QP in INIT its connection, and moves it to RTS. `initiated` and `accepted` limit the number of
    /// reads.
    pub(crate) fn connect(
        &self,
        connection: Arc<dyn Dedicated>,
        path: Path,
        (initiated, accepted): (u8, u8),
    ) -> Result<(), Errno> {
        use ibv_access_flags as flags;
        let access =
            flags::IBV_ACCESS_REMOTE_WRITE.0 | flags::IBV_ACCESS_REMOTE_READ.0 | flags::IBV_ACCESS_REMOTE_ATOMIC.0;
        let attributes = Attributes {
            path: Some(path),
            destination_number: STREAM_PEER,
            access: self.attributes().access | access,
            max_rd_atomic: initiated,
            max_dest_rd_atomic: accepted,
            // There is no local ACK timeout, because TCP has its own time-outs.
            timeout: 0,
            ..Attributes::new()
        };
        self.change(State::Init, State::ReadyToReceive, attributes)?;
        self.set_connection(connection)?;
        self.change(State::ReadyToReceive, State::ReadyToSend, attributes)
    }

    /// Gives a QP its connection, in place of an earlier one.
    pub(crate) fn set_connection(&self, connection: Arc<dyn Dedicated>) -> Result<(), Errno> {
        let Route::Connection(own) = &self.route else { return Err(Errno::INVALID) };
        *unpoisoned(own.lock()) = Some(connection);
        Ok(())
    }

    /// Handles the end of the connection. Fails the oldest request if the peer has refused it, and flushes the other
    /// requests.
    pub(crate) fn connection_ended(&self, carrier: &Arc<dyn Carrier>, refusal: Option<Refusal>) {
        let mut requester = unpoisoned(self.requester.lock());
        let is_ours = self.route.connection().is_some_and(|own| ptr::addr_eq(Arc::as_ptr(&own), Arc::as_ptr(carrier)));
        if is_ours && !self.is_closed() && !matches!(self.state(), State::Reset | State::Error) {
            requester.settle(self);
            match refusal.filter(|_| requester.flight.awaits_response()) {
                Some(refusal) => requester.fail(self, status_of(refusal)),
                None => {
                    if refusal.is_some() {
                        self.parts.events.happened(PairEvent::Fatal);
                    }
                    self.fail();
                    requester.flush(self);
                    unpoisoned(self.responder.lock()).end(self);
                }
            }
        }
        self.unlock(requester);
    }

    /// Delivers all packets that have arrived from other processes, and those that have arrived on the connection.
    pub(super) fn settle(&self) {
        QpRegistry::of_process().settle();
        if let Some(connection) = self.route.connection() {
            connection.settle();
        }
    }
}
