//! After the poll, the cursor is invalid.

use sideway::ibverbs::completion::ExtendedCompletionQueue;

fn keep(cq: &mut ExtendedCompletionQueue) -> u64 {
    let mut poller = cq.start_poll().unwrap();
    let completion = poller.next().unwrap().unwrap();
    drop(poller);
    completion.wr_id()
}

fn main() {}
