//! Handles messages from other processes, which arrive in parts.

use std::slice;
use std::sync::Arc;

use rdma_mummy_sys::ibv_access_flags;

use crate::mem::Memory;
use crate::qp::exchange::{Exchange, TransferFault};
use crate::qp::recv::receiving::{ReceiveError, Taken, check_fits, invalidate};
use crate::qp::recv::responses_out::{Reading, Return};
use crate::qp::recv::target::{Target, shared_entry, target_of};
use crate::qp::recv::{Responder, Stop};
use crate::qp::registry::SharedEntry;
use crate::qp::{QueuePair, Service};
use crate::srq::ReceiveQueue;
use crate::wire::bytes::{self, Segment, Segments};
use crate::wire::limits::{MAX_MSG_SIZE, MTU};
use crate::wire::message::{Refusal, Reply, Request, UNKNOWN_LENGTH};
use crate::wire::operation::Operation;
use crate::wire::packet::Part;
use crate::wire::transport::Carrier;

/// A message of which not all parts have arrived.
#[derive(Debug)]
pub(in crate::qp) struct Inbound {
    request: Request,
    back: Return,
    /// The offset at which the next part must start.
    offset: u64,
    /// The receive that the message consumes, if any.
    taken: Option<Taken>,
    /// The XRC shared receive queue that the message addresses, if any.
    entry: Option<SharedEntry>,
}

/// The requester's side of a message that arrived in one part.
#[derive(Debug)]
struct Carried<'p>(&'p [Segment]);

impl Exchange for Carried<'_> {
    fn take(&mut self, into: &[Segment]) -> Result<(), TransferFault> {
        bytes::copy(self.0, into).map_err(TransferFault::Responder)
    }

    fn take_eight(&mut self) -> Result<[u8; 8], TransferFault> {
        let mut value = [0; 8];
        bytes::read_bytes(self.0, &mut value).map_err(TransferFault::Responder)?;
        Ok(value)
    }

    /// Does nothing, because the responder sends the data of a read later, in parts.
    fn give(&mut self, _from: &[Segment]) -> Result<(), TransferFault> {
        Ok(())
    }
}

/// Whether the offset and length of a part fit its message, and whether the service of the message supports its
/// operation and length.
#[inline]
fn is_sound(pair: &QueuePair, part: &Part) -> bool {
    let Request { service, operation, length, .. } = part.request;
    let most = if service == Service::UnreliableDatagram { MTU } else { MAX_MSG_SIZE };
    if length == UNKNOWN_LENGTH && pair.route.is_connection() {
        return part.length > 0 && part.offset.saturating_add(part.length.into()) <= u64::from(most);
    }
    if !service.sends(operation) || length > u64::from(most) {
        return false;
    }
    let total = if operation.has_data() { length } else { 0 };
    let is_last = part.offset.checked_add(part.length.into()).is_some_and(|end| end == total);
    let is_within = part.offset.checked_add(part.length.into()).is_some_and(|end| end < total);
    is_last || is_within && part.length > 0
}

