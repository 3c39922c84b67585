//! The routes of QPs to their peers, and the connections of QPs that have one of their own.

use std::ptr;
use std::sync::{Arc, Mutex};

use rdma_mummy_sys::ibv_access_flags;

use crate::qp::send::outcome::status_of;
use crate::qp::{Attributes, PairEvent, QpRegistry, QueuePair, Service, State};
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
}

impl Route {
    pub(super) fn of(service: Service) -> Self {
        if service == Service::Iwarp { Self::Connection(Mutex::default()) } else { Self::Registry }
    }

    #[cold]
    fn connection(&self) -> Option<Arc<dyn Dedicated>> {
        match self {
            Self::Registry => None,
            Self::Connection(connection) => unpoisoned(connection.lock()).clone(),
        }
    }

    /// Returns the carrier to the QP `number`, which is not in this process.
    #[cold]
    pub(super) fn carrier(&self, number: u32) -> Option<Arc<dyn Carrier>> {
        match self {
            Self::Registry => QpRegistry::of_process().carrier(number),
            Self::Connection(_) => self.connection().map(|connection| connection as _),
        }
    }

    /// Returns the QP `number` if it is in this process.
    pub(super) fn local(&self, number: u32) -> Option<Arc<QueuePair>> {
        match self {
            Self::Registry => QpRegistry::of_process().find(number),
            Self::Connection(_) => None,
        }
    }

    #[cold]
    pub(super) fn end(&self) {
        if let Some(connection) = self.connection() {
            connection.end();
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
        let Route::Connection(own) = &self.route else { return Err(Errno::INVALID) };
        self.change(State::Init, State::ReadyToReceive, attributes)?;
        *unpoisoned(own.lock()) = Some(connection);
        self.change(State::ReadyToReceive, State::ReadyToSend, attributes)
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
