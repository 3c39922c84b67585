//! Queue pairs of connections that have been dropped.

use std::rc::Rc;
use std::time::{Duration, Instant};

use sideway::ibverbs::queue_pair::GenericQueuePair;

use super::Inner;
use crate::link::Link;

/// How long the device may take to complete the requests of a queue pair in the Error state.
const FLUSH: Duration = Duration::from_millis(10);
/// How long it may take to complete the receive of a message that has arrived in part. soft-RoCE does so at the peer's next
/// packet.
const GRACE: Duration = Duration::from_millis(100);

/// A queue pair without requests. If it were destroyed at once, the shared queue could lose the receive that it has taken.
#[derive(Debug)]
pub(super) struct Retired {
    link: Rc<Link>,
    until: Instant,
}

impl Inner {
    /// Ends the device's access to the buffers of a connection. Its futures have been dropped.
    pub(crate) fn retire(&self, link: &Rc<Link>) {
        let until = Instant::now() + FLUSH;
        // Over iWARP, the queue pair may still send.
        let flushes = !self.origin.is_iwarp && link.stop();
        // Drivers may forget the completions of a queue pair that they destroy.
        while self.catch_up().is_ok() && flushes && !link.is_idle() && Instant::now() < until {}
        self.links.borrow_mut().remove(&link.number);
        if flushes && link.is_idle() {
            let retired = Retired { link: Rc::clone(link), until: Instant::now() + GRACE };
            self.retired.borrow_mut().push_back(retired);
        } else if !close(link) {
            // The queue pair exists as long as an asynchronous event refers to it. It completes what it has.
            return;
        }
        let released = self.table.borrow_mut().release_all(link);
        drop(released);
    }

    /// When the next of these queue pairs is to be destroyed.
    pub(crate) fn next_burial(&self) -> Option<Instant> {
        self.retired.borrow().front().map(|first| first.until)
    }

    /// Destroys the queue pairs whose time has passed, and the oldest ones above this number.
    pub(crate) fn bury(&self, most: usize) {
        while let Some(first) = {
            let mut retired = self.retired.borrow_mut();
            let is_due = |first: &Retired| retired.len() > most || first.until <= Instant::now();
            let first_is_due = retired.front().is_some_and(is_due);
            if first_is_due { retired.pop_front() } else { None }
        } {
            // A broken queue has ended all connections.
            let _ = self.catch_up();
            close(&first.link);
        }
    }
}

/// Destroys the queue pair.
fn close(link: &Link) -> bool {
    let qp = link.qp.borrow_mut().take();
    let closed = qp.map(GenericQueuePair::close).transpose();
    if let Err(error) = &closed {
        rdma_mummy_sys::log!(warn, "{error}");
    }
    closed.is_ok()
}
