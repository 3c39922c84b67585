//! An event names a queue pair; only the owners of its queues post to it.

use sideway::ibverbs::async_event::AsyncEventElement;

fn named(element: AsyncEventElement) {
    if let AsyncEventElement::QueuePair(mut qp) = element {
        drop(qp.start_post_send());
    }
}

fn main() {}
