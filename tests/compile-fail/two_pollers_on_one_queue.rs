//! Drivers hold a lock, or none at all, while a queue is polled: one poll at a time.

use sideway::ibverbs::completion::ExtendedCompletionQueue;

fn twice(cq: &mut ExtendedCompletionQueue) {
    let first = cq.start_poll().unwrap();
    let second = cq.start_poll().unwrap();
    drop((first, second));
}

fn main() {}
