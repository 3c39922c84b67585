//! The set-up and the end of a connection (InfiniBand Architecture Specification, volume 1, section 12.9), and the
//! resolution of a service to a QP for datagrams (section 12.11), without I/O and clock.
//!
//! [`Connection`] is the state of one end. It repeats a message until the response arrives, and answers duplicates of the
//! peer's messages. The owner calls [`Connection::received`] for each message whose ids are those of the connection,
//! and [`Connection::expired`] at the [deadline](Connection::deadline). After each call, it sends the
//! [messages](Connection::next_message) and handles the [events](Connection::next_event).
//!
//! As in the kernel, a request to disconnect is confirmed when the program of this end disconnects, too.
//!
//! A process that is killed does not disconnect. So each end checks from time to time that the other one still has the
//! connection: it requests to disconnect another QP than that of the connection. The peer ignores this, as the kernel
//! does, but if the connection is unknown, the host of the peer confirms the request. If no process of the host uses RoCE
//! any more, the owner may get an error. An error may also come from a firewall, so the check also requests to disconnect
//! an unknown connection, which any host that uses RoCE confirms.

pub(crate) mod received;
#[cfg(test)]
mod simulator;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::cm_message::{Dreq, Ids, Information, Message, Rej, Rep, Req, Rtu, SidrRep, SidrReq, Subject, padded};

/// When a message is repeated for the first time. This interval doubles up to [`MAX_INTERVAL`], which is about the
/// interval of the kernel.
const FIRST_INTERVAL: Duration = Duration::from_millis(100);
const MAX_INTERVAL: Duration = Duration::from_secs(4);
/// How often an established connection is checked, and the time for the response.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);
const CHECK_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a message is repeated.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);
/// How long a connection that has ended answers duplicates.
const TIMEWAIT: Duration = Duration::from_secs(2);
/// How long a rejection is remembered, which is longer than the interval at which the kernel repeats a request.
const REJECTED: Duration = Duration::from_secs(10);
/// The interval at which a request is repeated that has found no listener.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);
/// The time that this end requests for a late response, as an exponent: 8.6 seconds.
const LATE: u8 = 21;

/// The reasons of rejections that this module sends or reads.
pub(crate) mod reason {
    pub(crate) const TIMEOUT: u16 = 4;
    pub(crate) const INVALID_ID: u16 = 6;
    pub(crate) const NO_LISTENER: u16 = 8;
    pub(crate) const TRANSPORT: u16 = 9;
    pub(crate) const STALE: u16 = 10;
    pub(crate) const INVALID_GID: u16 = 12;
    pub(crate) const INVALID_MTU: u16 = 26;
    pub(crate) const CONSUMER_DEFINED: u16 = 28;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// REQ is repeated. While no listener is found, REQ is sent again until this time.
    Requesting {
        grace: Instant,
    },
    /// The program has not responded to REP yet.
    Replied,
    /// The program has not responded to REQ yet.
    Requested,
    /// REP is repeated.
    Accepted,
    Established,
    /// DREQ is repeated.
    Disconnecting,
    /// DREQ has arrived, and is confirmed when the program disconnects.
    PeerDisconnected,
    /// The connection has ended.
    TimeWait,
    /// REJ has been sent, and is sent again in response to duplicates.
    Rejected,
    /// SIDR_REQ is repeated.
    Resolving,
    /// The program has not responded to SIDR_REQ yet.
    Asked,
    /// SIDR_REP has been sent, and is sent again in response to duplicates.
    Answered,
    Closed,
}

/// What has happened to a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The peer has accepted. The program responds with [`Connection::ready`].
    Replied(Box<Rep>),
    /// The peer is ready to use the connection that this end has accepted.
    Established,
    Rejected(Box<Rej>),
    /// No process of the peer's host uses RoCE, so there is no listener.
    Refused,
    /// The peer has not responded.
    TimedOut,
    /// The peer has disconnected, or has responded to a disconnection, or does not respond to it.
    Disconnected,
    Resolved(Box<SidrRep>),
}

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct Connection {
    /// The id of the peer is 0 until its first message has arrived.
    ids: Ids,
    transaction: u64,
    /// The GUID of this device.
    guid: u64,
    qp_number: u32,
    remote_qp_number: u32,
    /// Whether this end has sent REQ.
    is_initiator: bool,
    state: State,
    /// Whether a response to a check of the established connection may arrive.
    is_checked: bool,
    /// The message that is repeated, or that is sent again in response to duplicates.
    last: Option<(u64, Message)>,
    interval: Duration,
    /// How long `last` is repeated.
    until: Instant,
    deadline: Option<Instant>,
    outgoing: VecDeque<(u64, Message)>,
    events: VecDeque<Event>,
}

