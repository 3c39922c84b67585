//! Posting to the queues of an identifier. The device uses posted buffers until their completion.

use core::ffi::{c_int, c_void};
use core::ptr::null_mut;

use super::rdma_seterrno;
use crate::bindings::{rdma_cma::*, verbs::*};
use crate::inline::{ibv_post_recv, ibv_post_send, ibv_post_srq_recv};

/// Posts one receive request with `nsge` buffers, to the shared queue if there is one. Returns zero, or -1 and sets
/// errno. See `rdma_post_recvv(3)`.
///
/// # Safety
///
/// `id` is live and has a queue pair; `sgl` holds `nsge` entries of registered, unaliased memory.
#[inline]
pub unsafe fn rdma_post_recvv(id: *mut rdma_cm_id, context: *mut c_void, sgl: *mut ibv_sge, nsge: c_int) -> c_int {
    let mut wr = ibv_recv_wr { wr_id: context.addr() as u64, next: null_mut(), sg_list: sgl, num_sge: nsge };
    let mut bad = null_mut();
    // SAFETY: by contract the identifier and its queues are live; the provider copies the request.
    rdma_seterrno(unsafe {
        if (*id).srq.is_null() {
            ibv_post_recv((*id).qp, &raw mut wr, &raw mut bad)
        } else {
            ibv_post_srq_recv((*id).srq, &raw mut wr, &raw mut bad)
        }
    })
}

/// Posts one send request with `nsge` buffers. Returns zero, or -1 and sets errno. See `rdma_post_sendv(3)`.
///
/// # Safety
///
/// `id` is live and has a queue pair; `sgl` holds `nsge` entries of registered memory.
#[inline]
pub unsafe fn rdma_post_sendv(
    id: *mut rdma_cm_id,
    context: *mut c_void,
    sgl: *mut ibv_sge,
    nsge: c_int,
    flags: c_int,
) -> c_int {
    // SAFETY: by contract the identifier is live, and the entries can be read.
    unsafe { post(id, send_wr(context, sgl, nsge, ibv_wr_opcode::IBV_WR_SEND, flags)) }
}

/// Posts one read of remote memory into `nsge` buffers. Returns zero, or -1 and sets errno. See `rdma_post_readv(3)`.
///
/// # Safety
///
/// `id` is live and has a queue pair; `sgl` holds `nsge` entries of registered, unaliased memory.
#[inline]
pub unsafe fn rdma_post_readv(
    id: *mut rdma_cm_id,
    context: *mut c_void,
    sgl: *mut ibv_sge,
    nsge: c_int,
    flags: c_int,
    remote_addr: u64,
    rkey: u32,
) -> c_int {
    let mut wr = send_wr(context, sgl, nsge, ibv_wr_opcode::IBV_WR_RDMA_READ, flags);
    wr.wr.rdma = ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr, rkey };
    // SAFETY: by contract the identifier is live, and the entries can be read.
    unsafe { post(id, wr) }
}

/// Posts one write to remote memory from `nsge` buffers. Returns zero, or -1 and sets errno. See `rdma_post_writev(3)`.
///
/// # Safety
///
/// `id` is live and has a queue pair; `sgl` holds `nsge` entries of registered memory.
#[inline]
pub unsafe fn rdma_post_writev(
    id: *mut rdma_cm_id,
    context: *mut c_void,
    sgl: *mut ibv_sge,
    nsge: c_int,
    flags: c_int,
    remote_addr: u64,
    rkey: u32,
) -> c_int {
    let mut wr = send_wr(context, sgl, nsge, ibv_wr_opcode::IBV_WR_RDMA_WRITE, flags);
    wr.wr.rdma = ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr, rkey };
    // SAFETY: by contract the identifier is live, and the entries can be read.
    unsafe { post(id, wr) }
}

/// Posts one receive request. Returns zero, or -1 and sets errno. See `rdma_post_recv(3)`.
///
/// # Safety
///
/// `id` is live and has a queue pair; `mr` is live and covers the unaliased `length` bytes at `addr` (asserted in C,
/// and here in debug builds).
#[inline]
pub unsafe fn rdma_post_recv(
    id: *mut rdma_cm_id,
    context: *mut c_void,
    addr: *mut c_void,
    length: usize,
    mr: *mut ibv_mr,
) -> c_int {
    // SAFETY: by contract the identifier, its queues and the region are live.
    unsafe {
        debug_assert!(covers(mr, addr, length), "rdma_post_recv: the buffer exceeds its memory region");
        let mut sge = sge(addr, length, (*mr).lkey);
        rdma_post_recvv(id, context, &raw mut sge, 1)
    }
}

/// Posts one send request; `mr` may be null for inline data. Returns zero, or -1 and sets errno. See
/// `rdma_post_send(3)`.
///
/// # Safety
///
/// `id` is live and has a queue pair; `mr` is null, or live and covers the `length` bytes at `addr`.
#[inline]
pub unsafe fn rdma_post_send(
    id: *mut rdma_cm_id,
    context: *mut c_void,
    addr: *mut c_void,
    length: usize,
    mr: *mut ibv_mr,
    flags: c_int,
) -> c_int {
    // SAFETY: by contract the identifier, its queues and the region, if any, are live.
    unsafe {
        let mut sge = sge(addr, length, lkey(mr));
        rdma_post_sendv(id, context, &raw mut sge, 1, flags)
    }
}

