//! A poll ends before its queue is dropped.

use sideway::ibverbs::completion::ExtendedCompletionQueue;

fn keep(mut cq: ExtendedCompletionQueue) {
    let poller = cq.start_poll().unwrap();
    drop(cq);
    drop(poller);
}

fn main() {}
