//! While a queue is polled, drivers hold its lock or use none, so a queue has one poll at a time.

use sideway::ibverbs::completion::ExtendedCompletionQueue;

fn twice(cq: &mut ExtendedCompletionQueue) {
    let first = cq.start_poll().unwrap();
    let second = cq.start_poll().unwrap();
    drop((first, second));
}

fn main() {}
