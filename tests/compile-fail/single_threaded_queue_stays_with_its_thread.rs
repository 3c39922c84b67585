//! Its driver takes no lock.

use sideway::ibverbs::single_threaded::SingleThreadedCompletionQueue;

fn send(cq: SingleThreadedCompletionQueue) {
    std::thread::spawn(move || drop(cq));
}

fn main() {}
