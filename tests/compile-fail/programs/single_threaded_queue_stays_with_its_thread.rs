//! The driver takes no lock for a single-threaded queue.

use sideway::ibverbs::single_threaded::SingleThreadedCompletionQueue;

fn send(cq: SingleThreadedCompletionQueue) {
    std::thread::spawn(move || drop(cq));
}

fn main() {}
