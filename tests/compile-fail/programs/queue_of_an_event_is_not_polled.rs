//! An event names a completion queue; only the owner polls it.

use sideway::ibverbs::async_event::AsyncEventElement;

fn named(element: AsyncEventElement) {
    if let AsyncEventElement::CompletionQueue(mut cq) = element {
        drop(cq.start_poll());
    }
}

fn main() {}
