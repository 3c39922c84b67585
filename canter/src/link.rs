//! The state of a connection: the queue pair, the room in its send queue, and the messages that arrived.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use sideway::ibverbs::queue_pair::{GenericQueuePair, QueuePair, QueuePairAttribute, QueuePairState};
use sideway::rdmacm::Identifier;

use crate::Error;
use crate::fifo::Fifo;
use crate::message::Message;

/// The state of a connection.
#[derive(Debug)]
pub(crate) struct Link {
    /// `None` after the connection has been dropped.
    pub(crate) qp: RefCell<Option<GenericQueuePair>>,
    /// Its number, which completions contain.
    pub(crate) number: u32,
    /// The identifier of a connection by address.
    pub(crate) id: Option<Arc<Identifier>>,
    /// The private data of the peer, since the connection was established.
    pub(crate) private_data: OnceCell<Vec<u8>>,
    /// The number of requests that the send queue holds.
    pub(crate) depth: u32,
    used: Cell<u32>,
    /// The futures that wait for room in the send queue.
    pub(crate) room: RefCell<Fifo>,
    pub(crate) inbox: RefCell<VecDeque<Message>>,
    /// The round in which the inbox reached the limit of unread messages.
    pub(crate) full_since: Cell<Option<u32>>,
    /// The futures that wait for a message.
    pub(crate) receivers: RefCell<Fifo>,
    end: OnceCell<Error>,
}

impl Link {
    pub(crate) fn new(qp: GenericQueuePair, id: Option<Arc<Identifier>>, depth: u32) -> Self {
        Self {
            number: qp.qp_number(),
            qp: RefCell::new(Some(qp)),
            id,
            private_data: OnceCell::new(),
            depth,
            used: Cell::new(0),
            room: RefCell::default(),
            inbox: RefCell::default(),
            full_since: Cell::new(None),
            receivers: RefCell::default(),
            end: OnceCell::new(),
        }
    }

    /// Takes room for `count` requests, if there is enough.
    #[inline]
    pub(crate) fn take_room(&self, count: u32) -> bool {
        // `used` is at most `depth`.
        let has_room = count <= self.depth - self.used.get();
        if has_room {
            self.used.set(self.used.get() + count);
        }
        has_room
    }

    /// Gives room back. Returns the waker of the first future that waits for it.
    #[inline]
    #[must_use = "a future may wait for the room"]
    pub(crate) fn release(&self, count: u32) -> Option<Waker> {
        self.used.set(self.used.get().saturating_sub(count));
        self.room.borrow_mut().first()
    }

    /// Why the connection ended.
    #[inline]
    pub(crate) fn end(&self) -> Option<&Error> {
        self.end.get()
    }

    /// Notes the end, of which the first cause counts. Returns whether the connection had not ended before.
    pub(crate) fn set_end(&self, cause: Error) -> bool {
        if self.end.set(cause).is_err() {
            return false;
        }
        // Over iWARP, the connection manager ends the stream after what was sent. A queue pair that is moved to the
        // Error state aborts it.
        let is_stopped = self.id.as_ref().is_some_and(|id| id.disconnect().is_ok());
        // A queue pair in another state would go on to serve the peer. If the device is gone, this fails, and nothing is
        // left to stop.
        let _ = is_stopped || self.stop();
        true
    }

    /// Moves the queue pair to the Error state.
    pub(crate) fn stop(&self) -> bool {
        let mut attribute = QueuePairAttribute::new();
        attribute.setup_state(QueuePairState::Error);
        self.qp.borrow().as_ref().is_some_and(|qp| qp.modify(&attribute).is_ok())
    }

    /// Whether the device has no request.
    pub(crate) fn is_idle(&self) -> bool {
        self.used.get() == 0
    }
}
