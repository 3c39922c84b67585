//! The pool: where buffers come from and return to.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use sideway::error::VerbError;
use sideway::ibverbs::memory_region::MemoryRegion;

use super::buf::Buf;
use super::chunk::{Chunk, Domain};
use super::free_list::{FreeList, Link};
use super::pages::{HUGE, Pages};
use super::{HEADROOM, LINE};

/// The smallest size, as a power of two: 4 KiB.
const SMALLEST: u32 = 12;
/// The largest: 1 GiB.
const LARGEST: u32 = 30;
const SIZES: usize = (LARGEST - SMALLEST + 1) as usize;
/// Buffers up to this size have a cache line more, for the header of a frame. Larger ones begin at a page and travel without a header.
const WITH_HEADROOM: usize = 16 << 10;
/// A buffer's number is the number of its chunk, then that within the chunk.
const WITHIN_CHUNK: u32 = 12;
const CHUNKS: usize = 1 << 13;

/// Buffers of one backend of one worker, of powers of two from 4 KiB to 1 GiB. Clones are the same pool.
///
/// A buffer returns to its pool when it is dropped, in any thread. The pool has a limit in bytes; at the limit, allocation returns `None`.
/// Memory is added in chunks of 2 MiB or one buffer, whichever is more, when a size has none left, of huge pages where the system has
/// them. It stays registered with the device until the pool and its last buffer are dropped. Taking a buffer and returning it cost a
/// compare-and-swap each.
#[derive(Clone, Debug)]
pub struct Pool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
pub(super) struct Shared {
    free: [FreeList; SIZES],
    chunks: Box<[OnceLock<Chunk>]>,
    /// How many chunks there are. Held while one is added.
    grown: Mutex<usize>,
    bytes: AtomicUsize,
    domain: Option<Domain>,
    /// Length of a segment, in bytes, with the header.
    segment: usize,
    limit: usize,
}

impl Pool {
    /// A pool in memory that is not registered.
    pub(crate) fn on_heap(segment: usize, limit: usize) -> Self {
        Self::with(segment, limit, None)
    }

    /// A pool in registered memory. Its first chunk is registered at once, so that a limit of locked memory shows here.
    ///
    /// # Errors
    ///
    /// [`PoolError`]
    pub(crate) fn registered(segment: usize, limit: usize, domain: Domain) -> Result<Self, PoolError> {
        let pool = Self::with(segment, limit, Some(domain));
        pool.shared.take(segment.saturating_sub(HEADROOM), limit).map(|(number, _)| pool.shared.take_back(number))?;
        Ok(pool)
    }

    fn with(segment: usize, limit: usize, domain: Option<Domain>) -> Self {
        let shared = Shared {
            free: Default::default(),
            chunks: (0..CHUNKS).map(|_| OnceLock::new()).collect(),
            grown: Mutex::default(),
            bytes: AtomicUsize::new(0),
            domain,
            segment,
            limit,
        };
        Self { shared: Arc::new(shared) }
    }

    /// A buffer of `length` bytes, zeroed or with bytes of earlier use; `None` if the pool's limit is reached, or the system gives or
    /// locks no more memory.
    #[inline]
    pub fn alloc(&self, length: usize) -> Option<Buf> {
        self.lend(length, LINE, self.shared.limit)
    }

    /// A buffer for which memory is added only while the pool has less than half of its limit: a peer chose the length.
    pub(crate) fn alloc_within_half(&self, length: usize) -> Option<Buf> {
        self.lend(length, LINE, self.shared.limit / 2)
    }

    /// Bytes that the pool has at most.
    pub(crate) fn limit(&self) -> usize {
        self.shared.limit
    }

    /// A buffer of a segment's length, as receives and frames use them.
    #[inline]
    pub(crate) fn segment(&self) -> Option<Buf> {
        let payload = self.shared.segment.saturating_sub(HEADROOM);
        self.lend(payload, LINE - HEADROOM, self.shared.limit)
    }

    /// A buffer for `length` bytes that start `start` bytes into it; the pool grows up to `limit`.
    #[inline]
    fn lend(&self, length: usize, start: usize, limit: usize) -> Option<Buf> {
        let (number, size) = match self.shared.take(length, limit) {
            Ok(taken) => taken,
            Err(error) => return refused(&error),
        };
        let capacity = 1_usize << (size + SMALLEST);
        let before = line(capacity);
        let start = start.min(before);
        let first = self.shared.at(number)?;
        // SAFETY: the number came from the free list of this size, so that nothing else uses the buffer until it is taken back. Its
        // stride is `before + capacity`, and `length <= capacity`. A mapping begins as zeros.
        Some(unsafe {
            Buf::of_pool((Arc::clone(&self.shared), number), (first, before + capacity), start, before + length)
        })
    }

