//! Queue pairs: creation, changes, queries, destruction.

use libc::c_int;
use rdma_mummy_sys as ffi;
use rdma_mummy_sys::ibv_qp_attr_mask as has;

use super::async_events;
use super::calls::{Completion, Kind, Posted};
use super::completion::complete;
use super::device::state_of;
use super::driver::Fault;
use super::state::{Inner, Pair};
use super::stub::{arguments, endings, forever, stubs};

stubs! {
    fn ibv_create_qp(pd: *mut ffi::ibv_pd, attr: *mut ffi::ibv_qp_init_attr) -> *mut ffi::ibv_qp
        [; ..arguments(&(*attr).cap, (*attr).qp_type)] |inner|
    {
        let qp = forever::<ffi::ibv_qp_ex_since_v44>().cast::<ffi::ibv_qp>();
        set_up(&mut inner, qp, pd, &*attr);
        inner.output("create_qp: cap", &raw mut (*attr).cap);
        qp
    }

    fn ibv_modify_qp(qp: *mut ffi::ibv_qp, attr: *mut ffi::ibv_qp_attr, mask: c_int) -> c_int
        [
            mask; state = (*attr).qp_state,
            port = if mask as u32 & has::IBV_QP_PORT.0 != 0 { (*attr).port_num } else { 0 },
            // The index is valid only if the mask has an address.
            sgid_index = if mask as u32 & has::IBV_QP_AV.0 != 0 { (*attr).ah_attr.grh.sgid_index } else { 0 }
        ] |inner|
    {
        inner.qp_attr = Some(*attr);
        if mask as u32 & has::IBV_QP_STATE.0 != 0 {
            (*qp).state = (*attr).qp_state;
            if (*qp).qp_num == 0 && (*qp).state == ffi::ibv_qp_state::IBV_QPS_RTR {
                // The target of a dynamic connection.
                (*qp).qp_num = inner.handle();
            }
            flush(&mut inner, qp);
        }
        0
    }

    fn ibv_query_qp(
        qp: *mut ffi::ibv_qp,
        attr: *mut ffi::ibv_qp_attr,
        mask: c_int,
        init: *mut ffi::ibv_qp_init_attr,
    ) -> c_int [mask] |inner| {
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
        0
    }
}

endings! {
    ibv_destroy_qp(ffi::ibv_qp), |context, qp| {
        let mut inner = state_of(context).lock();
        inner.receive_pairs.remove(&qp.addr());
        if inner.pairs.remove(&qp.addr()).is_some_and(|pair| pair.batch.is_some()) {
            inner.violation("a queue pair was destroyed while a batch was open");
        }
        let polled = |cq: *mut ffi::ibv_cq| inner.queues.get(&cq.addr()).is_some_and(|queue| queue.polling);
        if polled((*qp).send_cq) || polled((*qp).recv_cq) {
            // Drivers wait for the lock of the poll, or free the poll's memory without it.
            inner.violation("a queue pair was destroyed while its completion queue was polled");
        }
        drop(inner);
        async_events::destroyed(state_of(context), qp.addr());
    };
}

pub(super) fn arguments(cap: &ffi::ibv_qp_cap, qp_type: ffi::ibv_qp_type) -> [(&'static str, u64); 6] {
    arguments!(qp_type; @cap: max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data)
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
    if !attr.srq.is_null() && inner.exists(attr.srq.addr(), "create_qp") {
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
        reads_first: inner.script.has(Fault::FirstOfNone),
        copies_any_length: inner.script.has(Fault::InlineOfAnyLength),
    };
    inner.pairs.insert(qp.addr(), pair);
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
