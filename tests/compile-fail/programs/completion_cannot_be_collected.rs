//! Completions of an extended queue share one cursor: two cannot be held at once.

use sideway::ibverbs::completion::ExtendedCompletionQueue;

fn collect(cq: &mut ExtendedCompletionQueue) {
    let mut poller = cq.start_poll().unwrap();
    let first = poller.next().unwrap();
    let second = poller.next().unwrap();
    drop((first, second));
}

fn main() {}
