//! The functions of requests and completions. A signaled request has completed when it is posted; the device stores
//! only a checksum of its fields.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use libc::{c_int, c_void};
use rdma_mummy_sys::ibv_wr_opcode as opcode;
use rdma_mummy_sys::*;

use super::objects::{Pair, Queue};

const SIGNALED: u32 = ibv_send_flags::IBV_SEND_SIGNALED.0;

/// The checksum of all fields that the device received.
static CHECKSUM: AtomicU64 = AtomicU64::new(0);

/// Returns the checksum of all fields since the last call, and resets it. The order of the fields matters.
pub fn take_checksum() -> u64 {
    CHECKSUM.swap(0, Relaxed)
}

/// Adds `completions` completions without requests to a queue.
///
/// # Safety
///
/// `cq` is a live queue of this device, and nothing polls it meanwhile.
pub unsafe fn fill(cq: *mut ibv_cq, completions: u64) {
    // SAFETY: guaranteed by the caller.
    unsafe { (*cq.cast::<Queue>()).waiting = completions };
}

#[inline]
fn add(value: u64) {
    CHECKSUM.store(CHECKSUM.load(Relaxed).wrapping_mul(31).wrapping_add(value), Relaxed);
}

pub(super) fn fill_in_context(operations: &mut ibv_context_ops) {
    operations.poll_cq = Some(poll_cq);
    operations.req_notify_cq = Some(req_notify_cq);
    operations.post_send = Some(post_send);
    operations.post_recv = Some(post_recv);
}

pub(super) fn fill_in_queue(cq: &mut ibv_cq_ex) {
    cq.start_poll = Some(start_poll);
    cq.next_poll = Some(next_poll);
    cq.end_poll = Some(end_poll);
    cq.read_opcode = Some(read_opcode);
    cq.read_vendor_err = Some(read_vendor_err);
    cq.read_byte_len = Some(read_byte_len);
    cq.read_imm_data = Some(read_imm_data);
    cq.read_qp_num = Some(read_qp_num);
    cq.read_src_qp = Some(read_src_qp);
    cq.read_wc_flags = Some(read_wc_flags);
    cq.read_slid = Some(read_slid);
    cq.read_sl = Some(read_sl);
    cq.read_dlid_path_bits = Some(read_dlid_path_bits);
    cq.read_completion_ts = Some(read_completion_ts);
    cq.read_completion_wallclock_ns = Some(read_completion_wallclock_ns);
    cq.read_cvlan = Some(read_cvlan);
    cq.read_flow_tag = Some(read_flow_tag);
    cq.read_tm_info = Some(read_tm_info);
}

pub(super) fn fill_in_pair(qp: &mut ibv_qp_ex) {
    qp.wr_start = Some(wr_start);
    qp.wr_complete = Some(wr_complete);
    qp.wr_abort = Some(wr_abort);
    qp.wr_send = Some(wr_send);
    qp.wr_rdma_write = Some(wr_rdma_write);
    qp.wr_set_sge = Some(wr_set_sge);
    qp.wr_set_inline_data = Some(wr_set_inline_data);
}

unsafe extern "C" fn wr_start(_qp: *mut ibv_qp_ex) {}

unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    // SAFETY: only queue pairs of this device have these functions, and their queues outlive them; as for each function
    // below.
    unsafe {
        let pair = qp.cast::<Pair>();
        (*(*qp).qp_base.send_cq.cast::<Queue>()).waiting += (*pair).signalled;
        (*pair).signalled = 0;
    }
    0
}

unsafe extern "C" fn wr_abort(qp: *mut ibv_qp_ex) {
    // SAFETY: see above.
    unsafe { (*qp.cast::<Pair>()).signalled = 0 };
}

/// Starts a request of the extended interface.
///
/// # Safety
///
/// `qp` is a queue pair of this device.
#[inline]
unsafe fn begin(qp: *mut ibv_qp_ex, code: opcode) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        add((*qp).wr_id);
        // Leaves out the flag for inline data, which not every program sets; the call that sets the data reports it as
        // well.
        add(u64::from((*qp).wr_flags & SIGNALED) | u64::from(code.0) << 32);
        (*qp.cast::<Pair>()).signalled += u64::from((*qp).wr_flags & SIGNALED != 0);
    }
}

unsafe extern "C" fn wr_send(qp: *mut ibv_qp_ex) {
    // SAFETY: see above.
    unsafe { begin(qp, opcode::IBV_WR_SEND) }
}

unsafe extern "C" fn wr_rdma_write(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64) {
    // SAFETY: see above.
    unsafe { begin(qp, opcode::IBV_WR_RDMA_WRITE) };
    add(remote_addr ^ u64::from(rkey));
}

unsafe extern "C" fn wr_set_sge(_qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    add(addr);
    add(u64::from(length) | u64::from(lkey) << 32);
}

unsafe extern "C" fn wr_set_inline_data(_qp: *mut ibv_qp_ex, addr: *mut c_void, length: usize) {
    // SAFETY: the bytes can be read, by contract.
    unsafe { add_inline(addr as u64, length) };
}

