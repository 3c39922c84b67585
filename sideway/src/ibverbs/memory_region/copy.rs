//! Copying to and from memory that a device may use at the same time.
//!
//! No other thread of the program writes the memory meanwhile, but a device may, at any moment and on behalf of a peer: as
//! with a register of a device, each access is volatile, so that the compiler neither repeats nor invents one, and takes
//! nothing it has read for what is there. Any mixture of old and new bytes is a legal result.

use std::ptr;

const WORD: usize = size_of::<u64>();

/// Copies `to.len()` bytes from `from`.
///
/// # Safety
///
/// - `from` is valid for reads of that many bytes, all initialised, and none of them is in `to`.
/// - Nobody but a device writes them meanwhile.
pub(super) unsafe fn read(from: *const u8, to: &mut [u8]) {
    let head = from.align_offset(WORD).min(to.len());
    let (edge, rest) = to.split_at_mut(head);
    let (words, tail) = rest.as_chunks_mut::<WORD>();
    // SAFETY: the three parts are within the range of the contract; words begin at an aligned address (`head`).
    unsafe {
        read_bytes(from, edge);
        let mut at = from.add(edge.len());
        for word in &mut *words {
            *word = ptr::read_volatile(at.cast::<u64>()).to_ne_bytes();
            at = at.add(WORD);
        }
        read_bytes(at, tail);
    }
}

/// Copies `bytes` to `to`.
///
/// # Safety
///
/// - `to` is valid for writes of that many bytes, and none of them is in `bytes`.
/// - Nobody but a device reads or writes them meanwhile.
pub(super) unsafe fn write(to: *mut u8, bytes: &[u8]) {
    let head = to.align_offset(WORD).min(bytes.len());
    let (edge, rest) = bytes.split_at(head);
    let (words, tail) = rest.as_chunks::<WORD>();
    // SAFETY: as in `read`.
    unsafe {
        write_bytes(to, edge);
        let mut at = to.add(edge.len());
        for word in words {
            ptr::write_volatile(at.cast::<u64>(), u64::from_ne_bytes(*word));
            at = at.add(WORD);
        }
        write_bytes(at, tail);
    }
}

/// # Safety
///
/// As [`read`].
unsafe fn read_bytes(from: *const u8, to: &mut [u8]) {
    for (at, byte) in to.iter_mut().enumerate() {
        // SAFETY: within the range of the contract.
        *byte = unsafe { ptr::read_volatile(from.add(at)) };
    }
}

/// # Safety
///
/// As [`write`].
unsafe fn write_bytes(to: *mut u8, bytes: &[u8]) {
    for (at, byte) in bytes.iter().enumerate() {
        // SAFETY: within the range of the contract.
        unsafe { ptr::write_volatile(to.add(at), *byte) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_offset_and_length_is_copied_and_nothing_else() {
        for offset in 0..17 {
            for len in 0..40 {
                let mut memory = [0_u64; 8];
                let first = memory.as_mut_ptr().cast::<u8>();
                let bytes: Vec<u8> = (1..=len).collect();
                let mut back = vec![0; bytes.len()];
                // SAFETY: 17 + 40 bytes are within the array, which nobody else uses.
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
