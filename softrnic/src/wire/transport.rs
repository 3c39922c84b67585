//! Between queue pairs and the ways that messages travel: a [`Transport`] finds the way to a peer, a [`Carrier`] takes packets there,
//! [`Deliver`] takes what comes, and [`Wake`] is called when a full carrier has room.
//!
//! What every transport keeps to:
//!
//! - Packets of one carrier arrive in order, each once, until the carrier is lost. A transport over a network that loses or
//!   reorders packets retransmits below this trait. A requester sends a message again only after a reply that it was not taken
//!   ([`Reply::NotReady`], [`Reply::Silence`]) or after its carrier was lost.
//! - A message that a peer sent after it had received another is delivered after the answer to that one.
//! - Nothing waits. A reply or the data of a read is an [`Answer`] of the peer, and comes later by [`Deliver::answer`].
//! - Payload is copied before [`Carrier::put`] returns, and payload that has come is copied before [`Deliver`] returns. So a transport
//!   keeps no registered memory in use. The responder looks up the memory of a read anew for each part of its data, and a transport
//!   that retransmits keeps bytes of its own.
//! - A full carrier refuses a packet as a whole ([`Stuck::Full`]). The packet stays with its queue pair, which is called once
//!   there may be room.
//!
//! [`Reply::NotReady`]: super::message::Reply::NotReady
//! [`Reply::Silence`]: super::message::Reply::Silence

use std::fmt;
use std::sync::{Arc, Weak};

use super::address::Gid;
use super::bytes::Segment;
use super::packet::{Answer, Packet, Part, Payload};

/// The ways to queue pairs outside of this process.
pub(crate) trait Transport: fmt::Debug + Send + Sync {
    /// A block of queue pair numbers that no other process of the host has from now on; never the first. `None` if there is no
    /// way to make sure of it.
    fn claim(&self) -> Option<u32>;

    /// The way to the queue pair `number` at `destination`, which is none of this process's. `None` if there is no such queue pair, or
    /// it cannot be reached now. Does not wait.
    fn carrier(&self, destination: Gid, number: u32) -> Option<Arc<dyn Carrier>>;

    /// The ways to the other members of a group, outside of this process.
    fn group(&self, group: Gid) -> Vec<Arc<dyn Carrier>>;

    /// This process has its first member of a group now.
    fn joined(&self, group: Gid);

    /// It has none any more.
    fn left(&self, group: Gid);

    /// Delivers what has come: called when a program polls an empty completion queue. Cheap if there is nothing; does not wait
    /// for locks. Whether there was anything.
    fn progress(&self) -> bool;

    /// Delivers what has come by now, also if another thread is at it, for which it waits. The caller has no lock of a queue pair.
    fn settle(&self);
}

/// Takes packets to one other process.
pub(crate) trait Carrier: fmt::Debug + Send + Sync {
    /// Sends a packet. Takes no locks of queue pairs, and does not wait.
    ///
    /// # Errors
    ///
    /// Nothing of it went.
    fn put(&self, packet: &Packet, payload: Payload<'_>) -> Result<(), Stuck>;

    /// Has `waiting` called once there may be room again, or the carrier is lost. One that was called and finds no room again
    /// comes after all others that wait. To be called after [`Stuck::Full`], and then [`put`](Self::put) again: room may have come
    /// in between.
    fn wake(&self, waiting: Weak<dyn Wake>);

    /// Counts what the other process has received, of all queue pairs.
    fn taken(&self) -> u64;
}

/// Why a packet was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stuck {
    /// There is no room for now.
    Full,
    /// The carrier is lost: the other process has ended, or broke the protocol.
    Gone,
    /// The payload cannot be read.
    Fault,
}

/// Waits for room in a carrier.
pub(crate) trait Wake: fmt::Debug + Send + Sync {
    /// Called by a thread that holds no lock of a queue pair.
    fn wake(&self);
}

/// Takes what comes from outside of this process. A transport calls it with no lock but its own receiving one, which keeps the order;
/// it may put packets in any carrier.
pub(crate) trait Deliver: fmt::Debug + Send + Sync {
    /// A part of a message; answers go by `back`.
    fn part(&self, part: &Part, payload: &[Segment], back: &Arc<dyn Carrier>);

    /// An answer. `false` if its queue pair takes it in later, as another thread has it: what came after it is delivered once
    /// [`is_settled`](Self::is_settled) says so.
    fn answer(&self, answer: &Answer, payload: &[Segment]) -> bool;

    /// Whether the queue pair of this number has taken in the answers that have come.
    fn is_settled(&self, number: u32) -> bool;

    /// A carrier is lost, with all that was to come and go by it.
    fn lost(&self, carrier: &Arc<dyn Carrier>);
}
