//! Traits between QPs and transports. A [`Transport`] finds the route to a peer, a [`Carrier`] sends packets on it,
//! [`Deliver`] receives packets, and [`Wake`] is called when a full carrier has space.
//!
//! Every transport guarantees:
//!
//! - Packets of one carrier arrive in order and once each, until the carrier is lost. A transport over an unreliable
//!   network retransmits internally. A requester repeats a message only if the responder has not accepted it
//!   ([`Reply::NotReady`], [`Reply::Silence`]) or its carrier was lost.
//! - If a peer responds to a message and then sends another, the response is delivered before that other message.
//! - No function blocks. A reply or the data of a read is a [`Response`] of the peer, which arrives later through
//!   [`Deliver::response`].
//! - Payload is copied before [`Carrier::put`] returns, and received payload before [`Deliver`] returns. A transport
//!   therefore keeps no registered memory in use. The responder looks up the memory of a read again for each part of
//!   its data, and a transport that retransmits keeps its own copy.
//! - A full carrier refuses a packet as a whole ([`Stuck::Full`]). The QP keeps the packet, and is called once there
//!   may be space.
//!
//! [`Reply::NotReady`]: super::message::Reply::NotReady
//! [`Reply::Silence`]: super::message::Reply::Silence

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};

use super::address::Gid;
use super::bytes::Segment;
use super::message::Refusal;
use super::packet::{Packet, Part, Payload, Response};

/// Finds carriers to QPs outside of this process.
pub(crate) trait Transport: fmt::Debug + Send + Sync {
    /// Reserves a block of QP numbers that no other process of the host uses; never the first block. `None` if
    /// uniqueness cannot be ensured.
    fn claim(&self) -> Option<u32>;

    /// Returns the carrier to the QP `number` at `destination`, in another process. `None` if the QP does not exist or
    /// cannot be reached now. Does not block.
    fn carrier(&self, destination: Gid, number: u32) -> Option<Arc<dyn Carrier>>;

    /// Returns the carriers to the other processes with members of a multicast group.
    fn group(&self, group: Gid) -> Vec<Arc<dyn Carrier>>;

    /// Announces this process's first member of a group.
    fn joined(&self, group: Gid);

    /// Withdraws a group after the last member in this process has left it.
    fn left(&self, group: Gid);

    /// Delivers received packets; called when a program polls an empty completion queue. The call is cheap if no
    /// packets have arrived, and does not wait for locks. Returns whether a packet was delivered.
    fn progress(&self) -> bool;

    /// Records that a program will wait for an event of a completion queue instead of polling.
    fn armed(&self) {}

    /// The sockets of the transport, if it has any.
    fn sockets(&self) -> Option<&'static dyn Sockets> {
        None
    }

    /// Delivers all packets received so far, and waits for other threads that deliver. The caller holds no lock of a
    /// QP.
    fn settle(&self);
}

/// The sockets of a transport. The threads that wait for events of one completion channel may serve them.
pub(crate) trait Sockets {
    /// Lets the threads that wait for events of this channel serve the sockets. Returns a descriptor that is readable
    /// when there is something to serve; `None` if another channel was first, or there are no sockets yet.
    fn claim(&self, channel: usize) -> Option<BorrowedFd<'_>>;

    /// Ends what [`claim`](Self::claim) began.
    fn release(&self, channel: usize);

    /// Delivers received packets, and returns whether there were any. Does not wait for locks.
    fn serve(&self) -> bool;

    /// Called before and after a thread waits for the sockets.
    fn attend(&self, waits: bool);
}

/// Sends packets to one other process.
pub(crate) trait Carrier: fmt::Debug + Send + Sync {
    /// Sends a packet. Takes no lock of a QP, and does not block.
    ///
    /// # Errors
    ///
    /// No part of the packet was sent.
    fn put(&self, packet: &Packet, payload: Payload<'_>) -> Result<(), Stuck>;

    /// Registers `waiting`, which is called when space may be free again or the carrier is lost. A waiter that was
    /// called and finds no space is queued after all others. After [`Stuck::Full`], a caller calls this function and
    /// then retries [`put`](Self::put), because space may have become free in the meantime.
    fn wake(&self, waiting: Weak<dyn Wake>);

    /// The number of packets that the other process has received, over all QPs.
    fn taken(&self) -> u64;

    /// Sends the packets that [`put`](Self::put) has gathered. Called after a series of `put`s.
    fn flush(&self) {}

    /// Delivers all packets received so far. The caller holds no lock of a QP. Implemented only by a carrier that
    /// serves a single QP.
    fn settle(&self) {}

    /// Ends a connection whose QP has failed or was disconnected, after all packets that were put so far. Implemented
    /// only by a carrier that serves a single QP. Takes no lock of a QP.
    fn end(&self) {}
}

/// Why a packet was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stuck {
    /// The carrier is full.
    Full,
    /// The carrier is lost: the other process has ended or violated the protocol.
    Lost,
    /// The payload cannot be read.
    Fault,
}

/// A waiter for space in a carrier.
pub(crate) trait Wake: fmt::Debug + Send + Sync {
    /// Called by a thread that holds no lock of a QP.
    fn wake(&self);
}

/// Receives packets from other processes. While a transport calls these functions, it holds no lock but its own
/// receiving lock, which keeps the order. The receiver may send packets on any carrier.
pub(crate) trait Deliver: fmt::Debug + Send + Sync {
    /// Receives a part of a message; responses are sent on `back`.
    fn part(&self, part: &Part, payload: &[Segment], back: &Arc<dyn Carrier>);

    /// Receives a response. `false` if another thread holds the QP, which then handles the response later. The
    /// transport delivers later packets once [`is_settled`](Self::is_settled) returns true.
    fn response(&self, response: &Response, payload: &[Segment]) -> bool;

    /// Whether the QP of this number has handled all responses received so far.
    fn is_settled(&self, number: u32) -> bool;

    /// Reports that a carrier is lost, with all packets in flight on it.
    fn lost(&self, carrier: &Arc<dyn Carrier>);

    /// Reports that the stream of the QP with this number has ended; `refusal` is set if the peer has refused a
    /// request.
    fn ended(&self, _number: u32, _carrier: &Arc<dyn Carrier>, _refusal: Option<Refusal>) {}
}
