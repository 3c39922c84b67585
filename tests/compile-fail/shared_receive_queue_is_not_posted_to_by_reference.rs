//! Whoever shares the queue with other threads does not post to it without a lock of his own.

use std::sync::Arc;

use sideway::ibverbs::shared_receive_queue::SharedReceiveQueue;

fn shared(srq: Arc<SharedReceiveQueue>) {
    drop(srq.start_post_recv());
}

fn main() {}
