//! Memory windows.

use libc::c_int;
use rdma_mummy_sys as ffi;

use super::calls::{Completion, Kind};
use super::completion::complete;
use super::device::state_of;
use super::driver::Fault;
use super::objects::{destroy_object, forever};

pub(super) fn fill_in(table: &mut ffi::verbs_context, has: impl Fn(&str) -> bool) {
    table.context.ops.alloc_mw = has("alloc_mw").then_some(alloc_mw);
    table.context.ops.dealloc_mw = has("dealloc_mw").then_some(dealloc_mw);
    table.context.ops.bind_mw = has("bind_mw").then_some(bind_mw);
}

unsafe extern "C" fn alloc_mw(pd: *mut ffi::ibv_pd, type_: ffi::ibv_mw_type) -> *mut ffi::ibv_mw {
    // SAFETY: the domain is one of this provider's, and the window is new.
    unsafe {
        let (mut inner, failure) = state_of((*pd).context).enter("alloc_mw", &[("type", type_.0.into())]);
        if let Some(failure) = failure {
            return failure.null();
        }
        let mw = forever::<ffi::ibv_mw>();
        (*mw).context = (*pd).context;
        (*mw).pd = pd;
        (*mw).handle = inner.handle();
        (*mw).rkey = inner.handle() << 8 | 0xff;
        inner.output("alloc_mw: rkey", &raw mut (*mw).rkey);
        (*mw).type_ = type_;
        inner.made(Kind::MemoryWindow, mw, &[pd.addr()]);
        mw
    }
}

unsafe extern "C" fn dealloc_mw(mw: *mut ffi::ibv_mw) -> c_int {
    // SAFETY: objects are never freed.
    unsafe { destroy_object((*mw).context, "dealloc_mw", Kind::MemoryWindow, mw.addr()) }
}

unsafe extern "C" fn bind_mw(qp: *mut ffi::ibv_qp, mw: *mut ffi::ibv_mw, bind: *mut ffi::ibv_mw_bind) -> c_int {
    // SAFETY: objects are never freed, and the binding can be read.
    unsafe {
        let bind = &*bind;
        let info = &bind.bind_info;
        let arguments = [
            ("qp_num", (*qp).qp_num.into()),
            ("wr_id", bind.wr_id),
            ("flags", bind.send_flags.into()),
            ("mr", info.mr.addr() as u64),
            ("addr", info.addr),
            ("length", info.length),
            ("access", info.mw_access_flags.into()),
        ];
        let (mut inner, failure) = state_of((*qp).context).enter("bind_mw", &arguments);
        if let Some(failure) = failure {
            return failure.code();
        }
        if info.mr.is_null() && inner.script.has(Fault::NullRegion) {
            inner.violation("bind_mw: the driver dereferences a null region");
        }
        if (*qp).context != (*mw).context {
            inner.violation("a window was bound by a queue pair of another context");
        }
        if !inner.is_live(Kind::QueuePair, qp.addr(), "bind_mw")
            || !inner.is_live(Kind::MemoryWindow, mw.addr(), "bind_mw")
            || !(info.mr.is_null() || inner.is_live(Kind::MemoryRegion, info.mr.addr(), "bind_mw"))
        {
            return libc::EINVAL;
        }
        // A region with a bound window cannot be deregistered.
        let parents = [(*mw).pd.addr(), info.mr.addr()];
        inner.made(Kind::MemoryWindow, mw, if info.mr.is_null() { &parents[..1] } else { &parents });
        (*mw).rkey = ffi::ibv_inc_rkey((*mw).rkey);
        if bind.send_flags & ffi::ibv_send_flags::IBV_SEND_SIGNALED.0 != 0 {
            let opcode = ffi::ibv_wc_opcode::IBV_WC_BIND_MW.0;
            let completion = Completion { wr_id: bind.wr_id, opcode, qp_num: (*qp).qp_num, ..Completion::default() };
            complete(&mut inner, (*qp).send_cq.addr(), completion);
        }
    }
    0
}
