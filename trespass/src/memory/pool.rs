//! Pools of buffers.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use sideway::error::VerbError;

use super::buf::{Buf, Piece};
use super::chunk::{Chunk, Domain, Memory};
use super::list::List;
use super::pages::{HUGE, Pages};
use super::{HEADROOM, LINE};

/// The smallest size, as a power of two: 4 KiB.
const SMALLEST: u32 = 12;
/// The largest size, as a power of two: 1 GiB.
const LARGEST: u32 = 30;
pub(super) const SIZES: usize = (LARGEST - SMALLEST + 1) as usize;
/// Buffers up to this size have an additional cache line for the header of a frame. Larger ones begin at a page
/// boundary and are sent without a header.
const WITH_HEADROOM: usize = 16 << 10;
/// The length of the first chunk of a size, in bytes. It has room for the first receives of a worker.
const FIRST: usize = 512 << 10;

/// The buffers of one backend of one worker. Their sizes are powers of two from 4 KiB to 1 GiB. Clones share the pool.
///
/// A buffer returns to its pool when it is dropped, in any thread. The pool has a limit in bytes; at the limit,
/// allocation returns `None`. When no buffer of a size is free, the pool adds a chunk: at first of 512 KiB, because
/// registering memory takes time and a size may be used little, then of 2 MiB, in huge pages if the system has them. A
/// longer buffer is a chunk of its own. If no buffer of a chunk is used for some seconds, or if another size needs the
/// memory, the pool frees the chunk. Each size keeps one chunk of at most 2 MiB.
#[derive(Clone, Debug)]
pub struct Pool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    lists: Arc<Lists>,
    /// Held while a thread adds a chunk.
    growing: Mutex<()>,
    bytes: AtomicUsize,
    domain: Option<Domain>,
    /// Length of a segment, in bytes, with the header.
    segment: usize,
    limit: usize,
}

/// The buffers by size.
pub(super) type Lists = [List; SIZES];

impl Pool {
    /// Creates a pool in unregistered memory.
    pub(crate) fn on_heap(segment: usize, limit: usize) -> Self {
        Self::with(segment, limit, None)
    }

    /// Creates a pool in registered memory. Registers the first chunk immediately, so this function fails if too little
    /// memory can be locked.
    ///
    /// # Errors
    ///
    /// [`PoolError`]
    pub(crate) fn registered(segment: usize, limit: usize, domain: Domain) -> Result<Self, PoolError> {
        let pool = Self::with(segment, limit, Some(domain));
        let (piece, size) = pool.shared.take(segment.saturating_sub(HEADROOM), limit)?;
        drop(cut(piece, size, 0, 0));
        Ok(pool)
    }

    fn with(segment: usize, limit: usize, domain: Option<Domain>) -> Self {
        let (growing, bytes) = (Mutex::default(), AtomicUsize::new(0));
        Self { shared: Arc::new(Shared { lists: Default::default(), growing, bytes, domain, segment, limit }) }
    }

    /// Takes a buffer of `length` bytes, which are zero or from an earlier use. Returns `None` if the pool's limit is
    /// reached, or if the system cannot allocate or lock more memory.
    #[inline]
    pub fn alloc(&self, length: usize) -> Option<Buf> {
        self.lend(length, LINE, self.shared.limit)
    }

    /// Takes a buffer whose length a peer chose. For such buffers, the pool grows only up to half of its limit.
    pub(crate) fn alloc_within_half(&self, length: usize) -> Option<Buf> {
        self.lend(length, LINE, self.shared.limit / 2)
    }

    /// Takes a buffer that is not needed: a free one of this size, or new memory if the pool has used less than half of its
    /// limit.
    pub(crate) fn alloc_to_spare(&self, length: usize) -> Option<Buf> {
        let (size, half) = (size_of(length), self.shared.limit / 2);
        let has_room = self.bytes() + HUGE.max(length) <= half;
        let free = self.shared.lists.get(size as usize)?.pop();
        let piece = match free {
            None if has_room => self.shared.grow(size, half).ok()?,
            free => free?,
        };
        Some(cut(piece, size, length, LINE))
    }

