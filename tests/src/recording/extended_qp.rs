//! Queue pairs of the extended verbs: a batch that is started, built by one call for the operation and one for its
//! data, and completed or aborted. As with hardware drivers, an error is stored and returned by `wr_complete`.

use std::slice;

use libc::{c_int, c_void};
use rdma_mummy_sys as ffi;
use rdma_mummy_sys::ibv_wr_opcode as opcode;

use super::calls::{Kind, Posted};
use super::device::state_of;
use super::driver::Fault;
use super::objects::forever;
use super::post::{FLUSH, bind_of, execute, read_bytes};
use super::qp::{arguments, set_up};
use super::state::{Inner, Pair};
use super::work_queue::{create_spreading_qp, is_spreading};

pub(super) unsafe extern "C" fn create_qp_ex(
    context: *mut ffi::ibv_context,
    attr: *mut ffi::ibv_qp_init_attr_ex,
) -> *mut ffi::ibv_qp {
    // SAFETY: the context is one of this provider's, the attributes can be read, and the queue pair is new. The plain
    // attributes are the first part of the extended ones.
    unsafe {
        let cap = &raw mut (*attr).cap;
        let attr = &*attr;
        if is_spreading(attr) {
            return create_spreading_qp(context, attr);
        }
        if attr.comp_mask & ffi::ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_XRCD.0 != 0 {
            return super::xrc::create_recv_qp(context, attr);
        }
        let [t, a, b, c, d, e] = arguments(&attr.cap, attr.qp_type);
        let [flags, header, qpn] = [attr.create_flags, attr.max_tso_header.into(), attr.source_qpn].map(u64::from);
        let more = [("create_flags", flags), ("max_tso_header", header), ("source_qpn", qpn)];
        let mask = ("comp_mask", attr.comp_mask.into());
        let arguments = [t, a, b, c, d, e, mask, ("send_ops_flags", attr.send_ops_flags), more[0], more[1], more[2]];
        let (mut inner, failure) = state_of(context).enter("create_qp_ex", &arguments);
        if let Some(failure) = failure {
            return failure.null();
        }
        let qp = forever::<ffi::ibv_qp_ex_since_v44>().cast::<ffi::ibv_qp_ex>();
        set_up(&mut inner, qp.cast(), attr.pd, &*std::ptr::from_ref(attr).cast());
        set_functions(&inner, qp, attr.send_ops_flags);
        set_functions_since_v44(&inner, qp.cast(), attr.send_ops_flags);
        inner.output("create_qp_ex: cap", cap);
        qp.cast()
    }
}

pub(super) unsafe extern "C" fn qp_to_qp_ex(qp: *mut ffi::ibv_qp) -> *mut ffi::ibv_qp_ex {
    // SAFETY: objects are never freed, and all have room for an extended queue pair.
    let inner = unsafe { state_of((*qp).context) }.note("qp_to_qp_ex", &[]);
    if inner.script.without.contains("qp_to_qp_ex") { std::ptr::null_mut() } else { qp.cast() }
}

macro_rules! functions {
    (always { $($always:ident)+ } asked { $($field:ident if $Flag:ident;)+ }) => {
        /// Sets the requested operations, unless the script omits them; the rest stays null, as with drivers.
        ///
        /// # Safety
        ///
        /// `qp` is new.
        pub(super) unsafe fn set_functions(inner: &Inner, qp: *mut ffi::ibv_qp_ex, asked: u64) {
            let has = |name: &str| !inner.script.without.contains(name);
            // SAFETY: the queue pair is new.
            unsafe {
                $( (*qp).$always = has(stringify!($always)).then_some($always); )+
                $(
                    let asked_for = asked & u64::from(ffi::ibv_qp_create_send_ops_flags::$Flag.0) != 0;
                    (*qp).$field = (asked_for && has(stringify!($field))).then_some($field);
                )+
            }
        }
    };
}

functions! {
    always {
    wr_start wr_complete wr_abort
    wr_set_ud_addr wr_set_xrc_srqn
    wr_set_sge wr_set_sge_list wr_set_inline_data wr_set_inline_data_list
    }
    asked {
    wr_send if IBV_QP_EX_WITH_SEND;
    wr_send_imm if IBV_QP_EX_WITH_SEND_WITH_IMM;
    wr_rdma_write if IBV_QP_EX_WITH_RDMA_WRITE;
    wr_rdma_write_imm if IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
    wr_rdma_read if IBV_QP_EX_WITH_RDMA_READ;
    wr_atomic_cmp_swp if IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP;
    wr_atomic_fetch_add if IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
    wr_local_inv if IBV_QP_EX_WITH_LOCAL_INV;
    wr_bind_mw if IBV_QP_EX_WITH_BIND_MW;
    wr_send_inv if IBV_QP_EX_WITH_SEND_WITH_INV;
    wr_send_tso if IBV_QP_EX_WITH_TSO;
    }
}

