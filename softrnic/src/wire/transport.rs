//! Traits between QPs and transports. A [`Transport`] serves the sockets of a fabric. A [`Carrier`] sends packets: those
//! that QPs share come from [`Routes`], and a [`Dedicated`] one serves a single QP. [`Deliver`] receives packets, and [`Wake`]
//! is called when a full carrier has space.
//!
//! Every transport guarantees:
//!
//! - The packets of one carrier arrive in order, and each arrives once, until the carrier is lost. A transport over an
//!   unreliable network retransmits internally. A requester repeats a message only if the responder has not accepted it
//!   ([`Reply::NotReady`], [`Reply::Silence`]) or its carrier was lost.
//! - If a peer responds to a message and then sends a message of its own, the response is delivered first.
//! - No function blocks. A reply or the data of a read is a [`Response`] of the peer, which arrives later through
//!   [`Deliver::response`].
//! - A payload that is sent is copied before [`Carrier::put`] returns. A payload that was received is copied before the
//!   function of [`Deliver`] returns. A transport therefore keeps no registered memory in use. The responder checks the
//!   memory of a read again for each part of its data, and a transport that retransmits keeps its own copy of the data.
//! - A full carrier refuses the whole packet ([`Stuck::Full`]). The QP keeps the packet, and the carrier calls the QP
//!   when it may have space.
//!
//! [`Reply::NotReady`]: super::message::Reply::NotReady
//! [`Reply::Silence`]: super::message::Reply::Silence

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::address::Gid;
use super::bytes::Segment;
use super::message::Refusal;
use super::packet::{Packet, Part, Payload, Response};
use crate::sys::errno::Errno;

/// The maximum time for which messages wait until earlier responses are handled. A thread that posts handles them when
/// it unlocks the send queue; it may not run for seconds on a busy machine. There is a limit because it may also wait
/// for memory, and what provides this memory may need a message. The limit is shorter than the shortest time-out of a
/// request, so that no request of another process fails for this reason.
pub(crate) const MAX_UNSETTLED: Duration = Duration::from_secs(3);

/// The network that a device reaches. Each fabric has a [`Transport`], and its devices have one description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fabric {
    /// The processes of the host, which share memory. Programs see RoCE.
    Host,
    /// Other hosts, and processes that share no memory, by iWARP over TCP.
    Iwarp,
    /// Other hosts, by RoCEv2 over UDP.
    Roce,
}

/// Brings the packets of a fabric to the QPs.
pub(crate) trait Transport: fmt::Debug + Send + Sync {
    /// The fabric of the devices that use this transport.
    fn fabric(&self) -> Fabric;

    /// Delivers the packets that have arrived, and returns whether there were any. This function is called when a
    /// program polls an empty completion queue. It is cheap if no packets have arrived, and does not wait for locks.
    fn progress(&self) -> bool;

    /// Notifies the transport that a program will wait for an event of a completion queue instead of polling.
    fn armed(&self);

    /// Returns the sockets of the transport, if it has any.
    fn sockets(&self) -> Option<&'static dyn Sockets>;
}

/// Finds the carriers to the QPs of other processes, which have numbers that are unique on the host. All QPs of a process
/// share the carrier to another process.
pub(crate) trait Routes: fmt::Debug + Send + Sync {
    /// Reserves a block of QP numbers that no other process of the host uses, which is never the first block. Returns
    /// `None` if no such block can be reserved.
    fn claim(&self) -> Option<u32>;

    /// Returns the carrier to the QP `number`, which is in another process. Returns `None` if the QP does not exist or
    /// cannot be reached now. This function does not block.
    fn carrier(&self, number: u32) -> Option<Arc<dyn Carrier>>;

    /// Opens the route to the QP `number`, which is in another process, before a connection to it is established. This
    /// function does not block.
    ///
    /// # Errors
    ///
    /// The reason why the QP cannot be reached. A reason that passes by itself is no error.
    fn reach(&self, number: u32) -> Result<(), Errno>;

    /// Returns the carriers to the other processes that have members of a multicast group.
    fn group(&self, group: Gid) -> Vec<Arc<dyn Carrier>>;

    /// Announces that this process now has a member of a group.
    fn joined(&self, group: Gid);

    /// Withdraws this announcement after the last member in this process has left the group.
    fn left(&self, group: Gid);

    /// Delivers all packets that have arrived so far, and waits until other threads have delivered theirs. The caller
    /// must hold no lock of a QP.
    fn settle(&self);
}

