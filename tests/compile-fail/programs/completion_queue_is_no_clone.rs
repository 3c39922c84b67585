//! A copy would be a second way to poll.

use sideway::ibverbs::completion::GenericCompletionQueue;

fn copy(cq: GenericCompletionQueue) -> GenericCompletionQueue {
    GenericCompletionQueue::clone(&cq)
}

fn main() {}
