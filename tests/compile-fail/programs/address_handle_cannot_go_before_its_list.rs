//! A list that can be posted again points to the address handles of its datagrams, long after it was built.

use sideway::ibverbs::address::AddressHandle;
use sideway::ibverbs::queue_pair::{BasicSendQueue, Datagram, PostSendGuard};
use sideway::ibverbs::work_request::WorkRequestFlags;

fn send(queue: &mut BasicSendQueue<Datagram>, make: fn() -> AddressHandle) {
    let mut list = queue.prepare(1).unwrap();
    {
        let ah = make();
        let mut guard = list.build();
        guard.construct_wr(1, WorkRequestFlags::empty()).setup_send().setup_ud_addr(&ah, 2, 3).setup_inline_data(b"x");
        guard.finish().unwrap();
    }
    // SAFETY: the request names no registered memory.
    unsafe { queue.post_prepared(&list).unwrap() };
}

fn main() {}