/// Sets the operations of later releases, if requested. If not, their fields contain other memory, as in a library
/// without these fields, so a reader finds no valid function.
///
/// # Safety
///
/// `qp` is new.
unsafe fn set_functions_since_v44(inner: &Inner, qp: *mut ffi::ibv_qp_ex_since_v44, asked: u64) {
    const NO_FUNCTION: usize = 0x5a5a;
    let has = |name: &str| !inner.script.without.contains(name);
    // SAFETY: the queue pair is new; a word of the same size overwrites a function.
    unsafe {
        let atomic_write = &raw mut (*qp).qp.wr_atomic_write;
        if asked & u64::from(ffi::ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_ATOMIC_WRITE.0) == 0 {
            atomic_write.cast::<usize>().write(NO_FUNCTION);
        } else {
            *atomic_write = has("wr_atomic_write").then_some(wr_atomic_write);
        }
        let flush = &raw mut (*qp).wr_flush;
        if asked & IBV_QP_EX_WITH_FLUSH == 0 {
            flush.cast::<usize>().write(NO_FUNCTION);
        } else {
            *flush = has("wr_flush").then_some(wr_flush);
        }
    }
}

/// From rdma-core 45.
const IBV_QP_EX_WITH_FLUSH: u64 = 1 << 11;

/// Runs `step` on the pair of a logged call.
///
/// # Safety
///
/// `qp` is a queue pair of this provider.
unsafe fn with_pair(qp: *mut ffi::ibv_qp_ex, verb: &'static str, step: impl FnOnce(&mut Pair) -> Option<&'static str>) {
    // SAFETY: objects are never freed.
    let mut inner = unsafe { state_of((*qp).qp_base.context) }.note(verb, &[]);
    if inner.is_live(Kind::QueuePair, qp.addr(), verb)
        && let Some(violation) = inner.pairs.get_mut(&qp.addr()).and_then(step)
    {
        inner.violation(format!("{verb}: {violation}"));
    }
}

unsafe extern "C" fn wr_start(qp: *mut ffi::ibv_qp_ex) {
    // SAFETY: only queue pairs of this provider have this function.
    unsafe {
        with_pair(qp, "wr_start", |pair| {
            pair.error = 0;
            (pair.without_data, pair.without_address) = (false, false);
            let fresh = std::mem::take(&mut pair.spare);
            pair.batch.replace(fresh).map(|_| "a batch was already started")
        });
    }
}

unsafe extern "C" fn wr_abort(qp: *mut ffi::ibv_qp_ex) {
    // SAFETY: only queue pairs of this provider have this function.
    unsafe {
        with_pair(qp, "wr_abort", |pair| match pair.batch.take() {
            Some(mut batch) => {
                batch.clear();
                pair.spare = batch;
                None
            }
            None => Some("no batch was started"),
        });
    }
}

unsafe extern "C" fn wr_complete(qp: *mut ffi::ibv_qp_ex) -> c_int {
    // SAFETY: objects are never freed.
    unsafe {
        let state = state_of((*qp).qp_base.context);
        let quiet = state.is_quiet();
        let (mut inner, failure) = state.enter("wr_complete", &[("qp_num", (*qp).qp_base.qp_num.into())]);
        let Some(pair) = inner.pairs.get_mut(&qp.addr()) else {
            inner.violation("wr_complete on a queue pair that does not exist");
            return libc::EINVAL;
        };
        let (batch, without_data, error) = (pair.batch.take(), pair.without_data, pair.error);
        let without_address = pair.without_address;
        let Some(mut batch) = batch else {
            inner.violation("wr_complete: no batch was started");
            return libc::EINVAL;
        };
        if without_data {
            inner.violation("wr_complete: the last request has no data");
        }
        if without_address {
            inner.violation("wr_complete: the last request has no address");
        }
        let code = failure.map_or(error, |failure| failure.code());
        if code == 0 {
            for request in batch.drain(..) {
                execute(&mut inner, qp.cast(), request, quiet);
            }
        } else {
            batch.clear();
            inner.failed(failure.map_or(code, |failure| failure.errno()));
        }
        if let Some(pair) = inner.pairs.get_mut(&qp.addr()) {
            pair.spare = batch;
        }
        code
    }
}