impl Responder {
    /// Handles a part of a message. Returns whether the QP failed. If so, the caller must run the requester of the QP.
    ///
    /// The reply is sent when the message is complete or has failed. After a refusal, the remaining parts are dropped,
    /// and the reply is sent again when the last part arrives. If the sender has received the first reply, it ignores
    /// the second one because of its attempt number. If the first reply was lost, the second one replaces it.
    pub(in crate::qp) fn part(
        &mut self,
        pair: &QueuePair,
        part: &Part,
        payload: &[Segment],
        carrier: &Arc<dyn Carrier>,
    ) -> bool {
        let needs_reply = part.is_last() && part.request.service.is_reliable();
        let is_stream = part.request.service == Service::Iwarp;
        self.early = (needs_reply && !is_stream).then(|| Return::of(part, carrier));
        // On a stream, the data of a write with immediate data arrives as ordinary writes before this part, which
        // concludes the operation.
        let is_placed = is_stream && matches!(part.request.operation, Operation::WriteImmediate { .. });
        let (reply, has_failed) = if part.offset == 0 || is_placed {
            self.first_part(pair, part, payload, carrier)
        } else {
            self.next_part(pair, part, payload)
        };
        let back = self.early.take();
        if needs_reply && !is_stream && back.is_none() {
            // The reply was sent. It may have exceeded the limit of pending responses, and the QP has then failed.
            return has_failed || !pair.state().receives();
        }
        let Some(reply) = reply.filter(|_| part.request.service.is_reliable()) else {
            return has_failed;
        };
        // On a stream, TCP acknowledges the message, so only a request for data has a response.
        if is_stream && matches!(reply, Reply::Done { .. }) && !part.request.operation.is_read_or_atomic() {
            return has_failed;
        }
        let back = back.unwrap_or_else(|| Return::of(part, carrier));
        if is_stream && matches!(reply, Reply::NotReady { .. }) {
            // The connection keeps the message and delivers it again later, so this reply is sent at once instead of
            // after the queued responses.
            let _ = back.reply(pair, reply);
            return has_failed;
        }
        let read = match part.request.operation {
            Operation::Read { address, rkey } if matches!(reply, Reply::Done { .. }) => {
                let length = part.request.length;
                self.entry(pair, &part.request).ok().map(|entry| Reading {
                    address,
                    rkey,
                    length,
                    offset: 0,
                    is_repeat: false,
                    entry,
                })
            }
            _ => None,
        };
        let has_failed_now = match read {
            Some(reading) => self.respond_to_read(pair, back, reading),
            None => self.reply(pair, back, reply),
        };
        has_failed || has_failed_now
    }

    /// Finds the shared receive queue of an XRC message.
    fn entry(&self, pair: &QueuePair, request: &Request) -> Result<Option<SharedEntry>, Stop> {
        let is_xrc = pair.parts.service == Service::XrcReceive;
        if is_xrc { shared_entry(pair, request.srq_number).map(Some) } else { Ok(None) }
    }

    #[inline]
    fn first_part(
        &mut self,
        pair: &QueuePair,
        part: &Part,
        payload: &[Segment],
        carrier: &Arc<dyn Carrier>,
    ) -> (Option<Reply>, bool) {
        let request = &part.request;
        if !is_sound(pair, part) {
            return (Some(Reply::Silence), false);
        }
        if !self.is_accepted(pair, request) {
            let (reply, has_failed) = self.ignore(pair, request);
            return (Some(reply), has_failed);
        }
        // If a sender begins a message, it has finished or abandoned the previous one.
        self.end_arriving();
        if !part.is_last() {
            if request.service == Service::UnreliableDatagram {
                return (None, false);
            }
            return match self.begin(pair, part, carrier) {
                Ok(arriving) => self.go_on(pair, arriving, part, payload),
                Err(stop) => self.conclude_parts(pair, request, Err(stop)),
            };
        }
        let is_read = matches!(request.operation, Operation::Read { .. });
        let (reply, has_failed) =
            if is_read && self.responses.reads() >= usize::from(self.attributes.max_dest_rd_atomic) {
                self.finish(pair, request, Err(Stop::Refused(Refusal::InvalidRequest)))
            } else {
                self.handle(pair, request, &mut Carried(payload))
            };
        (Some(reply), has_failed)
    }

    fn next_part(&mut self, pair: &QueuePair, part: &Part, payload: &[Segment]) -> (Option<Reply>, bool) {
        // A connection has acknowledged the parts before, and so delivers this one only once.
        let is_reached = pair.is_reached() || pair.route.is_connection() && !pair.is_closed();
        let continues = is_reached
            && pair.state().receives()
            && self.arriving.as_ref().is_some_and(|arriving| {
                arriving.back.is_of(part)
                    && arriving.offset == part.offset
                    && (arriving.request.length == part.request.length || arriving.request.length == UNKNOWN_LENGTH)
            });
        if !continues || !is_sound(pair, part) {
            return (part.is_last().then_some(Reply::Silence), false);
        }
        match self.arriving.take() {
            Some(mut arriving) => {
                if arriving.request.length == UNKNOWN_LENGTH {
                    // Only the last part determines the length of the message and whether the message invalidates a
                    // key.
                    arriving.request = part.request;
                }
                let is_write = matches!(arriving.request.operation, Operation::Write { .. });
                if is_write && matches!(part.request.operation, Operation::WriteImmediate { .. }) {
                    // Only the last part of a write shows that it consumes a receive.
                    return self.go_on_with_receive(pair, arriving, part, payload);
                }
                self.go_on(pair, arriving, part, payload)
            }
            None => (None, false),
        }
    }

