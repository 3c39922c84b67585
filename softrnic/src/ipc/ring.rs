//! A ring of records in shared memory: one process puts them in, the other takes them out.
//!
//! A record is words, then the bytes of a payload, and begins at a multiple of 64; it may go on at the start of the ring. Both
//! cursors count bytes for ever. What the other process says of its cursor is believed only as far as nothing outside of the
//! ring, and of what has been put in, is touched.
//!
//! What it is built from comes from `sync`, so that a test can have it of `loom` (`tests/loom`), which tries the orders
//! in which both ends can come by.

use std::marker::PhantomData;
use std::sync::Arc;

use super::codec::{Garbage, PART_WORDS, Words};
use super::shared::{LINE, Shared};
use crate::sys::sync::{AtomicU64, Ordering, fence};
use crate::wire::bytes::{Segment, copy, write_bytes};
use crate::wire::packet::Payload;

/// Where a record can begin, in bytes.
const GRAIN: u64 = LINE as u64;
/// The words of a ring, in bytes from its control block; each has cache lines of its own.
const TAIL: usize = 0;
const HEAD: usize = 128;
const PARKED: usize = 256;
const WANTS_ROOM: usize = 384;
/// The bytes of a control block.
pub(super) const CONTROL: usize = 512;

/// A ring, from either end.
#[derive(Clone, Debug)]
pub(super) struct Ring {
    shared: Arc<Shared>,
    control: usize,
    data: usize,
    size: u64,
}

impl Ring {
    /// The control block and the data begin at these bytes; `size` is a power of two.
    pub(super) fn new(shared: Arc<Shared>, control: usize, data: usize, size: usize) -> Self {
        Self { shared, control, data, size: size as u64 }
    }

    /// Up to where records are put in.
    #[inline]
    pub(super) fn tail(&self) -> u64 {
        self.shared.load(self.control + TAIL, Ordering::Acquire)
    }

    /// Up to where they are taken out.
    #[inline]
    pub(super) fn head(&self) -> u64 {
        self.shared.load(self.control + HEAD, Ordering::Acquire)
    }

    /// Whether there is room again for those who wait for it, seen from a producer at `tail`. A head that cannot be counts as
    /// room, so that who puts in sees it.
    pub(super) fn has_room(&self, tail: u64) -> bool {
        let used = tail.wrapping_sub(self.head());
        used > self.size || self.size - used >= self.size / 4
    }

    /// The bytes that are free, seen from a producer at `tail`. A head that cannot be counts as room, as above.
    pub(super) fn free(&self, tail: u64) -> u64 {
        self.size.checked_sub(tail.wrapping_sub(self.head())).unwrap_or(self.size)
    }

    /// The consumer's: it asks for a bell with the next record.
    pub(super) fn park(&self) {
        self.shared.store(self.control + PARKED, 1, Ordering::Relaxed);
    }

    /// The consumer's: it looks by itself.
    pub(super) fn unpark(&self) {
        if self.shared.load(self.control + PARKED, Ordering::Relaxed) != 0 {
            self.shared.store(self.control + PARKED, 0, Ordering::Relaxed);
        }
    }

    /// The producer's, once it has put something in: whether the consumer asks for a bell, which is then to be rung.
    #[inline]
    pub(super) fn take_parked(&self) -> bool {
        // Either this sees that the other process sleeps, or its last look sees the record.
        fence(Ordering::SeqCst);
        self.shared.load(self.control + PARKED, Ordering::Relaxed) != 0 && self.shared.take(self.control + PARKED) != 0
    }

    /// The producer's: it asks for a bell once there is room.
    pub(super) fn want_room(&self) {
        self.shared.store(self.control + WANTS_ROOM, 1, Ordering::Relaxed);
    }

    /// The producer's: it looks by itself.
    pub(super) fn want_no_room(&self) {
        if self.shared.load(self.control + WANTS_ROOM, Ordering::Relaxed) != 0 {
            self.shared.store(self.control + WANTS_ROOM, 0, Ordering::Relaxed);
        }
    }

    /// The consumer's: whether the producer asks for room, and there is a quarter of the ring; then its bell is to be rung. A fence
    /// stands before it.
    ///
    /// Where there is less, more of the ring is still to be taken out, and the producer's wish stays for the look after that.
    fn take_wish(&self, head: u64) -> bool {
        self.shared.load(self.control + WANTS_ROOM, Ordering::Relaxed) != 0
            && self.size.saturating_sub(self.tail().wrapping_sub(head)) >= self.size / 4
            && self.shared.take(self.control + WANTS_ROOM) != 0
    }

    /// The word so many after a cursor.
    #[inline]
    fn place(&self, cursor: u64) -> usize {
        // Lossless: less than the size, which was a `usize`.
        self.data + (cursor & (self.size - 1)) as usize
    }

    /// The line so many after a cursor, at which a record begins: so it does not go on at the start.
    #[inline]
    fn line(&self, cursor: u64, index: usize) -> &[AtomicU64; LINE / 8] {
        self.shared.line(self.place(cursor + (index * LINE) as u64))
    }