/// The sockets of a transport. A thread that waits for a completion event may serve them.
pub(crate) trait Sockets {
    /// Makes the calling thread serve the sockets, instead of the thread of softrnic, until it calls
    /// [`leave`](Self::leave). Returns a descriptor that is readable while the sockets must be served. Returns `None` if
    /// another thread already serves them, or if there are no sockets yet.
    fn attend(&self) -> Option<BorrowedFd<'_>>;

    /// Delivers the packets that have arrived on the sockets, and returns whether there were any. If another thread
    /// serves a socket, waits for that thread.
    fn serve(&self) -> bool;

    /// Ends the effect of [`attend`](Self::attend).
    fn leave(&self);
}

/// Sends packets to one other process.
pub(crate) trait Carrier: fmt::Debug + Send + Sync {
    /// Sends a packet. This function takes no lock of a QP and does not block.
    ///
    /// # Errors
    ///
    /// If this function returns an error, no part of the packet was sent.
    fn put(&self, packet: &Packet, payload: Payload<'_>) -> Result<(), Stuck>;

    /// Registers `waiting`, which is called when space may be free again or the carrier is lost. A waiter that was
    /// called and has found no space is queued after all others. After [`Stuck::Full`], the caller calls this function
    /// and then retries [`put`](Self::put), because the carrier may have got space between the two calls.
    fn wake(&self, waiting: Weak<dyn Wake>);

    /// Returns how many packets the other process has received for all its QPs. For a connection of a QP, returns how many
    /// of its packets the peer has acknowledged.
    fn taken(&self) -> u64;

    /// Sends the packets that [`put`](Self::put) has gathered. This function is called after a series of `put`s.
    fn flush(&self) {}

    /// Whether datagrams of other hosts arrive with this carrier. QPs of devices that do not reach these must not get
    /// them.
    fn is_network(&self) -> bool {
        false
    }

    /// Receives the datagrams to a multicast group for a QP from now on. A QP may join a group twice.
    ///
    /// # Errors
    ///
    /// The kernel's error, such as `ENOBUFS` if the host is a member of too many groups.
    fn join_group(&self, _group: Gid, _member: u32) -> Result<(), Errno> {
        Ok(())
    }

    /// Ends the effect of [`join_group`](Self::join_group).
    fn leave_group(&self, _group: Gid, _member: u32) {}
}

/// A carrier that serves a single QP.
pub(crate) trait Dedicated: Carrier {
    /// Delivers all packets that have arrived so far. The caller must hold no lock of a QP.
    fn settle(&self);

    /// Ends the connection, because its QP has failed or was disconnected. The packets that were put before are still
    /// sent. This function takes no lock of a QP.
    fn end(&self);

    /// Sets how many reads and atomics the QP may have in flight, and how many its peer.
    fn set_depths(&self, _own: u8, _peer: u8) {}

    /// Ends the connection, because its QP leaves it. Its peer is not served any more.
    fn leave(&self) {
        self.end();
    }
}

/// The reason why a packet was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stuck {
    /// The carrier is full.
    Full,
    /// The carrier is lost: the other process has ended or violated the protocol.
    Lost,
    /// The payload cannot be read.
    Fault,
}

/// An object that waits for space in a carrier.
pub(crate) trait Wake: fmt::Debug + Send + Sync {
    /// Notifies the waiter. The calling thread must hold no lock of a QP.
    fn wake(&self);
}

/// Receives packets from other processes. While a transport calls these functions, the only lock that it holds is its
/// own receiving lock, which preserves the order of the packets. The functions may send packets on any carrier.
pub(crate) trait Deliver: fmt::Debug + Send + Sync {
    /// Receives a part of a message. Responses are sent on the carrier `back`.
    fn part(&self, part: &Part, payload: &[Segment], back: &Arc<dyn Carrier>);

    /// Sends the data of a read again, whose responses were lost. The QP has executed the read before.
    fn again(&self, _part: &Part, _back: &Arc<dyn Carrier>) {}

    /// Receives a response. Returns `false` if another thread holds the QP. That thread then handles the response
    /// later, and the transport delivers later packets once [`is_settled`](Self::is_settled) has returned true.
    fn response(&self, response: &Response, payload: &[Segment]) -> bool;

    /// Whether the QP with this number has handled all responses that have arrived so far.
    fn is_settled(&self, number: u32) -> bool;

    /// Reports that a carrier is lost, together with all packets in flight on it.
    fn lost(&self, carrier: &Arc<dyn Carrier>);

    /// Reports that the connection of the QP with this number has ended. If the peer has refused a request, `refusal` is
    /// its reason.
    fn ended(&self, _number: u32, _carrier: &Arc<dyn Carrier>, _refusal: Option<Refusal>) {}
}
