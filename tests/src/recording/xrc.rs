//! XRC domains, and the receiving queue pairs in them.

use rdma_mummy_sys as ffi;

use super::state::Inner;
use super::stub::{endings, stubs};

/// A receiving queue pair, by the address of its C object: its domain and its number.
pub(super) type ReceivePair = (usize, u32);

stubs! {
    fn open_xrcd(context: *mut ffi::ibv_context, attr: *mut ffi::ibv_xrcd_init_attr) -> *mut ffi::ibv_xrcd
        [; @attr: comp_mask, fd, oflags] |inner|
    {
        inner.create(context, &[context.addr()])
    }

    fn open_qp(context: *mut ffi::ibv_context, attr: *mut ffi::ibv_qp_open_attr) -> *mut ffi::ibv_qp
        [; @attr: comp_mask, qp_num, xrcd, qp_type] |inner|
    {
        let (xrcd, number) = ((*attr).xrcd.addr(), (*attr).qp_num);
        if !inner.receive_pairs.values().any(|&pair| pair == (xrcd, number)) {
            return inner.refuse("open_qp", libc::EINVAL);
        }
        set_up(&mut inner, context, xrcd, number)
    }
}

endings! {
    close_xrcd(ffi::ibv_xrcd);
}

/// Creates a receiving queue pair: `ibv_create_qp_ex` with a domain in its mask.
///
/// # Safety
///
/// The context is one of this provider's, and the domain is alive.
pub(super) unsafe fn create_recv_qp(
    inner: &mut Inner,
    context: *mut ffi::ibv_context,
    xrcd: *mut ffi::ibv_xrcd,
) -> *mut ffi::ibv_qp {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if (*xrcd).context != context {
            inner.violation("a queue pair was created in an XRC domain of another context");
        }
        let number = inner.handle();
        set_up(inner, context, xrcd.addr(), number)
    }
}

/// # Safety
///
/// The context is alive.
unsafe fn set_up(inner: &mut Inner, context: *mut ffi::ibv_context, xrcd: usize, number: u32) -> *mut ffi::ibv_qp {
    let qp = inner.create::<ffi::ibv_qp_ex>(context, &[xrcd]).cast::<ffi::ibv_qp>();
    inner.receive_pairs.insert(qp.addr(), (xrcd, number));
    // SAFETY: the queue pair is new.
    unsafe {
        ((*qp).qp_num, (*qp).qp_type) = (number, ffi::ibv_qp_type::IBV_QPT_XRC_RECV);
        inner.output("an XRC queue pair: number", &raw mut (*qp).qp_num);
        inner.output("an XRC queue pair: state", &raw mut (*qp).state);
    }
    qp
}
