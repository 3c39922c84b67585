//! Queue pairs of the extended verbs: a batch that is started, built by one call for the operation and one for its
//! data, and completed or aborted. As with hardware drivers, an error is stored and returned by `wr_complete`.

use libc::{c_int, c_void};
use rdma_mummy_sys as ffi;
use rdma_mummy_sys::ibv_wr_opcode as opcode;

use super::calls::Posted;
use super::device::state_of;
use super::post::{bind_of, execute, read_bytes, slice_of};
use super::qp::{arguments, set_up};
use super::state::Pair;
use super::stub::{arguments, forever, requested, stubs};
use super::work_queue::{create_spreading_qp, hash_key, is_spreading};

const NO_FUNCTION: usize = 0x5a5a;

stubs! {
    fn create_qp_ex(context: *mut ffi::ibv_context, attr: *mut ffi::ibv_qp_init_attr_ex) -> *mut ffi::ibv_qp
        [; ..arguments_ex(&*attr)] |inner|
    {
        let cap = &raw mut (*attr).cap;
        let attr = &*attr;
        if is_spreading(attr) {
            return create_spreading_qp(&mut inner, context, attr);
        }
        if is_xrc_receiver(attr) {
            return super::xrc::create_recv_qp(&mut inner, context, attr.xrcd);
        }
        let qp = forever::<ffi::ibv_qp_ex_since_v44>().cast::<ffi::ibv_qp_ex>();
        // The plain attributes are the first part of the extended ones.
        set_up(&mut inner, qp.cast(), attr.pd, &*std::ptr::from_ref(attr).cast());
        set_functions(&inner, qp, attr.send_ops_flags);
        // In a library without the operations of later releases, their fields are other memory: no valid functions.
        let later = qp.cast::<ffi::ibv_qp_ex_since_v44>();
        set_functions_since_v44(&inner, later, attr.send_ops_flags);
        let asked = |flag: ffi::ibv_qp_create_send_ops_flags| attr.send_ops_flags & u64::from(flag.0) != 0;
        if !asked(ffi::ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_FLUSH) {
            (&raw mut (*later).wr_flush).cast::<usize>().write(NO_FUNCTION);
        }
        if !asked(ffi::ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_ATOMIC_WRITE) {
            (&raw mut (*later).qp.wr_atomic_write).cast::<usize>().write(NO_FUNCTION);
        }
        inner.output("create_qp_ex: cap", cap);
        qp.cast()
    }
}

fn is_xrc_receiver(attr: &ffi::ibv_qp_init_attr_ex) -> bool {
    attr.comp_mask & ffi::ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_XRCD.0 != 0
}

/// The attributes that the mask selects.
///
/// # Safety
///
/// The hash key can be read.
unsafe fn arguments_ex(attr: &ffi::ibv_qp_init_attr_ex) -> Vec<(&'static str, u64)> {
    let (attr, hash): (*const _, *const _) = (attr, &raw const attr.rx_hash_conf);
    // SAFETY: both were references, and the caller guarantees the rest.
    unsafe {
        if is_spreading(&*attr) {
            return arguments!(
                ; @attr: comp_mask, qp_type, pd, rwq_ind_tbl;
                @hash: rx_hash_function, rx_hash_key_len, rx_hash_fields_mask; ..hash_key(&*hash)
            );
        }
        if is_xrc_receiver(&*attr) {
            return arguments!(; @attr: comp_mask, qp_type, xrcd).to_vec();
        }
        let plain = arguments(&(*attr).cap, (*attr).qp_type);
        arguments!(; @attr: comp_mask, send_ops_flags, create_flags, max_tso_header, source_qpn; ..plain)
    }
}

/// Cannot fail. All queue pairs have room for an extended one.
pub(super) unsafe extern "C" fn ibv_qp_to_qp_ex(qp: *mut ffi::ibv_qp) -> *mut ffi::ibv_qp_ex {
    // SAFETY: objects are never freed.
    let inner = unsafe { state_of((*qp).context) }.note("qp_to_qp_ex", &[]);
    if inner.script.without.contains("qp_to_qp_ex") { std::ptr::null_mut() } else { qp.cast() }
}