    /// The bytes from a cursor on, in two pieces where they go on at the start. `length` is at most the size.
    ///
    /// # Safety
    ///
    /// As [`Shared::segment`].
    #[inline]
    unsafe fn pieces(&self, cursor: u64, length: u32) -> [Segment; 2] {
        let start = self.place(cursor);
        let to_end = self.data + self.size as usize - start;
        let first = to_end.min(length as usize);
        // SAFETY: the caller's promise.
        unsafe {
            match length as usize - first {
                0 => [self.shared.segment(start, first), Segment::EMPTY],
                rest => [self.shared.segment(start, first), self.shared.segment(self.data, rest)],
            }
        }
    }
}

/// The bytes that a record takes.
#[inline]
fn record(words: usize, length: u32) -> u64 {
    (words as u64 * 8 + u64::from(length)).next_multiple_of(GRAIN)
}

/// The end that puts in.
#[derive(Debug)]
pub(super) struct Producer {
    ring: Ring,
    tail: u64,
    /// As it was seen last.
    head: u64,
}

/// Why nothing was put in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotPut {
    Full,
    Garbage(Garbage),
    /// The payload could not be read.
    Fault,
}

impl Producer {
    /// Of a ring that nothing was put into.
    pub(super) fn new(ring: Ring) -> Self {
        Self { ring, tail: 0, head: 0 }
    }

    pub(super) fn tail(&self) -> u64 {
        self.tail
    }

    /// Puts in a record, with `length` bytes of payload, if `spare` bytes are left after it.
    #[inline]
    pub(super) fn put(&mut self, words: &[u64], payload: Payload<'_>, length: u32, spare: u64) -> Result<(), NotPut> {
        let record = record(words.len(), length);
        if self.room()? < record + spare {
            self.head = self.ring.head();
            if self.room()? < record + spare {
                return Err(NotPut::Full);
            }
        }
        for (index, words) in words.chunks(LINE / 8).enumerate() {
            let line = self.ring.line(self.tail, index);
            line.iter().zip(words).for_each(|(to, &word)| to.store(word, Ordering::Relaxed));
        }
        if length != 0 {
            // SAFETY: they go before this returns; the room is this producer's, whose lock the caller holds, and the consumer reads
            // it once the tail is stored.
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
    fn room(&self) -> Result<u64, NotPut> {
        // A head beyond the tail makes this large.
        let used = self.tail.wrapping_sub(self.head);
        self.ring.size.checked_sub(used).ok_or(NotPut::Garbage(Garbage("a head that is not in the ring")))
    }
}

/// The end that takes out.
#[derive(Debug)]
pub(super) struct Consumer {
    ring: Ring,
    /// The words of its records.
    words: usize,
    head: u64,
    /// As it was seen last.
    tail: u64,
    /// The head that the producer was told.
    freed: u64,
}

/// The payload of a record.
#[derive(Debug)]
pub(super) struct Pieces<'c> {
    pieces: [Segment; 2],
    count: usize,
    /// The head after it.
    end: u64,
    /// The consumer says when the place is free.
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
    /// Of a ring that nothing was taken out of, and whose records have so many words: whole lines, and at most [`PART_WORDS`].
    pub(super) fn new(ring: Ring, words: usize) -> Self {
        Self { ring, words: words.min(PART_WORDS), head: 0, tail: 0, freed: 0 }
    }

    pub(super) fn head(&self) -> u64 {
        self.head
    }

    /// The words of the next record. Its payload is to be taken next.
    #[inline]
    pub(super) fn next(&mut self) -> Result<Option<Words>, Garbage> {
        if self.head == self.tail {
            let tail = self.ring.tail();
            if tail.wrapping_sub(self.head) > self.ring.size || !tail.is_multiple_of(GRAIN) {
                return Err(Garbage("a tail that is not in the ring"));
            }
            self.tail = tail;
            if self.head == tail {
                return Ok(None);
            }
        }
        if self.tail - self.head < self.words as u64 * 8 {
            return Err(Garbage("half a record"));
        }
        let mut words = [0; PART_WORDS];
        for (index, words) in words.chunks_mut(LINE / 8).take(self.words.div_ceil(LINE / 8)).enumerate() {
            let line = self.ring.line(self.head, index);
            words.iter_mut().zip(line).for_each(|(to, word)| *to = word.load(Ordering::Relaxed));
        }
        Ok(Some(words))
    }

    /// Takes the record, of whose payload there are so many bytes.
    #[inline]
    pub(super) fn take(&mut self, length: u32) -> Result<Pieces<'_>, Garbage> {
        let record = record(self.words, length);
        if self.tail - self.head < record {
            return Err(Garbage("a record beyond the tail"));
        }
        let start = self.head + self.words as u64 * 8;
        self.head += record;
        // SAFETY: they borrow this consumer, which keeps the memory, and only then tells that the place is free.
        let pieces = unsafe { self.ring.pieces(start, length) };
        let count = pieces.iter().filter(|piece| !piece.is_empty()).count();
        Ok(Pieces { pieces, count, end: self.head, consumer: PhantomData })
    }

    /// So many bytes are taken and not yet told.
    #[inline]
    pub(super) fn unfreed(&self) -> u64 {
        self.head - self.freed
    }

    /// Tells the producer how far it has come; whether its bell is to be rung.
    #[inline]
    pub(super) fn free(&mut self) -> bool {
        if self.unfreed() == 0 {
            return false;
        }
        self.freed = self.head;
        self.ring.shared.store(self.ring.control + HEAD, self.head, Ordering::Release);
        // Either the wish is seen here, or the producer sees this head: between its wish and its look stands a fence too.
        fence(Ordering::SeqCst);
        self.ring.take_wish(self.head)
    }
}
