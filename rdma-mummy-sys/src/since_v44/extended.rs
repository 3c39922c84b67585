//! Fields added at the end of structs, and the inline functions that access them.

use core::ffi::c_int;

use super::ibverbs::c::_ibv_query_comp_cntr_caps;
use super::types::ibv_comp_cntr_caps;
use crate::bindings::verbs::*;
use crate::load::failure;

/// [`ibv_port_attr`] with the field for links too fast for `active_speed` (XDR).
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ibv_port_attr_since_v44 {
    /// The fields of rdma-core 44.
    pub attr: ibv_port_attr,
    /// The lane speed in the encoding of `active_speed`, extended for XDR (256) and later. Zero if the library or the
    /// kernel does not report this speed; use `active_speed` then.
    pub active_speed_ex: u32,
}

/// Queries the limits of a device's completion counters. Returns zero or an errno value. See
/// `ibv_query_comp_cntr_caps(3)`.
///
/// # Safety
///
/// `context` is live and `caps` can be written.
#[inline]
pub unsafe fn ibv_query_comp_cntr_caps(context: *mut ibv_context, caps: *mut ibv_comp_cntr_caps) -> c_int {
    // SAFETY: by contract the context is live and `caps` writable; the library receives its size.
    unsafe { _ibv_query_comp_cntr_caps(context, caps, size_of::<ibv_comp_cntr_caps>()) }
}

/// Queries a port including the later fields. Returns zero or an errno value. See `ibv_query_port(3)`.
///
/// # Errors
///
/// Besides those of the manual page: `EOPNOTSUPP` if the context's library lacks the function that takes a length; use
/// `ibv_query_port` then.
///
/// # Safety
///
/// `context` is a live context and `port_attr` can be written.
pub unsafe fn ibv_query_port_since_v44(
    context: *mut ibv_context,
    port_num: u8,
    port_attr: *mut ibv_port_attr_since_v44,
) -> c_int {
    // SAFETY: by contract the context is live; this call finds out whether a table precedes it.
    let table = unsafe { crate::inline::verbs_get_ctx(context) };
    // SAFETY: a table that is not null has length `sz`, and `query_port` is read only if it is within.
    let query = unsafe {
        let reaches = size_of::<verbs_context>() - core::mem::offset_of!(verbs_context, query_port);
        if table.is_null() || (*table).sz < reaches { None } else { (*table).query_port }
    };
    match query {
        // SAFETY: the provider writes at most the given length, which is the struct's.
        Some(query) => unsafe {
            port_attr.write_bytes(0, 1);
            query(context, port_num, port_attr.cast(), size_of::<ibv_port_attr_since_v44>())
        },
        None => failure::code(libc::EOPNOTSUPP),
    }
}

/// The function called by [`ibv_wr_flush`].
pub type WrFlush = unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, usize, u8, u8);

/// [`ibv_qp_ex`] with the operation added in rdma-core 45.
#[repr(C)]
#[expect(missing_debug_implementations, reason = "as for the struct of the bindings, which contains a C lock")]
pub struct ibv_qp_ex_since_v44 {
    /// The fields of rdma-core 44.
    pub qp: ibv_qp_ex,
    /// Set for queue pairs created with `IBV_QP_EX_WITH_FLUSH`.
    pub wr_flush: Option<WrFlush>,
}

/// Begins a flush of `len` bytes at `remote_addr`: `type_` is `IBV_FLUSH_GLOBAL` or `IBV_FLUSH_PERSISTENT`, `level` is
/// `IBV_FLUSH_RANGE` or `IBV_FLUSH_MR`. See `ibv_wr_post(3)`.
///
/// # Safety
///
/// `qp` is a live queue pair created with `IBV_QP_EX_WITH_FLUSH`, with a batch open in this thread. A library without
/// flush rejects this flag, so the field that this function reads exists.
#[inline]
pub unsafe fn ibv_wr_flush(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, len: usize, type_: u8, level: u8) {
    // SAFETY: by contract the provider supports flush, has allocated the longer struct, and has set the field.
    unsafe {
        (*qp.cast::<ibv_qp_ex_since_v44>()).wr_flush.unwrap_unchecked()(qp, rkey, remote_addr, len, type_, level)
    };
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
const _: () = {
    assert!(
        size_of::<ibv_port_attr_since_v44>() == 56
            && core::mem::offset_of!(ibv_port_attr_since_v44, active_speed_ex) == 52
    );
    assert!(size_of::<ibv_qp_ex_since_v44>() == 360 && core::mem::offset_of!(ibv_qp_ex_since_v44, wr_flush) == 352);
};