impl Connection {
    fn new(ids: Ids, transaction: u64, state: State, now: Instant) -> Self {
        Self {
            ids,
            transaction,
            guid: 0,
            qp_number: 0,
            remote_qp_number: 0,
            is_initiator: false,
            state,
            is_checked: false,
            last: None,
            interval: FIRST_INTERVAL,
            until: now,
            deadline: None,
            outgoing: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Requests a connection. If the peer has no listener, the request is repeated for the time `grace`.
    pub(crate) fn request(req: Req, transaction: u64, grace: Duration, now: Instant) -> Self {
        let ids = Ids { local: req.local_id, remote: 0 };
        let mut made = Self::new(ids, transaction, State::Requesting { grace: now + grace }, now);
        (made.guid, made.qp_number, made.is_initiator) = (req.guid, req.qp_number, true);
        made.repeat(transaction, Message::Req(req), now);
        made
    }

    /// Returns the connection that the peer has requested. `local` is the id of this end.
    pub(crate) fn requested(local: u32, transaction: u64, req: &Req, guid: u64, now: Instant) -> Self {
        let ids = Ids { local, remote: req.local_id };
        let mut made = Self::new(ids, transaction, State::Requested, now);
        (made.guid, made.remote_qp_number) = (guid, req.qp_number);
        made
    }

    /// Requests the QP of a service.
    pub(crate) fn resolve(req: SidrReq, transaction: u64, now: Instant) -> Self {
        let mut made = Self::new(Ids { local: req.request_id, remote: 0 }, transaction, State::Resolving, now);
        made.is_initiator = true;
        made.repeat(transaction, Message::SidrReq(req), now);
        made
    }

    /// Returns the state of a request for the QP of a service.
    pub(crate) fn asked(local: u32, transaction: u64, req: &SidrReq, now: Instant) -> Self {
        Self::new(Ids { local, remote: req.request_id }, transaction, State::Asked, now)
    }

    /// Whether the connection has ended, and its state is no longer required.
    pub(crate) fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Whether the connection has ended, and its state is only required for duplicates.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.state, State::TimeWait | State::Rejected | State::Answered | State::Closed)
    }

    /// Whether the connection is one to this QP of the peer.
    pub(crate) fn is_to(&self, remote_qp_number: u32) -> bool {
        let is_same = remote_qp_number != 0 && self.remote_qp_number == remote_qp_number;
        is_same && !self.has_ended() && !matches!(self.state, State::Requesting { .. })
    }

    /// Disconnects if the connection is established, because its peer uses its QP for another one.
    pub(crate) fn replaced(&mut self, now: Instant) {
        if self.state == State::Established {
            self.disconnect(now);
        }
    }

    /// When [`expired`](Self::expired) must be called.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Returns the next message to send, with its transaction id.
    pub(crate) fn next_message(&mut self) -> Option<(u64, Message)> {
        let next = self.outgoing.pop_front();
        if next.is_none() {
            // An idle connection needs no memory for messages.
            self.outgoing = VecDeque::new();
        }
        next
    }

    pub(crate) fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Accepts the request of the peer. The ids of the reply are those of the connection.
    pub(crate) fn accept(&mut self, rep: Rep, now: Instant) {
        if self.state == State::Requested {
            self.state = State::Accepted;
            self.qp_number = rep.qp_number;
            self.repeat(self.transaction, Message::Rep(Rep { ids: self.ids, ..rep }), now);
        }
    }

    /// Confirms that this end is ready, after the peer has accepted.
    pub(crate) fn ready(&mut self, now: Instant) {
        if self.state == State::Replied {
            self.establish(now);
            self.send_ready();
        }
    }

    /// Handles that the peer has sent on the connection, so RTU was lost or is late.
    pub(crate) fn has_communicated(&mut self, now: Instant) {
        if self.state == State::Accepted {
            self.establish(now);
        }
    }

    fn establish(&mut self, now: Instant) {
        (self.state, self.deadline) = (State::Established, Some(now + CHECK_INTERVAL));
    }

    /// Rejects the peer's request or reply, or withdraws the request of this end.
    pub(crate) fn reject(&mut self, reason: u16, data: &[u8], now: Instant) {
        let (subject, reason, information) = match self.state {
            // The peer may have no id of its own for the connection, so it finds the connection by the GUID.
            State::Requesting { .. } => (Subject::Req, reason::TIMEOUT, Information::guid(self.guid)),
            State::Requested => (Subject::Req, reason, Information::NONE),
            State::Replied => (Subject::Rep, reason, Information::NONE),
            State::Accepted => (Subject::Other, reason, Information::NONE),
            _ => return,
        };
        let private = padded(data).unwrap_or([0; Rej::PRIVATE]);
        let rej = Message::Rej(Rej { ids: self.ids, subject, reason, information, private });
        self.outgoing.push_back((self.transaction, rej));
        self.last = Some((self.transaction, rej));
        self.end(State::Rejected, now + REJECTED);
    }

