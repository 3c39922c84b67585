//! A batch borrows its work queue: no second batch and no state change until it ends.

use sideway::ibverbs::work_queue::{WorkQueue, WorkQueueAttribute};

fn two_batches(queue: &mut WorkQueue) {
    let first = queue.start_post_recv();
    let second = queue.start_post_recv();
    drop((first, second));
}

fn change_under_a_batch(queue: &mut WorkQueue) {
    let batch = queue.start_post_recv();
    let _ = queue.modify(&WorkQueueAttribute::new());
    drop(batch);
}

fn main() {}
