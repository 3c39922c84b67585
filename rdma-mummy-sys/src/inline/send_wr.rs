//! Work requests through an extended queue pair: a batch is opened, filled and posted.
//!
//! Each function is one load and one indirect call. `qp` comes from `ibv_qp_to_qp_ex` and was created with the
//! operation's flag in `ibv_qp_init_attr_ex::send_ops_flags`. The provider leaves the pointers of all other operations
//! null, which these functions do not check. Set `wr_id` and `wr_flags` of the queue pair before calling the function
//! that begins a work request.

use core::ffi::{c_int, c_void};

use crate::bindings::verbs::*;

/// Begins an atomic compare-and-swap: the eight bytes at `remote_addr` become `swap` if they equal `compare`. See
/// `ibv_wr_post(3)`.
///
/// # Safety
///
/// `qp` is a live queue pair created with `IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP`, with a batch open in this thread.
#[inline]
pub unsafe fn ibv_wr_atomic_cmp_swp(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, compare: u64, swap: u64) {
    // SAFETY: by contract `qp` is live, and its provider set the operations that it was created with.
    unsafe { ((*qp).wr_atomic_cmp_swp.unwrap_unchecked())(qp, rkey, remote_addr, compare, swap) };
}

/// Begins an atomic fetch-and-add of `add` to the eight bytes at `remote_addr`. See `ibv_wr_post(3)`.
///
/// # Safety
///
/// `qp` is a live queue pair created with `IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD`, with a batch open in this thread.
#[inline]
pub unsafe fn ibv_wr_atomic_fetch_add(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, add: u64) {
    // SAFETY: by contract `qp` is live, and its provider set the operations that it was created with.
    unsafe { ((*qp).wr_atomic_fetch_add.unwrap_unchecked())(qp, rkey, remote_addr, add) };
}

/// Begins binding a type 2 memory window, whose key becomes `rkey`. See `ibv_wr_post(3)`.
///
/// # Safety
///
/// `qp` is a live queue pair created with `IBV_QP_EX_WITH_BIND_MW`, with a batch open in this thread. `mw` is a live
/// window of the same protection domain and `bind_info` can be read.
#[inline]
pub unsafe fn ibv_wr_bind_mw(qp: *mut ibv_qp_ex, mw: *mut ibv_mw, rkey: u32, bind_info: *const ibv_mw_bind_info) {
    // SAFETY: by contract `qp` is live, and its provider set the operations that it was created with.
    unsafe { ((*qp).wr_bind_mw.unwrap_unchecked())(qp, mw, rkey, bind_info) };
}

/// Begins the invalidation of a local key. See `ibv_wr_post(3)`.
///
/// # Safety
///
/// `qp` is a live queue pair created with `IBV_QP_EX_WITH_LOCAL_INV`, with a batch open in this thread.
#[inline]
pub unsafe fn ibv_wr_local_inv(qp: *mut ibv_qp_ex, invalidate_rkey: u32) {
    // SAFETY: by contract `qp` is live, and its provider set the operations that it was created with.
    unsafe { ((*qp).wr_local_inv.unwrap_unchecked())(qp, invalidate_rkey) };
}

/// Begins a read of remote memory. See `ibv_wr_post(3)`.
///
/// # Safety
///
/// `qp` is a live queue pair created with `IBV_QP_EX_WITH_RDMA_READ`, with a batch open in this thread.
#[inline]
pub unsafe fn ibv_wr_rdma_read(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64) {
    // SAFETY: by contract `qp` is live, and its provider set the operations that it was created with.
    unsafe { ((*qp).wr_rdma_read.unwrap_unchecked())(qp, rkey, remote_addr) };
}

/// Begins a write to remote memory. See `ibv_wr_post(3)`.
///
/// # Safety
///
/// `qp` is a live queue pair created with `IBV_QP_EX_WITH_RDMA_WRITE`, with a batch open in this thread.
#[inline]
pub unsafe fn ibv_wr_rdma_write(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64) {
    // SAFETY: by contract `qp` is live, and its provider set the operations that it was created with.
    unsafe { ((*qp).wr_rdma_write.unwrap_unchecked())(qp, rkey, remote_addr) };
}

