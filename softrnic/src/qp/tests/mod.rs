//! Tests of connected QPs.

mod backpressure;
mod datagrams;
mod elsewhere;
mod errors;
// CUDA has no driver of 32 bits.
#[cfg(target_pointer_width = "64")]
mod gpus;
mod groups;
mod keys;
mod operations;
mod overruns;
mod programs;
mod remote_send;
mod retries;
mod silence;
mod states;
mod streams;
mod threads;
mod wire;
mod xrc;

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rdma_mummy_sys::{ibv_access_flags, ibv_wc_status};

use super::*;
use crate::cq::{Completion, CompletionEvents, CompletionQueue};
use crate::mem::domain::Domain;
use crate::mem::{Access, Backing, Buffer, Memory, Piece, Region};
use crate::qp::{PairEvent, PairEvents, SendWork};
use crate::srq::{ReceiveEvents, ReceiveQueue};
use crate::wire::address::{Gid, Path};
use crate::wire::condition::HEALTHY;
use crate::wire::limits;
use crate::wire::operation::Operation;

pub(super) const LOCAL_WRITE: Access = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0;
pub(super) const REMOTE_WRITE: Access = ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0;
pub(super) const REMOTE_READ: Access = ibv_access_flags::IBV_ACCESS_REMOTE_READ.0;
pub(super) const REMOTE_ATOMIC: Access = ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC.0;
pub(super) const FLUSH: Access = ibv_access_flags::IBV_ACCESS_FLUSH_GLOBAL.0;
pub(super) const ALL: Access = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC | FLUSH;

pub(super) const SUCCESS: ibv_wc_status = ibv_wc_status::IBV_WC_SUCCESS;
pub(super) const FLUSHED: ibv_wc_status = ibv_wc_status::IBV_WC_WR_FLUSH_ERR;

/// Records the events of a QP.
#[derive(Clone, Debug, Default)]
pub(super) struct EventLog(Arc<Mutex<Vec<PairEvent>>>);

impl EventLog {
    /// Returns the events since the last call.
    pub(super) fn events(&self) -> Vec<PairEvent> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl PairEvents for EventLog {
    fn happened(&self, event: PairEvent) {
        self.0.lock().unwrap().push(event);
    }
}

/// Ignores the events of a completion queue or a receive queue.
#[derive(Debug)]
pub(super) struct IgnoreEvents;

impl CompletionEvents for IgnoreEvents {
    fn completed(&self) {}
    fn overrun(&self) {
        panic!("a completion was lost");
    }
}

impl ReceiveEvents for IgnoreEvents {
    fn limit_reached(&self) {}
}

pub(super) fn queue() -> Arc<CompletionQueue> {
    Arc::new(CompletionQueue::new(1 << 12, false, Box::new(IgnoreEvents)))
}

/// Bytes that are registered at other I/O virtual addresses than their own addresses.
pub(super) struct Bytes {
    pub(super) region: Arc<Region>,
    buffer: Arc<Buffer>,
}

/// The I/O virtual address of [`Bytes`].
pub(super) const IOVA: u64 = 0x4000_0000;

impl Bytes {
    pub(super) fn new(domain: &Arc<Domain>, length: usize, access: Access) -> Self {
        let buffer = Arc::new(Buffer::new(length, 64).unwrap());
        let backing = Backing::Own { address: buffer.address(0), keep: buffer.clone() };
        let region = Memory::of_process().register(domain, backing, length as u64, IOVA, access).unwrap();
        Self { region, buffer }
    }

    pub(super) fn key(&self) -> u32 {
        self.region.key()
    }

    pub(super) fn piece(&self, offset: usize, length: usize) -> Piece {
        Piece { address: IOVA + offset as u64, length: length as u32, lkey: self.key() }
    }

    pub(super) fn get(&self, offset: usize, length: usize) -> Vec<u8> {
        assert!(offset + length <= self.buffer.len());
        let start = ptr::with_exposed_provenance::<u8>(self.buffer.address(offset));
        // Under Miri, copying byte by byte would take minutes.
        if cfg!(miri) {
            let mut bytes = vec![0; length];
            // SAFETY: the bytes are within the buffer. Miri detects a concurrent write by a peer.
            unsafe { start.copy_to_nonoverlapping(bytes.as_mut_ptr(), length) };
            return bytes;
        }
        // SAFETY: the bytes are within the buffer. The reads are volatile, because a peer may write concurrently.
        (0..length).map(|index| unsafe { start.add(index).read_volatile() }).collect()
    }

    pub(super) fn set(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.buffer.len());
        let start = ptr::with_exposed_provenance_mut::<u8>(self.buffer.address(offset));
        if cfg!(miri) {
            // SAFETY: as above.
            return unsafe { start.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        }
        for (index, &byte) in bytes.iter().enumerate() {
            // SAFETY: the byte is within the buffer. The write is volatile, because a peer may read concurrently.
            unsafe { start.add(index).write_volatile(byte) };
        }
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        // This fails if the test has already deregistered the region.
        let _ = Memory::of_process().deregister(&self.region);
    }
}

/// A QP and all objects that it requires.
pub(crate) struct End {
    pub(super) domain: Arc<Domain>,
    pub(super) sends: Arc<CompletionQueue>,
    pub(super) receives: Arc<CompletionQueue>,
    pub(super) log: EventLog,
    pub(crate) pair: Arc<QueuePair>,
    /// The memory of this end, which has [`LENGTH`] bytes.
    pub(super) bytes: Bytes,
}

impl Drop for End {
    fn drop(&mut self) {
        self.pair.close();
    }
}

pub(super) const LENGTH: usize = 8192;
pub(super) const SLOTS: u32 = 16;

impl End {
    pub(crate) fn new(service: Service) -> Self {
        Self::with(service, |_| {})
    }