/// Starts a request of the batch that needs data.
///
/// # Safety
///
/// `qp` is a queue pair of this provider.
unsafe fn begin(qp: *mut ffi::ibv_qp_ex, verb: &'static str, code: opcode, request: Posted) {
    // SAFETY: guaranteed by the caller.
    unsafe { begin_request(qp, verb, code, request, true) }
}

/// Starts a request of the batch; `has_data` if its data comes next.
///
/// # Safety
///
/// `qp` is a queue pair of this provider.
unsafe fn begin_request(qp: *mut ffi::ibv_qp_ex, verb: &'static str, code: opcode, request: Posted, has_data: bool) {
    // SAFETY: objects are never freed.
    let (wr_id, flags, qp_type) =
        unsafe { ((*qp).wr_id, (*qp).wr_flags & !ffi::ibv_send_flags::IBV_SEND_INLINE.0, (*qp).qp_base.qp_type) };
    let request = Posted { wr_id, flags, opcode: Some(code.0), ..request };
    let addressed = matches!(qp_type, ffi::ibv_qp_type::IBV_QPT_UD | ffi::ibv_qp_type::IBV_QPT_XRC_SEND)
        && !matches!(code, opcode::IBV_WR_LOCAL_INV | opcode::IBV_WR_BIND_MW);
    // SAFETY: guaranteed by the caller.
    unsafe {
        with_pair(qp, verb, |pair| {
            let without_data = std::mem::replace(&mut pair.without_data, has_data);
            let without_address = std::mem::replace(&mut pair.without_address, addressed);
            let limit = pair.cap.max_send_wr as usize;
            let Some(batch) = &mut pair.batch else { return Some("no batch was started") };
            if batch.len() >= limit {
                pair.error = libc::ENOMEM;
            } else {
                batch.push(request);
            }
            match (without_data, without_address) {
                (true, _) => Some("the request before it has no data"),
                (_, true) => Some("the request before it has no address"),
                _ => None,
            }
        });
    }
}

unsafe extern "C" fn wr_send(qp: *mut ffi::ibv_qp_ex) {
    // SAFETY: as for each function below: only queue pairs of this provider have this function.
    unsafe { begin(qp, "wr_send", opcode::IBV_WR_SEND, Posted::default()) }
}

unsafe extern "C" fn wr_send_imm(qp: *mut ffi::ibv_qp_ex, imm_data: u32) {
    let request = Posted { imm_data: Some(u32::from_be(imm_data)), ..Posted::default() };
    // SAFETY: see above.
    unsafe { begin(qp, "wr_send_imm", opcode::IBV_WR_SEND_WITH_IMM, request) }
}

unsafe extern "C" fn wr_rdma_write(qp: *mut ffi::ibv_qp_ex, rkey: u32, remote_addr: u64) {
    let request = Posted { rkey, remote_addr, ..Posted::default() };
    // SAFETY: see above.
    unsafe { begin(qp, "wr_rdma_write", opcode::IBV_WR_RDMA_WRITE, request) }
}

unsafe extern "C" fn wr_rdma_write_imm(qp: *mut ffi::ibv_qp_ex, rkey: u32, remote_addr: u64, imm_data: u32) {
    let request = Posted { rkey, remote_addr, imm_data: Some(u32::from_be(imm_data)), ..Posted::default() };
    // SAFETY: see above.
    unsafe { begin(qp, "wr_rdma_write_imm", opcode::IBV_WR_RDMA_WRITE_WITH_IMM, request) }
}

unsafe extern "C" fn wr_rdma_read(qp: *mut ffi::ibv_qp_ex, rkey: u32, remote_addr: u64) {
    let request = Posted { rkey, remote_addr, ..Posted::default() };
    // SAFETY: see above.
    unsafe { begin(qp, "wr_rdma_read", opcode::IBV_WR_RDMA_READ, request) }
}

unsafe extern "C" fn wr_atomic_cmp_swp(qp: *mut ffi::ibv_qp_ex, rkey: u32, remote_addr: u64, compare: u64, swap: u64) {
    let request = Posted { rkey, remote_addr, operands: (compare, swap), ..Posted::default() };
    // SAFETY: see above.
    unsafe { begin(qp, "wr_atomic_cmp_swp", opcode::IBV_WR_ATOMIC_CMP_AND_SWP, request) }
}

