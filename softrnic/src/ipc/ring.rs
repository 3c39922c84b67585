//! A ring of records in shared memory. One process writes the records, and the other process reads them.
//!
//! A record consists of words and a payload, starts at a multiple of 64, and may wrap around at the end of the ring.
//! Both cursors count bytes since the ring was created and never wrap around. The cursor of the other process is
//! checked, so that every access is within the ring and within the records that were written.
//!
//! Atomics and fences come from `sync`, so that a test can replace them by loom's (`tests/models`), which tries the
//! interleavings of both ends.

use std::marker::PhantomData;
use std::sync::Arc;

use super::codec::{Malformed, PART_WORDS, Words};
use super::shared::{LINE, Shared};
use crate::sys::sync::{AtomicU64, Ordering, fence};
use crate::wire::bytes::{Segment, copy, write_bytes};
use crate::wire::packet::Payload;

/// The alignment of records in bytes.
const GRAIN: u64 = LINE as u64;
/// The byte offsets of the words in a control block. Each word has cache lines of its own.
const TAIL: usize = 0;
const HEAD: usize = 128;
const PARKED: usize = 256;
const WANTS_SPACE: usize = 384;
/// The size of a control block in bytes.
pub(super) const CONTROL: usize = 512;

/// A ring, which both ends use.
#[derive(Clone, Debug)]
pub(super) struct Ring {
    shared: Arc<Shared>,
    control: usize,
    data: usize,
    size: u64,
}

impl Ring {
    /// Creates a ring from the offsets of its control block and of its data. `size` must be a power of two.
    pub(super) fn new(shared: Arc<Shared>, control: usize, data: usize, size: usize) -> Self {
        Self { shared, control, data, size: size as u64 }
    }

    /// Reads the cursor of the producer.
    #[inline]
    pub(super) fn tail(&self) -> u64 {
        self.shared.load(self.control + TAIL, Ordering::Acquire)
    }

    /// Reads the cursor of the consumer.
    #[inline]
    pub(super) fn head(&self) -> u64 {
        self.shared.load(self.control + HEAD, Ordering::Acquire)
    }

    /// Whether at least a quarter of the ring is free for a producer whose cursor is `tail`. This is enough to wake QPs
    /// that wait. An invalid head counts as free space, so that the producer continues and detects it.
    pub(super) fn has_space(&self, tail: u64) -> bool {
        let used = tail.wrapping_sub(self.head());
        used > self.size || self.size - used >= self.size / 4
    }

    /// Returns how many bytes are free for a producer whose cursor is `tail`. If the head is invalid, the whole ring
    /// counts as free.
    pub(super) fn free(&self, tail: u64) -> u64 {
        self.size.checked_sub(tail.wrapping_sub(self.head())).unwrap_or(self.size)
    }

    /// Requests a wake-up when the next record is written. The consumer calls this function.
    pub(super) fn park(&self) {
        self.shared.store(self.control + PARKED, 1, Ordering::Relaxed);
    }

    /// Withdraws the request of [`park`](Self::park). The consumer calls this function when it polls.
    pub(super) fn unpark(&self) {
        if self.shared.load(self.control + PARKED, Ordering::Relaxed) != 0 {
            self.shared.store(self.control + PARKED, 0, Ordering::Relaxed);
        }
    }

    /// Returns whether the consumer has requested a wake-up, which the caller must then send. The producer calls this
    /// function after it has written records.
    #[inline]
    pub(super) fn take_parked(&self) -> bool {
        // Either this load sees the request, or the consumer's last check sees the record.
        fence(Ordering::SeqCst);
        self.shared.load(self.control + PARKED, Ordering::Relaxed) != 0 && self.shared.take(self.control + PARKED) != 0
    }

    /// Requests a wake-up when there is space. The producer calls this function.
    pub(super) fn want_space(&self) {
        self.shared.store(self.control + WANTS_SPACE, 1, Ordering::Relaxed);
    }

