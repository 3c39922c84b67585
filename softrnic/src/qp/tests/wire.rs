//! Another process, as the tests see it: the same one, with packets that are brought when a test says so.
//!
//! A queue pair is reached under its own number at once, and "in another process" under that number with [`FLAG`] changed.

use std::collections::VecDeque;
use std::sync::atomic::AtomicUsize;

use super::*;
use crate::qp::registry::ToQueuePairs;
use crate::wire::bytes::Segment;
use crate::wire::packet::{AnswerKind, Packet, Payload};
use crate::wire::transport::{Deliver, Stuck, Wake};

/// Far from any number that the tests have.
pub(super) const FLAG: u32 = 1 << 22;

/// One way: a carrier with so much room.
#[derive(Debug)]
pub(super) struct Wire {
    packets: Mutex<VecDeque<(Packet, Vec<u8>)>>,
    room: AtomicUsize,
    is_gone: AtomicBool,
    taken: AtomicUsize,
    waiting: Mutex<Vec<Weak<dyn Wake>>>,
}

impl Wire {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            packets: Mutex::default(),
            room: AtomicUsize::new(usize::MAX),
            is_gone: AtomicBool::new(false),
            taken: AtomicUsize::new(0),
            waiting: Mutex::default(),
        })
    }

    pub(super) fn set_room(&self, packets: usize) {
        self.set_room_quietly(packets);
        self.call();
    }

    /// Calls nobody.
    pub(super) fn set_room_quietly(&self, packets: usize) {
        self.room.store(packets, Ordering::Relaxed);
    }

    pub(super) fn len(&self) -> usize {
        self.packets.lock().unwrap().len()
    }

    /// Drops what is on its way.
    pub(super) fn clear(&self) {
        self.packets.lock().unwrap().clear();
    }

    /// Loses what was on its way, and takes no more.
    pub(super) fn lose(&self) {
        self.is_gone.store(true, Ordering::Relaxed);
        self.clear();
        self.call();
    }

    /// Calls those who wait.
    pub(super) fn call(&self) {
        let waiting = std::mem::take(&mut *self.waiting.lock().unwrap());
        waiting.iter().filter_map(Weak::upgrade).for_each(|pair| pair.wake());
    }

    /// Others are before those who wait: these are called after they have been put back.
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
            return Err(Stuck::Gone);
        }
        let mut packets = self.packets.lock().unwrap();
        if packets.len() >= self.room.load(Ordering::Relaxed) {
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
        // Under the lock: an interpreter may show any older value of it for as long as it likes.
        let _packets = self.packets.lock().unwrap();
        self.taken.load(Ordering::Relaxed) as u64
    }
}

/// Both ways between two ends.
pub(super) struct Link {
    pub(super) a: End,
    pub(super) b: End,
    /// What A asks, and what it is answered; and of B.
    pub(super) wires: [Arc<Wire>; 4],
}

impl Drop for Link {
    fn drop(&mut self) {
        for end in [&self.a, &self.b] {
            QpRegistry::of_process().teach(end.pair.number() ^ FLAG, None);
        }
    }
}

/// Which of the wires.
pub(super) const ASKS: usize = 0;
pub(super) const ANSWERS: usize = 1;

impl Link {
    /// Two that are not connected yet.
    pub(super) fn between(a: End, b: End) -> Self {
        let link = Self { a, b, wires: std::array::from_fn(|_| Wire::new()) };
        link.reconnect();
        link
    }

    /// The numbers lead somewhere.
    fn reconnect(&self) {
        QpRegistry::of_process().teach(self.b.pair.number() ^ FLAG, Some(self.wires[ASKS].clone()));
        QpRegistry::of_process().teach(self.a.pair.number() ^ FLAG, Some(self.wires[2].clone()));
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

    /// Brings one packet; whether there was one.
    pub(super) fn bring(&self, wire: usize) -> bool {
        let Some((packet, mut bytes)) = self.wires[wire].pop() else {
            return false;
        };
        // SAFETY: the bytes live until the end of this function, and are used by nobody else.
        let payload = [unsafe { Segment::of_raw(bytes.as_mut_ptr(), bytes.len()) }];
        match packet {
            Packet::Part(mut part) => {
                part.number ^= FLAG;
                part.request.source_number ^= FLAG;
                let back: Arc<dyn Carrier> = self.wires[wire + 1].clone();
                ToQueuePairs.part(&part, &payload, &back);
            }
            Packet::Answer(mut answer) => {
                answer.number ^= FLAG;
                answer.source_number ^= FLAG;
                ToQueuePairs.answer(&answer, &payload);
            }
        }
        self.wires[wire].call();
        true
    }

    /// Brings all, and what comes of it; how many packets.
    pub(super) fn settle(&self) -> usize {
        let mut brought = 0;
        while (0..4).any(|wire| self.bring(wire)) {
            brought += 1;
            assert!(brought < 1_000_000, "packets go round for ever");
        }
        brought
    }

    /// The process of B is gone for A, and that of A for B.
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

    /// Brings what comes until a completion does.
    pub(super) fn poll(&self, queue: &CompletionQueue) -> Completion {
        let limit = Instant::now() + Duration::from_secs(60);
        loop {
            self.settle();
            if let Some(completion) = queue.pop() {
                return completion;
            }
            assert!(Instant::now() < limit, "no completion comes");
            thread::yield_now();
        }
    }

    /// The replies that wait to be brought to A.
    pub(super) fn replies(&self) -> Vec<Reply> {
        let packets = self.wires[ANSWERS].packets.lock().unwrap();
        let reply = |(packet, _): &(Packet, Vec<u8>)| match packet {
            Packet::Answer(Answer { kind: AnswerKind::Reply(reply), .. }) => Some(*reply),
            _ => None,
        };
        packets.iter().filter_map(reply).collect()
    }
}
