//! Queue pairs take the queues of this crate alone: what a `CompletionQueue` needs cannot be named elsewhere.

use sideway::ibverbs::completion::queue::AsCore;

fn main() {}
