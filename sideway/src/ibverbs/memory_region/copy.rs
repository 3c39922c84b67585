//! Copying to and from memory that a device may access at the same time.
//!
//! A device may write to the memory at any time, for local requests and for peers. A software device writes from
//! another thread. So each access here is atomic, with relaxed ordering. Any mixture of old and new bytes is a valid
//! result.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

const WORD: usize = size_of::<u64>();

/// Copies `to.len()` bytes from `from`.
///
/// # Safety
///
/// - `from` is valid for reads of `to.len()` bytes. All of these bytes are initialised, and none of them is in `to`.
/// - During the copy, these bytes are written only by a device, or by other threads with atomic operations.
pub(super) unsafe fn read(from: *const u8, to: &mut [u8]) {
    let head = from.align_offset(WORD).min(to.len());
    let (edge, rest) = to.split_at_mut(head);
    let (words, tail) = rest.as_chunks_mut::<WORD>();
    // SAFETY: all three parts are within the range of the contract, and the words start at an aligned address (`head`).
    unsafe {
        read_bytes(from, edge);
        let mut at = from.add(edge.len());
        for word in &mut *words {
            *word = AtomicU64::from_ptr(at.cast_mut().cast()).load(Relaxed).to_ne_bytes();
            at = at.add(WORD);
        }
        read_bytes(at, tail);
    }
}

/// Copies `bytes` to `to`.
///
/// # Safety
///
/// - `to` is valid for writes of `bytes.len()` bytes, and none of them is in `bytes`.
/// - During the copy, these bytes are accessed only by a device, or by other threads with atomic operations.
pub(super) unsafe fn write(to: *mut u8, bytes: &[u8]) {
    let head = to.align_offset(WORD).min(bytes.len());
    let (edge, rest) = bytes.split_at(head);
    let (words, tail) = rest.as_chunks::<WORD>();
    // SAFETY: as in `read`.
    unsafe {
        write_bytes(to, edge);
        let mut at = to.add(edge.len());
        for word in words {
            AtomicU64::from_ptr(at.cast()).store(u64::from_ne_bytes(*word), Relaxed);
            at = at.add(WORD);
        }
        write_bytes(at, tail);
    }
}

/// # Safety
///
/// The contract of [`read`] applies.
unsafe fn read_bytes(from: *const u8, to: &mut [u8]) {
    for (at, byte) in to.iter_mut().enumerate() {
        // SAFETY: the byte is within the range of the contract.
        *byte = unsafe { AtomicU8::from_ptr(from.add(at).cast_mut()) }.load(Relaxed);
    }
}

/// # Safety
///
/// The contract of [`write`] applies.
unsafe fn write_bytes(to: *mut u8, bytes: &[u8]) {
    for (at, byte) in bytes.iter().enumerate() {
        // SAFETY: the byte is within the range of the contract.
        unsafe { AtomicU8::from_ptr(to.add(at)) }.store(*byte, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_only_the_given_range_at_every_offset() {
        for offset in 0..17 {
            for len in 0..40 {
                let mut memory = [0_u64; 8];
                let first = memory.as_mut_ptr().cast::<u8>();
                let bytes: Vec<u8> = (1..=len).collect();
                let mut back = vec![0; bytes.len()];
                // SAFETY: 17 + 40 bytes are within the array, which is not shared.
                let all = unsafe {
                    write(first.add(offset), &bytes);
                    read(first.add(offset), &mut back);
                    let mut all = vec![0; 64];
                    read(first, &mut all);
                    all
                };
                assert_eq!(back, bytes);
                let (before, rest) = all.split_at(offset);
                let (copied, behind) = rest.split_at(bytes.len());
                assert_eq!(copied, bytes);
                assert!(before.iter().chain(behind).all(|&byte| byte == 0), "{offset} {len}");
            }
        }
    }
}