    pub(super) fn with(service: Service, change: impl FnOnce(&mut Parts)) -> Self {
        let (sends, receives, log) = (queue(), queue(), EventLog::default());
        let domain = Arc::new(Domain::new());
        let mut parts = Parts {
            service,
            reach: if service == Service::Iwarp { Reach::Connection } else { Reach::Registry },
            domain,
            send_queue: Some(sends.clone()),
            receive_queue: Some(receives.clone()),
            receives: Arc::new(ReceiveQueue::new(SLOTS, 4)),
            is_shared: false,
            xrc_domain: None,
            max_send_wr: SLOTS,
            max_send_sge: 4,
            max_inline: 64,
            max_message: if service == Service::UnreliableDatagram { limits::MTU } else { limits::MAX_MSG_SIZE },
            signals_all: false,
            events: Box::new(log.clone()),
            condition: &HEALTHY,
        };
        change(&mut parts);
        let domain = parts.domain.clone();
        let pair = QueuePair::new(parts).unwrap();
        let bytes = Bytes::new(&domain, LENGTH, ALL);
        Self { domain, sends, receives, log, pair, bytes }
    }

    /// Connects this end to the QP `number`, and moves it to RTS.
    pub(super) fn connect(&self, number: u32) {
        self.ready(&attributes(number));
    }

    pub(super) fn ready(&self, attributes: &Attributes) {
        self.ready_to_receive(attributes);
        self.pair.change(State::ReadyToReceive, State::ReadyToSend, *attributes).unwrap();
    }

    pub(super) fn ready_to_receive(&self, attributes: &Attributes) {
        self.pair.change(State::Reset, State::Init, *attributes).unwrap();
        self.pair.change(State::Init, State::ReadyToReceive, *attributes).unwrap();
    }

    pub(super) fn post(&self, wr_id: u64, operation: Operation, fill: impl FnOnce(&mut SendWork)) {
        let mut batch = self.pair.batch();
        let work = batch.push().unwrap();
        work.wr_id = wr_id;
        work.operation = operation;
        work.is_signaled = true;
        fill(work);
        batch.complete();
    }

    /// Posts a request whose memory starts at `offset`.
    pub(super) fn post_bytes(&self, wr_id: u64, operation: Operation, offset: usize, length: usize) {
        self.post(wr_id, operation, |work| work.pieces.push(self.bytes.piece(offset, length)));
    }

    pub(super) fn receive(&self, wr_id: u64, pieces: &[Piece]) {
        let fill = |work: &mut crate::srq::ReceiveWork| {
            work.wr_id = wr_id;
            work.pieces.extend_from_slice(pieces);
            Ok(())
        };
        self.pair.parts().receives.post(fill).unwrap();
        if self.pair.state() == State::Error {
            self.pair.receive_posted();
        }
    }

    pub(super) fn receive_bytes(&self, wr_id: u64, offset: usize, length: usize) {
        self.receive(wr_id, &[self.bytes.piece(offset, length)]);
    }

    /// Returns the next completion of a send, which must already be in the queue.
    pub(super) fn sent(&self) -> Completion {
        self.sends.pop().unwrap()
    }

    pub(super) fn received(&self) -> Completion {
        self.receives.pop().unwrap()
    }

    pub(super) fn sent_statuses(&self) -> Vec<(u64, ibv_wc_status)> {
        statuses(&self.sends)
    }

    pub(super) fn received_statuses(&self) -> Vec<(u64, ibv_wc_status)> {
        statuses(&self.receives)
    }

    /// Returns the address of a byte of this end and the remote key.
    pub(super) fn at(&self, offset: usize) -> (u64, u32) {
        (IOVA + offset as u64, self.bytes.key())
    }
}

fn statuses(queue: &CompletionQueue) -> Vec<(u64, ibv_wc_status)> {
    std::iter::from_fn(|| queue.pop()).map(|completion| (completion.wr_id, completion.status)).collect()
}

/// Polls until there is a completion.
pub(super) fn poll(queue: &CompletionQueue) -> Completion {
    let limit = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(completion) = queue.pop() {
            return completion;
        }
        assert!(Instant::now() < limit, "timed out waiting for a completion");
        thread::yield_now();
    }
}

/// 127.0.0.1, which is local on every host.
pub(super) const HERE: Gid = Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1]);

pub(super) fn path(destination: Gid) -> Path {
    Path {
        destination,
        source: HERE,
        source_index: 0,
        flow_label: 0,
        hop_limit: 64,
        traffic_class: 0,
        service_level: 0,
        port: 1,
        static_rate: 0,
    }
}

pub(super) fn attributes(number: u32) -> Attributes {
    Attributes {
        path: Some(path(HERE)),
        path_mtu: 1024,
        destination_number: number,
        rq_psn: 0xff_fff0,
        sq_psn: 0xff_fff0,
        access: ALL,
        max_rd_atomic: 1,
        max_dest_rd_atomic: 1,
        min_rnr_timer: 1,
        timeout: 1,
        retry_count: 2,
        rnr_retry: 2,
        key: 0x1234,
        ..Attributes::new()
    }
}

/// Creates two connected QPs.
pub(super) fn connected(service: Service) -> (End, End) {
    let (a, b) = (End::new(service), End::new(service));
    a.connect(b.pair.number());
    b.connect(a.pair.number());
    (a, b)
}

pub(super) fn reliable() -> (End, End) {
    connected(Service::ReliableConnection)
}