/// Begins a write to remote memory with immediate data (big-endian), which consumes a receive request of the peer. See
/// `ibv_wr_post(3)`.
///
/// # Safety
///
/// `qp` is a live queue pair created with `IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM`, with a batch open in this thread.
#[inline]
pub unsafe fn ibv_wr_rdma_write_imm(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, imm_data: __be32) {
    // SAFETY: by contract `qp` is live, and its provider set the operations that it was created with.
    unsafe { ((*qp).wr_rdma_write_imm.unwrap_unchecked())(qp, rkey, remote_addr, imm_data) };
}

/// Begins a send. See `ibv_wr_post(3)`.
///
/// # Safety
///
/// `qp` is a live queue pair created with `IBV_QP_EX_WITH_SEND`, with a batch open in this thread.
#[inline]
pub unsafe fn ibv_wr_send(qp: *mut ibv_qp_ex) {
    // SAFETY: by contract `qp` is live, and its provider set the operations that it was created with.
    unsafe { ((*qp).wr_send.unwrap_unchecked())(qp) };
}

/// Begins a send with immediate data (big-endian). See `ibv_wr_post(3)`.
///
/// # Safety
///
/// `qp` is a live queue pair created with `IBV_QP_EX_WITH_SEND_WITH_IMM`, with a batch open in this thread.
#[inline]
pub unsafe fn ibv_wr_send_imm(qp: *mut ibv_qp_ex, imm_data: __be32) {
    // SAFETY: by contract `qp` is live, and its provider set the operations that it was created with.
    unsafe { ((*qp).wr_send_imm.unwrap_unchecked())(qp, imm_data) };
}

/// Begins a send that invalidates one of the receiver's keys. See `ibv_wr_post(3)`.
///
/// # Safety
///
/// `qp` is a live queue pair created with `IBV_QP_EX_WITH_SEND_WITH_INV`, with a batch open in this thread.
#[inline]
pub unsafe fn ibv_wr_send_inv(qp: *mut ibv_qp_ex, invalidate_rkey: u32) {
    // SAFETY: by contract `qp` is live, and its provider set the operations that it was created with.
    unsafe { ((*qp).wr_send_inv.unwrap_unchecked())(qp, invalidate_rkey) };
}

/// Begins a send that the device divides into segments of `mss` bytes, each after a copy of the header. See
/// `ibv_wr_post(3)`.
///
/// # Safety
///
/// `qp` is a live queue pair created with `IBV_QP_EX_WITH_TSO`, with a batch open in this thread. `hdr` can be read
/// for `hdr_sz` bytes.
#[inline]
pub unsafe fn ibv_wr_send_tso(qp: *mut ibv_qp_ex, hdr: *mut c_void, hdr_sz: u16, mss: u16) {
    // SAFETY: by contract `qp` is live, and its provider set the operations that it was created with.
    unsafe { ((*qp).wr_send_tso.unwrap_unchecked())(qp, hdr, hdr_sz, mss) };
}

/// Sets the destination of the open work request of a datagram queue pair. See `ibv_wr_post(3)`.
///
/// # Safety
///
/// `qp` is a live extended queue pair for datagrams, and its provider sets this operation. A work request is open, and
/// `ah` is a live address handle of the same protection domain.
#[inline]
pub unsafe fn ibv_wr_set_ud_addr(qp: *mut ibv_qp_ex, ah: *mut ibv_ah, remote_qpn: u32, remote_qkey: u32) {
    // SAFETY: by contract `qp` is live and extended, and its provider set this operation.
    unsafe { ((*qp).wr_set_ud_addr.unwrap_unchecked())(qp, ah, remote_qpn, remote_qkey) };
}

/// Sets the shared receive queue that the open work request of an XRC queue pair addresses. See `ibv_wr_post(3)`.
///
/// # Safety
///
/// `qp` is a live extended XRC send queue pair, and its provider sets this operation. A work request is open.
#[inline]
pub unsafe fn ibv_wr_set_xrc_srqn(qp: *mut ibv_qp_ex, remote_srqn: u32) {
    // SAFETY: by contract `qp` is live and extended, and its provider set this operation.
    unsafe { ((*qp).wr_set_xrc_srqn.unwrap_unchecked())(qp, remote_srqn) };
}