    /// Takes a buffer for a message that the peer announced. If the pool has no device, the buffer may be on the heap,
    /// where memory is used only for the bytes that arrive. Returns `None` if there is no memory.
    pub(crate) fn alloc_announced(&self, length: usize) -> Option<Buf> {
        match self.shared.domain {
            Some(_) => self.alloc(length),
            None => self.alloc_within_half(length).or_else(|| Buf::try_on_heap(length)),
        }
    }

    /// The limit of the pool, in bytes.
    pub(crate) fn limit(&self) -> usize {
        self.shared.limit
    }

    /// Takes a buffer of a segment's length, for receives and frames.
    #[inline]
    pub(crate) fn segment(&self) -> Option<Buf> {
        let payload = self.shared.segment.saturating_sub(HEADROOM);
        self.lend(payload, LINE - HEADROOM, self.shared.limit)
    }

    /// Adds up to `count` empty segments to `to`. If enough segments are free, this locks the pool only once.
    pub(crate) fn segments(&self, count: usize, to: &mut Vec<Buf>) {
        let length = self.shared.segment.saturating_sub(HEADROOM);
        let size = size_of(length);
        let Some(list) = self.shared.lists.get(size as usize) else { return };
        list.pop_many(count, |piece| to.push(Buf::of_pool(piece, 0, 0)));
        if to.is_empty() {
            to.extend(self.segment());
        }
    }

    /// Takes a buffer for `length` bytes that begin at the offset `start`. The pool may grow up to `limit`.
    #[inline]
    fn lend(&self, length: usize, start: usize, limit: usize) -> Option<Buf> {
        let (piece, size) = match self.shared.take(length, limit) {
            Ok(taken) => taken,
            Err(error) => return refused(&error),
        };
        Some(cut(piece, size, length, start))
    }

    /// Length of a segment, in bytes, with the header.
    #[inline]
    pub(crate) fn segment_length(&self) -> usize {
        self.shared.segment
    }

    /// Frees the memory that was not used since the last call.
    pub(crate) fn give_back_idle(&self) {
        let given: usize = self.shared.lists.iter().map(List::give_back_idle).sum();
        self.shared.bytes.fetch_sub(given, Ordering::Relaxed);
    }

    /// Returns the number of buffers that the device, the worker or the program uses.
    pub fn outstanding(&self) -> usize {
        self.shared.lists.iter().map(List::count).map(|(all, free)| all - free).sum()
    }

    /// Returns how many bytes of memory the pool has allocated.
    pub fn bytes(&self) -> usize {
        self.shared.bytes.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn owns(&self, buffer: &Buf) -> bool {
        buffer.chunk().is_some_and(|chunk| chunk.is_of(&self.shared.lists))
    }
}

impl Shared {
    /// Takes a buffer for `length` bytes, and the index of its size.
    #[inline]
    fn take(&self, length: usize, limit: usize) -> Result<(Box<Piece>, u32), PoolError> {
        if length > 1 << LARGEST {
            return Err(PoolError::TooLong { bytes: length });
        }
        let size = size_of(length);
        match self.lists[size as usize].pop() {
            Some(piece) => Ok((piece, size)),
            None => {
                let grown = self.grow(size, limit).map(|piece| (piece, size));
                grown.or_else(|error| self.pop_larger(length, size).ok_or(error))
            }
        }
    }

    /// Takes a larger buffer than requested, because the pool is at its limit and may be unable to free a whole chunk
    /// for this size.
    #[cold]
    fn pop_larger(&self, length: usize, size: u32) -> Option<(Box<Piece>, u32)> {
        let larger = (size + 1..SIZES as u32).filter(|_| length > WITH_HEADROOM);
        larger.into_iter().find_map(|size| Some((self.lists[size as usize].pop()?, size)))
    }

