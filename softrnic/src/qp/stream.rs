//! The connection of an iWARP QP. Each connection has its own carrier.

use std::ptr;
use std::sync::{Arc, Mutex};

use rdma_mummy_sys::ibv_access_flags;

use crate::qp::send::attempt::status_of;
use crate::qp::{Attributes, PairEvent, QpRegistry, QueuePair, State};
use crate::sys::errno::Errno;
use crate::sys::unpoisoned;
use crate::wire::address::Path;
use crate::wire::message::Refusal;
use crate::wire::packet::STREAM_PEER;
use crate::wire::transport::Carrier;

/// The carrier of the connection. It is set when the QP is connected, and cleared when the QP is moved to RESET or
/// destroyed. A thread takes the lock of the carrier after the locks of the QP.
#[derive(Debug, Default)]
pub(super) struct Stream(Mutex<Option<Arc<dyn Carrier>>>);

impl Stream {
    #[cold]
    pub(super) fn carrier(&self) -> Option<Arc<dyn Carrier>> {
        unpoisoned(self.0.lock()).clone()
    }

    #[cold]
    pub(super) fn end(&self) {
        if let Some(carrier) = self.carrier() {
            carrier.end();
        }
    }
}

impl QueuePair {
    /// Connects an iWARP QP in INIT with a carrier, and moves it to RTS. `initiated` and `accepted` limit the number of
    /// reads.
    pub(crate) fn connect(
        &self,
        carrier: Arc<dyn Carrier>,
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
        *unpoisoned(self.stream.0.lock()) = Some(carrier);
        self.change(State::ReadyToReceive, State::ReadyToSend, attributes)
    }

    /// Handles the end of the stream. Fails the oldest request if the peer has refused it, and flushes the other
    /// requests.
    pub(crate) fn stream_ended(&self, carrier: &Arc<dyn Carrier>, refusal: Option<Refusal>) {
        let mut requester = unpoisoned(self.requester.lock());
        let is_ours = self.stream.carrier().is_some_and(|own| ptr::addr_eq(Arc::as_ptr(&own), Arc::as_ptr(carrier)));
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

    /// Delivers all packets that have arrived from other processes, and those that have arrived on the stream.
    pub(super) fn settle(&self) {
        QpRegistry::of_process().settle();
        if let Some(carrier) = self.stream.carrier() {
            carrier.settle();
        }
    }
}
