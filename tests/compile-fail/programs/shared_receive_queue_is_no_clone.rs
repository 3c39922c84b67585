//! A copy would be a second way to post.

use sideway::ibverbs::shared_receive_queue::SharedReceiveQueue;

fn copy(srq: SharedReceiveQueue) -> SharedReceiveQueue {
    SharedReceiveQueue::clone(&srq)
}

fn main() {}
