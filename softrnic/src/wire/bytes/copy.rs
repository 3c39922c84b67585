//! Copies memory that other threads may read and write at the same time.
//!
//! Programs wait for data by polling its last bytes. A copy therefore stores the last bytes last, and does so in one
//! store if they are aligned. If source and target overlap, the result is correct, but the order of the stores is
//! unspecified.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

use super::segment::{Place, Segment};
use super::{Atomic, End, Fault, cuda};
#[cfg(not(miri))]
use crate::sys::cpu;

/// Copies the bytes of one list of segments to another, up to the length of the shorter list. The last bytes of each
/// piece are stored last, because programs poll them.
///
/// # Errors
///
/// Returns an error if GPU memory was freed, or if the CUDA driver failed.
#[inline]
pub(crate) fn copy(from: &[Segment], to: &[Segment]) -> Result<(), Fault> {
    transfer(from, to).map_err(|(_, fault)| fault)
}

/// Copies like [`copy`]. On failure, also returns whether the source or the target failed.
#[inline]
pub(crate) fn transfer(from: &[Segment], to: &[Segment]) -> Result<(), (End, Fault)> {
    if let ([from], [to]) = (from, to) {
        return move_bytes(from.place(), to.place(), from.len().min(to.len()));
    }
    move_runs(from.iter().map(Run::of), to.iter().map(Run::of))
}

/// Copies the bytes of a slice to segments.
#[inline]
pub(crate) fn write_bytes(from: &[u8], to: &[Segment]) -> Result<(), Fault> {
    // The slice is only read, because `move_runs` writes only to its second list.
    let from = Run { place: Place::Host(from.as_ptr().cast_mut()), length: from.len() };
    move_runs([from].into_iter(), to.iter().map(Run::of)).map_err(|(_, fault)| fault)
}

/// Copies the bytes of segments to a slice.
#[inline]
pub(crate) fn read_bytes(from: &[Segment], to: &mut [u8]) -> Result<(), Fault> {
    let to = Run { place: Place::Host(to.as_mut_ptr()), length: to.len() };
    move_runs(from.iter().map(Run::of), [to].into_iter()).map_err(|(_, fault)| fault)
}

/// Appends the first `length` bytes of segments.
///
/// # Errors
///
/// As for [`copy`], or if the segments are shorter.
pub(crate) fn append_bytes(from: &[Segment], length: usize, to: &mut Vec<u8>) -> Result<(), Fault> {
    if from.iter().map(Segment::len).sum::<usize>() < length {
        return Err(Fault::Bounds);
    }
    to.reserve(length);
    let space = Run { place: Place::Host(to.spare_capacity_mut().as_mut_ptr().cast()), length };
    move_runs(from.iter().map(Run::of), [space].into_iter()).map_err(|(_, fault)| fault)?;
    // SAFETY: the vector has the space, all bytes of which were written.
    unsafe { to.set_len(to.len() + length) };
    Ok(())
}

/// Executes an atomic on the eight bytes of `at`, and returns their previous value in native byte order.
pub(crate) fn atomic(at: &Segment, operation: Atomic) -> Result<u64, Fault> {
    if at.len() < 8 {
        return Err(Fault::Bounds);
    }
    if !at.is_aligned() {
        return Err(Fault::Alignment);
    }
    let start = match at.place() {
        Place::Host(start) => start,
        place @ Place::Device { .. } => return cuda::atomic(place, operation),
        Place::Null => return Ok(0),
    };
    // SAFETY: the segment guards these eight aligned bytes. The program has registered the memory for remote access, so
    // all other access is atomic or outside of the compiler's view.
    let value = unsafe { AtomicU64::from_ptr(start.cast()) };
    Ok(match operation {
        Atomic::CompareSwap { compare, swap } => {
            value.compare_exchange(compare, swap, Ordering::SeqCst, Ordering::SeqCst).unwrap_or_else(|found| found)
        }
        Atomic::FetchAdd(add) => value.fetch_add(add, Ordering::SeqCst),
        Atomic::Store(new) => value.swap(new, Ordering::SeqCst),
    })
}

