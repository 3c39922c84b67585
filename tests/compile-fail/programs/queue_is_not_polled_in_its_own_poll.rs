//! A closure cannot poll the queue whose completions it receives.

use sideway::ibverbs::completion::ExtendedCompletionQueue;

fn twice(cq: &mut ExtendedCompletionQueue) {
    let _ = cq.poll_each(2, |_| cq.start_poll().map(drop));
}

fn main() {}
