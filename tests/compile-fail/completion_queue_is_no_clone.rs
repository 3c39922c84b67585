//! A copy would be a second way to poll.

use sideway::ibverbs::completion::GenericCompletionQueue;

fn copy(cq: GenericCompletionQueue) -> GenericCompletionQueue {
    cq.clone()
}

fn main() {}
