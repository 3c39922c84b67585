//! Generic queues have the same rule as extended ones: two completions cannot be held at once.

use sideway::ibverbs::completion::GenericCompletionQueue;

fn collect(cq: &mut GenericCompletionQueue) {
    let mut poller = cq.start_poll().unwrap();
    let mut all = Vec::new();
    while let Some(completion) = poller.next().unwrap() {
        all.push(completion);
    }
}

fn main() {}
