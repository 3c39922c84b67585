//! Fields that were added at the end of structs which the provider or the program makes, and the inline functions that
//! reach them.

use core::ffi::c_int;

use crate::bindings::verbs::*;
use crate::load::failure;

/// [`ibv_port_attr`] with the field that came for links faster than `active_speed` can tell (XDR).
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ibv_port_attr_since_v44 {
    /// The fields of rdma-core 44.
    pub attr: ibv_port_attr,
    /// The speed of a lane in the encoding of `active_speed`, with room for XDR (256) and what follows. Zero from
    /// libraries and kernels that do not know it, where `active_speed` holds.
    pub active_speed_ex: u32,
}

/// `ibv_query_port` with the fields that came later: zero, or the errno value. See `ibv_query_port(3)`.
///
/// # Errors
///
/// Besides those of the manual page, `EOPNOTSUPP` on a context of a library that is older than the function which takes
/// a length; its `ibv_query_port` serves.
///
/// # Safety
///
/// `context` is a live context and `port_attr` can be written to.
pub unsafe fn ibv_query_port_since_v44(
    context: *mut ibv_context,
    port_num: u8,
    port_attr: *mut ibv_port_attr_since_v44,
) -> c_int {
    // SAFETY: the context is live by contract, and whether there is a table before it is what this finds out.
    let table = unsafe { crate::inline::verbs_get_ctx(context) };
    // SAFETY: a table that is not null is as long as `sz` says, and `query_port` is read only if it is within.
    let query = unsafe {
        let reaches = size_of::<verbs_context>() - core::mem::offset_of!(verbs_context, query_port);
        if table.is_null() || (*table).sz < reaches { None } else { (*table).query_port }
    };
    match query {
        // SAFETY: the provider writes no more than the length given, which is that of the struct.
        Some(query) => unsafe {
            port_attr.write_bytes(0, 1);
            query(context, port_num, port_attr.cast(), size_of::<ibv_port_attr_since_v44>())
        },
        None => failure::code(libc::EOPNOTSUPP),
    }
}

/// The function behind [`ibv_wr_flush`].
pub type WrFlush = unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, usize, u8, u8);

/// [`ibv_qp_ex`] with the operation that came with rdma-core 45.
#[repr(C)]
#[expect(missing_debug_implementations, reason = "as for the struct of the bindings, which holds a lock of C")]
pub struct ibv_qp_ex_since_v44 {
    /// The fields of rdma-core 44.
    pub qp: ibv_qp_ex,
    /// Filled in for a queue pair created with `IBV_QP_EX_WITH_FLUSH`.
    pub wr_flush: Option<WrFlush>,
}

/// Begins a flush of `len` bytes at `remote_addr`: `type_` is of `IBV_FLUSH_GLOBAL` and `IBV_FLUSH_PERSISTENT`, `level`
/// is `IBV_FLUSH_RANGE` or `IBV_FLUSH_MR`. See `ibv_wr_post(3)`.
///
/// # Safety
///
/// `qp` is a live queue pair created with `IBV_QP_EX_WITH_FLUSH`, with a batch open in this thread. A library without
/// flush refuses to create one, so that there is always the field that this reads.
#[inline]
pub unsafe fn ibv_wr_flush(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, len: usize, type_: u8, level: u8) {
    // SAFETY: by contract the provider knows flush, has made the struct that long, and has filled the field in.
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