unsafe extern "C" fn wr_atomic_fetch_add(qp: *mut ffi::ibv_qp_ex, rkey: u32, remote_addr: u64, add: u64) {
    let request = Posted { rkey, remote_addr, operands: (add, 0), ..Posted::default() };
    // SAFETY: see above.
    unsafe { begin(qp, "wr_atomic_fetch_add", opcode::IBV_WR_ATOMIC_FETCH_AND_ADD, request) }
}

unsafe extern "C" fn wr_send_inv(qp: *mut ffi::ibv_qp_ex, invalidate_rkey: u32) {
    let request = Posted { invalidate_rkey: Some(invalidate_rkey), ..Posted::default() };
    // SAFETY: see above.
    unsafe { begin(qp, "wr_send_inv", opcode::IBV_WR_SEND_WITH_INV, request) }
}

unsafe extern "C" fn wr_send_tso(qp: *mut ffi::ibv_qp_ex, header: *mut c_void, length: u16, mss: u16) {
    // SAFETY: see above; this number of bytes can be read.
    unsafe {
        let quiet = state_of((*qp).qp_base.context).is_quiet();
        let segments = (!quiet).then(|| (read_bytes(header, length.into()), mss));
        begin(qp, "wr_send_tso", opcode::IBV_WR_TSO, Posted { segments, ..Posted::default() });
    }
}

unsafe extern "C" fn wr_local_inv(qp: *mut ffi::ibv_qp_ex, invalidate_rkey: u32) {
    let request = Posted { invalidate_rkey: Some(invalidate_rkey), ..Posted::default() };
    // SAFETY: see above.
    unsafe { begin_request(qp, "wr_local_inv", opcode::IBV_WR_LOCAL_INV, request, false) }
}

unsafe extern "C" fn wr_bind_mw(
    qp: *mut ffi::ibv_qp_ex,
    mw: *mut ffi::ibv_mw,
    rkey: u32,
    info: *const ffi::ibv_mw_bind_info,
) {
    // SAFETY: see above; the information can be read.
    unsafe {
        let mut inner = state_of((*qp).qp_base.context).lock();
        inner.is_live(Kind::MemoryWindow, mw.addr(), "wr_bind_mw");
        inner.is_live(Kind::MemoryRegion, (*info).mr.addr(), "wr_bind_mw");
        drop(inner);
        let request = Posted { bind: Some(bind_of(mw, rkey, &*info)), ..Posted::default() };
        begin_request(qp, "wr_bind_mw", opcode::IBV_WR_BIND_MW, request, false);
    }
}

unsafe extern "C" fn wr_atomic_write(qp: *mut ffi::ibv_qp_ex, rkey: u32, remote_addr: u64, value: *const c_void) {
    // SAFETY: see above; eight bytes can be read.
    unsafe {
        let atomic = Some(value.cast::<[u8; 8]>().read());
        let request = Posted { rkey, remote_addr, atomic, length: 8, ..Posted::default() };
        begin_request(qp, "wr_atomic_write", opcode::IBV_WR_ATOMIC_WRITE, request, false);
    }
}

unsafe extern "C" fn wr_flush(
    qp: *mut ffi::ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    length: usize,
    placement: u8,
    level: u8,
) {
    let request = Posted { rkey, remote_addr, flush: Some((length as u64, placement, level)), ..Posted::default() };
    // SAFETY: see above.
    unsafe { begin_request(qp, "wr_flush", FLUSH, request, false) }
}

/// Sets the address of the batch's last request.
///
/// # Safety
///
/// `qp` is a queue pair of this provider.
unsafe fn address(qp: *mut ffi::ibv_qp_ex, verb: &'static str, of: ffi::ibv_qp_type, fill: impl FnOnce(&mut Posted)) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let qp_type = (*qp).qp_base.qp_type;
        with_pair(qp, verb, |pair| {
            if qp_type != of {
                return Some("queue pairs of this type have no such address");
            }
            if !std::mem::take(&mut pair.without_address) {
                return Some("no request is open for the address");
            }
            if let Some(request) = pair.batch.as_mut().and_then(|batch| batch.last_mut()) {
                fill(request);
            }
            None
        });
    }
}

