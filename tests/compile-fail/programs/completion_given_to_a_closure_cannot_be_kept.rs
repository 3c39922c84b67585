//! A completion that is passed to a closure is valid only during the call.

use sideway::ibverbs::completion::{GenericCompletionQueue, PollCompletionQueueError};

fn keep(cq: &mut GenericCompletionQueue) -> u64 {
    let mut kept = None;
    let _ = cq.poll_each(2, |completion| {
        kept = Some(completion);
        Ok::<_, PollCompletionQueueError>(())
    });
    kept.unwrap().wr_id()
}

fn main() {}
