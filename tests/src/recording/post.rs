//! Lists of requests, and the processing of a posted request: a signaled one completes at once, and a send consumes the
//! oldest receive of its own queue pair, or of its shared receive queue.

use std::{ptr, slice};

use libc::{c_int, c_void};
use rdma_mummy_sys as ffi;
use rdma_mummy_sys::{ibv_send_flags as flag, ibv_wr_opcode as opcode};

use super::calls::{Bind, Completion, Posted};
use super::completion::complete;
use super::device::state_of;
use super::driver::Fault;
use super::receives::each_receive;
use super::script::Bad;
use super::state::Inner;

pub(super) unsafe extern "C" fn post_send(
    qp: *mut ffi::ibv_qp,
    wr: *mut ffi::ibv_send_wr,
    bad_wr: *mut *mut ffi::ibv_send_wr,
) -> c_int {
    // SAFETY: objects are never freed; the requests form a list that ends, with their entries, and `bad_wr` can be
    // written.
    unsafe {
        let state = state_of((*qp).context);
        let quiet = state.is_quiet();
        let (mut inner, failure) = state.enter("post_send", &[("qp_num", (*qp).qp_num.into())]);
        if !inner.exists(qp.addr(), "post_send") {
            *bad_wr = wr;
            return libc::EINVAL;
        }
        let refusal = failure.map(|failure| (Bad::At(0), failure)).or_else(|| inner.script.refusal.take());
        let (mut next, mut index, mut last) = (wr, 0, wr);
        while !next.is_null() {
            if let Some((Bad::At(at), failure)) = refusal
                && at == index
            {
                *bad_wr = next;
                inner.failed(failure.errno());
                return failure.code();
            }
            // Without a failing request, the first one is still posted.
            if index > 0 && matches!(refusal, Some((Bad::Null | Bad::Foreign, _))) {
                break;
            }
            let request = read_send(next, (*qp).qp_type, quiet);
            if let Some((ah, ..)) = request.datagram {
                inner.exists(ah as usize, "post_send");
            }
            if request.opcode.is_some_and(|code| code >= 12) && inner.script.has(Fault::TableOfOpcodes) {
                inner.violation("post_send: the driver reads past its table of opcodes");
            }
            if let Some(bind) = request.bind {
                inner.exists(bind.mw as usize, "post_send");
                if inner.script.has(Fault::BindWritesKey) {
                    (*(*next).__bindgen_anon_2.bind_mw.mw).rkey = bind.rkey;
                }
                inner.exists(bind.mr as usize, "post_send");
            }
            execute(&mut inner, qp, request, quiet);
            last = next;
            next = (*next).next;
            index += 1;
        }
        match refusal {
            None => 0,
            Some((bad, failure)) => {
                *bad_wr = elsewhere(bad, last);
                inner.failed(failure.errno());
                failure.code()
            }
        }
    }
}

/// The failing request that a bad driver reports.
pub(super) fn elsewhere<T>(bad: Bad, last: *mut T) -> *mut T {
    match bad {
        Bad::Null => ptr::null_mut(),
        Bad::Foreign => last.wrapping_byte_add(1),
        Bad::At(_) | Bad::Behind => last.wrapping_add(1),
    }
}

