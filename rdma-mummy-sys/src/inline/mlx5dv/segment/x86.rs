//! The segments of a send queue entry, each written with one vector store.

use core::arch::x86_64::{__m128i, _mm_set_epi8, _mm_set_epi32, _mm_shuffle_epi8, _mm_store_si128};

use crate::bindings::mlx5_wqe_ctrl_seg::mlx5_wqe_ctrl_seg;
use crate::bindings::mlx5dv::mlx5_wqe_data_seg;

/// Fills in the control segment with one store, and zeroes its stream number.
///
/// # Safety
///
/// `seg` is aligned to sixteen bytes and can be written; the processor has SSSE3.
#[inline]
#[target_feature(enable = "ssse3")]
#[expect(clippy::too_many_arguments, reason = "the arguments of the C function")]
pub unsafe fn mlx5dv_x86_set_ctrl_seg(
    seg: *mut mlx5_wqe_ctrl_seg,
    pi: u16,
    opcode: u8,
    opmod: u8,
    qp_num: u32,
    fm_ce_se: u8,
    ds: u8,
    signature: u8,
    imm: u32,
) {
    let value = _mm_set_epi32(
        imm as i32,
        qp_num as i32,
        ((u32::from(ds) << 16) | u32::from(pi)) as i32,
        u32::from_be_bytes([signature, opcode, opmod, fm_ce_se]) as i32,
    );
    // From the segment's last byte to its first; a negative index stores zero.
    let order = _mm_set_epi8(15, 14, 13, 12, 0, -128, -128, 3, 6, 8, 9, 10, 2, 4, 5, 1);
    // SAFETY: by contract the segment is writable and aligned; it is as large as the vector.
    unsafe { _mm_store_si128(seg.cast::<__m128i>(), _mm_shuffle_epi8(value, order)) };
}

/// Fills in one buffer with one store.
///
/// # Safety
///
/// `seg` is aligned to sixteen bytes and can be written; the processor has SSSE3.
#[inline]
#[target_feature(enable = "ssse3")]
pub unsafe fn mlx5dv_x86_set_data_seg(seg: *mut mlx5_wqe_data_seg, length: u32, lkey: u32, address: usize) {
    let address = address as u64;
    let value = _mm_set_epi32(address as i32, (address >> 32) as i32, lkey as i32, length as i32);
    let order = _mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3);
    // SAFETY: by contract the segment is writable and aligned; it is as large as the vector.
    unsafe { _mm_store_si128(seg.cast::<__m128i>(), _mm_shuffle_epi8(value, order)) };
}
