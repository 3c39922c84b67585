//! Destroying it touches its completion queue, which is not locked.

use sideway::ibverbs::queue_pair::ExtendedQueuePair;
use sideway::ibverbs::single_threaded::SingleThreadedQueuePair;

fn send(qp: SingleThreadedQueuePair<ExtendedQueuePair>) {
    std::thread::spawn(move || drop(qp));
}

fn main() {}
