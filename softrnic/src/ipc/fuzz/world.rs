//! A queue pair with memory of three kinds, and what is counted of it.

use std::sync::Arc;

use rdma_mummy_sys::ibv_access_flags;

use super::messages::{Way, is_success};
use crate::cq::{CompletionEvents, CompletionQueue};
use crate::mem::domain::Domain;
use crate::mem::{Access, Backing, Buffer, Memory, Piece, Region};
use crate::qp::registry::{QpRegistry, SharedEntry};
use crate::qp::{Attributes, Destination, PairEvent, PairEvents, Parts, QueuePair, State};
use crate::srq::{ReceiveEvents, ReceiveQueue};
use crate::wire::address::{Gid, Path};
use crate::wire::operation::{Operation, Service};

/// The number of the peer's queue pair.
pub(super) const PEER: u32 = 0x65_4321;
/// By which requests name the first byte of each memory.
pub(super) const IOVA: u64 = 0x4000_0000;
/// Fills what no peer may read or write.
const SECRET: u8 = 0xc5;
/// The bytes of each memory.
const LENGTH: usize = 32 << 10;
/// Requests and receives that can wait.
const SLOTS: u32 = 16;
/// 127.0.0.1, which is here on any host.
pub(super) const HERE: Gid = Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1]);

const LOCAL: Access = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0;
const ALL: Access = LOCAL
    | ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0
    | ibv_access_flags::IBV_ACCESS_REMOTE_READ.0
    | ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC.0
    | ibv_access_flags::IBV_ACCESS_FLUSH_GLOBAL.0;

/// Whose memory it is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Own {
    /// The peer may do anything with it.
    Granted,
    /// It is in the same domain, and not for peers.
    Kept,
    /// It is for peers of another domain.
    Others,
}

/// Nobody asks.
#[derive(Debug)]
struct Deaf;

impl CompletionEvents for Deaf {
    fn completed(&self) {}
    fn overrun(&self) {
        panic!("a completion was lost");
    }
}

impl ReceiveEvents for Deaf {
    fn limit_reached(&self) {}
}

impl PairEvents for Deaf {
    fn happened(&self, _: PairEvent) {}
}

/// A queue pair, and all that it has.
pub(super) struct World {
    pub(super) pair: Arc<QueuePair>,
    pub(super) way: Arc<Way>,
    service: Service,
    waits_for_receives: bool,
    /// One after the other: granted, kept, of others.
    buffer: Arc<Buffer>,
    regions: [Arc<Region>; 3],
    completions: Arc<CompletionQueue>,
    receives: Arc<ReceiveQueue>,
    shared_number: Option<u32>,
    /// Of each request, by its id: whether it has completed.
    completed: Vec<bool>,
    has_done: bool,
}

impl World {
    /// One that is connected; `waits_for_receives` where its requests are tried again that find no receive.
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
        let completions = Arc::new(CompletionQueue::new(1 << 12, false, Box::new(Deaf)));
        let is_shared = service == Service::XrcReceive;
        let xrc_domain = is_shared.then(|| Arc::new(Domain::new()));
        let receives = Arc::new(match is_shared {
            true => ReceiveQueue::shared(domain.clone(), SLOTS, 4, Box::new(Deaf)),
            false => ReceiveQueue::new(SLOTS, 4),
        });
        let shared_number = xrc_domain.clone().map(|xrc_domain| {
            let (queue, completions) = (receives.clone(), completions.clone());
            QpRegistry::of_process().enter_shared(SharedEntry { queue, completions, xrc_domain }).expect("a number")
        });
        let queue = (!is_shared).then(|| completions.clone());
        let parts = Parts {
            service,
            domain,
            send_queue: queue.clone(),
            receive_queue: queue,
            receives: if is_shared { Arc::new(ReceiveQueue::new(SLOTS, 4)) } else { receives.clone() },
            is_shared: false,
            xrc_domain,
            max_send_wr: if is_shared { 0 } else { SLOTS },
            max_send_sge: 4,
            max_inline: 64,
            signals_all: false,
            events: Box::new(Deaf),
        };
        let pair = QueuePair::new(parts).expect("a number");
        let way = Arc::new(Way::default());
        way.set_room(1 << 10);
        QpRegistry::of_process().teach(PEER, Some(way.clone()));
        let world = Self {
            pair,
            way,
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

    /// Begins anew, as a peer of [`PEER`].
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
        // Of those that a timer may have ended meanwhile the state is not what it was a moment ago.
        while self.pair.change(self.pair.state(), State::Reset, attributes).is_err() {}
        for way in states.windows(2) {
            self.pair.change(way[0], way[1], attributes).expect("a change that there is");
        }
    }

    pub(super) fn key(&self, own: Own) -> u32 {
        self.regions[own as usize].key()
    }

    /// The number of its shared receive queue, where it has one.
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

    /// Posts a receive, where there is room.
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

    /// Posts a request, where its service has it and there is room.
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

    /// Takes the completions.
    pub(super) fn poll(&mut self) {
        while let Some(completion) = self.completions.pop() {
            let completed = self.completed.get_mut(completion.wr_id as usize).expect("a request that was posted");
            assert!(!std::mem::replace(completed, true), "{completion:?} for the second time");
            self.has_done |= is_success(completion.status);
        }
    }

    /// Ends it; whether it worked until then, and has done anything.
    pub(super) fn close(&mut self) -> bool {
        let is_working = self.pair.state() == State::ReadyToSend && (self.has_done || self.way.has_agreed());
        self.poll();
        self.pair.close();
        QpRegistry::of_process().teach(PEER, None);
        self.shared_number.into_iter().for_each(|number| QpRegistry::of_process().leave_shared(number, &self.receives));
        for region in &self.regions {
            Memory::of_process().deregister(region).expect("nobody uses it any more");
        }
        is_working
    }

    /// Nothing has changed that was not granted, and nothing of it is in what went to the peer.
    pub(super) fn check(&self, sent: &[u8]) {
        let start = std::ptr::with_exposed_provenance::<u8>(self.buffer.address(LENGTH));
        let mut kept = vec![0; 2 * LENGTH];
        // SAFETY: bytes of the buffer, which nobody uses any more, as no region of it is registered.
        unsafe { start.copy_to_nonoverlapping(kept.as_mut_ptr(), kept.len()) };
        assert!(kept.iter().all(|&byte| byte == SECRET), "memory that was not granted has changed");
        assert!(!sent.windows(64).any(|bytes| bytes == [SECRET; 64]), "memory that was not granted was read");
    }
}

/// Sets the bytes of one of the memories.
fn fill(buffer: &Buffer, offset: usize, byte: u8) {
    assert!(offset + LENGTH <= buffer.len());
    let start = std::ptr::with_exposed_provenance_mut::<u8>(buffer.address(offset));
    // SAFETY: within the buffer, which nobody knows of yet.
    unsafe { start.write_bytes(byte, LENGTH) };
}