/// # Safety
///
/// `wr` can be read, with its entries and its inline data.
unsafe fn read_send(wr: *const ffi::ibv_send_wr, qp_type: ffi::ibv_qp_type, quiet: bool) -> Posted {
    // SAFETY: guaranteed by the caller; the opcode and the type determine the valid members of the unions.
    unsafe {
        let wr = &*wr;
        let entries = slice_of(wr.sg_list, wr.num_sge as usize);
        let length = entries.iter().map(|entry| entry.length).sum();
        let flags = wr.send_flags & !flag::IBV_SEND_INLINE.0;
        let mut posted = Posted { wr_id: wr.wr_id, opcode: Some(wr.opcode.0), flags, length, ..Posted::default() };
        if matches!(wr.opcode, opcode::IBV_WR_SEND_WITH_IMM | opcode::IBV_WR_RDMA_WRITE_WITH_IMM) {
            posted.imm_data = Some(u32::from_be(wr.__bindgen_anon_1.imm_data));
        }
        match wr.opcode {
            opcode::IBV_WR_RDMA_WRITE
            | opcode::IBV_WR_RDMA_WRITE_WITH_IMM
            | opcode::IBV_WR_RDMA_READ
            | opcode::IBV_WR_ATOMIC_WRITE => {
                (posted.remote_addr, posted.rkey) = (wr.wr.rdma.remote_addr, wr.wr.rdma.rkey);
            }
            opcode::IBV_WR_ATOMIC_CMP_AND_SWP | opcode::IBV_WR_ATOMIC_FETCH_AND_ADD => {
                (posted.remote_addr, posted.rkey) = (wr.wr.atomic.remote_addr, wr.wr.atomic.rkey);
                posted.operands = (wr.wr.atomic.compare_add, wr.wr.atomic.swap);
            }
            opcode::IBV_WR_SEND_WITH_INV | opcode::IBV_WR_LOCAL_INV => {
                posted.invalidate_rkey = Some(wr.__bindgen_anon_1.invalidate_rkey);
            }
            opcode::IBV_WR_BIND_MW => {
                let bind = wr.__bindgen_anon_2.bind_mw;
                posted.bind = Some(bind_of(bind.mw, bind.rkey, &bind.bind_info));
                // Drivers refuse a bind with immediate data.
                posted.imm_data = Some(wr.__bindgen_anon_1.imm_data).filter(|&imm_data| imm_data != 0);
            }
            _ => {}
        }
        match qp_type {
            ffi::ibv_qp_type::IBV_QPT_UD => {
                posted.datagram = Some((wr.wr.ud.ah.addr() as u64, wr.wr.ud.remote_qpn, wr.wr.ud.remote_qkey));
            }
            ffi::ibv_qp_type::IBV_QPT_XRC_SEND
                if !matches!(wr.opcode, opcode::IBV_WR_LOCAL_INV | opcode::IBV_WR_BIND_MW) =>
            {
                posted.srqn = Some(wr.qp_type.xrc.remote_srqn);
            }
            _ => {}
        }
        if qp_type == ffi::ibv_qp_type::IBV_QPT_RAW_PACKET
            && (length == 0 || wr.send_flags & flag::IBV_SEND_INLINE.0 != 0)
        {
            // Like the mlx4 driver, writes the hardware address of the peer, with or without an entry.
            std::hint::black_box(((*wr.sg_list).addr as *const [u8; 6]).read_volatile());
        }
        if quiet {
            return posted;
        }
        if wr.opcode == opcode::IBV_WR_TSO {
            let tso = wr.__bindgen_anon_2.tso;
            posted.segments = Some((read_bytes(tso.hdr, tso.hdr_sz.into()), tso.mss));
        }
        if wr.send_flags & flag::IBV_SEND_INLINE.0 != 0 {
            let bytes = |sge: &ffi::ibv_sge| read_bytes(sge.addr as *const c_void, sge.length as usize);
            posted.inline = Some(entries.iter().flat_map(bytes).collect());
        } else {
            posted.entries = entries.iter().map(|sge| (sge.lkey, sge.addr, sge.length)).collect();
        }
        posted
    }
}

/// Converts a bind to the form of the log.
pub(super) fn bind_of(mw: *mut ffi::ibv_mw, rkey: u32, info: &ffi::ibv_mw_bind_info) -> Bind {
    Bind {
        mw: mw.addr() as u64,
        rkey,
        mr: info.mr.addr() as u64,
        addr: info.addr,
        length: info.length,
        access: info.mw_access_flags,
    }
}

/// # Safety
///
/// This number of bytes can be read.
pub(super) unsafe fn read_bytes(from: *const c_void, length: usize) -> Vec<u8> {
    // SAFETY: guaranteed by the caller.
    unsafe { slice_of(from.cast::<u8>(), length) }.to_vec()
}

/// A list as C has it: without entries, the pointer may be any.
///
/// # Safety
///
/// The list can be read for as long as the result is used.
pub(super) unsafe fn slice_of<'a, T>(list: *const T, count: usize) -> &'a [T] {
    // SAFETY: guaranteed by the caller.
    if count > 0 { unsafe { slice::from_raw_parts(list, count) } } else { &[] }
}

