//! A poll uses its single-threaded queue until it ends.

use sideway::ibverbs::single_threaded::SingleThreadedCompletionQueue;

fn poll(cq: &mut SingleThreadedCompletionQueue) {
    let mut poller = cq.start_poll().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| poller.next().map(drop));
    });
}

fn main() {}
