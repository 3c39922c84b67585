//! What was posted is gone.

use sideway::ibverbs::queue_pair::{BasicPostSendGuard, PostSendGuard};

fn twice(guard: BasicPostSendGuard<'_>) {
    drop(guard.post());
    drop(guard.post());
}

fn main() {}
