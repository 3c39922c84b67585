//! A QP with three kinds of memory, and the records of its requests.

use std::sync::Arc;

use rdma_mummy_sys::{ibv_access_flags, ibv_wc_status};

use super::carrier::RecordingCarrier;
use crate::cq::{CompletionEvents, CompletionQueue};
use crate::mem::domain::Domain;
use crate::mem::{Access, Backing, Buffer, Memory, Piece, Region};
use crate::qp::registry::{QpRegistry, SharedEntry};
use crate::qp::{Attributes, Destination, PairEvent, PairEvents, Parts, QueuePair, Reach, State};
use crate::srq::{ReceiveEvents, ReceiveQueue};
use crate::wire::address::{Gid, Path};
use crate::wire::condition::HEALTHY;
use crate::wire::limits;
use crate::wire::operation::{Operation, Service};

/// The QP number of the peer.
pub(super) const PEER: u32 = 0x65_4321;
/// The I/O virtual address at which each of the memories starts.
pub(super) const IOVA: u64 = 0x4000_0000;
/// The value of each byte in memory that no peer may access.
const SECRET: u8 = 0xc5;
/// The length of each of the memories.
const LENGTH: usize = 32 << 10;
/// The capacity of the send and receive queues.
const SLOTS: u32 = 16;
/// 127.0.0.1, which is local on every host.
pub(super) const HERE: Gid = Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1]);

const LOCAL: Access = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0;
const ALL: Access = LOCAL
    | ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0
    | ibv_access_flags::IBV_ACCESS_REMOTE_READ.0
    | ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC.0
    | ibv_access_flags::IBV_ACCESS_FLUSH_GLOBAL.0;

/// The kinds of memory.
#[derive(Clone, Copy, Debug)]
pub(super) enum Own {
    /// Memory that grants peers all access rights.
    Granted,
    /// Memory of the same domain, which grants no access rights to peers.
    Kept,
    /// Memory of another domain, which grants access rights to peers.
    Others,
}

/// Ignores the events of the QP.
#[derive(Debug)]
struct IgnoreEvents;

impl CompletionEvents for IgnoreEvents {
    fn completed(&self) {}
    fn overrun(&self) {
        panic!("a completion was lost");
    }
}

impl ReceiveEvents for IgnoreEvents {
    fn limit_reached(&self) {}
}

impl PairEvents for IgnoreEvents {
    fn happened(&self, _: PairEvent) {}
}

/// A QP and the objects that it requires.
pub(super) struct World {
    pub(super) pair: Arc<QueuePair>,
    pub(super) carrier: Arc<RecordingCarrier>,
    service: Service,
    waits_for_receives: bool,
    /// The three memories in the order of [`Own`].
    buffer: Arc<Buffer>,
    regions: [Arc<Region>; 3],
    completions: Arc<CompletionQueue>,
    receives: Arc<ReceiveQueue>,
    shared_number: Option<u32>,
    /// Whether each request has completed, by the ID of the request.
    completed: Vec<bool>,
    has_done: bool,
}

impl World {
    /// Creates a QP that is connected to [`PEER`]. If `waits_for_receives` is set, it retries requests for which no
    /// receive is posted.
    pub(super) fn new(service: Service, waits_for_receives: bool) -> Self {
        let (domain, other) = (Arc::new(Domain::new()), Arc::new(Domain::new()));
        let buffer = Arc::new(Buffer::new(3 * LENGTH, 64).expect("memory"));
        fill(&buffer, 0, 0);
        fill(&buffer, LENGTH, SECRET);
        fill(&buffer, 2 * LENGTH, SECRET);
        let region = |domain, place, access| {
            let backing = Backing::Own { address: buffer.address(place * LENGTH), keep: buffer.clone() };
            Memory::of_process().register(domain, backing, LENGTH as u64, IOVA, access).expect("a region")
        };
        let regions = [region(&domain, 0, ALL), region(&domain, 1, LOCAL), region(&other, 2, ALL)];
        let completions = Arc::new(CompletionQueue::new(1 << 12, false, Box::new(IgnoreEvents)));
        let is_shared = service == Service::XrcReceive;
        let xrc_domain = is_shared.then(|| Arc::new(Domain::new()));
        let receives = Arc::new(match is_shared {
            true => ReceiveQueue::shared(domain.clone(), SLOTS, 4, Box::new(IgnoreEvents)),
            false => ReceiveQueue::new(SLOTS, 4),
        });
        let shared_number = xrc_domain.clone().map(|xrc_domain| {
            let (queue, completions) = (receives.clone(), completions.clone());
            QpRegistry::of_process().enter_shared(SharedEntry { queue, completions, xrc_domain }).expect("a number")
        });
        let queue = (!is_shared).then(|| completions.clone());
        let parts = Parts {
            service,
            reach: Reach::Registry,
            domain,
            send_queue: queue.clone(),
            receive_queue: queue,
            receives: if is_shared { Arc::new(ReceiveQueue::new(SLOTS, 4)) } else { receives.clone() },
            is_shared: false,
            xrc_domain,
            max_send_wr: if is_shared { 0 } else { SLOTS },
            max_send_sge: 4,
            max_inline: 64,
            max_message: limits::MAX_MSG_SIZE,
            signals_all: false,
            events: Box::new(IgnoreEvents),
            condition: &HEALTHY,
        };
        let pair = QueuePair::new(parts).expect("a number");
        let carrier = Arc::new(RecordingCarrier::default());
        carrier.set_space(1 << 10);
        QpRegistry::of_process().set_test_route(PEER, Some(carrier.clone()));
        let world = Self {
            pair,
            carrier,
            service,
            waits_for_receives,
            buffer,
            regions,
            completions,
            receives,
            shared_number,
            completed: Vec::new(),
            has_done: false,
        };
        world.connect();
        world
    }

