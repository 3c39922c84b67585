//! The cursor points into the memory that a resize replaces.

use sideway::ibverbs::completion::ExtendedCompletionQueue;

fn resize(cq: &mut ExtendedCompletionQueue) {
    let poller = cq.start_poll().unwrap();
    cq.resize(100).unwrap();
    drop(poller);
}

fn main() {}
