//! The buffers of one size.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::chunk::Chunk;
use super::pages::HUGE;

/// Chunks of one size, and their free buffers, the last returned first.
#[derive(Debug, Default)]
pub(super) struct List {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    chunks: Vec<Option<Arc<Chunk>>>,
    /// Indices of chunks, and numbers within them.
    free: Vec<(u32, u32)>,
    /// The fewest free buffers since the last [`List::give_back_idle`]: those at the front were not used since.
    least: usize,
}

impl List {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A free buffer: its chunk, and its number there.
    #[inline]
    pub(super) fn pop(&self) -> Option<(Arc<Chunk>, u32)> {
        let mut inner = self.lock();
        let (chunk, number) = inner.free.pop()?;
        inner.least = inner.least.min(inner.free.len());
        Some((Arc::clone(inner.chunks.get(chunk as usize)?.as_ref()?), number))
    }

    /// Takes up to `count` free buffers.
    pub(super) fn pop_many(&self, count: usize, mut take: impl FnMut((Arc<Chunk>, u32))) {
        let mut inner = self.lock();
        let left = inner.free.len().saturating_sub(count);
        let Inner { chunks, free, least } = &mut *inner;
        for (chunk, number) in free.drain(left..).rev() {
            if let Some(Some(chunk)) = chunks.get(chunk as usize) {
                take((Arc::clone(chunk), number));
            }
        }
        *least = left.min(*least);
    }

    #[inline]
    pub(super) fn push(&self, chunk: u32, number: u32) {
        self.lock().free.push((chunk, number));
    }

    /// Adds the chunk that `make` makes for an index, and takes its first buffer.
    pub(super) fn add(&self, make: impl FnOnce(u32) -> Chunk) -> (Arc<Chunk>, u32) {
        let mut inner = self.lock();
        let index = inner.chunks.iter().position(Option::is_none).unwrap_or_else(|| {
            inner.chunks.push(None);
            inner.chunks.len() - 1
        });
        let chunk = Arc::new(make(index as u32));
        // So that no later `push` allocates.
        let all: usize = inner.chunks.iter().flatten().map(|chunk| chunk.count()).sum();
        let more = (all + chunk.count()).saturating_sub(inner.free.len());
        inner.free.reserve(more);
        inner.free.extend((1..chunk.count() as u32).rev().map(|number| (index as u32, number)));
        inner.chunks[index] = Some(Arc::clone(&chunk));
        (chunk, 0)
    }

    /// Gives chunks without a buffer in use back to the system, until these have `wanted` bytes; returns how many bytes they had.
    pub(super) fn give_back(&self, wanted: usize) -> usize {
        let mut inner = self.lock();
        let count = inner.free.len();
        inner.give_back(count, wanted).iter().map(|chunk| chunk.bytes()).sum()
    }

    /// Gives chunks back of which no buffer was used since the last call.
    pub(super) fn give_back_idle(&self) -> usize {
        let mut inner = self.lock();
        let idle = inner.least;
        let given = inner.give_back(idle, usize::MAX);
        inner.least = inner.free.len();
        // Unmapping takes time: not under the lock.
        drop(inner);
        given.iter().map(|chunk| chunk.bytes()).sum()
    }

    /// Buffers in all, and those that are free.
    pub(super) fn count(&self) -> (usize, usize) {
        let inner = self.lock();
        (inner.chunks.iter().flatten().map(|chunk| chunk.count()).sum(), inner.free.len())
    }

    /// The pool has ended: each chunk ends with its last buffer.
    pub(super) fn close(&self) {
        let chunks = std::mem::take(&mut self.lock().chunks);
        drop(chunks);
    }
}

impl Inner {
    /// Takes chunks out whose buffers are all among the first `idle` free ones. A size keeps one chunk, unless that is a large one: at
    /// the limit of the pool it could wait without limit for another.
    fn give_back(&mut self, idle: usize, wanted: usize) -> Vec<Arc<Chunk>> {
        let mut counts = vec![0; self.chunks.len()];
        for &(chunk, _) in &self.free[..idle] {
            counts[chunk as usize] += 1;
        }
        let (mut bytes, mut given) = (0, Vec::new());
        let mut left = self.chunks.iter().flatten().count();
        for (slot, count) in self.chunks.iter_mut().zip(counts) {
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
            self.free.retain(|&(chunk, _)| chunks[chunk as usize].is_some());
            self.least = self.least.min(self.free.len());
        }
        given
    }
}