    /// Resets the QP, and connects it to [`PEER`].
    pub(super) fn connect(&self) {
        let path = Path {
            destination: HERE,
            source: HERE,
            source_index: 0,
            flow_label: 0,
            hop_limit: 64,
            traffic_class: 0,
            service_level: 0,
            port: 1,
            static_rate: 0,
        };
        let attributes = Attributes {
            path: Some(path),
            path_mtu: 1024,
            destination_number: PEER,
            access: ALL,
            max_rd_atomic: 4,
            max_dest_rd_atomic: 4,
            min_rnr_timer: 1,
            retry_count: 2,
            rnr_retry: if self.waits_for_receives { 7 } else { 0 },
            key: 0x1234,
            ..Attributes::new()
        };
        let states = [State::Reset, State::Init, State::ReadyToReceive, State::ReadyToSend];
        // The timer may change the state at the same time.
        while self.pair.change(self.pair.state(), State::Reset, attributes).is_err() {}
        for carrier in states.windows(2) {
            self.pair.change(carrier[0], carrier[1], attributes).expect("a valid transition");
        }
    }

    pub(super) fn key(&self, own: Own) -> u32 {
        self.regions[own as usize].key()
    }

    /// Returns the number of the shared receive queue of the QP, if it has one.
    pub(super) fn shared_number(&self) -> u32 {
        self.shared_number.unwrap_or(1)
    }

    fn next_id(&mut self) -> u64 {
        self.completed.push(false);
        self.completed.len() as u64 - 1
    }

    fn piece(&self, length: u16) -> Piece {
        Piece { address: IOVA, length: length.into(), lkey: self.key(Own::Granted) }
    }

    /// Posts a receive, unless the queue is full.
    pub(super) fn receive(&mut self, length: u16) {
        let (wr_id, piece) = (self.next_id(), self.piece(length % LENGTH as u16));
        let posted = self.receives.post(|work| {
            work.wr_id = wr_id;
            work.pieces.push(piece);
            Ok(())
        });
        if posted.is_err() {
            self.completed.pop();
        } else if self.pair.state() == State::Error {
            self.pair.receive_posted();
        }
    }

    /// Posts a request, unless the service does not support it or the queue is full.
    pub(super) fn post(&mut self, operation: Operation, length: u16, number: u32) {
        if !self.service.sends(operation) || matches!(self.pair.state(), State::Reset) {
            return;
        }
        let (wr_id, piece) = (self.next_id(), self.piece(length % LENGTH as u16));
        let destination = (self.service == Service::UnreliableDatagram).then(|| Destination {
            path: self.pair.attributes().path.expect("it is connected"),
            number,
            key: 0x1234,
        });
        let mut batch = self.pair.batch();
        let is_posted = batch.push().map(|work| {
            (work.wr_id, work.operation, work.is_signaled, work.destination) = (wr_id, operation, true, destination);
            work.pieces.push(piece);
        });
        batch.complete();
        if is_posted.is_err() {
            self.completed.pop();
        }
    }

    pub(super) fn poll(&mut self) {
        while let Some(completion) = self.completions.pop() {
            let completed = self.completed.get_mut(completion.wr_id as usize).expect("a request that was posted");
            assert!(!std::mem::replace(completed, true), "{completion:?} for the second time");
            self.has_done |= completion.status == ibv_wc_status::IBV_WC_SUCCESS;
        }
    }

    /// Closes the QP. Returns whether the QP was working and had completed a request.
    pub(super) fn close(&mut self) -> bool {
        let is_working = self.pair.state() == State::ReadyToSend && (self.has_done || self.carrier.has_completed());
        self.poll();
        self.pair.close();
        QpRegistry::of_process().set_test_route(PEER, None);
        self.shared_number.into_iter().for_each(|number| QpRegistry::of_process().leave_shared(number, &self.receives));
        for region in &self.regions {
            Memory::of_process().deregister(region).expect("an unused region");
        }
        is_working
    }

    /// Asserts that no memory that was not granted has changed or was sent to the peer.
    pub(super) fn check(&self, sent: &[u8]) {
        let start = std::ptr::with_exposed_provenance::<u8>(self.buffer.address(LENGTH));
        let mut kept = vec![0; 2 * LENGTH];
        // SAFETY: the bytes are in the buffer, which has no other user, because its regions are deregistered.
        unsafe { start.copy_to_nonoverlapping(kept.as_mut_ptr(), kept.len()) };
        assert!(kept.iter().all(|&byte| byte == SECRET), "memory that was not granted has changed");
        assert!(!sent.windows(64).any(|bytes| bytes == [SECRET; 64]), "memory that was not granted was read");
    }
}

/// Sets all bytes of one of the memories.
fn fill(buffer: &Buffer, offset: usize, byte: u8) {
    assert!(offset + LENGTH <= buffer.len());
    let start = std::ptr::with_exposed_provenance_mut::<u8>(buffer.address(offset));
    // SAFETY: the bytes are within the buffer, which is not shared yet.
    unsafe { start.write_bytes(byte, LENGTH) };
}