/// Posts one read of remote memory. Returns zero, or -1 and sets errno. See `rdma_post_read(3)`.
///
/// # Safety
///
/// `id` is live and has a queue pair; `mr` is live and covers the unaliased `length` bytes at `addr`.
#[inline]
#[expect(clippy::too_many_arguments, reason = "the arguments of the C function")]
pub unsafe fn rdma_post_read(
    id: *mut rdma_cm_id,
    context: *mut c_void,
    addr: *mut c_void,
    length: usize,
    mr: *mut ibv_mr,
    flags: c_int,
    remote_addr: u64,
    rkey: u32,
) -> c_int {
    // SAFETY: by contract the identifier, its queues and the region are live.
    unsafe {
        let mut sge = sge(addr, length, (*mr).lkey);
        rdma_post_readv(id, context, &raw mut sge, 1, flags, remote_addr, rkey)
    }
}

/// Posts one write to remote memory; `mr` may be null for inline data. Returns zero, or -1 and sets errno. See
/// `rdma_post_write(3)`.
///
/// # Safety
///
/// `id` is live and has a queue pair; `mr` is null, or live and covers the `length` bytes at `addr`.
#[inline]
#[expect(clippy::too_many_arguments, reason = "the arguments of the C function")]
pub unsafe fn rdma_post_write(
    id: *mut rdma_cm_id,
    context: *mut c_void,
    addr: *mut c_void,
    length: usize,
    mr: *mut ibv_mr,
    flags: c_int,
    remote_addr: u64,
    rkey: u32,
) -> c_int {
    // SAFETY: by contract the identifier, its queues and the region, if any, are live.
    unsafe {
        let mut sge = sge(addr, length, lkey(mr));
        rdma_post_writev(id, context, &raw mut sge, 1, flags, remote_addr, rkey)
    }
}

/// Posts one datagram to queue pair `remote_qpn` at `ah`, with librdmacm's Q_Key; `mr` may be null for inline data.
/// Returns zero, or -1 and sets errno. See `rdma_post_ud_send(3)`.
///
/// # Safety
///
/// `id` is live and has a datagram queue pair; `ah` is live; `mr` is null, or live and covers the `length` bytes at
/// `addr`.
#[inline]
#[expect(clippy::too_many_arguments, reason = "the arguments of the C function")]
pub unsafe fn rdma_post_ud_send(
    id: *mut rdma_cm_id,
    context: *mut c_void,
    addr: *mut c_void,
    length: usize,
    mr: *mut ibv_mr,
    flags: c_int,
    ah: *mut ibv_ah,
    remote_qpn: u32,
) -> c_int {
    // SAFETY: by contract the identifier, its queues, the address handle and the region, if any, are live.
    unsafe {
        let mut sge = sge(addr, length, lkey(mr));
        let mut wr = send_wr(context, &raw mut sge, 1, ibv_wr_opcode::IBV_WR_SEND, flags);
        wr.wr.ud = ibv_send_wr__bindgen_ty_2__bindgen_ty_3 { ah, remote_qpn, remote_qkey: RDMA_UDP_QKEY };
        post(id, wr)
    }
}

fn sge(addr: *mut c_void, length: usize, lkey: u32) -> ibv_sge {
    ibv_sge { addr: addr.addr() as u64, length: length as u32, lkey }
}

/// Returns the local key of a region, or 0 if there is none.
unsafe fn lkey(mr: *mut ibv_mr) -> u32 {
    // SAFETY: by the callers' contract `mr` is null or live.
    if mr.is_null() { 0 } else { unsafe { (*mr).lkey } }
}

/// Whether the region covers the buffer.
unsafe fn covers(mr: *mut ibv_mr, addr: *mut c_void, length: usize) -> bool {
    // SAFETY: by the callers' contract `mr` is live.
    let (start, size) = unsafe { ((*mr).addr.addr(), (*mr).length) };
    addr.addr() >= start && addr.addr().saturating_add(length) <= start.saturating_add(size)
}

/// Builds a request; fields that its opcode does not use are zero (uninitialised in C).
fn send_wr(context: *mut c_void, sgl: *mut ibv_sge, nsge: c_int, opcode: ibv_wr_opcode, flags: c_int) -> ibv_send_wr {
    // SAFETY: all zeros is a value of a structure of integers and pointers.
    let mut wr: ibv_send_wr = unsafe { core::mem::zeroed() };
    wr.wr_id = context.addr() as u64;
    wr.sg_list = sgl;
    wr.num_sge = nsge;
    wr.opcode = opcode;
    wr.send_flags = flags as u32;
    wr
}

unsafe fn post(id: *mut rdma_cm_id, mut wr: ibv_send_wr) -> c_int {
    let mut bad = null_mut();
    // SAFETY: by the callers' contract the identifier and its queue pair are live; the provider copies the request.
    rdma_seterrno(unsafe { ibv_post_send((*id).qp, &raw mut wr, &raw mut bad) })
}
