//! A shared queue cannot be posted to without a lock of the program.

use std::sync::Arc;

use sideway::ibverbs::shared_receive_queue::SharedReceiveQueue;

fn shared(srq: Arc<SharedReceiveQueue>) {
    drop(srq.start_post_recv());
}

fn main() {}
