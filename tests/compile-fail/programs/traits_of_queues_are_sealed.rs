//! Queue pairs accept only the queues of this crate: the items that a `CompletionQueue` needs are private.

use sideway::ibverbs::completion::queue::AsCore;

fn main() {}