/// The bytes of a segment or of the caller's slice.
#[derive(Clone, Copy)]
struct Run {
    place: Place,
    length: usize,
}

impl Run {
    const EMPTY: Self = Self { place: Place::Null, length: 0 };

    #[inline]
    fn of(segment: &Segment) -> Self {
        Self { place: segment.place(), length: segment.len() }
    }

    #[inline]
    fn advance(&mut self, bytes: usize) {
        self.place = self.place.offset(bytes);
        self.length -= bytes;
    }
}

#[inline]
fn move_runs(mut from: impl Iterator<Item = Run>, mut to: impl Iterator<Item = Run>) -> Result<(), (End, Fault)> {
    let (mut source, mut target) = (Run::EMPTY, Run::EMPTY);
    loop {
        while source.length == 0 {
            let Some(next) = from.next() else { return Ok(()) };
            source = next;
        }
        while target.length == 0 {
            let Some(next) = to.next() else { return Ok(()) };
            target = next;
        }
        let length = source.length.min(target.length);
        move_bytes(source.place, target.place, length)?;
        source.advance(length);
        target.advance(length);
    }
}

/// Moves `length` bytes. The functions above have checked that both sides have at least this length.
#[inline]
fn move_bytes(from: Place, to: Place, length: usize) -> Result<(), (End, Fault)> {
    match (from, to) {
        (_, Place::Null) => {}
        // SAFETY: `length` is within the target.
        (Place::Null, Place::Host(to)) => unsafe { clear_host(to, length) },
        // SAFETY: both ranges have at least `length` bytes.
        (Place::Host(from), Place::Host(to)) => unsafe { copy_host(from, to, length) },
        (Place::Device { .. }, _) | (_, Place::Device { .. }) => {
            // SAFETY: both ranges have at least `length` bytes.
            return unsafe { cuda::move_bytes(from, to, length) };
        }
    }
    Ok(())
}

/// Returns how many of the last bytes are stored last. They are at most eight, and are within one aligned word.
#[inline]
pub(super) fn tail_of(start: usize, length: usize) -> usize {
    let end = start.wrapping_add(length) % 8;
    let tail = if end == 0 { 8 } else { end };
    tail.min(length)
}

/// Copies host memory.
///
/// # Safety
///
/// `from` is readable and `to` writable for `length` bytes.
#[inline]
unsafe fn copy_host(from: *mut u8, to: *mut u8, length: usize) {
    // If the ranges do not overlap, both differences are at least `length`, because the negative one wraps around.
    let distance = to.addr().wrapping_sub(from.addr());
    if distance < length || distance.wrapping_neg() < length {
        // SAFETY: guaranteed by the caller; `raw_move` supports overlap.
        unsafe { raw_move(from, to, length) };
        fence(Ordering::Release);
        return;
    }
    let tail = tail_of(to.addr(), length);
    let bulk = length - tail;
    if bulk != 0 {
        // SAFETY: `bulk` is at most `length`, and the ranges do not overlap.
        unsafe { raw_copy(from, to, bulk) };
    }
    // SAFETY: the last bytes are within both ranges.
    unsafe {
        let word = load(from.add(bulk), tail);
        fence(Ordering::Release);
        store(to.add(bulk), word, tail);
    }
}

/// Sets host memory to zero.
///
/// # Safety
///
/// `to` is writable for `length` bytes.
#[inline]
unsafe fn clear_host(to: *mut u8, length: usize) {
    let tail = tail_of(to.addr(), length);
    let bulk = length - tail;
    // SAFETY: the first and the last bytes are within the range.
    unsafe {
        raw_clear(to, bulk);
        fence(Ordering::Release);
        store(to.add(bulk), [0; 8], tail);
    }
}