    /// Handles the last part of a write with immediate data, whose other parts have arrived as those of a write.
    fn go_on_with_receive(
        &mut self,
        pair: &QueuePair,
        mut arriving: Box<Inbound>,
        part: &Part,
        payload: &[Segment],
    ) -> (Option<Reply>, bool) {
        let entry = arriving.entry.clone();
        let taken = target_of(pair, entry.as_ref()).and_then(|target| {
            let work = self.take(&target)?;
            Ok(Taken::new(&target, work))
        });
        match taken {
            Ok(taken) => {
                arriving.request = part.request;
                arriving.taken = Some(taken);
                self.go_on(pair, arriving, part, payload)
            }
            Err(stop) => {
                let request = arriving.request;
                // The peer sends this part again.
                self.arriving = (stop == Stop::NotReady).then_some(arriving);
                self.conclude_parts(pair, &request, Err(stop))
            }
        }
    }

    /// Sends the data of a read again, whose responses were lost. Returns whether the QP failed.
    pub(in crate::qp) fn read_again(&mut self, pair: &QueuePair, part: &Part, carrier: &Arc<dyn Carrier>) -> bool {
        let back = Return::of(part, carrier);
        let is_accepted = pair.is_reached() && pair.state().receives();
        match (part.request.operation, self.entry(pair, &part.request)) {
            (Operation::Read { address, rkey }, Ok(entry)) if is_accepted => {
                let reading = Reading { address, rkey, length: part.request.length, offset: 0, is_repeat: true, entry };
                self.respond_to_read(pair, back, reading)
            }
            // The connection waits for the data.
            _ => self.reply(pair, back, Reply::Silence),
        }
    }

    /// Makes the checks of a message that do not depend on its data, and takes the receive that it consumes.
    fn begin(&mut self, pair: &QueuePair, part: &Part, carrier: &Arc<dyn Carrier>) -> Result<Box<Inbound>, Stop> {
        let request = part.request;
        let entry = self.entry(pair, &request)?;
        let target = target_of(pair, entry.as_ref())?;
        let work = match request.operation {
            Operation::Write { address, rkey } => {
                self.allow_write(&target, address, rkey, request.length)?;
                None
            }
            Operation::Send | Operation::SendImmediate { .. } | Operation::SendInvalidate { .. } => {
                let work = self.take(&target)?;
                let length = if request.length == UNKNOWN_LENGTH { part.length.into() } else { request.length };
                if let Err(error) = check_fits(&work, length) {
                    self.conclude(&target, &request, work, Err(error))?;
                    return Err(Stop::TooLong);
                }
                Some(work)
            }
            Operation::WriteImmediate { address, rkey, .. } => {
                let work = self.take(&target)?;
                if let Err(stop) = self.allow_write(&target, address, rkey, request.length) {
                    self.conclude(&target, &request, work, Err(ReceiveError::Other(stop)))?;
                    return Err(stop);
                }
                Some(work)
            }
            _ => return Err(Stop::Refused(Refusal::InvalidRequest)),
        };
        let taken = work.map(|work| Taken::new(&target, work));
        Ok(Box::new(Inbound { request, back: Return::of(part, carrier), offset: 0, taken, entry }))
    }

    /// Checks that the QP and the memory allow a write. When a part of the write arrives, the memory of this part is
    /// checked again.
    fn allow_write(&self, target: &Target<'_>, address: u64, rkey: u32, length: u64) -> Result<(), Stop> {
        let access = ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0;
        self.allow(target, access)?;
        target.remote(rkey, address, length, access).map(drop)
    }

