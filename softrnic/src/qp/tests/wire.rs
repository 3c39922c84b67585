//! Simulates another process. The packets stay within this process, and the test determines when they are delivered.
//!
//! Under its own number, a QP is local. Under the number with [`FLAG`] flipped, the same QP is "in another process".

use std::collections::VecDeque;
use std::sync::atomic::AtomicUsize;

use super::*;
use crate::qp::registry::ToQueuePairs;
use crate::wire::bytes::Segment;
use crate::wire::packet::{Packet, Payload, ResponseKind};
use crate::wire::transport::{Dedicated, Deliver, Stuck, Wake};

/// A bit that is not set in the numbers that tests use.
pub(super) const FLAG: u32 = 1 << 22;

/// A carrier in one direction, which has limited space.
#[derive(Debug)]
pub(super) struct Wire {
    packets: Mutex<VecDeque<(Packet, Vec<u8>)>>,
    space: AtomicUsize,
    is_gone: AtomicBool,
    taken: AtomicUsize,
    waiting: Mutex<Vec<Weak<dyn Wake>>>,
}

impl Wire {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            packets: Mutex::default(),
            space: AtomicUsize::new(usize::MAX),
            is_gone: AtomicBool::new(false),
            taken: AtomicUsize::new(0),
            waiting: Mutex::default(),
        })
    }

    pub(super) fn set_space(&self, packets: usize) {
        self.set_space_quietly(packets);
        self.call();
    }

    /// Changes the space without a wake-up.
    pub(super) fn set_space_quietly(&self, packets: usize) {
        self.space.store(packets, Ordering::Relaxed);
    }

    pub(super) fn len(&self) -> usize {
        self.packets.lock().unwrap().len()
    }

    /// Drops the packets in flight.
    pub(super) fn clear(&self) {
        self.packets.lock().unwrap().clear();
    }

    /// Drops the packets in flight, and accepts no more.
    pub(super) fn lose(&self) {
        self.is_gone.store(true, Ordering::Relaxed);
        self.clear();
        self.call();
    }

    /// Wakes the waiting QPs.
    pub(super) fn call(&self) {
        let waiting = std::mem::take(&mut *self.waiting.lock().unwrap());
        waiting.iter().filter_map(Weak::upgrade).for_each(|pair| pair.wake());
    }

    /// Removes and returns the waiting QPs. They are woken only after [`put_back`](Self::put_back).
    pub(super) fn put_off(&self) -> Vec<Weak<dyn Wake>> {
        std::mem::take(&mut *self.waiting.lock().unwrap())
    }

    pub(super) fn put_back(&self, waiting: Vec<Weak<dyn Wake>>) {
        self.waiting.lock().unwrap().extend(waiting);
    }

    pub(super) fn pop(&self) -> Option<(Packet, Vec<u8>)> {
        let mut packets = self.packets.lock().unwrap();
        self.taken.fetch_add(1, Ordering::Relaxed);
        packets.pop_front()
    }
}

impl Carrier for Wire {
    fn put(&self, packet: &Packet, payload: Payload<'_>) -> Result<(), Stuck> {
        if self.is_gone.load(Ordering::Relaxed) {
            return Err(Stuck::Lost);
        }
        let mut packets = self.packets.lock().unwrap();
        if packets.len() >= self.space.load(Ordering::Relaxed) {
            return Err(Stuck::Full);
        }
        let mut bytes = vec![0; packet.length() as usize];
        match payload {
            Payload::Bytes(from) => bytes.copy_from_slice(from),
            Payload::Memory(from) => {
                assert_eq!(from.iter().map(Segment::len).sum::<usize>(), bytes.len());
                crate::wire::bytes::read_bytes(from, &mut bytes).map_err(|_| Stuck::Fault)?;
            }
        }
        packets.push_back((*packet, bytes));
        Ok(())
    }

    fn wake(&self, pair: Weak<dyn Wake>) {
        self.waiting.lock().unwrap().push(pair);
    }

    fn taken(&self) -> u64 {
        // The lock is taken, because under Miri a relaxed load may return an outdated value.
        let _packets = self.packets.lock().unwrap();
        self.taken.load(Ordering::Relaxed) as u64
    }
}

impl Dedicated for Wire {
    fn settle(&self) {}

    fn end(&self) {
        self.is_gone.store(true, Ordering::Relaxed);
    }
}

