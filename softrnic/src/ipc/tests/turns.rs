//! Who waits for room has its turn.

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, OnceLock, Weak};

use rustix::net::SocketFlags;

use super::{HERE, host, part, until};
use crate::ipc::codec::PART_WORDS;
use crate::ipc::ring::{Consumer, Ring};
use crate::ipc::session::{DATA, RING, SHARED};
use crate::ipc::shared::Shared;
use crate::ipc::{block, socket};
use crate::sys::descriptor::Descriptor;
use crate::wire::bytes::Segment;
use crate::wire::packet::{Answer, BLOCK, Packet, Part, Payload};
use crate::wire::transport::{Carrier, Deliver, Stuck, Transport, Wake};

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
    fn answer(&self, _: &Answer, _: &[Segment]) -> bool {
        true
    }
    fn is_settled(&self, _: u32) -> bool {
        true
    }
    fn lost(&self, _: &Arc<dyn Carrier>) {}
}

/// Takes all the room that there is, and waits for more.
#[derive(Debug)]
struct Waiter {
    greedy: &'static Greedy,
    number: usize,
    this: Weak<Self>,
}

impl Wake for Waiter {
    fn wake(&self) {
        let has_room = self.greedy.fill() > 0;
        self.greedy.way.get().unwrap().wake(self.this.clone());
        if has_room {
            self.greedy.served.lock().unwrap().push(self.number);
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "makes sockets")]
fn who_waits_for_room_has_its_turn() {
    let greedy: &'static Greedy = Box::leak(Box::default());
    let here = host(greedy);
    here.claim().unwrap();
    let (block, listener) = block::claim().unwrap();
    greedy.way.set(here.carrier(HERE, block * BLOCK).unwrap()).unwrap();
    let guest = Descriptor::new(rustix::net::accept_with(&listener, SocketFlags::CLOEXEC).unwrap()).unwrap();
    let memory = socket::greeted(guest.as_fd(), RING as u32).unwrap().unwrap();
    let shared = Arc::new(Shared::accept(&memory, SHARED).unwrap());
    let mut consumer = Consumer::new(Ring::new(shared, 0, DATA, RING), PART_WORDS);

    let waiters = [0, 1, 2].map(|number| Arc::new_cyclic(|this| Waiter { greedy, number, this: Weak::clone(this) }));
    assert!(greedy.fill() > 0);
    for waiter in &waiters {
        let way = greedy.way.get().unwrap();
        way.wake(waiter.this.clone());
        assert_eq!(way.put(&Packet::Part(part(0, 4096)), Payload::Bytes(&[0; 4096])), Err(Stuck::Full));
    }
    for round in 1..=9 {
        while consumer.next().unwrap().is_some() {
            drop(consumer.take(4096).unwrap());
        }
        consumer.free();
        socket::send_wakeup(&guest);
        until(|| greedy.served.lock().unwrap().len() == round);
    }
    let expected = [0, 1, 2];
    assert_eq!(*greedy.served.lock().unwrap(), expected.repeat(3));
}
