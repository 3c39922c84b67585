//! Destroying a queue pair accesses its completion queue, which has no lock.

use sideway::ibverbs::queue_pair::ExtendedQueuePair;
use sideway::ibverbs::single_threaded::SingleThreadedQueuePair;

fn send(qp: SingleThreadedQueuePair<ExtendedQueuePair>) {
    std::thread::spawn(move || drop(qp));
}

fn main() {}
