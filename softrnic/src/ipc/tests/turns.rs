//! Tests of the fairness between QPs that wait for space.

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, OnceLock, Weak};

use rustix::net::SocketFlags;

use super::{host, part, until};
use crate::ipc::codec::PART_WORDS;
use crate::ipc::ring::{Consumer, Ring};
use crate::ipc::session::{DATA, RING, SHARED};
use crate::ipc::shared::Shared;
use crate::ipc::{block, socket};
use crate::sys::descriptor::Descriptor;
use crate::wire::bytes::Segment;
use crate::wire::packet::{BLOCK, Packet, Part, Payload, Response};
use crate::wire::transport::{Carrier, Deliver, Routes, Stuck, Wake};

/// A set of QPs, each of which fills all free space when it is woken.
#[derive(Debug, Default)]
struct Greedy {
    carrier: OnceLock<Arc<dyn Carrier>>,
    /// The QPs that have found space, in order.
    served: Mutex<Vec<usize>>,
}

impl Greedy {
    fn fill(&self) -> usize {
        let (carrier, packet) = (self.carrier.get().unwrap(), Packet::Part(part(0, 4096)));
        std::iter::repeat_with(|| carrier.put(&packet, Payload::Bytes(&[0; 4096]))).take_while(Result::is_ok).count()
    }
}

impl Deliver for Greedy {
    fn part(&self, _: &Part, _: &[Segment], _: &Arc<dyn Carrier>) {}
    fn response(&self, _: &Response, _: &[Segment]) -> bool {
        true
    }
    fn is_settled(&self, _: u32) -> bool {
        true
    }
    fn lost(&self, _: &Arc<dyn Carrier>) {}
}

/// A QP that fills all free space and then waits for more.
#[derive(Debug)]
struct Waiter {
    greedy: &'static Greedy,
    number: usize,
    this: Weak<Self>,
}

impl Wake for Waiter {
    fn wake(&self) {
        let has_space = self.greedy.fill() > 0;
        self.greedy.carrier.get().unwrap().wake(self.this.clone());
        if has_space {
            self.greedy.served.lock().unwrap().push(self.number);
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn waiting_qps_get_space_in_turn() {
    let greedy: &'static Greedy = Box::leak(Box::default());
    let here = host(greedy);
    here.claim().unwrap();
    let (block, listener) = block::claim().unwrap();
    greedy.carrier.set(here.carrier(block * BLOCK).unwrap()).unwrap();
    let client = Descriptor::new(rustix::net::accept_with(&listener, SocketFlags::CLOEXEC).unwrap()).unwrap();
    let memory = socket::receive_handshake(client.as_fd(), RING as u32).unwrap().unwrap();
    let shared = Arc::new(Shared::accept(&memory, SHARED).unwrap());
    let mut consumer = Consumer::new(Ring::new(shared, 0, DATA, RING), PART_WORDS);

    let waiters = [0, 1, 2].map(|number| Arc::new_cyclic(|this| Waiter { greedy, number, this: Weak::clone(this) }));
    assert!(greedy.fill() > 0);
    for waiter in &waiters {
        let carrier = greedy.carrier.get().unwrap();
        carrier.wake(waiter.this.clone());
        assert_eq!(carrier.put(&Packet::Part(part(0, 4096)), Payload::Bytes(&[0; 4096])), Err(Stuck::Full));
    }
    for round in 1..=9 {
        while consumer.next().unwrap().is_some() {
            drop(consumer.take(4096).unwrap());
        }
        consumer.free();
        socket::send_wakeup(&client);
        until(|| greedy.served.lock().unwrap().len() == round);
    }
    let expected = [0, 1, 2];
    assert_eq!(*greedy.served.lock().unwrap(), expected.repeat(3));
}
