//! XRC domains, and the receiving queue pairs in them.

use libc::c_int;
use rdma_mummy_sys as ffi;

use super::calls::Kind;
use super::device::state_of;
use super::objects::{destroy_object, forever};
use super::script::Failure;
use super::state::Inner;

/// A receiving queue pair, by the address of its C object: its domain and its number.
pub(super) type ReceivePair = (usize, u32);

/// Sets the functions of the extended table, unless the script omits them.
pub(super) fn fill_in(table: &mut ffi::verbs_context, has: impl Fn(&str) -> bool) {
    table.open_xrcd = has("open_xrcd").then_some(open_xrcd);
    table.close_xrcd = has("close_xrcd").then_some(close_xrcd);
    table.open_qp = has("open_qp").then_some(open_qp);
}

pub(super) unsafe extern "C" fn open_xrcd(
    context: *mut ffi::ibv_context,
    attr: *mut ffi::ibv_xrcd_init_attr,
) -> *mut ffi::ibv_xrcd {
    // SAFETY: the context is one of this provider's, the attributes can be read, and the domain is new.
    unsafe {
        let arguments =
            [("comp_mask", (*attr).comp_mask.into()), ("fd", (*attr).fd as u64), ("oflags", (*attr).oflags as u64)];
        let (mut inner, failure) = state_of(context).enter("open_xrcd", &arguments);
        if let Some(failure) = failure {
            return failure.null();
        }
        let xrcd = forever::<ffi::ibv_xrcd>();
        (*xrcd).context = context;
        inner.made(Kind::XrcDomain, xrcd, &[context.addr()]);
        xrcd
    }
}

pub(super) unsafe extern "C" fn close_xrcd(xrcd: *mut ffi::ibv_xrcd) -> c_int {
    // SAFETY: objects are never freed.
    unsafe { destroy_object((*xrcd).context, "close_xrcd", Kind::XrcDomain, xrcd.addr()) }
}

/// Creates a receiving queue pair: `ibv_create_qp_ex` with a domain in its mask.
///
/// # Safety
///
/// The context is one of this provider's, and the domain is alive.
pub(super) unsafe fn create_recv_qp(
    context: *mut ffi::ibv_context,
    attr: &ffi::ibv_qp_init_attr_ex,
) -> *mut ffi::ibv_qp {
    let arguments =
        [("comp_mask", attr.comp_mask.into()), ("qp_type", attr.qp_type.0.into()), ("xrcd", attr.xrcd.addr() as u64)];
    // SAFETY: guaranteed by the caller.
    unsafe {
        let (mut inner, failure) = state_of(context).enter("create_qp_ex", &arguments);
        if let Some(failure) = failure {
            return failure.null();
        }
        if (*attr.xrcd).context != context {
            inner.violation("a queue pair was created in an XRC domain of another context");
        }
        let number = inner.handle();
        set_up(&mut inner, context, attr.xrcd.addr(), number)
    }
}

unsafe extern "C" fn open_qp(context: *mut ffi::ibv_context, attr: *mut ffi::ibv_qp_open_attr) -> *mut ffi::ibv_qp {
    // SAFETY: the context is one of this provider's, and the attributes can be read.
    unsafe {
        let attr = &*attr;
        let arguments = [
            ("comp_mask", attr.comp_mask.into()),
            ("qp_num", attr.qp_num.into()),
            ("xrcd", attr.xrcd.addr() as u64),
            ("qp_type", attr.qp_type.0.into()),
        ];
        let (mut inner, failure) = state_of(context).enter("open_qp", &arguments);
        if let Some(failure) = failure {
            return failure.null();
        }
        if !inner.receive_pairs.values().any(|&pair| pair == (attr.xrcd.addr(), attr.qp_num)) {
            inner.failed(libc::EINVAL);
            return Failure::documented(libc::EINVAL).null();
        }
        set_up(&mut inner, context, attr.xrcd.addr(), attr.qp_num)
    }
}

/// # Safety
///
/// The context is alive.
unsafe fn set_up(inner: &mut Inner, context: *mut ffi::ibv_context, xrcd: usize, number: u32) -> *mut ffi::ibv_qp {
    let qp = forever::<ffi::ibv_qp_ex>().cast::<ffi::ibv_qp>();
    // SAFETY: the queue pair is new.
    unsafe {
        (*qp).context = context;
        (*qp).qp_num = number;
        (*qp).qp_type = ffi::ibv_qp_type::IBV_QPT_XRC_RECV;
        (*qp).state = ffi::ibv_qp_state::IBV_QPS_RESET;
    }
    inner.made(Kind::QueuePair, qp, &[xrcd]);
    inner.receive_pairs.insert(qp.addr(), (xrcd, number));
    // SAFETY: as above.
    unsafe {
        inner.output("an XRC queue pair: number", &raw mut (*qp).qp_num);
        inner.output("an XRC queue pair: state", &raw mut (*qp).state);
    }
    qp
}
