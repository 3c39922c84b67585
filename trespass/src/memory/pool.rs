//! The pool: where buffers come from and return to.
//!
//! This version allocates each buffer by itself and keeps it when it returns. The `verbs` backend wants arenas (2 MiB, registered once,
//! cut into buffers) and a free list without a lock: the interface is what counts here.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::HEADROOM;
use super::buf::Buf;

/// Buffers of one backend of one worker. Clones are the same pool.
///
/// A buffer returns to its pool when it is dropped, in any thread. The pool has a limit in bytes; at the limit, allocation returns `None`.
#[derive(Clone, Debug)]
pub struct Pool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
pub(super) struct Shared {
    /// Length of a segment, in bytes, without headroom.
    segment: usize,
    /// Bytes that buffers may have in all, without headroom.
    limit: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Returned buffers by capacity.
    free: HashMap<usize, Vec<Box<[u8]>>>,
    /// Bytes and number of buffers that are not here.
    lent: usize,
    buffers: usize,
}

impl Pool {
    /// A pool in memory that no device knows.
    pub(crate) fn on_heap(segment: usize, limit: usize) -> Pool {
        Pool { shared: Arc::new(Shared { segment, limit, state: Mutex::default() }) }
    }

    /// A buffer of `length` bytes, zeroed or with bytes of earlier use; `None` if the pool's limit is reached.
    pub fn alloc(&self, length: usize) -> Option<Buf> {
        let capacity = length.max(64).checked_next_power_of_two()?;
        let mut state = self.shared.state();
        if state.lent.checked_add(capacity)? > self.shared.limit {
            return None;
        }
        let kept = state.free.get_mut(&capacity).and_then(Vec::pop);
        state.lent += capacity;
        state.buffers += 1;
        drop(state);
        let memory = kept.unwrap_or_else(|| vec![0; HEADROOM + capacity].into_boxed_slice());
        Some(Buf::of_pool(memory, length, Arc::clone(&self.shared)))
    }

    /// A buffer of a segment's length, as receives and frames use them.
    pub(crate) fn segment(&self) -> Option<Buf> {
        self.alloc(self.shared.segment)
    }

    /// Buffers that are not in the pool at the moment: with the device, with the worker or with the program.
    pub fn outstanding(&self) -> usize {
        self.shared.state().buffers
    }

    pub(crate) fn owns(&self, buffer: &Buf) -> bool {
        buffer.home().is_some_and(|home| Arc::ptr_eq(home, &self.shared))
    }
}

impl Shared {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn take_back(&self, memory: Box<[u8]>) {
        let capacity = memory.len() - HEADROOM;
        let mut state = self.state();
        state.lent -= capacity;
        state.buffers -= 1;
        state.free.entry(capacity).or_default().push(memory);
    }
}
