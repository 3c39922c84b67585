//! A ring that the process shares with the kernel. Indices count entries, wrap at 2³², and are masked on access.
//!
//! Each ring has one producer and one consumer, so loads and stores suffice. A side publishes its own index with a
//! release store and reads the peer's with an acquire load. Both sides cache the peer's index and read it again only if
//! the cached one is used up.
//!
//! A batch has copies of all fields that its loop reads. A store through a raw pointer could alias the fields of the
//! ring, so the compiler would load them again for each entry. Positions within a batch are masked byte offsets, which
//! saves instructions for each entry.

use std::ptr::NonNull;

use crate::sys::sync::{AtomicU32, Ordering, Slots};

/// The kernel sets this flag if a system call is needed to wake it.
const NEED_WAKEUP: u32 = 1;

/// The addresses of the parts of a ring.
#[derive(Debug)]
pub(crate) struct Ring<T> {
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    slots: Slots<T>,
    mask: u32,
}

// SAFETY: the pointers lead to shared memory. Indices and flags are accessed atomically, entries by the ring's
// protocol. The mapping may be used from any thread.
unsafe impl<T: Send> Send for Ring<T> {}
// SAFETY: a shared reference only loads the flags.
unsafe impl<T: Send> Sync for Ring<T> {}

impl<T: Copy> Ring<T> {
    /// A ring of `size` entries.
    ///
    /// # Safety
    ///
    /// - The pointers lead to a ring with `size` entries, which stays mapped while the value exists.
    /// - `size` is a power of two.
    /// - This process has no other `Producer` or `Consumer` for the same side of the ring.
    pub(crate) unsafe fn new(
        producer: NonNull<AtomicU32>,
        consumer: NonNull<AtomicU32>,
        flags: NonNull<AtomicU32>,
        slots: Slots<T>,
        size: u32,
    ) -> Self {
        debug_assert!(size.is_power_of_two());
        Self { producer, consumer, flags, slots, mask: size - 1 }
    }

    fn size(&self) -> u32 {
        self.mask + 1
    }

    #[inline]
    fn producer(&self) -> &AtomicU32 {
        // SAFETY: `new` requires a mapped ring; both sides access the index by atomics only.
        unsafe { self.producer.as_ref() }
    }

    #[inline]
    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as in `producer`.
        unsafe { self.consumer.as_ref() }
    }

    /// Whether the kernel sleeps until a system call wakes it.
    #[inline]
    pub(crate) fn needs_wakeup(&self) -> bool {
        // SAFETY: as in `producer`.
        unsafe { self.flags.as_ref() }.load(Ordering::Relaxed) & NEED_WAKEUP != 0
    }
}

/// The side of a ring that adds entries.
#[derive(Debug)]
pub(crate) struct Producer<T> {
    ring: Ring<T>,
    /// Number of entries published so far.
    next: u32,
    /// The consumer's index when it was last read.
    released: u32,
}

impl<T: Copy> Producer<T> {
    /// Continues at the ring's present position.
    pub(crate) fn new(ring: Ring<T>) -> Self {
        let next = ring.producer().load(Ordering::Relaxed);
        let released = ring.consumer().load(Ordering::Acquire);
        Self { ring, next, released }
    }

    pub(crate) fn ring(&self) -> &Ring<T> {
        &self.ring
    }

    /// Returns the number of entries published so far, modulo 2³².
    pub(crate) fn total(&self) -> u32 {
        self.next
    }

    /// Entries that the consumer has not taken yet.
    pub(crate) fn pending(&self) -> u32 {
        self.next.wrapping_sub(self.ring.consumer().load(Ordering::Acquire))
    }

    /// Begins a batch with space for up to `max` entries.
    #[inline]
    pub(crate) fn batch(&mut self, max: u32) -> ProducerBatch<'_, T> {
        let size = self.ring.size();
        let mut free = size.wrapping_sub(self.next.wrapping_sub(self.released));
        if free < max {
            self.released = self.ring.consumer().load(Ordering::Acquire);
            free = size.wrapping_sub(self.next.wrapping_sub(self.released));
        }
        // If the consumer's index is ahead of this side's, the difference exceeds the size: then no space is free.
        let count = if free > size { 0 } else { free.min(max) };
        let (slots, mask, at) = (self.ring.slots, bytes::<T>(self.ring.mask), bytes::<T>(self.next & self.ring.mask));
        ProducerBatch { slots, mask, at, left: count, end: self.next.wrapping_add(count), producer: self }
    }
}

/// The position of an entry in bytes.
#[inline]
fn bytes<T>(index: u32) -> usize {
    index as usize * size_of::<T>()
}

/// Entries that are written, and published together when the batch is dropped. A forgotten batch publishes nothing.
#[derive(Debug)]
pub(crate) struct ProducerBatch<'a, T: Copy> {
    slots: Slots<T>,
    mask: usize,
    at: usize,
    left: u32,
    end: u32,
    producer: &'a mut Producer<T>,
}