    /// Length of a segment, in bytes, with the header.
    #[inline]
    pub(crate) fn segment_length(&self) -> usize {
        self.shared.segment
    }

    /// Buffers that are not in the pool: with the device, with the worker or with the program. It counts the free ones, and so is exact
    /// if no other thread takes or returns one meanwhile.
    pub fn outstanding(&self) -> usize {
        let chunks = self.shared.chunks.iter().map_while(OnceLock::get);
        let all: usize = chunks.map(|chunk| chunk.links().len()).sum();
        let free: usize = self.shared.free.iter().map(|list| list.count(all, |number| self.shared.link(number))).sum();
        all.saturating_sub(free)
    }

    /// Bytes of memory that the pool has now.
    pub fn bytes(&self) -> usize {
        self.shared.bytes.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn owns(&self, buffer: &Buf) -> bool {
        buffer.is_of(&self.shared)
    }
}

impl Shared {
    /// Takes a buffer for `length` bytes: its number, and the index of its size.
    #[inline]
    fn take(&self, length: usize, limit: usize) -> Result<(u32, u32), PoolError> {
        if length > 1 << LARGEST {
            return Err(PoolError::TooLong { bytes: length });
        }
        let size = length.max(1).next_power_of_two().ilog2().saturating_sub(SMALLEST);
        match self.pop(size) {
            Some(number) => Ok((number, size)),
            None => {
                let grown = self.grow(size, limit).map(|number| (number, size));
                grown.or_else(|error| self.pop_larger(length, size).ok_or(error))
            }
        }
    }

    /// At the limit, a large buffer may be larger than asked for: memory never moves from one size to another, so that without this a
    /// size that came late would never have any.
    #[cold]
    fn pop_larger(&self, length: usize, size: u32) -> Option<(u32, u32)> {
        let larger = size + 1..SIZES as u32;
        larger.filter(|_| length > WITH_HEADROOM).find_map(|size| Some((self.pop(size)?, size)))
    }

    #[inline]
    fn pop(&self, size: u32) -> Option<u32> {
        self.free.get(size as usize)?.pop(|number| self.link(number))
    }

    #[inline]
    pub(super) fn take_back(&self, number: u32) {
        let Some(chunk) = self.chunk(number) else { return };
        if let (Some(link), Some(free)) = (chunk.links().get(within(number)), self.free.get(chunk.size() as usize)) {
            free.push(number, link);
        }
    }

    #[inline]
    fn chunk(&self, number: u32) -> Option<&Chunk> {
        self.chunks.get((number >> WITHIN_CHUNK) as usize)?.get()
    }

    #[inline]
    fn link(&self, number: u32) -> Option<&Link> {
        self.chunk(number)?.links().get(within(number))
    }

    #[inline]
    fn at(&self, number: u32) -> Option<NonNull<u8>> {
        self.chunk(number)?.at(within(number))
    }

    #[inline]
    pub(super) fn region(&self, number: u32) -> Option<&Arc<MemoryRegion>> {
        self.chunk(number)?.region()
    }

    /// Adds a chunk, and takes its first buffer.
    #[cold]
    fn grow(&self, size: u32, limit: usize) -> Result<u32, PoolError> {
        let mut grown = self.lock();
        // Another thread may have added one, or returned a buffer.
        if let Some(number) = self.pop(size) {
            return Ok(number);
        }
        let capacity = 1_usize << (size + SMALLEST);
        let stride = line(capacity) + capacity;
        let bytes = self.bytes.load(Ordering::Relaxed);
        let full = || PoolError::Full { bytes: stride, limit };
        let room = limit.saturating_sub(bytes);
        let slot = self.chunks.get(*grown).filter(|_| stride <= room).ok_or_else(full)?;
        let chunk = self.register((size, stride), room)?;
        let (first, count) = ((*grown as u32) << WITHIN_CHUNK, chunk.links().len() as u32);
        self.bytes.store(bytes + chunk.bytes(), Ordering::Relaxed);
        slot.set(chunk).map_err(|_| full())?;
        *grown += 1;
        (1..count).rev().for_each(|offset| self.take_back(first + offset));
        Ok(first)
    }

