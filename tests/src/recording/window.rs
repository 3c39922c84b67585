//! Memory windows.

use libc::c_int;
use rdma_mummy_sys as ffi;

use super::calls::{Completion, Kind};
use super::completion::complete;
use super::driver::Fault;
use super::stub::{endings, stubs};

stubs! {
    fn alloc_mw(pd: *mut ffi::ibv_pd, type_: ffi::ibv_mw_type) -> *mut ffi::ibv_mw [type_] |inner| {
        let mw = inner.create::<ffi::ibv_mw>((*pd).context, &[pd.addr()]);
        ((*mw).pd, (*mw).type_, (*mw).handle) = (pd, type_, inner.handle());
        (*mw).rkey = inner.handle() << 8 | 0xff;
        inner.output("alloc_mw: rkey", &raw mut (*mw).rkey);
        mw
    }

    fn bind_mw(qp: *mut ffi::ibv_qp, mw: *mut ffi::ibv_mw, bind: *mut ffi::ibv_mw_bind) -> c_int
        [
            ; @qp: qp_num; @bind: wr_id; flags = (*bind).send_flags, mr = (*bind).bind_info.mr,
            addr = (*bind).bind_info.addr, length = (*bind).bind_info.length,
            access = (*bind).bind_info.mw_access_flags
        ] |inner|
    {
        let info = &(*bind).bind_info;
        if info.mr.is_null() && inner.script.has(Fault::NullRegion) {
            inner.violation("bind_mw: the driver dereferences a null region");
        }
        if (*qp).context != (*mw).context {
            inner.violation("a window was bound by a queue pair of another context");
        }
        if !inner.exists(mw.addr(), "bind_mw") || !(info.mr.is_null() || inner.exists(info.mr.addr(), "bind_mw")) {
            return libc::EINVAL;
        }
        // A region with a bound window cannot be deregistered.
        let parents = [(*mw).pd.addr(), info.mr.addr()];
        inner.made(Kind::MemoryWindow, mw, if info.mr.is_null() { &parents[..1] } else { &parents });
        (*mw).rkey = ffi::ibv_inc_rkey((*mw).rkey);
        if (*bind).send_flags & ffi::ibv_send_flags::IBV_SEND_SIGNALED.0 != 0 {
            let opcode = ffi::ibv_wc_opcode::IBV_WC_BIND_MW.0;
            let completion =
                Completion { wr_id: (*bind).wr_id, opcode, qp_num: (*qp).qp_num, ..Completion::default() };
            complete(&mut inner, (*qp).send_cq.addr(), completion);
        }
        0
    }
}

endings! {
    dealloc_mw(ffi::ibv_mw);
}