/// Two ends and the wires between them.
pub(super) struct Link {
    pub(super) a: End,
    pub(super) b: End,
    /// The wires for A's requests, the responses to A, B's requests, and the responses to B.
    pub(super) wires: [Arc<Wire>; 4],
}

impl Drop for Link {
    fn drop(&mut self) {
        for end in [&self.a, &self.b] {
            QpRegistry::of_process().set_test_route(end.pair.number() ^ FLAG, None);
        }
    }
}

/// The index of the wire that carries A's requests.
pub(super) const REQUESTS: usize = 0;
pub(super) const RESPONSES: usize = 1;

impl Link {
    /// Creates a link between two ends that are not connected yet.
    pub(super) fn between(a: End, b: End) -> Self {
        let link = Self { a, b, wires: std::array::from_fn(|_| Wire::new()) };
        link.reconnect();
        link
    }

    /// Makes packets to the numbers of both ends go through the wires.
    fn reconnect(&self) {
        QpRegistry::of_process().set_test_route(self.b.pair.number() ^ FLAG, Some(self.wires[REQUESTS].clone()));
        QpRegistry::of_process().set_test_route(self.a.pair.number() ^ FLAG, Some(self.wires[2].clone()));
    }

    pub(super) fn with(service: Service, change: impl Fn(&mut Attributes)) -> Self {
        let link = Self::between(End::new(service), End::new(service));
        link.ready(change);
        link
    }

    pub(super) fn ready(&self, change: impl Fn(&mut Attributes)) {
        for (end, other) in [(&self.a, &self.b), (&self.b, &self.a)] {
            let mut ours = attributes(other.pair.number() ^ FLAG);
            change(&mut ours);
            end.ready(&ours);
        }
    }

    pub(super) fn reliable() -> Self {
        Self::with(Service::ReliableConnection, |_| {})
    }

    /// Delivers one packet. Returns whether there was one.
    pub(super) fn deliver(&self, wire: usize) -> bool {
        let Some((packet, mut bytes)) = self.wires[wire].pop() else {
            return false;
        };
        // SAFETY: the bytes live until the end of this function, and nothing else uses them.
        let payload = [unsafe { Segment::of_raw(bytes.as_mut_ptr(), bytes.len()) }];
        match packet {
            Packet::Part(mut part) => {
                part.number ^= FLAG;
                part.request.source_number ^= FLAG;
                let back: Arc<dyn Carrier> = self.wires[wire + 1].clone();
                ToQueuePairs.part(&part, &payload, &back);
            }
            Packet::Response(mut response) => {
                response.number ^= FLAG;
                response.source_number ^= FLAG;
                ToQueuePairs.response(&response, &payload);
            }
        }
        self.wires[wire].call();
        true
    }

    /// Delivers all packets, including those that are sent during this call. Returns their number.
    pub(super) fn settle(&self) -> usize {
        let mut delivered = 0;
        while (0..4).any(|wire| self.deliver(wire)) {
            delivered += 1;
            assert!(delivered < 1_000_000, "endless packets");
        }
        delivered
    }

    /// Simulates the end of both processes.
    pub(super) fn lose(&self) {
        for wire in &self.wires {
            wire.is_gone.store(true, Ordering::Relaxed);
            wire.clear();
        }
        for wire in &self.wires {
            let carrier: Arc<dyn Carrier> = wire.clone();
            ToQueuePairs.lost(&carrier);
            wire.call();
        }
    }

    /// Delivers packets until there is a completion.
    pub(super) fn poll(&self, queue: &CompletionQueue) -> Completion {
        let limit = Instant::now() + Duration::from_secs(60);
        loop {
            self.settle();
            if let Some(completion) = queue.pop() {
                return completion;
            }
            assert!(Instant::now() < limit, "timed out waiting for a completion");
            thread::yield_now();
        }
    }

    /// Returns the replies to A that were not delivered yet.
    pub(super) fn replies(&self) -> Vec<Reply> {
        let packets = self.wires[RESPONSES].packets.lock().unwrap();
        let reply = |(packet, _): &(Packet, Vec<u8>)| match packet {
            Packet::Response(Response { kind: ResponseKind::Reply(reply), .. }) => Some(*reply),
            _ => None,
        };
        packets.iter().filter_map(reply).collect()
    }
}