    /// A chunk of the usual length, or of less if the limit of locked memory allows no more.
    fn register(&self, (size, stride): (u32, usize), room: usize) -> Result<Chunk, PoolError> {
        let mut length = HUGE.min(room).max(stride);
        loop {
            match Chunk::new(Pages::new(length)?, (size, stride), 1 << WITHIN_CHUNK, self.domain.as_ref()) {
                Err(error) if error.errno().raw() == libc::ENOMEM && length / 4 >= stride => length /= 4,
                chunk => return Ok(chunk?),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.grown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cold]
fn refused(error: &PoolError) -> Option<Buf> {
    log::debug!("no buffer: {error}");
    None
}

#[inline]
fn within(number: u32) -> usize {
    (number & ((1 << WITHIN_CHUNK) - 1)) as usize
}

/// Bytes that a buffer has before its capacity.
#[inline]
fn line(capacity: usize) -> usize {
    if capacity <= WITH_HEADROOM { LINE } else { 0 }
}

/// Why a pool gave no buffer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PoolError {
    #[error(
        "the pool is at its limit of {limit} bytes and {bytes} more are needed; return buffers, or raise the limit"
    )]
    Full { bytes: usize, limit: usize },
    #[error("a buffer of {bytes} bytes is longer than 1 GiB")]
    TooLong { bytes: usize },
    #[error("cannot map memory: {0}")]
    Map(#[from] io::Error),
    #[error(transparent)]
    Register(#[from] VerbError),
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: usize = 4096 + HEADROOM;

    #[test]
    fn buffers_hold_what_was_asked_and_have_room_for_a_header() {
        let pool = Pool::on_heap(SEGMENT, 64 << 20);
        for length in [0, 1, 4096, 4097, 16 << 10, (16 << 10) + 1, 3 << 20] {
            let mut buf = pool.alloc(length).unwrap();
            assert_eq!(buf.len(), length);
            buf.fill(0x5a);
            assert_eq!(buf.prepend(&[1; HEADROOM]), length <= 16 << 10, "{length}");
        }
        assert!(pool.bytes() <= 64 << 20);
        assert_eq!(pool.outstanding(), 0);
    }

    #[test]
    fn segment_holds_4_kib_after_its_header() {
        let pool = Pool::on_heap(SEGMENT, 2 << 20);
        let mut buf = pool.segment().unwrap();
        assert_eq!(buf.len(), SEGMENT);
        buf.advance(HEADROOM);
        assert_eq!(buf.len(), 4096);
        assert!(pool.owns(&buf));
        assert!(!pool.owns(&Buf::on_heap(1)));
    }

    #[test]
    fn returned_buffers_are_used_again() {
        let pool = Pool::on_heap(SEGMENT, 2 << 20);
        let mut held: Vec<Buf> = std::iter::from_fn(|| pool.segment()).collect();
        assert_eq!(held.len(), (2 << 20) / (4096 + LINE));
        let frozen = held.pop().unwrap().freeze();
        let clone = frozen.clone();
        drop(frozen);
        assert!(pool.segment().is_none());
        drop(clone);
        assert!(pool.segment().is_some());
        assert_eq!(pool.bytes(), 2 << 20);
    }

    #[test]
    fn buffers_outlive_the_pool() {
        let pool = Pool::on_heap(SEGMENT, 4 << 20);
        let mut buf = pool.alloc(5).unwrap();
        buf.copy_from_slice(b"hello");
        let bytes = buf.freeze();
        drop(pool);
        assert_eq!(&bytes[..], b"hello");
    }

    #[test]
    fn lengths_beyond_the_largest_buffer_are_refused() {
        assert!(Pool::on_heap(SEGMENT, usize::MAX).alloc((1 << 30) + 1).is_none());
    }

    #[test]
    fn pool_at_its_limit_lends_larger_buffers() {
        let pool = Pool::on_heap(4096, 4 << 20);
        let large: Vec<_> = (0..2).map(|_| pool.alloc(1 << 20).unwrap()).collect();
        let other: Vec<_> = (0..4).map(|_| pool.alloc(512 << 10).unwrap()).collect();
        assert!(pool.alloc(100_000).is_none(), "the limit is reached, and nothing is free");
        drop((large, other));
        let lent: Vec<_> = (0..6).map(|_| pool.alloc(100_000).unwrap()).collect();
        assert!(lent.iter().all(|buffer| buffer.len() == 100_000) && pool.alloc(100_000).is_none());
        drop(lent);
        assert_eq!(pool.outstanding(), 0);
        assert!(pool.alloc(64).is_none(), "short buffers would waste large ones");
    }

    #[test]
    fn contents_move_within_the_buffer() {
        for mut buf in [Pool::on_heap(SEGMENT, 4 << 20).alloc(11).unwrap(), Buf::on_heap(11)] {
            buf.copy_from_slice(b"header+body");
            buf.advance(7);
            assert_eq!(&buf[..], b"body");
            buf.truncate(2);
            assert!(buf.prepend(b"a"));
            assert_eq!(&buf[..], b"abo");
            assert!(buf.resize(11));
            assert_eq!(buf.len(), 11);
            assert!(!buf.resize(1 << 20));
            buf.advance(usize::MAX);
            assert!(buf.is_empty());
        }
    }
}
