//! Queue pairs: creation, changes, queries, destruction.

use libc::c_int;
use rdma_mummy_sys as ffi;
use rdma_mummy_sys::ibv_qp_attr_mask as mask;

use super::async_events;
use super::calls::{Completion, Kind, Posted};
use super::completion::complete;
use super::device::state_of;
use super::driver::Fault;
use super::objects::{destroy_object, forever};
use super::state::{Inner, Pair};

pub(super) unsafe extern "C" fn create_qp(pd: *mut ffi::ibv_pd, attr: *mut ffi::ibv_qp_init_attr) -> *mut ffi::ibv_qp {
    // SAFETY: the domain is one of this provider's, the attributes can be read, and the queue pair is new.
    unsafe {
        let arguments = arguments(&(*attr).cap, (*attr).qp_type);
        let (mut inner, failure) = state_of((*pd).context).enter("create_qp", &arguments);
        if let Some(failure) = failure {
            return failure.null();
        }
        let qp = forever::<ffi::ibv_qp_ex_since_v44>().cast::<ffi::ibv_qp>();
        set_up(&mut inner, qp, pd, &*attr);
        inner.output("create_qp: cap", &raw mut (*attr).cap);
        qp
    }
}

pub(super) fn arguments(cap: &ffi::ibv_qp_cap, qp_type: ffi::ibv_qp_type) -> [(&'static str, u64); 6] {
    [
        ("qp_type", qp_type.0.into()),
        ("max_send_wr", cap.max_send_wr.into()),
        ("max_recv_wr", cap.max_recv_wr.into()),
        ("max_send_sge", cap.max_send_sge.into()),
        ("max_recv_sge", cap.max_recv_sge.into()),
        ("max_inline_data", cap.max_inline_data.into()),
    ]
}

/// Initializes the fields of every queue pair.
///
/// # Safety
///
/// `qp` is new and has space for an extended queue pair; the objects that it depends on are alive.
pub(super) unsafe fn set_up(
    inner: &mut Inner,
    qp: *mut ffi::ibv_qp,
    pd: *mut ffi::ibv_pd,
    attr: &ffi::ibv_qp_init_attr,
) {
    // SAFETY: the queue pair is new, and the domain is alive.
    unsafe {
        (*qp).context = (*pd).context;
        (*qp).qp_context = attr.qp_context;
        (*qp).pd = pd;
        (*qp).send_cq = attr.send_cq;
        (*qp).recv_cq = attr.recv_cq;
        (*qp).srq = attr.srq;
        (*qp).qp_num = inner.handle();
        (*qp).qp_type = attr.qp_type;
        (*qp).state = ffi::ibv_qp_state::IBV_QPS_RESET;
        for cq in [attr.send_cq, attr.recv_cq] {
            if cq.is_null() {
                // An XRC initiator receives nothing.
                if attr.qp_type != ffi::ibv_qp_type::IBV_QPT_XRC_SEND || cq == attr.send_cq {
                    inner.violation("a queue pair was created without a completion queue");
                }
            } else if (*cq).context != (*pd).context {
                inner.violation("a queue pair was created with a completion queue of another context");
            }
        }
    }
    let mut parents = vec![pd.addr(), attr.send_cq.addr(), attr.recv_cq.addr()];
    if !attr.srq.is_null() && inner.is_live(Kind::SharedReceiveQueue, attr.srq.addr(), "create_qp") {
        parents.push(attr.srq.addr());
    }
    inner.made(Kind::QueuePair, qp, &parents);
    // SAFETY: as above.
    unsafe {
        inner.output("a queue pair: number", &raw mut (*qp).qp_num);
        inner.output("a queue pair: state", &raw mut (*qp).state);
    }
    let room = || Vec::<Posted>::with_capacity(attr.cap.max_send_wr as usize + 1);
    let pair = Pair {
        cap: attr.cap,
        signal_all: attr.sq_sig_all != 0,
        receives: room().into(),
        srq: attr.srq.addr(),
        batch: None,
        spare: room(),
        without_data: false,
        without_address: false,
        error: 0,
        copies_any_length: inner.script.has(Fault::InlineOfAnyLength),
    };
    inner.pairs.insert(qp.addr(), pair);
}

pub(super) unsafe extern "C" fn destroy_qp(qp: *mut ffi::ibv_qp) -> c_int {
    // SAFETY: objects are never freed.
    unsafe {
        let context = (*qp).context;
        let code = destroy_object(context, "destroy_qp", Kind::QueuePair, qp.addr());
        if code == 0 {
            let mut inner = state_of(context).lock();
            inner.receive_pairs.remove(&qp.addr());
            if inner.pairs.remove(&qp.addr()).is_some_and(|pair| pair.batch.is_some()) {
                inner.violation("a queue pair was destroyed while a batch was open");
            }
            let polled = [(*qp).send_cq, (*qp).recv_cq]
                .iter()
                .any(|cq| inner.queues.get(&cq.addr()).is_some_and(|queue| queue.polling));
            if polled {
                // Drivers wait for the lock of the poll, or free the poll's memory without it.
                inner.violation("a queue pair was destroyed while its completion queue was polled");
            }
            drop(inner);
            async_events::destroyed(state_of(context), qp.addr());
        }
        code
    }
}

pub(super) unsafe extern "C" fn modify_qp(
    qp: *mut ffi::ibv_qp,
    attr: *mut ffi::ibv_qp_attr,
    attr_mask: c_int,
) -> c_int {
    // SAFETY: objects are never freed, and the attributes can be read.
    unsafe {
        let attr = &*attr;
        let has = |bit: mask| attr_mask as u32 & bit.0 != 0;
        let port = if has(mask::IBV_QP_PORT) { attr.port_num } else { 0 };
        // The index is valid only if the mask has an address.
        let sgid_index = if has(mask::IBV_QP_AV) { attr.ah_attr.grh.sgid_index } else { 0 };
        let arguments = [
            ("mask", attr_mask as u64),
            ("state", attr.qp_state.0.into()),
            ("port", port.into()),
            ("sgid_index", sgid_index.into()),
        ];
        let (mut inner, failure) = state_of((*qp).context).enter("modify_qp", &arguments);
        if let Some(failure) = failure {
            return failure.code();
        }
        if !inner.is_live(Kind::QueuePair, qp.addr(), "modify_qp") {
            return libc::EINVAL;
        }
        inner.qp_attr = Some(*attr);
        if attr_mask as u32 & mask::IBV_QP_STATE.0 != 0 {
            (*qp).state = attr.qp_state;
            if (*qp).qp_num == 0 && attr.qp_state == ffi::ibv_qp_state::IBV_QPS_RTR {
                // The target of a dynamic connection.
                (*qp).qp_num = inner.handle();
            }
            flush(&mut inner, qp);
        }
    }
    0
}

/// The effect of a transition on outstanding receives: in the error state they complete; in RESET they are dropped.
///
/// # Safety
///
/// `qp` is alive.
unsafe fn flush(inner: &mut Inner, qp: *mut ffi::ibv_qp) {
    // SAFETY: guaranteed by the caller.
    let (state, qp_num, recv_cq) = unsafe { ((*qp).state, (*qp).qp_num, (*qp).recv_cq) };
    if !inner.facts.flushes || !matches!(state, ffi::ibv_qp_state::IBV_QPS_ERR | ffi::ibv_qp_state::IBV_QPS_RESET) {
        return;
    }
    let receives = inner.pairs.get_mut(&qp.addr()).map(|pair| std::mem::take(&mut pair.receives)).unwrap_or_default();
    if state == ffi::ibv_qp_state::IBV_QPS_ERR {
        let status = ffi::ibv_wc_status::IBV_WC_WR_FLUSH_ERR.0;
        for Posted { wr_id, .. } in receives {
            complete(inner, recv_cq.addr(), Completion { wr_id, status, qp_num, ..Completion::default() });
        }
    }
}

pub(super) unsafe extern "C" fn query_qp(
    qp: *mut ffi::ibv_qp,
    attr: *mut ffi::ibv_qp_attr,
    attr_mask: c_int,
    init: *mut ffi::ibv_qp_init_attr,
) -> c_int {
    // SAFETY: objects are never freed, and both structs can be written.
    unsafe {
        let (mut inner, failure) = state_of((*qp).context).enter("query_qp", &[("mask", attr_mask as u64)]);
        if let Some(failure) = failure {
            return failure.code();
        }
        if !inner.is_live(Kind::QueuePair, qp.addr(), "query_qp") {
            return libc::EINVAL;
        }
        if inner.facts.fills {
            *attr = inner.facts.qp;
            (*attr).qp_state = inner.facts.query_state.map_or((*qp).state, ffi::ibv_qp_state);
            (*init).qp_type = inner.facts.query_type.map_or((*qp).qp_type, ffi::ibv_qp_type);
            if let Some(pair) = inner.pairs.get(&qp.addr()) {
                (*init).cap = pair.cap;
                (*init).sq_sig_all = pair.signal_all.into();
            }
        }
        inner.output("query_qp: attr", attr);
        inner.output("query_qp: cap", &raw mut (*init).cap);
        inner.output("query_qp: type", &raw mut (*init).qp_type);
        inner.output("query_qp: sq_sig_all", &raw mut (*init).sq_sig_all);
    }
    0
}