    /// Answers a request for the QP of a service.
    pub(crate) fn answer(&mut self, rep: SidrRep, now: Instant) {
        if self.state == State::Asked {
            let rep = (self.transaction, Message::SidrRep(SidrRep { request_id: self.ids.remote, ..rep }));
            self.outgoing.push_back(rep);
            self.last = Some(rep);
            self.end(State::Answered, now + REJECTED);
        }
    }

    /// Disconnects, or confirms that the peer has disconnected.
    pub(crate) fn disconnect(&mut self, now: Instant) {
        match self.state {
            State::Established | State::Accepted => {
                self.state = State::Disconnecting;
                let dreq = Dreq { ids: self.ids, remote_qp_number: self.remote_qp_number, private: [0; Dreq::PRIVATE] };
                self.repeat(self.transaction.wrapping_add(1), Message::Dreq(dreq), now);
            }
            State::PeerDisconnected => {
                self.outgoing.extend(self.last);
                self.end(State::TimeWait, now + TIMEWAIT);
            }
            _ => {}
        }
    }

    /// The transaction id of checks of an established connection.
    fn check_transaction(&self) -> u64 {
        self.transaction.wrapping_add(2)
    }

    /// Begins or ends a check of the established connection.
    fn check(&mut self, now: Instant) {
        self.is_checked = !self.is_checked;
        if self.is_checked {
            let remote_qp_number = self.remote_qp_number ^ 1;
            for ids in [self.ids, Ids { remote: 0, ..self.ids }] {
                let dreq = Dreq { ids, remote_qp_number, private: [0; Dreq::PRIVATE] };
                self.outgoing.push_back((self.check_transaction(), Message::Dreq(dreq)));
            }
        }
        self.deadline = Some(now + if self.is_checked { CHECK_TIMEOUT } else { CHECK_INTERVAL });
    }

    /// Ends the request for the QP of a service, because the program does not need it any more.
    pub(crate) fn withdraw(&mut self) {
        if matches!(self.state, State::Resolving | State::Asked) {
            (self.state, self.deadline) = (State::Closed, None);
        }
    }

    /// Whether the next call of [`expired`](Self::expired) sends a message to which the peer may respond, unless the
    /// connection has timed out.
    pub(crate) fn is_waiting(&self) -> bool {
        use State::{Accepted, Disconnecting, Established, Requesting, Resolving};
        match self.state {
            Requesting { .. } | Accepted | Disconnecting | Resolving => true,
            Established => !self.is_checked,
            _ => false,
        }
    }

    /// Handles an error which states that no process of the peer's host uses RoCE. A message that waits for a response
    /// is not repeated any more, unless its time for a listener has not ended. The owner has received no message from
    /// this host since.
    pub(crate) fn refused(&mut self, now: Instant) {
        let event = match self.state {
            State::Requesting { grace } if now < grace => return,
            State::Requesting { .. } | State::Resolving => Event::Refused,
            State::Accepted => Event::TimedOut,
            State::Established | State::Disconnecting => return self.disconnected(now),
            _ => return,
        };
        self.events.push_back(event);
        (self.state, self.deadline) = (State::Closed, None);
    }

    /// Ends the connection, because the process ends. The messages are sent once.
    pub(crate) fn leave(&mut self, now: Instant) {
        self.disconnect(now);
        self.reject(reason::CONSUMER_DEFINED, &[], now);
    }

    /// Handles the end of a time. Does nothing before the deadline.
    pub(crate) fn expired(&mut self, now: Instant) {
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return;
        }
        match self.state {
            State::TimeWait | State::Rejected | State::Answered => (self.state, self.deadline) = (State::Closed, None),
            State::Established => self.check(now),
            _ if now < self.until => {
                self.outgoing.extend(self.last);
                self.interval = (self.interval * 2).min(MAX_INTERVAL);
                self.deadline = Some(now + self.interval);
            }
            State::Disconnecting => self.disconnected(now),
            _ => {
                self.events.push_back(Event::TimedOut);
                (self.state, self.deadline) = (State::Closed, None);
            }
        }
    }

    /// Sends a message until a response arrives.
    fn repeat(&mut self, transaction: u64, message: Message, now: Instant) {
        self.outgoing.push_back((transaction, message));
        self.last = Some((transaction, message));
        self.interval = FIRST_INTERVAL;
        (self.until, self.deadline) = (now + TIMEOUT, Some(now + FIRST_INTERVAL));
    }

    /// Keeps the state until a time, to answer duplicates.
    fn end(&mut self, state: State, until: Instant) {
        (self.state, self.deadline) = (state, Some(until));
    }

    fn disconnected(&mut self, now: Instant) {
        self.events.push_back(Event::Disconnected);
        self.end(State::TimeWait, now + TIMEWAIT);
    }

    fn send_ready(&mut self) {
        self.outgoing.push_back((self.transaction, Message::Rtu(Rtu { ids: self.ids, private: [0; Rtu::PRIVATE] })));
    }
}