/// Executes a send request.
///
/// # Safety
///
/// `qp` is alive.
pub(super) unsafe fn execute(inner: &mut Inner, qp: *mut ffi::ibv_qp, request: Posted, quiet: bool) {
    let (code, flags) = (opcode(request.opcode.unwrap_or(u32::MAX)), request.flags);
    let wr_id = request.wr_id;
    // SAFETY: guaranteed by the caller.
    let (qp_num, send_cq, recv_cq, state) = unsafe { ((*qp).qp_num, (*qp).send_cq, (*qp).recv_cq, (*qp).state) };
    if state == ffi::ibv_qp_state::IBV_QPS_ERR {
        let status = ffi::ibv_wc_status::IBV_WC_WR_FLUSH_ERR.0;
        complete(inner, send_cq.addr(), Completion { wr_id, status, qp_num, ..Completion::default() });
        if !quiet {
            inner.posted.push(request);
        }
        return;
    }
    let Some(pair) = inner.pairs.get_mut(&qp.addr()) else { return };
    let signaled = pair.signal_all || flags & flag::IBV_SEND_SIGNALED.0 != 0;
    let takes_receive = matches!(
        code,
        opcode::IBV_WR_SEND
            | opcode::IBV_WR_SEND_WITH_IMM
            | opcode::IBV_WR_SEND_WITH_INV
            | opcode::IBV_WR_RDMA_WRITE_WITH_IMM
    );
    let receives = inner.shared.get_mut(&pair.srq).map_or(&mut pair.receives, |shared| &mut shared.receives);
    let receive = if takes_receive { receives.pop_front() } else { None };
    let byte_len = request.length;
    let usual = Completion { byte_len, qp_num, ..Completion::default() };
    if let Some(receive) = receive {
        let received = if code == opcode::IBV_WR_RDMA_WRITE_WITH_IMM { 129 } else { 128 };
        let wc_flags = if request.imm_data.is_some() { ffi::ibv_wc_flags::IBV_WC_WITH_IMM.0 } else { 0 };
        let (wr_id, imm_data, src_qp) = (receive.wr_id, request.imm_data.unwrap_or(0), qp_num);
        complete(inner, recv_cq.addr(), Completion { wr_id, opcode: received, imm_data, src_qp, wc_flags, ..usual });
    }
    if signaled {
        use ffi::ibv_wc_opcode as done;
        let completion = match code {
            opcode::IBV_WR_RDMA_WRITE | opcode::IBV_WR_RDMA_WRITE_WITH_IMM => done::IBV_WC_RDMA_WRITE,
            opcode::IBV_WR_RDMA_READ => done::IBV_WC_RDMA_READ,
            opcode::IBV_WR_ATOMIC_CMP_AND_SWP => done::IBV_WC_COMP_SWAP,
            opcode::IBV_WR_ATOMIC_FETCH_AND_ADD => done::IBV_WC_FETCH_ADD,
            opcode::IBV_WR_LOCAL_INV => done::IBV_WC_LOCAL_INV,
            opcode::IBV_WR_BIND_MW => done::IBV_WC_BIND_MW,
            opcode::IBV_WR_TSO => done::IBV_WC_TSO,
            opcode::IBV_WR_ATOMIC_WRITE => done::IBV_WC_ATOMIC_WRITE,
            opcode::IBV_WR_FLUSH => done::IBV_WC_FLUSH,
            _ => done::IBV_WC_SEND,
        };
        complete(inner, send_cq.addr(), Completion { wr_id, opcode: completion.0, ..usual });
    }
    if !quiet {
        inner.posted.push(request);
    }
}

pub(super) unsafe extern "C" fn post_recv(
    qp: *mut ffi::ibv_qp,
    wr: *mut ffi::ibv_recv_wr,
    bad_wr: *mut *mut ffi::ibv_recv_wr,
) -> c_int {
    // SAFETY: objects are never freed; the requests form a list that ends, with their entries, and `bad_wr` can be
    // written.
    unsafe {
        let state = state_of((*qp).context);
        let call = state.enter("post_recv", &[("qp_num", (*qp).qp_num.into())]);
        each_receive(call, qp.addr(), state.is_quiet(), wr, bad_wr, |inner, posted, _entries| {
            if let Some(pair) = inner.pairs.get_mut(&qp.addr()) {
                let is_shared = pair.srq != 0;
                pair.receives.push_back(posted.clone());
                if is_shared {
                    inner.violation("post_recv on a queue pair with a shared receive queue");
                }
            }
            Ok(())
        })
    }
}
