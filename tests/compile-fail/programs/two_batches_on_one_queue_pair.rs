//! A queue pair has one batch at a time, because the driver would write two batches to the same place.

use sideway::ibverbs::queue_pair::{ExtendedQueuePair, QueuePair};

fn twice(qp: &mut ExtendedQueuePair) {
    let first = qp.start_post_send();
    let second = qp.start_post_send();
    drop((first, second));
}

fn main() {}
