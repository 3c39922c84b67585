//! Work queues, tables of them, and queue pairs that distribute packets to these.

use std::slice;

use libc::c_int;
use rdma_mummy_sys as ffi;
use rdma_mummy_sys::ibv_qp_init_attr_mask as mask;
use rdma_mummy_sys::ibv_wq_attr_mask as wq_mask;

use super::calls::Kind;
use super::device::state_of;
use super::objects::{destroy_object, forever};
use super::receives::each_receive;

/// Adds the verbs of this file to the extended table.
pub(super) fn fill_in(table: &mut ffi::verbs_context, has: impl Fn(&str) -> bool) {
    table.create_wq = has("create_wq").then_some(create_wq);
    table.modify_wq = has("modify_wq").then_some(modify_wq);
    table.destroy_wq = has("destroy_wq").then_some(destroy_wq);
    table.create_rwq_ind_table = has("create_rwq_ind_table").then_some(create_rwq_ind_table);
    table.destroy_rwq_ind_table = has("destroy_rwq_ind_table").then_some(destroy_rwq_ind_table);
}

pub(super) unsafe extern "C" fn create_wq(
    context: *mut ffi::ibv_context,
    attr: *mut ffi::ibv_wq_init_attr,
) -> *mut ffi::ibv_wq {
    // SAFETY: the context is one of this provider's, the attributes can be read, and the queue is new.
    unsafe {
        let ffi::ibv_wq_init_attr { wq_context, wq_type, max_wr, max_sge, pd, cq, comp_mask, create_flags } = *attr;
        let arguments = [
            ("wq_context", wq_context.addr() as u64),
            ("wq_type", wq_type.0.into()),
            ("max_wr", max_wr.into()),
            ("max_sge", max_sge.into()),
            ("pd", pd.addr() as u64),
            ("cq", cq.addr() as u64),
            ("comp_mask", comp_mask.into()),
            ("create_flags", create_flags.into()),
        ];
        let (mut inner, failure) = state_of(context).enter("create_wq", &arguments);
        if let Some(failure) = failure {
            return failure.null();
        }
        if (*pd).context != context || (*cq).context != context {
            inner.violation("a work queue was created with objects of another context");
        }
        let wq = forever::<ffi::ibv_wq>();
        (*wq).context = context;
        (*wq).pd = pd;
        (*wq).cq = cq;
        (*wq).wq_num = inner.handle();
        (*wq).state = ffi::ibv_wq_state::IBV_WQS_RESET;
        inner.output("create_wq: number", &raw mut (*wq).wq_num);
        inner.output("create_wq: state", &raw mut (*wq).state);
        inner.output("create_wq: attr", (&raw mut (*attr).max_wr).cast::<[u32; 2]>());
        (*wq).wq_type = wq_type;
        (*wq).post_recv = (!inner.script.without.contains("wq_post_recv")).then_some(post_wq_recv);
        inner.made(Kind::WorkQueue, wq, &[pd.addr(), cq.addr()]);
        wq
    }
}

pub(super) unsafe extern "C" fn modify_wq(wq: *mut ffi::ibv_wq, attr: *mut ffi::ibv_wq_attr) -> c_int {
    // SAFETY: objects are never freed, and the attributes can be read.
    unsafe {
        let ffi::ibv_wq_attr { attr_mask, wq_state, curr_wq_state, flags, flags_mask } = *attr;
        let arguments = [
            ("attr_mask", attr_mask.into()),
            ("wq_state", wq_state.0.into()),
            ("curr_wq_state", curr_wq_state.0.into()),
            ("flags", flags.into()),
            ("flags_mask", flags_mask.into()),
        ];
        let (mut inner, failure) = state_of((*wq).context).enter("modify_wq", &arguments);
        if let Some(failure) = failure {
            return failure.code();
        }
        if !inner.is_live(Kind::WorkQueue, wq.addr(), "modify_wq") {
            return libc::EINVAL;
        }
        if attr_mask & wq_mask::IBV_WQ_ATTR_CURR_STATE.0 != 0 && curr_wq_state != (*wq).state {
            inner.failed(libc::EINVAL);
            return libc::EINVAL;
        }
        if attr_mask & wq_mask::IBV_WQ_ATTR_STATE.0 != 0 {
            (*wq).state = wq_state;
        }
    }
    0
}

pub(super) unsafe extern "C" fn destroy_wq(wq: *mut ffi::ibv_wq) -> c_int {
    // SAFETY: objects are never freed.
    unsafe { destroy_object((*wq).context, "destroy_wq", Kind::WorkQueue, wq.addr()) }
}

