//! Posting consumes the batch.

use sideway::ibverbs::queue_pair::{BasicPostSendGuard, PostSendGuard};

fn twice(guard: BasicPostSendGuard<'_>) {
    drop(guard.post());
    drop(guard.post());
}

fn main() {}