impl<T: Copy> ProducerBatch<'_, T> {
    /// Entries that still fit.
    #[inline]
    pub(crate) fn space(&self) -> u32 {
        self.left
    }

    /// Writes one entry.
    ///
    /// # Safety
    ///
    /// `space` is not 0.
    #[inline]
    pub(crate) unsafe fn push(&mut self, entry: T) {
        // SAFETY: the mask keeps the position within the ring, at a multiple of the entry's size. The consumer has
        // released this entry, as there is space.
        unsafe { self.slots.write(self.at, entry) };
        self.at = (self.at + bytes::<T>(1)) & self.mask;
        self.left -= 1;
    }
}

impl<T: Copy> Drop for ProducerBatch<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.producer.next = self.end.wrapping_sub(self.left);
        self.producer.ring.producer().store(self.producer.next, Ordering::Release);
    }
}

/// The side of a ring that takes entries.
#[derive(Debug)]
pub(crate) struct Consumer<T> {
    ring: Ring<T>,
    /// Number of entries taken so far.
    next: u32,
    /// The producer's index when it was last read.
    published: u32,
}

impl<T: Copy> Consumer<T> {
    /// Continues at the ring's present position.
    pub(crate) fn new(ring: Ring<T>) -> Self {
        let next = ring.consumer().load(Ordering::Relaxed);
        let published = ring.producer().load(Ordering::Acquire);
        Self { ring, next, published }
    }

    /// Returns the number of entries taken so far, modulo 2³².
    pub(crate) fn total(&self) -> u32 {
        self.next
    }

    /// Entries that can be taken.
    pub(crate) fn available(&self) -> u32 {
        self.ring.producer().load(Ordering::Acquire).wrapping_sub(self.next)
    }

    /// Begins a batch of up to `max` entries.
    #[inline]
    pub(crate) fn batch(&mut self, max: u32) -> ConsumerBatch<'_, T> {
        let mut available = self.published.wrapping_sub(self.next);
        if available == 0 {
            self.published = self.ring.producer().load(Ordering::Acquire);
            available = self.published.wrapping_sub(self.next);
        }
        let count = available.min(max).min(self.ring.size());
        let (slots, mask, at) = (self.ring.slots, bytes::<T>(self.ring.mask), bytes::<T>(self.next & self.ring.mask));
        // Counts the entries as taken before they are read, because a forgotten batch must not be read a second time.
        self.next = self.next.wrapping_add(count);
        ConsumerBatch { slots, mask, at, left: count, consumer: self }
    }
}

/// Entries that are read one by one. When the batch is dropped, those that were read are released, and the others stay
/// in the ring.
#[derive(Debug)]
pub(crate) struct ConsumerBatch<'a, T: Copy> {
    slots: Slots<T>,
    mask: usize,
    at: usize,
    left: u32,
    consumer: &'a mut Consumer<T>,
}

impl<T: Copy> ConsumerBatch<'_, T> {
    /// Entries that are left.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.left
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        if self.left == 0 {
            return None;
        }
        // SAFETY: the mask keeps the position within the ring, at a multiple of the entry's size. The producer has
        // published this entry and gets it back when the batch is dropped.
        let entry = unsafe { self.slots.read(self.at) };
        self.at = (self.at + bytes::<T>(1)) & self.mask;
        self.left -= 1;
        Some(entry)
    }
}

impl<T: Copy> Drop for ConsumerBatch<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.consumer.next = self.consumer.next.wrapping_sub(self.left);
        self.consumer.ring.consumer().store(self.consumer.next, Ordering::Release);
    }
}

/// Moves entries from one ring to another, as many as are available and fit. `pass` receives each entry and returns the
/// entry to write, or rejects it with a value that this function drops.
///
/// Runs of entries that wrap in neither ring need no mask. A rejected entry ends a run, because a call within the loop
/// would cost registers.
#[inline]
pub(crate) fn transfer<A: Copy, B: Copy, D>(
    mut from: ConsumerBatch<'_, A>,
    mut to: ProducerBatch<'_, B>,
    mut pass: impl FnMut(A) -> Result<B, Option<D>>,
) -> usize {
    let before = from.left;
    loop {
        let stretch = |at: usize, mask: usize, size: usize| ((mask + size - at) / size) as u32;
        let of_from = stretch(from.at, from.mask, bytes::<A>(1)).min(from.left);
        let of_to = stretch(to.at, to.mask, bytes::<B>(1)).min(to.left);
        let count = of_from.min(of_to);
        if count == 0 {
            return (before - from.left) as usize;
        }
        // All entries of the run count as taken before the first call of `pass`. So if `pass` panics, the rest of the
        // run is lost, but no entry is passed twice.
        from.left -= count;
        let mut taken = count;
        let mut refused = None;
        for at in 0..count {
            // SAFETY: the position is within the run of entries. The producer has published this entry and gets it back
            // when the batch is dropped.
            let entry = unsafe { from.slots.read(from.at + bytes::<A>(at)) };
            match pass(entry) {
                // SAFETY: the position is within the run of entries. The consumer has released this entry.
                Ok(entry) => unsafe { to.slots.write(to.at + bytes::<B>(at), entry) },
                Err(entry) => {
                    refused = Some((at, entry));
                    break;
                }
            }
        }
        let mut passed = count;
        if let Some((at, entry)) = refused {
            (taken, passed) = (at + 1, at);
            from.left += count - taken;
            drop(entry);
        }
        to.left -= passed;
        from.at = (from.at + bytes::<A>(taken)) & from.mask;
        to.at = (to.at + bytes::<B>(passed)) & to.mask;
    }
}
