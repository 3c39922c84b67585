//! The memory and the receives that a message can access.

use std::sync::Arc;

use crate::cq::CompletionQueue;
use crate::mem::domain::Domain;
use crate::mem::{Access, Memory};
use crate::qp::recv::Stop;
use crate::qp::registry::{QpRegistry, SharedEntry};
use crate::qp::{QueuePair, Service};
use crate::srq::ReceiveQueue;
use crate::wire::bytes::{Fault, Segment};
use crate::wire::message::Refusal;

/// Finds the shared receive queue of an XRC message.
pub(in crate::qp) fn shared_entry(pair: &QueuePair, number: u32) -> Result<SharedEntry, Stop> {
    let entry = QpRegistry::of_process().find_shared(number);
    entry
        .filter(|entry| pair.parts.xrc_domain.as_ref().is_some_and(|domain| domain.is(&entry.xrc_domain)))
        .ok_or(Stop::Refused(Refusal::InvalidRequest))
}

/// The queue from which receives are taken, and the completion queue to which their completions are added.
#[derive(Clone, Copy, Debug)]
pub(in crate::qp) struct Receives<'t> {
    pub(in crate::qp) queue: &'t Arc<ReceiveQueue>,
    pub(in crate::qp) completions: Option<&'t Arc<CompletionQueue>>,
    /// The protection domain to which the memory of the receives belongs.
    pub(in crate::qp) domain: &'t Domain,
    pub(in crate::qp) is_shared: bool,
}

/// The protection domain and the receives that a message uses. They are those of the QP, or those of an XRC shared
/// receive queue.
#[derive(Debug)]
pub(in crate::qp) struct Target<'t> {
    pub(in crate::qp) pair: &'t QueuePair,
    pub(in crate::qp) number: u32,
    pub(in crate::qp) service: Service,
    /// The protection domain to which the memory must belong.
    domain: &'t Domain,
    pub(in crate::qp) receives: Receives<'t>,
}

impl<'t> Target<'t> {
    pub(in crate::qp) fn of_pair(pair: &'t QueuePair) -> Self {
        let parts = &pair.parts;
        let (queue, completions) = (&parts.receives, parts.receive_queue.as_ref());
        // The memory of a receive must belong to the domain of its queue.
        let domain = if parts.is_shared { queue.domain() } else { None }.unwrap_or(&parts.domain);
        let receives = Receives { queue, completions, domain, is_shared: parts.is_shared };
        Self { pair, number: pair.number, service: parts.service, domain: &parts.domain, receives }
    }

    pub(in crate::qp) fn of_shared(pair: &'t QueuePair, entry: &'t SharedEntry) -> Result<Self, Stop> {
        let domain: &Domain = entry.queue.domain().ok_or(Stop::Refused(Refusal::InvalidRequest))?;
        let receives = Receives { queue: &entry.queue, completions: Some(&entry.completions), domain, is_shared: true };
        Ok(Self { pair, number: pair.number, service: pair.parts.service, domain, receives })
    }

    /// Checks memory that a remote key refers to.
    pub(in crate::qp) fn remote(&self, rkey: u32, address: u64, length: u64, access: Access) -> Result<Segment, Stop> {
        Memory::of_process().remote(self.domain, self.number, rkey, address, length, access).map_err(refusal)
    }

    /// Checks all memory that a remote key refers to.
    pub(in crate::qp) fn whole(&self, rkey: u32, access: Access) -> Result<Segment, Stop> {
        Memory::of_process().whole(self.domain, self.number, rkey, access).map_err(refusal)
    }

    pub(in crate::qp) fn eight_bytes(&self, rkey: u32, address: u64, access: Access) -> Result<Segment, Stop> {
        if !address.is_multiple_of(8) {
            return Err(refusal(Fault::Alignment));
        }
        self.remote(rkey, address, 8, access)
    }

    pub(in crate::qp) fn invalidate(&self, rkey: u32) -> Result<(), Stop> {
        Memory::of_process().invalidate(self.domain, self.number, rkey).map_err(refusal)
    }
}

/// The target of a message: that of the shared receive queue that an XRC message addresses, or that of the QP.
pub(in crate::qp) fn target_of<'t>(pair: &'t QueuePair, entry: Option<&'t SharedEntry>) -> Result<Target<'t>, Stop> {
    match entry {
        Some(entry) => Target::of_shared(pair, entry),
        None => Ok(Target::of_pair(pair)),
    }
}

/// Returns the refusal with which the responder answers a message that caused a memory fault.
pub(in crate::qp) fn refusal(fault: Fault) -> Stop {
    Stop::Refused(match fault {
        Fault::Alignment => Refusal::InvalidRequest,
        Fault::Unmapped => Refusal::OperationError,
        Fault::Key | Fault::Domain | Fault::Bounds | Fault::Rights | Fault::Invalidation => Refusal::AccessError(fault),
    })
}