    /// Adds a chunk, and takes its first buffer.
    #[cold]
    fn grow(&self, size: u32, limit: usize) -> Result<Box<Piece>, PoolError> {
        let _growing = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        let list = &self.lists[size as usize];
        // Another thread may have added a chunk or returned a buffer.
        if let Some(piece) = list.pop() {
            return Ok(piece);
        }
        let capacity = 1_usize << (size + SMALLEST);
        let stride = line(capacity) + capacity;
        let room = || limit.saturating_sub(self.bytes.load(Ordering::Relaxed));
        if stride > room() && stride <= limit {
            self.give_back(stride - room());
        }
        if stride > room() {
            return Err(PoolError::Full { bytes: stride, limit });
        }
        let usual = if list.count().0 == 0 { FIRST } else { HUGE };
        let memory = self.register(stride, usual.min(room()))?;
        self.bytes.fetch_add(memory.bytes(), Ordering::Relaxed);
        let added = list.add(|index| {
            let chunk = Arc::new(Chunk::new(memory, stride, Arc::clone(&self.lists), (size as usize, index)));
            let of = Arc::clone(&chunk);
            let pieces = (0..chunk.count()).map(move |number| {
                // SAFETY: the strides of a chunk do not overlap, and the iterator yields each number once. A mapping is
                // initially zero.
                Box::new(unsafe { Piece::new(Arc::clone(&of), of.at(number), stride) })
            });
            (chunk, pieces)
        });
        added.ok_or(PoolError::Full { bytes: stride, limit })
    }

    /// Allocates memory of this length, or less if the limit of locked memory requires it, but at least one buffer.
    fn register(&self, stride: usize, length: usize) -> Result<Memory, PoolError> {
        let mut length = length.max(stride);
        loop {
            match Memory::new(Pages::new(length)?, self.domain.as_ref()) {
                Err(error) if error.errno().raw() == libc::ENOMEM && self.give_back(length) > 0 => {}
                Err(error) if error.errno().raw() == libc::ENOMEM && length / 4 >= stride => length /= 4,
                memory => return Ok(memory?),
            }
        }
    }

    /// Frees chunks that have no buffer in use, the largest first, until `wanted` bytes are freed.
    fn give_back(&self, wanted: usize) -> usize {
        let mut given = 0;
        for list in self.lists.iter().rev() {
            if given < wanted {
                given += list.give_back(wanted - given);
            }
        }
        self.bytes.fetch_sub(given, Ordering::Relaxed);
        given
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.lists.iter().for_each(List::close);
    }
}

#[cold]
fn refused(error: &PoolError) -> Option<Buf> {
    rdma_mummy_sys::log!(debug, "no buffer: {error}");
    None
}

/// Returns a buffer for `length` bytes. The bytes begin `start` bytes into the piece, or where the capacity begins if
/// that is earlier.
#[inline]
fn cut(piece: Box<Piece>, size: u32, length: usize, start: usize) -> Buf {
    let before = line(1 << (size + SMALLEST));
    Buf::of_pool(piece, start.min(before), before + length)
}

/// Returns the index of the smallest size that is at least this length.
#[inline]
fn size_of(length: usize) -> u32 {
    length.max(1).next_power_of_two().ilog2().saturating_sub(SMALLEST)
}

/// Returns how many bytes are reserved before a buffer's capacity for the header of a frame: one cache line, or none in
/// large buffers.
#[inline]
fn line(capacity: usize) -> usize {
    if capacity <= WITH_HEADROOM { LINE } else { 0 }
}

/// The reason why a pool returned no buffer.
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

    /// The number of segments in chunks of these lengths, in KiB.
    fn in_chunks(lengths: &[usize]) -> usize {
        lengths.iter().map(|kib| (kib << 10) / (4096 + LINE)).sum()
    }

