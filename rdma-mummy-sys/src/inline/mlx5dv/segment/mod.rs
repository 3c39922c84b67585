//! The segments of a send queue entry.

#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(target_arch = "x86_64")]
pub use x86::*;

use core::mem::offset_of;

use crate::bindings::mlx5_wqe_ctrl_seg::mlx5_wqe_ctrl_seg;
use crate::bindings::mlx5dv::*;

/// Fills in the control segment, except the stream number of a dynamically connected initiator. `pi` counts blocks of
/// 64 bytes, `ds` units of 16; `imm` is stored unchanged.
///
/// # Safety
///
/// `seg` can be written.
#[inline]
#[expect(clippy::too_many_arguments, reason = "the arguments of the C function")]
pub unsafe fn mlx5dv_set_ctrl_seg(
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
    // SAFETY: by contract the segment is writable.
    unsafe {
        (*seg).opmod_idx_opcode = ((u32::from(opmod) << 24) | (u32::from(pi) << 8) | u32::from(opcode)).to_be();
        (*seg).qpn_ds = ((qp_num << 8) | u32::from(ds)).to_be();
        (*seg).fm_ce_se = fm_ce_se;
        (*seg).signature = signature;
        (*seg).imm = imm;
    }
}

/// Fills in the address of a datagram, or of a dynamically connected target.
///
/// # Safety
///
/// `seg` can be written; `rmac` can be read for six bytes and `rgid` for sixteen.
#[inline]
#[expect(clippy::too_many_arguments, reason = "the arguments of the C function")]
pub unsafe fn mlx5dv_set_dgram_seg(
    seg: *mut mlx5_wqe_datagram_seg,
    key: u64,
    dqp_dct: u32,
    ext: u8,
    stat_rate_sl: u8,
    fl_mlid: u8,
    rlid: u16,
    rmac: *mut u8,
    tclass: u8,
    hop_limit: u8,
    grh_gid_fi: u32,
    rgid: *mut u8,
) {
    // SAFETY: by contract the segment is writable, and the two addresses can be read.
    unsafe {
        let av = &raw mut (*seg).av;
        (*av).key.dc_key = key.to_be();
        (*av).dqp_dct = ((u32::from(ext) << 31) | dqp_dct).to_be();
        (*av).stat_rate_sl = stat_rate_sl;
        (*av).fl_mlid = fl_mlid;
        (*av).rlid = rlid.to_be();
        (*av).rmac = *rmac.cast();
        (*av).tclass = tclass;
        (*av).hop_limit = hop_limit;
        (*av).grh_gid_fl = grh_gid_fi.to_be();
        (*av).rgid = *rgid.cast();
    }
}

/// Fills in one buffer.
///
/// # Safety
///
/// `seg` can be written.
#[inline]
pub unsafe fn mlx5dv_set_data_seg(seg: *mut mlx5_wqe_data_seg, length: u32, lkey: u32, address: usize) {
    // SAFETY: by contract the segment is writable.
    unsafe {
        (*seg).byte_count = length.to_be();
        (*seg).lkey = lkey.to_be();
        (*seg).addr = (address as u64).to_be();
    }
}

/// Fills in the Ethernet segment, with the beginning of the headers.
///
/// # Safety
///
/// `inline_hdr_start` can be read for `inline_hdr_sz` bytes, and `seg` can be written for as many bytes from its
/// `inline_hdr_start` on; the two do not overlap.
#[inline]
pub unsafe fn mlx5dv_set_eth_seg(
    seg: *mut mlx5_wqe_eth_seg,
    cs_flags: u8,
    mss: u16,
    inline_hdr_sz: u16,
    inline_hdr_start: *mut u8,
) {
    // SAFETY: by contract the segment is writable, including the header bytes, which can be read.
    unsafe {
        (*seg).cs_flags = cs_flags;
        (*seg).mss = mss.to_be();
        (*seg).inline_hdr_sz = inline_hdr_sz.to_be();
        let start = seg.cast::<u8>().add(offset_of!(mlx5_wqe_eth_seg, inline_hdr_start));
        start.copy_from_nonoverlapping(inline_hdr_start, usize::from(inline_hdr_sz));
    }
}