/// Reads up to eight bytes. The memory may be read-only, and atomics are not allowed there.
///
/// # Safety
///
/// `from` is readable for `length` bytes, at most eight.
#[inline]
unsafe fn load(from: *const u8, length: usize) -> [u8; 8] {
    if length == 8 && from.addr().is_multiple_of(8) {
        // SAFETY: the eight bytes are aligned. Other threads may write these bytes concurrently, so the read is
        // volatile; any value is valid.
        return unsafe { from.cast::<u64>().read_volatile() }.to_ne_bytes();
    }
    let mut word = [0; 8];
    for (index, byte) in word.iter_mut().enumerate().take(length) {
        // SAFETY: the index is less than `length`; the read is volatile, as above.
        *byte = unsafe { from.add(index).read_volatile() };
    }
    word
}

/// Stores up to eight bytes within one aligned word. The last byte is stored last.
///
/// # Safety
///
/// `to` is writable for `length` bytes, at most eight.
#[inline]
pub(super) unsafe fn store(to: *mut u8, word: [u8; 8], length: usize) {
    let [a, b, c, d, e, f, g, _] = word;
    // SAFETY: the parts have `length` bytes together. Each part is aligned, because only larger parts precede it from
    // an aligned start. The stores are atomic, because other threads may read concurrently.
    unsafe {
        if !to.addr().is_multiple_of(8) {
            for (index, byte) in word.into_iter().enumerate().take(length) {
                AtomicU8::from_ptr(to.add(index)).store(byte, Ordering::Release);
            }
            return;
        }
        match length {
            8 => AtomicU64::from_ptr(to.cast()).store(u64::from_ne_bytes(word), Ordering::Release),
            4.. => {
                AtomicU32::from_ptr(to.cast()).store(u32::from_ne_bytes([a, b, c, d]), Ordering::Release);
                match length {
                    6.. => AtomicU16::from_ptr(to.add(4).cast()).store(u16::from_ne_bytes([e, f]), Ordering::Release),
                    5 => AtomicU8::from_ptr(to.add(4)).store(e, Ordering::Release),
                    _ => {}
                }
                if length == 7 {
                    AtomicU8::from_ptr(to.add(6)).store(g, Ordering::Release);
                }
            }
            2 | 3 => {
                AtomicU16::from_ptr(to.cast()).store(u16::from_ne_bytes([a, b]), Ordering::Release);
                if length == 3 {
                    AtomicU8::from_ptr(to.add(2)).store(c, Ordering::Release);
                }
            }
            1 => AtomicU8::from_ptr(to).store(a, Ordering::Release),
            _ => {}
        }
    }
}

/// Copies memory that does not overlap.
///
/// # Safety
///
/// As for [`copy_host`], and the memory does not overlap.
#[inline]
unsafe fn raw_copy(from: *const u8, to: *mut u8, length: usize) {
    #[cfg(not(miri))]
    {
        let is_in_pieces = length > cpu::PIECE && length <= cpu::in_pieces_up_to();
        let piece = if is_in_pieces { cpu::PIECE } else { length };
        // SAFETY: guaranteed by the caller.
        unsafe { copy_pieces(from, to, length, piece) };
    }
    // SAFETY: guaranteed by the caller.
    #[cfg(miri)]
    unsafe {
        std::ptr::copy_nonoverlapping(from, to, length);
    }
}

/// Copies memory in pieces of `piece` bytes.
///
/// # Safety
///
/// As for [`raw_copy`].
#[cfg(not(miri))]
#[inline]
unsafe fn copy_pieces(from: *const u8, to: *mut u8, length: usize, piece: usize) {
    let mut done = 0;
    while length - done > piece {
        // SAFETY: the piece is within both ranges; for concurrent access, see below.
        unsafe { libc::memcpy(to.add(done).cast(), from.add(done).cast(), piece) };
        done += piece;
    }
    // SAFETY: the last bytes are within both ranges. `memcpy` is an external function, so the compiler makes no
    // assumption about concurrent access by other threads.
    unsafe { libc::memcpy(to.add(done).cast(), from.add(done).cast(), length - done) };
}

