//! Basic queues have the same rule as extended ones, so that a program works with both kinds.

use sideway::ibverbs::completion::BasicCompletionQueue;

fn collect(cq: &mut BasicCompletionQueue) {
    let mut poller = cq.start_poll().unwrap();
    let first = poller.next().unwrap();
    let second = poller.next().unwrap();
    drop((first, second));
}

fn main() {}
