//! The link of one side: its requests, and the memory that the peer may use.

use std::collections::{BTreeMap, VecDeque};

use crate::memory::{Buf, Pool};
use crate::proto::{HEADER, Remote, Request};

/// The keys of memory that the peer may READ, and of memory that it may WRITE.
pub(super) const READABLE: u32 = 7;
pub(super) const WRITABLE: u32 = 8;

/// The requests of one side, by their state: posted, executed, completed.
#[derive(Debug, Default)]
pub(super) struct Link {
    pub(super) depth: usize,
    pub(super) posted: VecDeque<Request>,
    pub(super) executed: VecDeque<Request>,
    pub(super) exposed: Exposed,
}

#[derive(Debug, Default)]
pub(super) struct Exposed {
    pub(super) buffers: BTreeMap<u64, Buf>,
    pub(super) next: u64,
    /// The pool whose buffers can be exposed; `None` if buffers cannot be exposed.
    pub(super) pool: Option<Pool>,
}

impl Link {
    pub(super) fn expose(&mut self, message: Buf) -> Result<Remote, Buf> {
        self.open(message, READABLE)
    }

    pub(super) fn open(&mut self, message: Buf, key: u32) -> Result<Remote, Buf> {
        let exposed = &mut self.exposed;
        if !exposed.pool.as_ref().is_some_and(|pool| pool.owns(&message)) {
            return Err(message);
        }
        exposed.next += 1;
        exposed.buffers.insert(exposed.next, message);
        Ok(Remote { address: exposed.next, key })
    }

    pub(super) fn send_now(&mut self, header: &[u8; HEADER], payload: &[u8]) -> bool {
        let has_room = self.posted.len() + self.executed.len() < self.depth;
        if has_room {
            let mut send = Buf::on_heap(HEADER + payload.len());
            send[..HEADER].copy_from_slice(header);
            send[HEADER..].copy_from_slice(payload);
            self.posted.push_back(Request::Send(send));
        }
        has_room
    }
}
