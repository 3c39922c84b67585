//! A shared queue cannot be polled without a lock of the program.

use std::sync::Arc;

use sideway::ibverbs::completion::ExtendedCompletionQueue;

fn shared(cq: Arc<ExtendedCompletionQueue>) {
    drop(cq.start_poll());
}

fn main() {}
