//! Fields of DevX commands: big-endian words, addressed by bit from the start of the structure.
//!
//! The header has macros that name the fields (`DEVX_SET(typ, p, fld, v)`) and expand to these functions.

use core::ffi::c_void;

/// Stores the low `bit_sz` bits of `value` at bit `bit_off`.
///
/// # Safety
///
/// `p` is aligned to four bytes, the word of the field can be read and written, and the field lies in one word.
#[inline]
pub unsafe fn _devx_set(p: *mut c_void, value: u32, bit_off: usize, bit_sz: usize) {
    let (mask, shift) = (mask(bit_sz), shift(bit_off, bit_sz));
    // SAFETY: by contract the aligned word can be read and written.
    unsafe {
        let word = p.cast::<u32>().add(bit_off / 32);
        *word = ((u32::from_be(*word) & !(mask << shift)) | ((value & mask) << shift)).to_be();
    }
}

/// Reads the `bit_sz` bits at bit `bit_off`.
///
/// # Safety
///
/// `p` is aligned to four bytes, the word of the field can be read, and the field lies in one word.
#[inline]
#[must_use]
pub unsafe fn _devx_get(p: *const c_void, bit_off: usize, bit_sz: usize) -> u32 {
    // SAFETY: by contract the aligned word can be read.
    let word = unsafe { *p.cast::<u32>().add(bit_off / 32) };
    (u32::from_be(word) >> shift(bit_off, bit_sz)) & mask(bit_sz)
}

/// Stores the 64 bits at bit `bit_off`, a multiple of 64.
///
/// # Safety
///
/// `p` is aligned to eight bytes, and the double word can be written.
#[inline]
pub unsafe fn _devx_set64(p: *mut c_void, v: u64, bit_off: usize) {
    // SAFETY: by contract the aligned double word can be written.
    unsafe { *p.cast::<u64>().add(bit_off / 64) = v.to_be() };
}

/// Reads the 64 bits at bit `bit_off`, a multiple of 64.
///
/// # Safety
///
/// `p` is aligned to eight bytes, and the double word can be read.
#[inline]
#[must_use]
pub unsafe fn _devx_get64(p: *const c_void, bit_off: usize) -> u64 {
    // SAFETY: by contract the aligned double word can be read.
    u64::from_be(unsafe { *p.cast::<u64>().add(bit_off / 64) })
}

/// Returns the mask of a field of `bit_sz` bits, one to 32.
const fn mask(bit_sz: usize) -> u32 {
    ((1u64 << bit_sz) - 1) as u32
}

/// Returns the left shift of a field in its word.
const fn shift(bit_off: usize, bit_sz: usize) -> usize {
    32 - bit_sz - (bit_off & 0x1f)
}
