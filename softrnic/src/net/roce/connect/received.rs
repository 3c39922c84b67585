//! How the messages of the peer are handled.

use std::time::{Duration, Instant};

use super::{Connection, Event, LATE, RETRY_INTERVAL, State, TIMEOUT, reason};
use crate::net::roce::cm_message::{Drep, Dreq, Ids, Information, Message, Mra, Rej, Rep, Subject};

/// Returns the confirmation of a request to disconnect. It is sent for unknown connections, too, because the peer
/// repeats its request otherwise.
pub(crate) fn confirmation(dreq: &Dreq) -> Message {
    let ids = Ids { local: dreq.ids.remote, remote: dreq.ids.local };
    Message::Drep(Drep { ids, private: [0; Drep::PRIVATE] })
}

/// Returns the rejection of a request for which there is no connection.
pub(crate) fn rejection(remote: u32, reason: u16) -> Message {
    rej(Ids { local: 0, remote }, Subject::Req, reason)
}

/// Returns the rejection of a reply to an unknown request. Its sender would wait for a confirmation otherwise.
pub(crate) fn unknown_request(rep: &Rep) -> Message {
    rej(Ids { local: rep.ids.remote, remote: rep.ids.local }, Subject::Rep, reason::INVALID_ID)
}

fn rej(ids: Ids, subject: Subject, reason: u16) -> Message {
    Message::Rej(Rej { ids, subject, reason, information: Information::NONE, private: [0; Rej::PRIVATE] })
}

impl Connection {
    /// Handles a message that names the id of this end, or is a duplicate of the request. The owner has checked the
    /// addresses of the packet.
    pub(crate) fn received(&mut self, transaction: u64, message: &Message, now: Instant) {
        match message {
            Message::Req(_) => self.repeated(now),
            Message::Mra(mra) if self.has(mra.ids) => self.deferred(mra, now),
            Message::Rej(rej) if self.has(rej.ids) || self.is_withdrawn(rej) => self.rejected(rej, now),
            Message::Rep(rep) if self.is_initiator && self.has(rep.ids) => match self.state {
                State::Requesting { .. } => {
                    self.ids.remote = rep.ids.local;
                    self.remote_qp_number = rep.qp_number;
                    (self.state, self.deadline) = (State::Replied, None);
                    self.events.push_back(Event::Replied(Box::new(*rep)));
                }
                // RTU was lost.
                State::Established => self.send_ready(),
                State::Rejected => {
                    // The id leads to the process that has the listener. Without it, REJ may only have reached another one.
                    self.ids.remote = rep.ids.local;
                    if let Some((_, Message::Rej(rej))) = &mut self.last {
                        rej.ids = self.ids;
                    }
                    self.outgoing.extend(self.last);
                }
                _ => {}
            },
            Message::Rtu(rtu) if self.state == State::Accepted && self.has(rtu.ids) => {
                self.establish(now);
                self.events.push_back(Event::Established);
            }
            Message::Dreq(dreq) if self.has(dreq.ids) && dreq.remote_qp_number == self.qp_number => {
                let drep = (transaction, confirmation(dreq));
                match self.state {
                    State::Established | State::Accepted => {
                        (self.state, self.deadline, self.last) = (State::PeerDisconnected, None, Some(drep));
                        self.events.push_back(Event::Disconnected);
                    }
                    State::Disconnecting => {
                        self.disconnected(now);
                        self.outgoing.push_back(drep);
                    }
                    State::TimeWait => self.outgoing.push_back(drep),
                    _ => {}
                }
            }
            Message::Drep(drep) if self.has(drep.ids) => match self.state {
                State::Disconnecting => self.disconnected(now),
                State::Established if transaction == self.check_transaction() => self.disconnected(now),
                _ => {}
            },
            Message::SidrReq(_) if self.state == State::Answered => self.outgoing.extend(self.last),
            Message::SidrRep(rep) if self.state == State::Resolving => {
                (self.state, self.deadline) = (State::Closed, None);
                self.events.push_back(Event::Resolved(Box::new(*rep)));
            }
            _ => {}
        }
    }

    /// Whether the ids of a message are those of this connection. The peer of a request has no id of its own, or an
    /// unknown one.
    fn has(&self, ids: Ids) -> bool {
        ids.remote == self.ids.local && (self.ids.remote == 0 || ids.local == self.ids.remote)
    }

    /// Whether the peer withdraws its request, perhaps before it has received the id of this end.
    fn is_withdrawn(&self, rej: &Rej) -> bool {
        !self.is_initiator && rej.reason == reason::TIMEOUT && rej.ids == Ids { local: self.ids.remote, remote: 0 }
    }

    /// Handles a duplicate of the request.
    fn repeated(&mut self, now: Instant) {
        match self.state {
            State::Requested => {
                let mra = Mra { ids: self.ids, subject: Subject::Req, timeout: LATE, private: [0; Mra::PRIVATE] };
                self.outgoing.push_back((self.transaction, Message::Mra(mra)));
            }
            State::Accepted | State::Rejected => self.outgoing.extend(self.last),
            State::TimeWait => {
                self.outgoing.push_back((self.transaction, rejection(self.ids.remote, reason::STALE)));
                self.end(State::TimeWait, now + super::TIMEWAIT);
            }
            _ => {}
        }
    }

    /// Waits for a late response.
    fn deferred(&mut self, mra: &Mra, now: Instant) {
        if matches!(
            (self.state, mra.subject),
            (State::Requesting { .. }, Subject::Req) | (State::Accepted, Subject::Rep)
        ) {
            let late = Duration::from_nanos(4096 << mra.timeout).min(TIMEOUT);
            self.deadline = Some(now + late);
            self.until = self.until.max(now + late);
        }
    }

    fn rejected(&mut self, rej: &Rej, now: Instant) {
        match self.state {
            State::Requesting { grace } if rej.reason == reason::NO_LISTENER && now < grace => {
                self.interval = RETRY_INTERVAL;
                self.deadline = Some(now + RETRY_INTERVAL);
            }
            State::Requesting { .. } | State::Replied | State::Requested | State::Accepted => {
                (self.state, self.deadline) = (State::Closed, None);
                self.events.push_back(Event::Rejected(Box::new(*rej)));
            }
            State::Established | State::Disconnecting => self.disconnected(now),
            _ => {}
        }
    }
}