/// Copies memory that may overlap.
///
/// # Safety
///
/// As for [`copy_host`].
unsafe fn raw_move(from: *const u8, to: *mut u8, length: usize) {
    // SAFETY: as for `raw_copy`; overlap is allowed.
    #[cfg(not(miri))]
    unsafe {
        libc::memmove(to.cast(), from.cast(), length);
    }
    // SAFETY: guaranteed by the caller.
    #[cfg(miri)]
    unsafe {
        std::ptr::copy(from, to, length);
    }
}

/// Sets memory to zero.
///
/// # Safety
///
/// As for [`clear_host`].
unsafe fn raw_clear(to: *mut u8, length: usize) {
    // SAFETY: as for `raw_copy`.
    #[cfg(not(miri))]
    unsafe {
        libc::memset(to.cast(), 0, length);
    }
    // SAFETY: guaranteed by the caller.
    #[cfg(miri)]
    unsafe {
        std::ptr::write_bytes(to, 0, length);
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Returns consecutive pieces of one allocation. The first piece starts at `offset`.
    fn pieces(bytes: &mut [u64], offset: usize, lengths: &[usize]) -> Vec<Segment> {
        let start = bytes.as_mut_ptr().cast::<u8>();
        let mut at = offset;
        let piece = |&length: &usize| {
            assert!(at + length <= bytes.len() * 8);
            // SAFETY: the bytes belong to the slice. In the tests below, the slice outlives the segments and is not
            // used before they are dropped.
            let segment = unsafe { Segment::of_raw(start.add(at), length) };
            at += length;
            segment
        };
        lengths.iter().map(piece).collect()
    }

    fn bytes_of(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    /// Returns words whose bytes are distinct and known.
    fn words(count: usize, seed: u64) -> Vec<u64> {
        (0..count as u64).map(|index| (index + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect()
    }

    /// How many words five pieces of the largest size need if they start at the largest offset.
    const WORDS: usize = 27;

    proptest! {
        #[test]
        fn segment_lists_are_copied_as_concatenated(
            from in vec(0usize..40, 0..6),
            to in vec(0usize..40, 0..6),
            (offset_from, offset_to) in (0usize..9, 0usize..9),
        ) {
            let (mut source, mut target) = (words(WORDS, 1), words(WORDS, 1_000));
            let (before, mut expected) = (bytes_of(&source), bytes_of(&target));
            let total = from.iter().sum::<usize>().min(to.iter().sum());
            expected[offset_to..][..total].copy_from_slice(&before[offset_from..][..total]);

            let (from, to) = (pieces(&mut source, offset_from, &from), pieces(&mut target, offset_to, &to));
            copy(&from, &to).unwrap();
            prop_assert_eq!(bytes_of(&target), expected);
            prop_assert_eq!(bytes_of(&source), before);
        }

        #[test]
        fn slices_are_read_and_written(lengths in vec(0usize..40, 0..6), length in 0usize..100, offset in 0usize..9) {
            let mut target = words(WORDS, 5);
            let mut expected = bytes_of(&target);
            let bytes: Vec<u8> = (0..length).map(|index| index as u8 ^ 0x5a).collect();
            let total = length.min(lengths.iter().sum());
            expected[offset..][..total].copy_from_slice(&bytes[..total]);
            let list = pieces(&mut target, offset, &lengths);
            write_bytes(&bytes, &list).unwrap();
            let mut back = vec![0; length];
            read_bytes(&list, &mut back).unwrap();
            prop_assert_eq!(&back[..total], &bytes[..total]);
            prop_assert!(back[total..].iter().all(|byte| *byte == 0));
            prop_assert_eq!(bytes_of(&target), expected);
        }

        #[test]
        fn overlapping_memory_is_moved(from in 0usize..64, to in 0usize..64, length in 0usize..64) {
            let mut memory = words(WORDS, 9);
            let mut expected = bytes_of(&memory);
            expected.copy_within(from..from + length, to);
            let start = memory.as_mut_ptr().cast::<u8>();
            // SAFETY: the bytes belong to `memory`, which is not used until the segments are dropped.
            let (source, target) = unsafe { (Segment::of_raw(start.add(from), length), Segment::of_raw(start.add(to), length)) };
            copy(&[source], &[target]).unwrap();
            prop_assert_eq!(bytes_of(&memory), expected);
        }

        #[test]
        fn split_segment_keeps_its_bytes(length in 0usize..64, first in 0usize..70, skipped in 0usize..70) {
            let mut memory = words(8, 3);
            let expected = bytes_of(&memory);
            let mut rest = pieces(&mut memory, 0, &[length]).remove(0);
            let part = rest.split_to(first);
            rest.skip(skipped);
            let at = first.min(length);
            prop_assert_eq!((part.len(), rest.len()), (at, length - at - skipped.min(length - at)));
            let mut bytes = vec![0; part.len() + rest.len()];
            read_bytes(&[part, rest], &mut bytes).unwrap();
            let mut model = expected[..length].to_vec();
            model.drain(at..(at + skipped).min(length));
            prop_assert_eq!(bytes, model);
        }
    }

    // This test does not run under Miri, where memory is not copied in pieces.
    #[test]
    #[cfg(not(miri))]
    fn copy_in_pieces_is_complete() {
        let from = words(1_000, 1);
        for length in [0, 1, 1_919, 1_920, 1_921, 3_840, 5_761, 8_000] {
            for piece in [64, cpu::PIECE, 8_000] {
                let mut to = words(1_000, 2);
                let mut expected = bytes_of(&to);
                expected[..length].copy_from_slice(&bytes_of(&from)[..length]);
                // SAFETY: both ranges have at least `length` bytes.
                unsafe {
                    copy_pieces(from.as_ptr().cast(), to.as_mut_ptr().cast(), length, piece);
                }
                assert_eq!(bytes_of(&to), expected, "{length} bytes by {piece}");
            }
        }
    }

    #[test]
    fn null_segment_reads_zeros_and_discards_writes() {
        let mut memory = words(4, 1);
        let mut expected = bytes_of(&memory);
        expected[3..20].fill(0);
        let null = || Segment::null(17);
        copy(&[null()], &pieces(&mut memory, 3, &[5, 12])).unwrap();
        assert_eq!(bytes_of(&memory), expected);
        copy(&pieces(&mut memory, 3, &[17]), &[null()]).unwrap();
        assert_eq!(bytes_of(&memory), expected);
    }

    #[test]
    fn last_word_is_visible_after_all_others() {
        const LENGTH: usize = 104;
        const LAST: usize = LENGTH - 8;
        const ROUNDS: u8 = if cfg!(miri) { 10 } else { 250 };
        let mut memory = vec![0u64; LENGTH.div_ceil(8)];
        let start = memory.as_mut_ptr().expose_provenance();
        let seen = AtomicU8::new(0);
        std::thread::scope(|scope| {
            let seen = &seen;
            scope.spawn(move || {
                for round in 1..=ROUNDS {
                    // SAFETY: the bytes belong to `memory`, to which no reference exists while the segment is writable.
                    let target = unsafe { Segment::of_raw(std::ptr::with_exposed_provenance_mut(start), LENGTH) };
                    write_bytes(&[round; LENGTH], &[target]).unwrap();
                    while seen.load(Ordering::Acquire) != round {
                        std::thread::yield_now();
                    }
                }
            });
            for round in 1..=ROUNDS {
                let start: *mut u8 = std::ptr::with_exposed_provenance_mut(start);
                // SAFETY: the last word is aligned. The access is atomic, because another thread writes the word.
                let last = unsafe { AtomicU64::from_ptr(start.add(LAST).cast()) };
                while last.load(Ordering::Acquire) != u64::from_ne_bytes([round; 8]) {
                    std::thread::yield_now();
                }
                for index in 0..LAST {
                    // SAFETY: the writer changes the byte only after `seen` is set.
                    assert_eq!(unsafe { start.add(index).read() }, round, "byte {index}");
                }
                seen.store(round, Ordering::Release);
            }
        });
    }
}