    /// Copies a part to its target. If the part is the last one, completes the message.
    fn go_on(
        &mut self,
        pair: &QueuePair,
        mut arriving: Box<Inbound>,
        part: &Part,
        payload: &[Segment],
    ) -> (Option<Reply>, bool) {
        let request = arriving.request;
        let entry = arriving.entry.clone();
        let target = match target_of(pair, entry.as_ref()) {
            Ok(target) => target,
            Err(stop) => return self.conclude_parts(pair, &request, Err(stop)),
        };
        let mut result = move_part(&target, &arriving, part, payload);
        if result.is_ok() {
            arriving.offset += u64::from(part.length);
            if arriving.offset < request.length {
                self.arriving = Some(arriving);
                return (None, false);
            }
            result = invalidate(&target, &request);
        }
        let result = match arriving.taken.take() {
            Some(taken) => self.conclude(&target, &request, taken.work, result),
            None => result.map_err(|error| error.end(target.service).1),
        };
        self.conclude_parts(pair, &request, result)
    }

    fn conclude_parts(
        &mut self,
        pair: &QueuePair,
        request: &Request,
        result: Result<(), Stop>,
    ) -> (Option<Reply>, bool) {
        let (reply, has_failed) = self.finish(pair, request, result.map(|()| 0));
        (Some(reply), has_failed)
    }

    /// Abandons a message that has partly arrived, and keeps its receive for the next message.
    pub(in crate::qp) fn end_arriving(&mut self) {
        if let Some(arriving) = self.arriving.take() {
            self.taken.extend(arriving.taken);
        }
    }

    /// Drops the references to a shared receive queue that is being destroyed, and abandons the messages that address
    /// it.
    pub(in crate::qp) fn release(&mut self, queue: &Arc<ReceiveQueue>) {
        if self.arriving.as_ref().is_some_and(|arriving| arriving.entry.as_ref().is_some_and(|entry| entry.is(queue))) {
            self.arriving = None;
        }
        self.taken.retain(|taken| !taken.is_of(queue));
        self.responses.release(queue);
    }

    /// Abandons the messages and responses on a carrier that is lost.
    ///
    /// A receive taken from a shared queue stays with the QP, as with a NIC, which does not notice the end of its peer.
    /// The QP keeps this receive until the next message uses it, or until the program flushes, resets or destroys the
    /// QP.
    pub(in crate::qp) fn lose(&mut self, carrier: &Arc<dyn Carrier>) {
        if self.arriving.as_ref().is_some_and(|arriving| arriving.back.is_by(carrier)) {
            self.end_arriving();
        }
        self.responses.lose(carrier);
    }
}

/// Copies a part to its target.
fn move_part(target: &Target<'_>, arriving: &Inbound, part: &Part, payload: &[Segment]) -> Result<(), ReceiveError> {
    let (offset, length) = (arriving.offset, u64::from(part.length));
    match arriving.request.operation {
        Operation::Write { address, rkey } | Operation::WriteImmediate { address, rkey, .. } => {
            let access = ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0;
            let address = address.wrapping_add(offset);
            let segment = target.remote(rkey, address, length, access).map_err(ReceiveError::Other)?;
            bytes::copy(payload, slice::from_ref(&segment))
                .map_err(|_| ReceiveError::Other(Stop::Refused(Refusal::OperationError)))
        }
        _ => {
            let pieces = arriving.taken.as_ref().map_or(&[][..], |taken| taken.work.pieces.as_slice());
            if let Some(taken) = arriving.taken.as_ref().filter(|_| target.pair.route.is_connection()) {
                check_fits(&taken.work, offset + length)?;
            }
            let mut segments = Segments::new();
            Memory::of_process()
                .map(target.receives.domain, pieces, offset, length, true, &mut segments)
                .and_then(|()| bytes::copy(payload, &segments))
                .map_err(|_| ReceiveError::Memory)
        }
    }
}