unsafe extern "C" fn wr_set_ud_addr(qp: *mut ffi::ibv_qp_ex, ah: *mut ffi::ibv_ah, remote_qpn: u32, remote_qkey: u32) {
    // SAFETY: see above; the handle is looked up by its address and not dereferenced.
    unsafe {
        state_of((*qp).qp_base.context).lock().is_live(Kind::AddressHandle, ah.addr(), "wr_set_ud_addr");
        address(qp, "wr_set_ud_addr", ffi::ibv_qp_type::IBV_QPT_UD, |request| {
            request.datagram = Some((ah.addr() as u64, remote_qpn, remote_qkey));
        });
    }
}

unsafe extern "C" fn wr_set_xrc_srqn(qp: *mut ffi::ibv_qp_ex, remote_srqn: u32) {
    // SAFETY: see above.
    unsafe {
        address(qp, "wr_set_xrc_srqn", ffi::ibv_qp_type::IBV_QPT_XRC_SEND, |request| request.srqn = Some(remote_srqn));
    }
}

/// Sets the data of the batch's last request: `length` bytes, compared with `limit`.
///
/// # Safety
///
/// `qp` is a queue pair of this provider.
unsafe fn give(
    qp: *mut ffi::ibv_qp_ex,
    verb: &'static str,
    fits: impl FnOnce(&ffi::ibv_qp_cap) -> bool,
    fill: impl FnOnce(&mut Posted),
) {
    // SAFETY: objects are never freed.
    let quiet = unsafe { state_of((*qp).qp_base.context) }.is_quiet();
    // SAFETY: guaranteed by the caller.
    unsafe {
        with_pair(qp, verb, |pair| {
            if !std::mem::take(&mut pair.without_data) {
                return Some("no request is open for the data");
            }
            if !fits(&pair.cap) {
                if verb.starts_with("wr_set_inline") && pair.copies_any_length {
                    return Some("the driver copies more than it has space for");
                }
                pair.error = libc::EINVAL;
            } else if let (false, Some(request)) = (quiet, pair.batch.as_mut().and_then(|batch| batch.last_mut())) {
                fill(request);
            }
            None
        });
    }
}

unsafe extern "C" fn wr_set_sge(qp: *mut ffi::ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    // SAFETY: see above.
    unsafe {
        give(
            qp,
            "wr_set_sge",
            |cap| cap.max_send_sge > 0,
            |request| {
                request.entries.push((lkey, addr, length));
                request.length = length;
            },
        );
    }
}

unsafe extern "C" fn wr_set_sge_list(qp: *mut ffi::ibv_qp_ex, count: usize, list: *const ffi::ibv_sge) {
    // SAFETY: see above; the list can be read.
    unsafe {
        let state = state_of((*qp).qp_base.context);
        if count == 0 && list.addr() < 4096 && state.lock().script.has(Fault::FirstOfNone) {
            state.lock().violation("wr_set_sge_list: the driver reads a missing entry");
        }
        give(
            qp,
            "wr_set_sge_list",
            |cap| count <= cap.max_send_sge as usize,
            |request| {
                let list = if count == 0 { &[] } else { slice::from_raw_parts(list, count) };
                request.entries.extend(list.iter().map(|sge| (sge.lkey, sge.addr, sge.length)));
                request.length = list.iter().map(|sge| sge.length).sum();
            },
        );
    }
}

unsafe extern "C" fn wr_set_inline_data(qp: *mut ffi::ibv_qp_ex, addr: *mut c_void, length: usize) {
    // SAFETY: see above; this number of bytes can be read.
    unsafe {
        give(
            qp,
            "wr_set_inline_data",
            |cap| length <= cap.max_inline_data as usize,
            |request| {
                request.inline = Some(slice::from_raw_parts(addr.cast::<u8>(), length).to_vec());
                request.length = length as u32;
            },
        );
    }
}

unsafe extern "C" fn wr_set_inline_data_list(qp: *mut ffi::ibv_qp_ex, count: usize, list: *const ffi::ibv_data_buf) {
    // SAFETY: see above; the pieces can be read.
    unsafe {
        let list = if count == 0 { &[] } else { slice::from_raw_parts(list, count) };
        let length: usize = list.iter().map(|piece| piece.length).sum();
        give(
            qp,
            "wr_set_inline_data_list",
            |cap| length <= cap.max_inline_data as usize,
            |request| {
                let bytes = |piece: &ffi::ibv_data_buf| slice::from_raw_parts(piece.addr.cast::<u8>(), piece.length);
                request.inline = Some(list.iter().flat_map(bytes).copied().collect());
                request.length = length as u32;
            },
        );
    }
}
