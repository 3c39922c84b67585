//! The chunks and free buffers of one size.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::buf::Piece;
use super::chunk::Chunk;
use super::pages::HUGE;

/// The chunks of one size, and their free buffers. The buffer that was returned last is used next.
#[derive(Debug, Default)]
pub(super) struct List {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    chunks: Vec<Option<Arc<Chunk>>>,
    /// The buffers are boxed, so that taking one allocates nothing and moves only a pointer.
    #[expect(clippy::vec_box, reason = "the address of a piece does not change")]
    free: Vec<Box<Piece>>,
    /// The minimum number of free buffers since the last [`List::give_back_idle`]: this many buffers at the front of
    /// `free` were not used since then.
    least: usize,
    /// Whether the pool was dropped. A buffer that returns later is freed, because its chunk would keep this list, and
    /// this list the chunk.
    is_closed: bool,
}

impl List {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    pub(super) fn pop(&self) -> Option<Box<Piece>> {
        let mut inner = self.lock();
        let piece = inner.free.pop()?;
        inner.least = inner.least.min(inner.free.len());
        Some(piece)
    }

    /// Takes up to `count` free buffers.
    pub(super) fn pop_many(&self, count: usize, take: impl FnMut(Box<Piece>)) {
        let mut inner = self.lock();
        let left = inner.free.len().saturating_sub(count);
        inner.free.drain(left..).rev().for_each(take);
        inner.least = inner.least.min(left);
    }

    /// Takes a buffer back.
    #[inline]
    pub(super) fn push(&self, piece: Box<Piece>) {
        let mut inner = self.lock();
        if inner.is_closed {
            drop(inner);
            return drop(piece);
        }
        inner.free.push(piece);
    }

    /// Adds a chunk with its buffers, and takes the first buffer. `make` creates the chunk for an index.
    pub(super) fn add<P: DoubleEndedIterator<Item = Box<Piece>> + ExactSizeIterator>(
        &self,
        make: impl FnOnce(usize) -> (Arc<Chunk>, P),
    ) -> Option<Box<Piece>> {
        let mut inner = self.lock();
        let index = inner.chunks.iter().position(Option::is_none).unwrap_or_else(|| {
            inner.chunks.push(None);
            inner.chunks.len() - 1
        });
        let (chunk, pieces) = make(index);
        inner.chunks[index] = Some(chunk);
        // Reserves capacity, so that no later `push` allocates.
        let all: usize = inner.chunks.iter().flatten().map(|chunk| chunk.count()).sum();
        let more = all.saturating_sub(inner.free.len());
        inner.free.reserve(more);
        inner.free.extend(pieces.rev());
        inner.free.pop()
    }

    /// Frees unused chunks until at least `wanted` bytes are freed. Returns the number of freed bytes.
    pub(super) fn give_back(&self, wanted: usize) -> usize {
        let mut inner = self.lock();
        let count = inner.free.len();
        let given = inner.give_back(count, wanted);
        // Unmapping takes time, so it happens after the lock is released.
        drop(inner);
        given.iter().map(|chunk| chunk.bytes()).sum()
    }

    /// Frees the chunks of which no buffer was used since the last call. Returns the number of freed bytes.
    pub(super) fn give_back_idle(&self) -> usize {
        let mut inner = self.lock();
        let idle = inner.least;
        let given = inner.give_back(idle, usize::MAX);
        inner.least = inner.free.len();
        drop(inner);
        given.iter().map(|chunk| chunk.bytes()).sum()
    }

    /// Returns the number of all buffers, and the number of free buffers.
    pub(super) fn count(&self) -> (usize, usize) {
        let inner = self.lock();
        (inner.chunks.iter().flatten().map(|chunk| chunk.count()).sum(), inner.free.len())
    }

    /// Ends the list when its pool is dropped: each chunk is freed after its last buffer.
    pub(super) fn close(&self) {
        let ended = std::mem::replace(&mut *self.lock(), Inner { is_closed: true, ..Inner::default() });
        drop(ended);
    }
}

impl Inner {
    /// Removes chunks whose buffers are all among the first `idle` free buffers, the newest first. A list keeps one chunk,
    /// unless this chunk is large. Otherwise, when the pool is at its limit, a request of this size might wait forever
    /// for a new chunk.
    fn give_back(&mut self, idle: usize, wanted: usize) -> Vec<Arc<Chunk>> {
        let mut counts = vec![0; self.chunks.len()];
        for index in self.free[..idle].iter().filter_map(|piece| piece.index()) {
            counts[index] += 1;
        }
        let (mut bytes, mut given) = (0, Vec::new());
        let mut left = self.chunks.iter().flatten().count();
        for (slot, count) in self.chunks.iter_mut().zip(counts).rev() {
            if bytes < wanted
                && let Some(chunk) = slot.take_if(|chunk| chunk.count() == count && (left > 1 || chunk.bytes() > HUGE))
            {
                left -= 1;
                bytes += chunk.bytes();
                given.push(chunk);
            }
        }
        if !given.is_empty() {
            let chunks = &self.chunks;
            self.free.retain(|piece| piece.index().is_some_and(|index| chunks[index].is_some()));
            self.least = self.least.min(self.free.len());
        }
        given
    }
}
