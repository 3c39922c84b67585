//! What goes between the queue pairs of two processes: messages in parts, and their answers.
//!
//! Whoever carries them keeps their order and loses none while it lives. A requester sends each message once, and again only after
//! an answer said that it was not taken ([`Reply::NotReady`], [`Reply::Silence`]) or its carrier has died.

use std::fmt;
use std::sync::{Arc, Weak};

use crate::mem::Segment;
use crate::qp::QueuePair;
use crate::wire::address::Gid;
use crate::wire::message::{Reply, Request};

/// The most bytes that a part carries.
pub(crate) const MAX_PAYLOAD: u32 = 16 << 10;

/// The last number of a queue pair or of a packet: they have 24 bits.
pub(crate) const MAX_NUMBER: u32 = (1 << 24) - 1;

/// The numbers of a block, which one process has to itself: a number's block is `number / BLOCK`.
pub(crate) const BLOCK: u32 = 4096;

/// A part of a message, on its way to a responder. The parts of a message come in order; between them may be those of other queue
/// pairs. A message without data, and one that asks for data, is one part without payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// The queue pair that it goes to; of datagrams to a group [`MULTICAST_NUMBER`](crate::qp::registry::MULTICAST_NUMBER).
    pub(crate) number: u32,
    /// The message. Its `length` is that of the whole.
    pub(crate) request: Request,
    /// Where in the message's data the payload stands.
    pub(crate) offset: u64,
    /// The bytes of the payload.
    pub(crate) length: u32,
    /// Comes back with the answer, so that those of attempts that were given up are known.
    pub(crate) attempt: u32,
}

impl Part {
    /// Whether it is the last of its message.
    #[inline]
    pub(crate) fn is_last(&self) -> bool {
        let has_data = self.request.operation.has_data();
        !has_data || self.offset.saturating_add(self.length.into()) >= self.request.length
    }
}

/// What a responder has to say to a message, on its way to the requester.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The queue pair that the message came from.
    pub(crate) number: u32,
    /// The queue pair that answers.
    pub(crate) source_number: u32,
    /// Those of the message.
    pub(crate) psn: u32,
    pub(crate) attempt: u32,
    pub(crate) kind: AnswerKind,
}

/// Of one message: any data first, in order, then the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerKind {
    /// Data that a read asked for.
    Data {
        offset: u64,
        length: u32,
    },
    Reply(Reply),
}

/// Either of them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Packet {
    Part(Part),
    Answer(Answer),
}

impl Packet {
    /// The bytes of the payload.
    #[inline]
    pub(crate) fn length(&self) -> u32 {
        match self {
            Self::Part(part) => part.length,
            Self::Answer(Answer { kind: AnswerKind::Data { length, .. }, .. }) => *length,
            Self::Answer(_) => 0,
        }
    }
}

/// Where the payload of a packet is. It has as many bytes as the packet says.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Payload<'p> {
    Bytes(&'p [u8]),
    Memory(&'p [Segment]),
}

/// Brings packets to one other process.
pub(crate) trait Carrier: fmt::Debug + Send + Sync {
    /// Puts a packet on its way. Takes no locks of queue pairs, and does not wait.
    ///
    /// # Errors
    ///
    /// Nothing of it went.
    fn put(&self, packet: &Packet, payload: Payload<'_>) -> Result<(), Stuck>;

    /// Has [`QueuePair::expired`] called, by a thread that holds no lock of a queue pair, once there may be room again or it has
    /// died. Who was called, and finds no room once more, comes after all others who wait. To be called after [`Stuck::Full`], and then once more to be tried: room may have come in between.
    fn wake(&self, pair: Weak<QueuePair>);

    /// Counts what the other process has taken in, of anybody's.
    fn taken(&self) -> u64;
}

/// Why a packet is not on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stuck {
    /// There is no room for now.
    Full,
    /// The other process is gone, or was given up.
    Gone,
    /// The payload cannot be read.
    Fault,
}

/// The other processes of the host.
///
/// What comes from them is told to the network of this process: [`QpRegistry::part_arrived`], [`QpRegistry::answer_arrived`] and
/// [`QpRegistry::carrier_lost`], by threads that hold no lock of a queue pair.
///
/// [`QpRegistry::part_arrived`]: crate::qp::registry::QpRegistry::part_arrived
/// [`QpRegistry::answer_arrived`]: crate::qp::registry::QpRegistry::answer_arrived
/// [`QpRegistry::carrier_lost`]: crate::qp::registry::QpRegistry::carrier_lost
pub(crate) trait Fabric: fmt::Debug + Send + Sync {
    /// A block of numbers that no other process of the host has, from now on; never the first. `None` where there is no way to
    /// make sure of it.
    fn claim(&self) -> Option<u32>;

    /// The way to the process that has this number, which is none of this process's. `None` where nobody has it, or it cannot be
    /// reached now. Does not wait.
    fn carrier(&self, number: u32) -> Option<Arc<dyn Carrier>>;

    /// The ways to the other processes with members of a group.
    fn group(&self, group: Gid) -> Vec<Arc<dyn Carrier>>;

    /// This process has its first member of a group now.
    fn joined(&self, group: Gid);

    /// It has none any more.
    fn left(&self, group: Gid);

    /// Takes in what has come: programs call this by polling a completion queue in vain. Cheap where nothing is there; does not wait
    /// for locks. Whether there was anything.
    fn progress(&self) -> bool;
}