    /// Withdraws the request of [`want_space`](Self::want_space). The producer calls this function when it polls.
    pub(super) fn want_no_space(&self) {
        if self.shared.load(self.control + WANTS_SPACE, Ordering::Relaxed) != 0 {
            self.shared.store(self.control + WANTS_SPACE, 0, Ordering::Relaxed);
        }
    }

    /// Returns whether the producer has requested space and a quarter of the ring is free. The caller must then send a
    /// wake-up. The consumer calls this function after a fence.
    ///
    /// If less is free, the ring contains records that were not read. The request then stays until they are read.
    fn take_space_request(&self, head: u64) -> bool {
        self.shared.load(self.control + WANTS_SPACE, Ordering::Relaxed) != 0
            && self.size.saturating_sub(self.tail().wrapping_sub(head)) >= self.size / 4
            && self.shared.take(self.control + WANTS_SPACE) != 0
    }

    /// Returns the offset in shared memory of the word at a cursor.
    #[inline]
    fn place(&self, cursor: u64) -> usize {
        // The conversion is lossless, because the value is less than the size, which was a `usize`.
        self.data + (cursor & (self.size - 1)) as usize
    }

    /// Returns the line `index` of the record at a cursor. Records are aligned to lines, so a line never wraps around.
    #[inline]
    fn line(&self, cursor: u64, index: usize) -> &[AtomicU64; LINE / 8] {
        self.shared.line(self.place(cursor + (index * LINE) as u64))
    }

    /// Returns the `length` bytes that start at a cursor, in two pieces if they wrap around. `length` must be at most
    /// the size of the ring.
    ///
    /// # Safety
    ///
    /// As for [`Shared::segment`].
    #[inline]
    unsafe fn pieces(&self, cursor: u64, length: u32) -> [Segment; 2] {
        let start = self.place(cursor);
        let to_end = self.data + self.size as usize - start;
        let first = to_end.min(length as usize);
        // SAFETY: guaranteed by the caller.
        unsafe {
            match length as usize - first {
                0 => [self.shared.segment(start, first), Segment::EMPTY],
                rest => [self.shared.segment(start, first), self.shared.segment(self.data, rest)],
            }
        }
    }
}

/// Returns the size that a record occupies in the ring.
#[inline]
fn record(words: usize, length: u32) -> u64 {
    (words as u64 * 8 + u64::from(length)).next_multiple_of(GRAIN)
}

/// The writing end of a ring.
#[derive(Debug)]
pub(super) struct Producer {
    ring: Ring,
    tail: u64,
    /// The last value that was read from shared memory.
    head: u64,
}

/// The reason why a record was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotPut {
    Full,
    Malformed(Malformed),
    /// The payload could not be read.
    Fault,
}

impl Producer {
    /// Creates the producer of an empty ring.
    pub(super) fn new(ring: Ring) -> Self {
        Self { ring, tail: 0, head: 0 }
    }

    pub(super) fn tail(&self) -> u64 {
        self.tail
    }

    /// Writes a record with a payload of `length` bytes, if at least `spare` bytes are free after this record.
    #[inline]
    pub(super) fn put(&mut self, words: &[u64], payload: Payload<'_>, length: u32, spare: u64) -> Result<(), NotPut> {
        let record = record(words.len(), length);
        if self.free_space()? < record + spare {
            self.head = self.ring.head();
            if self.free_space()? < record + spare {
                return Err(NotPut::Full);
            }
        }
        for (index, words) in words.chunks(LINE / 8).enumerate() {
            let line = self.ring.line(self.tail, index);
            line.iter().zip(words).for_each(|(to, &word)| to.store(word, Ordering::Relaxed));
        }
        if length != 0 {
            // SAFETY: the segments are dropped before this function returns. The space belongs to this producer, whose
            // lock the caller holds, and the consumer reads it only after the tail is stored.
            let to = unsafe { self.ring.pieces(self.tail + words.len() as u64 * 8, length) };
            let done = match payload {
                Payload::Bytes(bytes) => write_bytes(bytes, &to),
                Payload::Memory(from) => copy(from, &to),
            };
            done.map_err(|_| NotPut::Fault)?;
        }
        self.tail += record;
        self.ring.shared.store(self.ring.control + TAIL, self.tail, Ordering::Release);
        Ok(())
    }