/// Adds the length, and the first and the last byte; a real device would copy all bytes.
///
/// # Safety
///
/// `length` bytes at `addr` can be read, at least one.
#[inline]
unsafe fn add_inline(addr: u64, length: usize) {
    let first = addr as *const u8;
    // SAFETY: guaranteed by the caller.
    unsafe { add(u64::from(*first) << 8 | u64::from(*first.wrapping_add(length - 1))) };
    add(length as u64);
}

unsafe extern "C" fn post_send(qp: *mut ibv_qp, mut wr: *mut ibv_send_wr, _bad: *mut *mut ibv_send_wr) -> c_int {
    // SAFETY: see above; the list can be read, by contract.
    unsafe {
        let queue = (*qp).send_cq.cast::<Queue>();
        while !wr.is_null() {
            let request = &*wr;
            add(request.wr_id);
            add(u64::from(request.send_flags & SIGNALED) | u64::from(request.opcode.0) << 32);
            if request.opcode == opcode::IBV_WR_RDMA_WRITE {
                add(request.wr.rdma.remote_addr ^ u64::from(request.wr.rdma.rkey));
            }
            for place in 0..request.num_sge as usize {
                let sge = &*request.sg_list.wrapping_add(place);
                if request.send_flags & ibv_send_flags::IBV_SEND_INLINE.0 != 0 {
                    add_inline(sge.addr, sge.length as usize);
                } else {
                    add(sge.addr);
                    add(u64::from(sge.length) | u64::from(sge.lkey) << 32);
                }
            }
            (*queue).waiting += u64::from(request.send_flags & SIGNALED != 0);
            wr = request.next;
        }
    }
    0
}

unsafe extern "C" fn post_recv(qp: *mut ibv_qp, mut wr: *mut ibv_recv_wr, _bad: *mut *mut ibv_recv_wr) -> c_int {
    // SAFETY: see above; the list can be read, by contract.
    unsafe {
        let queue = (*qp).recv_cq.cast::<Queue>();
        while !wr.is_null() {
            let request = &*wr;
            add(request.wr_id);
            for place in 0..request.num_sge as usize {
                let sge = &*request.sg_list.wrapping_add(place);
                add(sge.addr);
                add(u64::from(sge.length) | u64::from(sge.lkey) << 32);
            }
            (*queue).waiting += 1;
            wr = request.next;
        }
    }
    0
}

unsafe extern "C" fn req_notify_cq(_cq: *mut ibv_cq, _solicited_only: c_int) -> c_int {
    0
}

unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, entries: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: see above; `entries` entries can be written, by contract.
    unsafe {
        let queue = cq.cast::<Queue>();
        let count = (*queue).waiting.min(entries as u64);
        for place in 0..count {
            let wc = &mut *wc.wrapping_add(place as usize);
            wc.wr_id = (*queue).given + place;
            wc.status = ibv_wc_status::IBV_WC_SUCCESS;
            wc.opcode = ibv_wc_opcode::IBV_WC_RDMA_WRITE;
            wc.vendor_err = 2;
            wc.byte_len = 3;
            wc.__bindgen_anon_1.imm_data = 4_u32.to_be();
            (wc.qp_num, wc.src_qp, wc.wc_flags) = (5, 6, 0);
            (wc.slid, wc.sl, wc.dlid_path_bits, wc.pkey_index) = (7, 8, 9, 10);
        }
        (*queue).waiting -= count;
        (*queue).given += count;
        count as c_int
    }
}

/// Moves the cursor of the extended interface.
///
/// # Safety
///
/// `cq` is a queue of this device.
#[inline]
unsafe fn advance(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let queue = cq.cast::<Queue>();
        if (*queue).waiting == 0 {
            return libc::ENOENT;
        }
        (*cq).wr_id = (*queue).given;
        (*cq).status = ibv_wc_status::IBV_WC_SUCCESS;
        (*queue).waiting -= 1;
        (*queue).given += 1;
    }
    0
}

unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, _attr: *mut ibv_poll_cq_attr) -> c_int {
    // SAFETY: see above.
    unsafe { advance(cq) }
}

unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: see above.
    unsafe { advance(cq) }
}

unsafe extern "C" fn end_poll(_cq: *mut ibv_cq_ex) {}

macro_rules! readers {
    ($($name:ident -> $Type:ty = $value:expr;)+) => {$(
        unsafe extern "C" fn $name(_cq: *mut ibv_cq_ex) -> $Type {
            $value
        }
    )+};
}

readers! {
    read_opcode -> ibv_wc_opcode = ibv_wc_opcode::IBV_WC_RDMA_WRITE;
    read_vendor_err -> u32 = 2;
    read_byte_len -> u32 = 3;
    read_imm_data -> u32 = 4_u32.to_be();
    read_qp_num -> u32 = 5;
    read_src_qp -> u32 = 6;
    read_wc_flags -> u32 = 0;
    read_slid -> u32 = 7;
    read_sl -> u8 = 8;
    read_dlid_path_bits -> u8 = 9;
    read_completion_ts -> u64 = 11;
    read_completion_wallclock_ns -> u64 = 12;
    read_cvlan -> u16 = 13;
    read_flow_tag -> u32 = 14;
}

unsafe extern "C" fn read_tm_info(_cq: *mut ibv_cq_ex, info: *mut ibv_wc_tm_info) {
    // SAFETY: `info` can be written, by contract.
    unsafe { info.write(ibv_wc_tm_info { tag: 15, priv_: 16 }) };
}
