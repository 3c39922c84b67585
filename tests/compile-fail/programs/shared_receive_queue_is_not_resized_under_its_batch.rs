//! A resize replaces the requests in which a batch is built.

use sideway::ibverbs::shared_receive_queue::{SharedReceiveQueue, SharedReceiveQueueAttribute};

fn resize(mut srq: SharedReceiveQueue) {
    let guard = srq.start_post_recv();
    drop(srq.modify(SharedReceiveQueueAttribute::new().setup_max_wr(9)));
    drop(guard);
}

fn main() {}