unsafe extern "C" fn post_wq_recv(
    wq: *mut ffi::ibv_wq,
    wr: *mut ffi::ibv_recv_wr,
    bad_wr: *mut *mut ffi::ibv_recv_wr,
) -> c_int {
    // SAFETY: objects are never freed; the requests form a list that ends, with their entries, and `bad_wr` can be
    // written.
    unsafe {
        let (mut inner, failure) = state_of((*wq).context).enter("post_wq_recv", &[("wq_num", (*wq).wq_num.into())]);
        if !inner.is_live(Kind::WorkQueue, wq.addr(), "post_wq_recv") {
            *bad_wr = wr;
            return libc::EINVAL;
        }
        each_receive(&mut inner, false, failure, wr, bad_wr, |_inner, _posted, _entries| Ok(()))
    }
}

pub(super) unsafe extern "C" fn create_rwq_ind_table(
    context: *mut ffi::ibv_context,
    attr: *mut ffi::ibv_rwq_ind_table_init_attr,
) -> *mut ffi::ibv_rwq_ind_table {
    // SAFETY: the context is one of this provider's, the attributes can be read with the list, and the table is new.
    unsafe {
        let ffi::ibv_rwq_ind_table_init_attr { log_ind_tbl_size, ind_tbl, comp_mask } = *attr;
        let queues = slice::from_raw_parts(ind_tbl, 1 << log_ind_tbl_size);
        let mut arguments = vec![("log_ind_tbl_size", u64::from(log_ind_tbl_size)), ("comp_mask", comp_mask.into())];
        arguments.extend(queues.iter().map(|wq| ("wq", wq.addr() as u64)));
        let (mut inner, failure) = state_of(context).enter("create_rwq_ind_table", &arguments);
        if let Some(failure) = failure {
            return failure.null();
        }
        let queues: Vec<usize> = queues.iter().map(|wq| wq.addr()).collect();
        for &queue in &queues {
            inner.is_live(Kind::WorkQueue, queue, "create_rwq_ind_table");
        }
        let table = forever::<ffi::ibv_rwq_ind_table>();
        (*table).context = context;
        (*table).ind_tbl_num = inner.handle() as c_int;
        inner.made(Kind::IndirectionTable, table, &queues);
        table
    }
}

pub(super) unsafe extern "C" fn destroy_rwq_ind_table(table: *mut ffi::ibv_rwq_ind_table) -> c_int {
    // SAFETY: objects are never freed.
    unsafe { destroy_object((*table).context, "destroy_rwq_ind_table", Kind::IndirectionTable, table.addr()) }
}

/// Whether the attributes describe a queue pair without queues.
pub(super) fn is_spreading(attr: &ffi::ibv_qp_init_attr_ex) -> bool {
    attr.comp_mask & mask::IBV_QP_INIT_ATTR_IND_TABLE.0 != 0
}

/// `ibv_create_qp_ex` for a queue pair without queues.
///
/// # Safety
///
/// The context is one of this provider's, and all objects of the attributes can be read.
pub(super) unsafe fn create_spreading_qp(
    context: *mut ffi::ibv_context,
    attr: &ffi::ibv_qp_init_attr_ex,
) -> *mut ffi::ibv_qp {
    // SAFETY: guaranteed by the caller, and the queue pair is new.
    unsafe {
        let hash = attr.rx_hash_conf;
        let mut arguments = vec![
            ("comp_mask", u64::from(attr.comp_mask)),
            ("qp_type", attr.qp_type.0.into()),
            ("pd", attr.pd.addr() as u64),
            ("rwq_ind_tbl", attr.rwq_ind_tbl.addr() as u64),
            ("rx_hash_function", hash.rx_hash_function.into()),
            ("rx_hash_key_len", hash.rx_hash_key_len.into()),
            ("rx_hash_fields_mask", hash.rx_hash_fields_mask),
        ];
        arguments.extend((0..usize::from(hash.rx_hash_key_len)).map(|at| ("key", (*hash.rx_hash_key.add(at)).into())));
        let (mut inner, failure) = state_of(context).enter("create_qp_ex", &arguments);
        if let Some(failure) = failure {
            return failure.null();
        }
        let cap = &attr.cap;
        let depths = [cap.max_send_wr, cap.max_recv_wr, cap.max_send_sge, cap.max_recv_sge, cap.max_inline_data];
        if depths != [0; 5] || !attr.send_cq.is_null() || !attr.recv_cq.is_null() || !attr.srq.is_null() {
            inner.violation("a queue pair over work queues was requested with queues of its own");
        }
        inner.is_live(Kind::IndirectionTable, attr.rwq_ind_tbl.addr(), "create_qp_ex");
        let qp = forever::<ffi::ibv_qp_ex>().cast::<ffi::ibv_qp>();
        (*qp).context = context;
        (*qp).qp_context = attr.qp_context;
        (*qp).pd = attr.pd;
        (*qp).qp_num = inner.handle();
        (*qp).qp_type = attr.qp_type;
        inner.output("an RSS queue pair: number", &raw mut (*qp).qp_num);
        inner.output("an RSS queue pair: state", &raw mut (*qp).state);
        inner.made(Kind::QueuePair, qp, &[attr.pd.addr(), attr.rwq_ind_tbl.addr()]);
        qp
    }
}
