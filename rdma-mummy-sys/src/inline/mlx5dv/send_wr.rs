//! Work requests of mlx5 only, through [`mlx5dv_qp_ex`].
//!
//! Each function is one load and one indirect call. `mqp` comes from `mlx5dv_qp_ex_from_ibv_qp_ex` and was created with
//! the operation's flag in `mlx5dv_qp_init_attr::send_ops_flags`. The pointers of all other operations are null, which
//! these functions do not check.

use core::ffi::{c_int, c_void};

use super::library;
use crate::bindings::mlx5dv::*;
use crate::bindings::verbs::*;

/// Sets the destination of the open work request of a dynamically connected queue pair. See `mlx5dv_wr_set_dc_addr(3)`.
///
/// # Safety
///
/// `mqp` is live, was created for this operation, and has a batch open in this thread. `ah` is live.
#[inline]
pub unsafe fn mlx5dv_wr_set_dc_addr(mqp: *mut mlx5dv_qp_ex, ah: *mut ibv_ah, remote_dctn: u32, remote_dc_key: u64) {
    // SAFETY: by contract `mqp` is live, and its provider set the operations that it was created with.
    unsafe { ((*mqp).wr_set_dc_addr.unwrap_unchecked())(mqp, ah, remote_dctn, remote_dc_key) };
}

/// Sets the destination and the stream of the open work request of a dynamically connected queue pair. See
/// `mlx5dv_wr_set_dc_addr_stream(3)`.
///
/// # Safety
///
/// `mqp` is live, was created for this operation, and has a batch open in this thread. `ah` is live.
#[inline]
pub unsafe fn mlx5dv_wr_set_dc_addr_stream(
    mqp: *mut mlx5dv_qp_ex,
    ah: *mut ibv_ah,
    remote_dctn: u32,
    remote_dc_key: u64,
    stream_id: u16,
) {
    // SAFETY: by contract `mqp` is live, and its provider set the operations that it was created with.
    unsafe { ((*mqp).wr_set_dc_addr_stream.unwrap_unchecked())(mqp, ah, remote_dctn, remote_dc_key, stream_id) };
}

/// Begins registering an interleaved pattern of memory under `mkey`. See `mlx5dv_wr_mr_interleaved(3)`.
///
/// # Safety
///
/// `mqp` is live, was created for this operation, and has a batch open in this thread. `mkey` is live and `data` holds
/// `num_interleaved` entries.
#[inline]
pub unsafe fn mlx5dv_wr_mr_interleaved(
    mqp: *mut mlx5dv_qp_ex,
    mkey: *mut mlx5dv_mkey,
    access_flags: u32,
    repeat_count: u32,
    num_interleaved: u16,
    data: *mut mlx5dv_mr_interleaved,
) {
    // SAFETY: by contract `mqp` is live, and its provider set the operations that it was created with.
    unsafe {
        ((*mqp).wr_mr_interleaved.unwrap_unchecked())(mqp, mkey, access_flags, repeat_count, num_interleaved, data);
    }
}

/// Begins registering a list of buffers under `mkey`. See `mlx5dv_wr_mr_list(3)`.
///
/// # Safety
///
/// `mqp` is live, was created for this operation, and has a batch open in this thread. `mkey` is live and `sge` holds
/// `num_sges` entries.
#[inline]
pub unsafe fn mlx5dv_wr_mr_list(
    mqp: *mut mlx5dv_qp_ex,
    mkey: *mut mlx5dv_mkey,
    access_flags: u32,
    num_sges: u16,
    sge: *mut ibv_sge,
) {
    // SAFETY: by contract `mqp` is live, and its provider set the operations that it was created with.
    unsafe { ((*mqp).wr_mr_list.unwrap_unchecked())(mqp, mkey, access_flags, num_sges, sge) };
}

/// Begins configuring `mkey` with the next `num_setters` setters. See `mlx5dv_wr_mkey_configure(3)`.
///
/// # Safety
///
/// `mqp` is live, was created for this operation, and has a batch open in this thread. `mkey` is live and `attr` can
/// be read.
#[inline]
pub unsafe fn mlx5dv_wr_mkey_configure(
    mqp: *mut mlx5dv_qp_ex,
    mkey: *mut mlx5dv_mkey,
    num_setters: u8,
    attr: *mut mlx5dv_mkey_conf_attr,
) {
    // SAFETY: by contract `mqp` is live, and its provider set the operations that it was created with.
    unsafe { ((*mqp).wr_mkey_configure.unwrap_unchecked())(mqp, mkey, num_setters, attr) };
}

/// Sets the access rights of the key being configured. See `mlx5dv_wr_mkey_configure(3)`.
///
/// # Safety
///
/// `mqp` is live, was created for this operation, and has a batch open in this thread. The configuration of a key is
/// open.
#[inline]
pub unsafe fn mlx5dv_wr_set_mkey_access_flags(mqp: *mut mlx5dv_qp_ex, access_flags: u32) {
    // SAFETY: by contract `mqp` is live, and its provider set the operations that it was created with.
    unsafe { ((*mqp).wr_set_mkey_access_flags.unwrap_unchecked())(mqp, access_flags) };
}

