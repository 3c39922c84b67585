//! Who waits for room has its turn.

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, OnceLock, Weak};

use rustix::net::SocketFlags;

use super::{part, peers, until};
use crate::ipc::codec::PART_WORDS;
use crate::ipc::deliver::Deliver;
use crate::ipc::descriptor::Descriptor;
use crate::ipc::ring::{Consumer, Ring};
use crate::ipc::session::{DATA, RING, SHARED};
use crate::ipc::shared::Shared;
use crate::ipc::{Host, block, socket};
use crate::mem::Segment;
use crate::qp::tests::End;
use crate::qp::{QueuePair, Service};
use crate::wire::packet::{Answer, BLOCK, Carrier, Fabric, Packet, Part, Payload, Stuck};

/// Queue pairs, each of which takes all the room that there is.
#[derive(Debug, Default)]
struct Greedy {
    way: OnceLock<Arc<dyn Carrier>>,
    /// Who has found room, in order.
    served: Mutex<Vec<usize>>,
}

impl Greedy {
    fn fill(&self) -> usize {
        let (way, packet) = (self.way.get().unwrap(), Packet::Part(part(0, 4096)));
        std::iter::repeat_with(|| way.put(&packet, Payload::Bytes(&[0; 4096]))).take_while(Result::is_ok).count()
    }
}

impl Deliver for Greedy {
    fn part(&self, _: &Part, _: &[Segment], _: &Arc<dyn Carrier>) {}
    fn answer(&self, _: &Answer, _: &[Segment]) {}
    fn lost(&self, _: &Arc<dyn Carrier>) {}

    fn room(&self, pair: &Weak<QueuePair>) {
        let has_room = self.fill() > 0;
        self.way.get().unwrap().wake(pair.clone());
        if has_room {
            self.served.lock().unwrap().push(pair.as_ptr().addr());
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "makes sockets")]
fn who_waits_for_room_has_its_turn() {
    let greedy: &'static Greedy = Box::leak(Box::default());
    let here = Host(peers(greedy));
    here.claim().unwrap();
    let (block, listener) = block::claim().unwrap();
    greedy.way.set(here.carrier(block * BLOCK).unwrap()).unwrap();
    let guest = Descriptor::new(rustix::net::accept_with(&listener, SocketFlags::CLOEXEC).unwrap()).unwrap();
    let memory = socket::greeted(guest.as_fd(), RING as u32).unwrap().unwrap();
    let shared = Arc::new(Shared::accept(&memory, SHARED).unwrap());
    let mut consumer = Consumer::new(Ring::new(shared, 0, DATA, RING), PART_WORDS);

    let ends = [(); 3].map(|()| End::new(Service::ReliableConnection));
    assert!(greedy.fill() > 0);
    for end in &ends {
        let way = greedy.way.get().unwrap();
        way.wake(Arc::downgrade(&end.pair));
        assert_eq!(way.put(&Packet::Part(part(0, 4096)), Payload::Bytes(&[0; 4096])), Err(Stuck::Full));
    }
    for round in 1..=9 {
        while consumer.next().unwrap().is_some() {
            drop(consumer.take(4096).unwrap());
        }
        consumer.free();
        socket::ring_bell(&guest);
        until(|| greedy.served.lock().unwrap().len() == round);
    }
    let expected = ends.each_ref().map(|end| Arc::as_ptr(&end.pair).addr());
    assert_eq!(*greedy.served.lock().unwrap(), expected.repeat(3));
}
