//! A batch that has begun ends before its queue pair is let go of.

use sideway::ibverbs::queue_pair::{ExtendedQueuePair, QueuePair};

fn keep(mut qp: ExtendedQueuePair) {
    let guard = qp.start_post_send();
    drop(qp);
    drop(guard);
}

fn main() {}
