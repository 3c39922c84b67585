//! Completion queues of the extended verbs: a cursor, and one reader for each requested field.

use libc::c_int;
use rdma_mummy_sys as ffi;

use super::calls::Completion;
use super::completion::{queue_of, set_up};
use super::device::state_of;
use super::domain;
use super::state::Queue;
use super::stub::{forever, requested, stubs};

stubs! {
    fn create_cq_ex(context: *mut ffi::ibv_context, attr: *mut ffi::ibv_cq_init_attr_ex) -> *mut ffi::ibv_cq_ex
        [; @attr: cqe, channel, wc_flags, comp_mask, flags, parent_domain] |inner|
    {
        let attr = &*attr;
        let cq = forever::<ffi::ibv_cq_ex>();
        let in_domain = attr.comp_mask & ffi::ibv_cq_init_attr_mask::IBV_CQ_INIT_ATTR_MASK_PD.0 != 0;
        let allocator = if in_domain { domain::allocator_of(&inner, attr.parent_domain) } else { None };
        // The program's allocator is called without the lock, because it may read the log.
        drop(inner);
        if let Some(allocator) = allocator
            && !domain::take_memory(allocator, cq.addr(), context)
        {
            return std::ptr::null_mut();
        }
        let mut inner = state_of(context).lock();
        set_up(&mut inner, context, cq.cast(), attr.cqe as c_int, attr.cq_context, attr.channel);
        if in_domain {
            inner.depends(cq.addr(), attr.parent_domain.addr());
        }
        set_functions(&inner, cq, attr.wc_flags);
        cq
    }

    fn start_poll(cq: *mut ffi::ibv_cq_ex, _attr: *mut ffi::ibv_poll_cq_attr) -> c_int [] |inner| {
        let Some(queue) = queue_of(&mut inner, cq.addr(), "start_poll") else { return libc::EINVAL };
        let twice = queue.polling;
        queue.polling = advance(queue, cq);
        let found = queue.polling;
        inner.output("start_poll: wr_id", &raw mut (*cq).wr_id);
        inner.output("start_poll: status", &raw mut (*cq).status);
        if twice {
            inner.violation("a second poll was started on a queue");
        }
        if found { 0 } else { libc::ENOENT }
    }

    fn next_poll(cq: *mut ffi::ibv_cq_ex) -> c_int [] |inner| {
        let Some(queue) = queue_of(&mut inner, cq.addr(), "next_poll") else { return libc::EINVAL };
        let polling = queue.polling;
        let found = advance(queue, cq);
        if !polling {
            inner.violation("next_poll without a poll");
        }
        if found { 0 } else { libc::ENOENT }
    }

    fn end_poll(cq: *mut ffi::ibv_cq_ex) -> () [] |inner| {
        let Some(queue) = queue_of(&mut inner, cq.addr(), "end_poll") else { return };
        queue.current = None;
        if !std::mem::take(&mut queue.polling) {
            inner.violation("end_poll without a poll");
        }
    }
}

requested! {
    set_functions(ffi::ibv_cq_ex, ibv_create_cq_wc_flags):
        start_poll next_poll end_poll read_opcode read_vendor_err read_wc_flags;
    read_byte_len if IBV_WC_EX_WITH_BYTE_LEN;
    read_imm_data if IBV_WC_EX_WITH_IMM;
    read_qp_num if IBV_WC_EX_WITH_QP_NUM;
    read_src_qp if IBV_WC_EX_WITH_SRC_QP;
    read_slid if IBV_WC_EX_WITH_SLID;
    read_sl if IBV_WC_EX_WITH_SL;
    read_dlid_path_bits if IBV_WC_EX_WITH_DLID_PATH_BITS;
    read_completion_ts if IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
    read_cvlan if IBV_WC_EX_WITH_CVLAN;
    read_flow_tag if IBV_WC_EX_WITH_FLOW_TAG;
    read_completion_wallclock_ns if IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
    read_tm_info if IBV_WC_EX_WITH_TM_INFO;
}

/// Moves the cursor; returns whether there was a completion.
///
/// # Safety
///
/// `cq` is a queue of this provider.
unsafe fn advance(queue: &mut Queue, cq: *mut ffi::ibv_cq_ex) -> bool {
    queue.current = queue.completions.pop_front();
    if let Some(current) = &queue.current {
        // SAFETY: objects are never freed.
        unsafe {
            (*cq).wr_id = current.wr_id;
            (*cq).status = ffi::ibv_wc_status(current.status);
        }
    }
    queue.current.is_some()
}

/// The completion at the cursor; without one, zeros and a violation.
///
/// # Safety
///
/// `cq` is a queue of this provider.
unsafe fn current(cq: *mut ffi::ibv_cq_ex, reader: &'static str) -> Completion {
    // SAFETY: objects are never freed.
    let mut inner = unsafe { state_of((*cq).context) }.note(reader, &[]);
    let current = queue_of(&mut inner, cq.addr(), reader).and_then(|queue| queue.current);
    let mut completion = current.unwrap_or_else(|| {
        inner.violation(format!("{reader} without a completion"));
        Completion::default()
    });
    // SAFETY: the completion consists of integers.
    unsafe { inner.output(reader, &raw mut completion) };
    completion
}

unsafe extern "C" fn read_tm_info(cq: *mut ffi::ibv_cq_ex, info: *mut ffi::ibv_wc_tm_info) {
    // SAFETY: only queues of this provider have this function, and `info` can be written.
    unsafe {
        let wc = current(cq, "read_tm_info");
        info.write(ffi::ibv_wc_tm_info { tag: wc.tm_tag, priv_: wc.tm_private });
    }
}

macro_rules! readers {
    ($($name:ident -> $Type:ty = $value:expr;)+) => { $(
        unsafe extern "C" fn $name(cq: *mut ffi::ibv_cq_ex) -> $Type {
            let read: fn(Completion) -> $Type = $value;
            // SAFETY: only queues of this provider have these functions.
            read(unsafe { current(cq, stringify!($name)) })
        }
    )+ };
}

readers! {
    read_opcode -> ffi::ibv_wc_opcode = |wc| ffi::ibv_wc_opcode(wc.opcode);
    read_vendor_err -> u32 = |wc| wc.vendor_err;
    read_wc_flags -> libc::c_uint = |wc| wc.wc_flags;
    read_byte_len -> u32 = |wc| wc.byte_len;
    read_imm_data -> u32 = |wc| wc.imm_data.to_be();
    read_qp_num -> u32 = |wc| wc.qp_num;
    read_src_qp -> u32 = |wc| wc.src_qp;
    read_slid -> u32 = |wc| wc.slid;
    read_sl -> u8 = |wc| wc.sl;
    read_dlid_path_bits -> u8 = |wc| wc.dlid_path_bits;
    read_completion_ts -> u64 = |wc| wc.completion_ts;
    read_cvlan -> u16 = |wc| wc.cvlan;
    read_flow_tag -> u32 = |wc| wc.flow_tag;
    read_completion_wallclock_ns -> u64 = |wc| wc.wallclock_ns;
}