    #[inline]
    fn free_space(&self) -> Result<u64, NotPut> {
        // If the head is beyond the tail, the difference wraps around and exceeds the size.
        let used = self.tail.wrapping_sub(self.head);
        self.ring.size.checked_sub(used).ok_or(NotPut::Malformed(Malformed("head outside of the ring")))
    }
}

/// The reading end of a ring.
#[derive(Debug)]
pub(super) struct Consumer {
    ring: Ring,
    /// The number of words in each record.
    words: usize,
    head: u64,
    /// The last value that was read from shared memory.
    tail: u64,
    /// The last head that was published to the producer.
    freed: u64,
}

/// The payload of a record.
#[derive(Debug)]
pub(super) struct Pieces<'c> {
    pieces: [Segment; 2],
    count: usize,
    /// The value of the head after the record is read.
    end: u64,
    /// This borrows the consumer, so that it cannot free the space while the payload is in use.
    consumer: PhantomData<&'c Consumer>,
}

impl Pieces<'_> {
    #[inline]
    pub(super) fn as_slice(&self) -> &[Segment] {
        self.pieces.get(..self.count).unwrap_or_default()
    }

    pub(super) fn end(&self) -> u64 {
        self.end
    }
}

impl Consumer {
    /// Creates the consumer of an empty ring. A record has `words` words, which are whole lines and at most
    /// [`PART_WORDS`].
    pub(super) fn new(ring: Ring, words: usize) -> Self {
        Self { ring, words: words.min(PART_WORDS), head: 0, tail: 0, freed: 0 }
    }

    pub(super) fn head(&self) -> u64 {
        self.head
    }

    /// Reads the words of the next record. The caller then takes the payload of the record.
    #[inline]
    pub(super) fn next(&mut self) -> Result<Option<Words>, Malformed> {
        if self.head == self.tail {
            let tail = self.ring.tail();
            if tail.wrapping_sub(self.head) > self.ring.size || !tail.is_multiple_of(GRAIN) {
                return Err(Malformed("tail outside of the ring"));
            }
            self.tail = tail;
            if self.head == tail {
                return Ok(None);
            }
        }
        if self.tail - self.head < self.words as u64 * 8 {
            return Err(Malformed("incomplete record"));
        }
        let mut words = [0; PART_WORDS];
        for (index, words) in words.chunks_mut(LINE / 8).take(self.words.div_ceil(LINE / 8)).enumerate() {
            let line = self.ring.line(self.head, index);
            words.iter_mut().zip(line).for_each(|(to, word)| *to = word.load(Ordering::Relaxed));
        }
        Ok(Some(words))
    }

    /// Takes the record and returns its payload, which has `length` bytes.
    #[inline]
    pub(super) fn take(&mut self, length: u32) -> Result<Pieces<'_>, Malformed> {
        let record = record(self.words, length);
        if self.tail - self.head < record {
            return Err(Malformed("record beyond the tail"));
        }
        let start = self.head + self.words as u64 * 8;
        self.head += record;
        // SAFETY: the pieces borrow this consumer, which keeps the memory mapped, and frees the space only later.
        let pieces = unsafe { self.ring.pieces(start, length) };
        let count = pieces.iter().filter(|piece| !piece.is_empty()).count();
        Ok(Pieces { pieces, count, end: self.head, consumer: PhantomData })
    }

    /// Returns how many bytes were read but not freed.
    #[inline]
    pub(super) fn unfreed(&self) -> u64 {
        self.head - self.freed
    }

    /// Frees the space of the records that were read by publishing the head to the producer. Returns whether the
    /// producer needs a wake-up.
    #[inline]
    pub(super) fn free(&mut self) -> bool {
        if self.unfreed() == 0 {
            return false;
        }
        self.freed = self.head;
        self.ring.shared.store(self.ring.control + HEAD, self.head, Ordering::Release);
        // Either this call sees the producer's request, or the producer sees this head, because the producer also has a
        // fence between its request and its check.
        fence(Ordering::SeqCst);
        self.ring.take_space_request(self.head)
    }
}
