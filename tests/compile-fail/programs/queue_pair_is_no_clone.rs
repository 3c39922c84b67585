//! A copy would be a second way to post.

use sideway::ibverbs::queue_pair::BasicQueuePair;

fn copy(qp: BasicQueuePair) -> BasicQueuePair {
    BasicQueuePair::clone(&qp)
}

fn main() {}