/// Maps the key being configured to a list of buffers. See `mlx5dv_wr_mkey_configure(3)`.
///
/// # Safety
///
/// `mqp` is live, was created for this operation, and has a batch open in this thread. The configuration of a key is
/// open and `sge` holds `num_sges` entries.
#[inline]
pub unsafe fn mlx5dv_wr_set_mkey_layout_list(mqp: *mut mlx5dv_qp_ex, num_sges: u16, sge: *const ibv_sge) {
    // SAFETY: by contract `mqp` is live, and its provider set the operations that it was created with.
    unsafe { ((*mqp).wr_set_mkey_layout_list.unwrap_unchecked())(mqp, num_sges, sge) };
}

/// Maps the key being configured to an interleaved pattern of memory. See `mlx5dv_wr_mkey_configure(3)`.
///
/// # Safety
///
/// `mqp` is live, was created for this operation, and has a batch open in this thread. The configuration of a key is
/// open and `data` holds `num_interleaved` entries.
#[inline]
pub unsafe fn mlx5dv_wr_set_mkey_layout_interleaved(
    mqp: *mut mlx5dv_qp_ex,
    repeat_count: u32,
    num_interleaved: u16,
    data: *const mlx5dv_mr_interleaved,
) {
    // SAFETY: by contract `mqp` is live, and its provider set the operations that it was created with.
    unsafe { ((*mqp).wr_set_mkey_layout_interleaved.unwrap_unchecked())(mqp, repeat_count, num_interleaved, data) };
}

/// Adds signatures to the key being configured, checked and generated per block. See `mlx5dv_wr_set_mkey_sig_block(3)`.
///
/// # Safety
///
/// `mqp` is live, was created for this operation, and has a batch open in this thread. The configuration of a key is
/// open and `attr` can be read with the data it points to.
#[inline]
pub unsafe fn mlx5dv_wr_set_mkey_sig_block(mqp: *mut mlx5dv_qp_ex, attr: *const mlx5dv_sig_block_attr) {
    // SAFETY: by contract `mqp` is live, and its provider set the operations that it was created with.
    unsafe { ((*mqp).wr_set_mkey_sig_block.unwrap_unchecked())(mqp, attr) };
}

/// Adds encryption to the key being configured. See `mlx5dv_wr_set_mkey_crypto(3)`.
///
/// # Safety
///
/// `mqp` is live, was created for this operation, and has a batch open in this thread. The configuration of a key is
/// open, `attr` can be read and its data key is live.
#[inline]
pub unsafe fn mlx5dv_wr_set_mkey_crypto(mqp: *mut mlx5dv_qp_ex, attr: *const mlx5dv_crypto_attr) {
    // SAFETY: by contract `mqp` is live, and its provider set the operations that it was created with.
    unsafe { ((*mqp).wr_set_mkey_crypto.unwrap_unchecked())(mqp, attr) };
}

/// Begins a copy of local memory by the device. See `mlx5dv_wr_memcpy(3)`.
///
/// # Safety
///
/// `mqp` is live, was created for this operation, and has a batch open in this thread. Both buffers stay registered
/// under their keys, and unaliased, until the completion.
#[inline]
pub unsafe fn mlx5dv_wr_memcpy(
    mqp: *mut mlx5dv_qp_ex,
    dest_lkey: u32,
    dest_addr: u64,
    src_lkey: u32,
    src_addr: u64,
    length: usize,
) {
    // SAFETY: by contract `mqp` is live, and its provider set the operations that it was created with.
    unsafe { ((*mqp).wr_memcpy.unwrap_unchecked())(mqp, dest_lkey, dest_addr, src_lkey, src_addr, length) };
}

/// Reads and clears the signature error of a key. Returns zero or an errno value. See `mlx5dv_mkey_check(3)`.
///
/// # Safety
///
/// `mkey` is live and `err_info` can be written.
#[inline]
pub unsafe fn mlx5dv_mkey_check(mkey: *mut mlx5dv_mkey, err_info: *mut mlx5dv_mkey_err) -> c_int {
    // SAFETY: by contract the key is live and `err_info` writable; the library receives its size.
    unsafe { library::_mlx5dv_mkey_check(mkey, err_info, size_of::<mlx5dv_mkey_err>()) }
}

/// Begins a work request whose bytes are copied to the queue unchanged. See `mlx5dv_wr_raw_wqe(3)`.
///
/// # Safety
///
/// `mqp` is live, was created for this operation, and has a batch open in this thread. `wqe` is a complete queue entry,
/// of the length in its control segment.
#[inline]
pub unsafe fn mlx5dv_wr_raw_wqe(mqp: *mut mlx5dv_qp_ex, wqe: *const c_void) {
    // SAFETY: by contract `mqp` is live, and its provider set the operations that it was created with.
    unsafe { ((*mqp).wr_raw_wqe.unwrap_unchecked())(mqp, wqe) };
}