    #[test]
    fn buffers_have_the_requested_capacity_and_space_for_a_header() {
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
    fn buffer_that_outlives_its_pool_is_freed() {
        let pool = Pool::on_heap(SEGMENT, 64 << 20);
        let lists = Arc::downgrade(&pool.shared.lists);
        let (first, last) = (pool.segment().unwrap(), pool.segment().unwrap());
        drop(first);
        drop(pool);
        assert!(lists.upgrade().is_some());
        drop(last);
        assert!(lists.upgrade().is_none(), "the memory is kept");
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
        assert_eq!(held.len(), in_chunks(&[512, 1536]));
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
        let pool = Pool::on_heap(4096, 1536 << 10);
        let held = [1 << 20, 512 << 10].map(|length| pool.alloc(length).unwrap());
        assert!(pool.alloc(100_000).is_none(), "the limit is reached, and nothing is free");
        drop(held);
        let lent: Vec<_> = (0..2).map(|_| pool.alloc(100_000).unwrap()).collect();
        assert!(lent.iter().all(|buffer| buffer.len() == 100_000) && pool.alloc(100_000).is_none());
        drop(lent);
        assert_eq!(pool.outstanding(), 0);
        assert!(pool.alloc(64).is_none(), "short buffers would waste large ones");
    }

    #[test]
    fn first_chunk_of_a_size_is_short() {
        let pool = Pool::on_heap(SEGMENT, 64 << 20);
        let mut held = Vec::new();
        let mut bytes = |count| {
            held.extend((0..count).map(|_| pool.segment().unwrap()));
            pool.bytes() >> 10
        };
        assert_eq!([0, 1, 125, 1, 503, 1].map(&mut bytes), [0, 512, 512, 2560, 2560, 4608]);
        let _held = [(); 5].map(|()| pool.alloc(512 << 10).unwrap());
        assert_eq!(pool.bytes() >> 10, 4608 + 2560);
        let _long = [(); 2].map(|()| pool.alloc(8 << 20).unwrap());
        assert_eq!(pool.bytes() >> 10, 4608 + 2560 + (16 << 10), "a long buffer is a chunk of its own");
    }

    #[test]
    fn idle_memory_of_one_size_serves_another() {
        let pool = Pool::on_heap(SEGMENT, 10 << 20);
        let segments: Vec<Buf> = std::iter::from_fn(|| pool.segment()).collect();
        assert!(pool.alloc(8 << 20).is_none());
        drop(segments);
        let large = pool.alloc(8 << 20).unwrap();
        let rest: Vec<Buf> = std::iter::from_fn(|| pool.segment()).collect();
        assert_eq!(rest.len(), in_chunks(&[512, 1536]));
        drop((large, rest));
        let kept: Vec<Buf> = std::iter::from_fn(|| pool.segment()).collect();
        assert_eq!(kept.len(), in_chunks(&[512, 2048, 2048, 2048, 2048, 1536]));
        assert!(pool.alloc(8 << 20).is_none(), "each chunk has a buffer in use");
        assert_eq!(pool.bytes(), 10 << 20);
    }

    #[test]
    fn unused_memory_returns_to_the_system() {
        let pool = Pool::on_heap(SEGMENT, 1 << 30);
        let kept = pool.segment().unwrap();
        drop(pool.alloc(100 << 20).unwrap());
        pool.give_back_idle();
        assert!(pool.bytes() >= 100 << 20, "the chunk was used since the last call");
        pool.give_back_idle();
        assert_eq!((pool.bytes(), pool.outstanding()), (FIRST, 1));
        drop(kept);
        let many: Vec<Buf> = (0..2_000).map(|_| pool.segment().unwrap()).collect();
        drop(many);
        (0..2).for_each(|_| pool.give_back_idle());
        assert_eq!((pool.bytes(), pool.outstanding()), (FIRST, 0));
        assert_eq!(pool.segment().unwrap().len(), SEGMENT);
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
