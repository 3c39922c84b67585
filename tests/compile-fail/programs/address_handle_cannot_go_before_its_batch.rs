//! An unposted batch points to the address handles of its datagrams.

use sideway::ibverbs::address::AddressHandle;
use sideway::ibverbs::queue_pair::{BasicQueuePair, Datagram, PostSendGuard, QueuePair};
use sideway::ibverbs::work_request::WorkRequestFlags;

fn send(qp: &mut BasicQueuePair<Datagram>, make: fn() -> AddressHandle) {
    let mut guard = qp.start_post_send();
    {
        let ah = make();
        guard.construct_wr(1, WorkRequestFlags::empty()).setup_send().setup_ud_addr(&ah, 2, 3).setup_inline_data(b"x");
    }
    drop(guard.post());
}

fn main() {}
