//! A batch ends before its queue pair is dropped.

use sideway::ibverbs::queue_pair::{ExtendedQueuePair, QueuePair};

fn keep(mut qp: ExtendedQueuePair) {
    let guard = qp.start_post_send();
    drop(qp);
    drop(guard);
}

fn main() {}
