//! Whoever shares a queue does not poll it without a lock of his own.

use std::sync::Arc;

use sideway::ibverbs::completion::ExtendedCompletionQueue;

fn shared(cq: Arc<ExtendedCompletionQueue>) {
    drop(cq.start_poll());
}

fn main() {}