requested! {
    set_functions(ffi::ibv_qp_ex, ibv_qp_create_send_ops_flags):
        wr_start wr_complete wr_abort wr_set_ud_addr wr_set_xrc_srqn wr_set_sge wr_set_sge_list wr_set_inline_data
        wr_set_inline_data_list;
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

requested! {
    set_functions_since_v44(ffi::ibv_qp_ex_since_v44, ibv_qp_create_send_ops_flags): ;
    wr_flush if IBV_QP_EX_WITH_FLUSH;
    wr_atomic_write of qp if IBV_QP_EX_WITH_ATOMIC_WRITE;
}

/// Runs `step` on the pair of a logged call.
///
/// # Safety
///
/// `qp` is a queue pair of this provider.
unsafe fn with_pair(qp: *mut ffi::ibv_qp_ex, verb: &'static str, step: impl FnOnce(&mut Pair) -> Option<&'static str>) {
    // SAFETY: objects are never freed.
    let mut inner = unsafe { state_of((*qp).qp_base.context) }.note(verb, &[]);
    if inner.exists(qp.addr(), verb)
        && let Some(violation) = inner.pairs.get_mut(&qp.addr()).and_then(step)
    {
        inner.violation(format!("{verb}: {violation}"));
    }
}

unsafe extern "C" fn wr_start(qp: *mut ffi::ibv_qp_ex) {
    let start = |pair: &mut Pair| {
        (pair.error, pair.without_data, pair.without_address) = (0, false, false);
        let fresh = std::mem::take(&mut pair.spare);
        pair.batch.replace(fresh).map(|_| "a batch was already started")
    };
    // SAFETY: only queue pairs of this provider have this function.
    unsafe { with_pair(qp, "wr_start", start) }
}

unsafe extern "C" fn wr_abort(qp: *mut ffi::ibv_qp_ex) {
    let abort = |pair: &mut Pair| {
        let Some(batch) = pair.batch.take() else { return Some("no batch was started") };
        pair.spare = batch;
        pair.spare.clear();
        None
    };
    // SAFETY: only queue pairs of this provider have this function.
    unsafe { with_pair(qp, "wr_abort", abort) }
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
        let (without_data, without_address, error) = (pair.without_data, pair.without_address, pair.error);
        let Some(mut batch) = pair.batch.take() else {
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

/// Starts a request of the batch; `has_data` if its data comes next.
///
/// # Safety
///
/// `qp` is a queue pair of this provider.
unsafe fn begin(qp: *mut ffi::ibv_qp_ex, verb: &'static str, code: opcode, request: Posted, has_data: bool) {
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

/// The functions that start a request, and the parts of the request.
macro_rules! operations {
    (
        $has_data:literal:
        $($name:ident($qp:ident $(, $arg:ident: $Type:ty)*) $opcode:ident |$of:ident| $request:block)*
    ) => { $(
        unsafe extern "C" fn $name($qp: *mut ffi::ibv_qp_ex $(, $arg: $Type)*) {
            // SAFETY: only queue pairs of this provider have this function; what the request points to can be read.
            unsafe {
                let mut $of = Posted::default();
                $request
                begin($qp, stringify!($name), opcode::$opcode, $of, $has_data);
            }
        }
    )* };
}

operations! { true:
    wr_send(qp) IBV_WR_SEND |_request| {}
    wr_send_imm(qp, imm_data: u32) IBV_WR_SEND_WITH_IMM |request| { request.imm_data = Some(u32::from_be(imm_data)); }
    wr_rdma_write(qp, rkey: u32, remote_addr: u64) IBV_WR_RDMA_WRITE |request| {
        (request.rkey, request.remote_addr) = (rkey, remote_addr);
    }
    wr_rdma_write_imm(qp, rkey: u32, remote_addr: u64, imm_data: u32) IBV_WR_RDMA_WRITE_WITH_IMM |request| {
        (request.rkey, request.remote_addr) = (rkey, remote_addr);
        request.imm_data = Some(u32::from_be(imm_data));
    }
    wr_rdma_read(qp, rkey: u32, remote_addr: u64) IBV_WR_RDMA_READ |request| {
        (request.rkey, request.remote_addr) = (rkey, remote_addr);
    }
    wr_atomic_cmp_swp(qp, rkey: u32, remote_addr: u64, compare: u64, swap: u64) IBV_WR_ATOMIC_CMP_AND_SWP |request| {
        (request.rkey, request.remote_addr, request.operands) = (rkey, remote_addr, (compare, swap));
    }
    wr_atomic_fetch_add(qp, rkey: u32, remote_addr: u64, add: u64) IBV_WR_ATOMIC_FETCH_AND_ADD |request| {
        (request.rkey, request.remote_addr, request.operands) = (rkey, remote_addr, (add, 0));
    }
    wr_send_inv(qp, invalidate_rkey: u32) IBV_WR_SEND_WITH_INV |request| {
        request.invalidate_rkey = Some(invalidate_rkey);
    }
    wr_send_tso(qp, header: *mut c_void, length: u16, mss: u16) IBV_WR_TSO |request| {
        if !state_of((*qp).qp_base.context).is_quiet() {
            request.segments = Some((read_bytes(header, length.into()), mss));
        }
    }
}

operations! { false:
    wr_local_inv(qp, invalidate_rkey: u32) IBV_WR_LOCAL_INV |request| {
        request.invalidate_rkey = Some(invalidate_rkey);
    }
    wr_bind_mw(qp, mw: *mut ffi::ibv_mw, rkey: u32, info: *const ffi::ibv_mw_bind_info) IBV_WR_BIND_MW |request| {
        let mut inner = state_of((*qp).qp_base.context).lock();
        inner.exists(mw.addr(), "wr_bind_mw");
        inner.exists((*info).mr.addr(), "wr_bind_mw");
        request.bind = Some(bind_of(mw, rkey, &*info));
    }
    wr_atomic_write(qp, rkey: u32, remote_addr: u64, value: *const c_void) IBV_WR_ATOMIC_WRITE |request| {
        request.atomic = Some(value.cast::<[u8; 8]>().read());
        (request.rkey, request.remote_addr, request.length) = (rkey, remote_addr, 8);
    }
    wr_flush(qp, rkey: u32, remote_addr: u64, length: usize, placement: u8, level: u8) IBV_WR_FLUSH |request| {
        (request.rkey, request.remote_addr) = (rkey, remote_addr);
        request.flush = Some((length as u64, placement, level));
    }
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
        state_of((*qp).qp_base.context).lock().exists(ah.addr(), "wr_set_ud_addr");
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

/// The functions that set the data of the batch's last request: what a faulty driver does with it, whether it fits, and
/// what is stored.
macro_rules! data {
    ($(
        $name:ident($qp:ident, $($arg:ident: $Type:ty),+)
        |$pair:ident| $fault:expr => $what:literal, $fits:expr, |$request:ident| $fill:block
    )+) => { $(
        unsafe extern "C" fn $name($qp: *mut ffi::ibv_qp_ex, $($arg: $Type),+) {
            // SAFETY: only queue pairs of this provider have this function, and the data can be read.
            unsafe {
                let quiet = state_of((*$qp).qp_base.context).is_quiet();
                with_pair($qp, stringify!($name), |$pair| {
                    if !std::mem::take(&mut $pair.without_data) {
                        return Some("no request is open for the data");
                    }
                    if $fault {
                        return Some($what);
                    }
                    if !$fits {
                        $pair.error = libc::EINVAL;
                    } else if let (false, Some($request)) = (quiet, $pair.batch.as_mut().and_then(|it| it.last_mut())) {
                        $fill
                    }
                    None
                });
            }
        }
    )+ };
}

data! {
    wr_set_sge(qp, lkey: u32, addr: u64, length: u32)
        |pair| false => "", pair.cap.max_send_sge > 0, |request|
    {
        request.entries.push((lkey, addr, length));
        request.length = length;
    }
    wr_set_sge_list(qp, count: usize, list: *const ffi::ibv_sge)
        |pair| count == 0 && list.addr() < 4096 && pair.reads_first => "the driver reads a missing entry",
        count <= pair.cap.max_send_sge as usize, |request|
    {
        let list = slice_of(list, count);
        request.entries.extend(list.iter().map(|sge| (sge.lkey, sge.addr, sge.length)));
        request.length = list.iter().map(|sge| sge.length).sum();
    }
    wr_set_inline_data(qp, addr: *mut c_void, length: usize)
        |pair| pair.overruns(length) => "the driver copies more than it has space for",
        length <= pair.cap.max_inline_data as usize, |request|
    {
        request.inline = Some(read_bytes(addr, length));
        request.length = length as u32;
    }
    wr_set_inline_data_list(qp, count: usize, list: *const ffi::ibv_data_buf)
        |pair| pair.overruns(length_of(list, count)) => "the driver copies more than it has space for",
        length_of(list, count) <= pair.cap.max_inline_data as usize, |request|
    {
        let bytes = slice_of(list, count).iter().flat_map(|piece| read_bytes(piece.addr, piece.length));
        request.inline = Some(bytes.collect());
        request.length = length_of(list, count) as u32;
    }
}

/// # Safety
///
/// The pieces can be read.
unsafe fn length_of(list: *const ffi::ibv_data_buf, count: usize) -> usize {
    // SAFETY: guaranteed by the caller.
    unsafe { slice_of(list, count) }.iter().map(|piece| piece.length).sum()
}
