//! A queue pair of another kind could be destroyed on another thread, which accesses the queue.

use sideway::ibverbs::queue_pair::QueuePairBuilder;
use sideway::ibverbs::single_threaded::SingleThreadedCompletionQueue;

fn lend(builder: &mut QueuePairBuilder, cq: &SingleThreadedCompletionQueue) {
    builder.setup_send_cq(cq);
}

fn main() {}
