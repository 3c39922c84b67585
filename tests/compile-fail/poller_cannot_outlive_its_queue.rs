//! A poll that has begun ends before its queue is let go of.

use sideway::ibverbs::completion::ExtendedCompletionQueue;

fn keep(mut cq: ExtendedCompletionQueue) {
    let poller = cq.start_poll().unwrap();
    drop(cq);
    drop(poller);
}

fn main() {}