/// Copies the data of the open work request into the queue. See `ibv_wr_post(3)`.
///
/// # Safety
///
/// `qp` is a live extended queue pair. A work request is open; `addr` can be read for `length` bytes, at most the
/// queue's inline capacity.
#[inline]
pub unsafe fn ibv_wr_set_inline_data(qp: *mut ibv_qp_ex, addr: *mut c_void, length: usize) {
    // SAFETY: by contract `qp` is live and extended, and its provider set this operation.
    unsafe { ((*qp).wr_set_inline_data.unwrap_unchecked())(qp, addr, length) };
}

/// Copies the data of the open work request from `num_buf` buffers into the queue. See `ibv_wr_post(3)`.
///
/// # Safety
///
/// `qp` is a live extended queue pair. A work request is open; `buf_list` holds `num_buf` readable buffers, together at
/// most the queue's inline capacity.
#[inline]
pub unsafe fn ibv_wr_set_inline_data_list(qp: *mut ibv_qp_ex, num_buf: usize, buf_list: *const ibv_data_buf) {
    // SAFETY: by contract `qp` is live and extended, and its provider set this operation.
    unsafe { ((*qp).wr_set_inline_data_list.unwrap_unchecked())(qp, num_buf, buf_list) };
}

/// Sets the only buffer of the open work request. See `ibv_wr_post(3)`.
///
/// # Safety
///
/// `qp` is a live extended queue pair. A work request is open. The buffer must stay registered under `lkey` and
/// unaliased until the completion, because the device uses it.
#[inline]
pub unsafe fn ibv_wr_set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    // SAFETY: by contract `qp` is live and extended, and its provider set this operation.
    unsafe { ((*qp).wr_set_sge.unwrap_unchecked())(qp, lkey, addr, length) };
}

/// Sets the `num_sge` buffers of the open work request. See `ibv_wr_post(3)`.
///
/// # Safety
///
/// `qp` is a live extended queue pair. A work request is open and `sg_list` holds `num_sge` entries. The buffers must
/// stay registered and unaliased until the completion, because the device uses them.
#[inline]
pub unsafe fn ibv_wr_set_sge_list(qp: *mut ibv_qp_ex, num_sge: usize, sg_list: *const ibv_sge) {
    // SAFETY: by contract `qp` is live and extended, and its provider set this operation.
    unsafe { ((*qp).wr_set_sge_list.unwrap_unchecked())(qp, num_sge, sg_list) };
}

/// Opens a batch of work requests. See `ibv_wr_post(3)`.
///
/// # Safety
///
/// `qp` is a live extended queue pair. No other thread has a batch open on this queue pair.
#[inline]
pub unsafe fn ibv_wr_start(qp: *mut ibv_qp_ex) {
    // SAFETY: by contract `qp` is live and extended, and its provider set this operation.
    unsafe { ((*qp).wr_start.unwrap_unchecked())(qp) };
}

/// Posts the open batch. Returns zero, or the errno value of its first failure, and then posts nothing. See
/// `ibv_wr_post(3)`.
///
/// # Safety
///
/// `qp` is a live extended queue pair. A batch is open.
#[inline]
pub unsafe fn ibv_wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    // SAFETY: by contract `qp` is live and extended, and its provider set this operation.
    unsafe { ((*qp).wr_complete.unwrap_unchecked())(qp) }
}

/// Discards the open batch. See `ibv_wr_post(3)`.
///
/// # Safety
///
/// `qp` is a live extended queue pair. A batch is open.
#[inline]
pub unsafe fn ibv_wr_abort(qp: *mut ibv_qp_ex) {
    // SAFETY: by contract `qp` is live and extended, and its provider set this operation.
    unsafe { ((*qp).wr_abort.unwrap_unchecked())(qp) };
}

/// Begins an atomic write of the eight bytes at `atomic_wr`. See `ibv_wr_post(3)`.
///
/// # Safety
///
/// `qp` is a live queue pair created with `IBV_QP_EX_WITH_ATOMIC_WRITE`, with a batch open in this thread. `atomic_wr`
/// can be read for eight bytes.
#[inline]
pub unsafe fn ibv_wr_atomic_write(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, atomic_wr: *const c_void) {
    // SAFETY: by contract `qp` is live, and its provider set the operations that it was created with.
    unsafe { ((*qp).wr_atomic_write.unwrap_unchecked())(qp, rkey, remote_addr, atomic_wr) };
}
