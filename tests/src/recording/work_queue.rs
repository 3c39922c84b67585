//! Work queues, tables of them, and queue pairs that distribute packets to these.

use std::slice;

use libc::c_int;
use rdma_mummy_sys as ffi;
use rdma_mummy_sys::ibv_qp_init_attr_mask as mask;
use rdma_mummy_sys::ibv_wq_attr_mask as wq_mask;

use super::device::state_of;
use super::receives::each_receive;
use super::state::Inner;
use super::stub::{endings, stubs};

stubs! {
    fn create_wq(context: *mut ffi::ibv_context, attr: *mut ffi::ibv_wq_init_attr) -> *mut ffi::ibv_wq
        [; @attr: wq_context, wq_type, max_wr, max_sge, pd, cq, comp_mask, create_flags] |inner|
    {
        let (pd, cq) = ((*attr).pd, (*attr).cq);
        if (*pd).context != context || (*cq).context != context {
            inner.violation("a work queue was created with objects of another context");
        }
        let wq = inner.create::<ffi::ibv_wq>(context, &[pd.addr(), cq.addr()]);
        ((*wq).pd, (*wq).cq, (*wq).wq_num) = (pd, cq, inner.handle());
        inner.output("create_wq: number", &raw mut (*wq).wq_num);
        inner.output("create_wq: state", &raw mut (*wq).state);
        inner.output("create_wq: attr", (&raw mut (*attr).max_wr).cast::<[u32; 2]>());
        (*wq).wq_type = (*attr).wq_type;
        (*wq).post_recv = (!inner.script.without.contains("wq_post_recv")).then_some(post_wq_recv);
        wq
    }

    fn modify_wq(wq: *mut ffi::ibv_wq, attr: *mut ffi::ibv_wq_attr) -> c_int
        [; @attr: attr_mask, wq_state, curr_wq_state, flags, flags_mask] |inner|
    {
        let has = |bit: wq_mask| (*attr).attr_mask & bit.0 != 0;
        if has(wq_mask::IBV_WQ_ATTR_CURR_STATE) && (*attr).curr_wq_state != (*wq).state {
            return inner.refuse("modify_wq", libc::EINVAL);
        }
        if has(wq_mask::IBV_WQ_ATTR_STATE) {
            (*wq).state = (*attr).wq_state;
        }
        0
    }

    fn create_rwq_ind_table(context: *mut ffi::ibv_context, attr: *mut ffi::ibv_rwq_ind_table_init_attr)
        -> *mut ffi::ibv_rwq_ind_table
        [; @attr: log_ind_tbl_size, comp_mask; ..queues(attr).iter().map(|wq| ("wq", wq.addr() as u64))] |inner|
    {
        let queues: Vec<usize> = queues(attr).iter().map(|wq| wq.addr()).collect();
        for &queue in &queues {
            inner.exists(queue, "create_rwq_ind_table");
        }
        let table = inner.create::<ffi::ibv_rwq_ind_table>(context, &queues);
        (*table).ind_tbl_num = inner.handle() as c_int;
        table
    }
}

endings! {
    destroy_wq(ffi::ibv_wq);
    destroy_rwq_ind_table(ffi::ibv_rwq_ind_table);
}

/// # Safety
///
/// The attributes can be read with the list.
unsafe fn queues<'a>(attr: *const ffi::ibv_rwq_ind_table_init_attr) -> &'a [*mut ffi::ibv_wq] {
    // SAFETY: guaranteed by the caller.
    unsafe { slice::from_raw_parts((*attr).ind_tbl, 1 << (*attr).log_ind_tbl_size) }
}

unsafe extern "C" fn post_wq_recv(
    wq: *mut ffi::ibv_wq,
    wr: *mut ffi::ibv_recv_wr,
    bad_wr: *mut *mut ffi::ibv_recv_wr,
) -> c_int {
    // SAFETY: objects are never freed; the requests form a list that ends, with their entries, and `bad_wr` can be
    // written.
    unsafe {
        let call = state_of((*wq).context).enter("post_wq_recv", &[("wq_num", (*wq).wq_num.into())]);
        each_receive(call, wq.addr(), false, wr, bad_wr, |_inner, _posted, _entries| Ok(()))
    }
}

/// Whether the attributes describe a queue pair without queues.
pub(super) fn is_spreading(attr: &ffi::ibv_qp_init_attr_ex) -> bool {
    attr.comp_mask & mask::IBV_QP_INIT_ATTR_IND_TABLE.0 != 0
}

/// The bytes of the hash key.
///
/// # Safety
///
/// The key can be read.
pub(super) unsafe fn hash_key(hash: &ffi::ibv_rx_hash_conf) -> impl Iterator<Item = (&'static str, u64)> {
    // SAFETY: guaranteed by the caller.
    (0..usize::from(hash.rx_hash_key_len)).map(|at| ("key", unsafe { *hash.rx_hash_key.add(at) }.into()))
}

/// `ibv_create_qp_ex` for a queue pair without queues.
///
/// # Safety
///
/// The context is one of this provider's, and all objects of the attributes can be read.
pub(super) unsafe fn create_spreading_qp(
    inner: &mut Inner,
    context: *mut ffi::ibv_context,
    attr: &ffi::ibv_qp_init_attr_ex,
) -> *mut ffi::ibv_qp {
    let cap = &attr.cap;
    let depths = [cap.max_send_wr, cap.max_recv_wr, cap.max_send_sge, cap.max_recv_sge, cap.max_inline_data];
    if depths != [0; 5] || !attr.send_cq.is_null() || !attr.recv_cq.is_null() || !attr.srq.is_null() {
        inner.violation("a queue pair over work queues was requested with queues of its own");
    }
    inner.exists(attr.rwq_ind_tbl.addr(), "create_qp_ex");
    let parents = [attr.pd.addr(), attr.rwq_ind_tbl.addr()];
    let qp = inner.create::<ffi::ibv_qp_ex>(context, &parents).cast::<ffi::ibv_qp>();
    // SAFETY: the queue pair is new.
    unsafe {
        ((*qp).qp_context, (*qp).pd, (*qp).qp_type) = (attr.qp_context, attr.pd, attr.qp_type);
        (*qp).qp_num = inner.handle();
        inner.output("an RSS queue pair: number", &raw mut (*qp).qp_num);
        inner.output("an RSS queue pair: state", &raw mut (*qp).state);
    }
    qp
}
