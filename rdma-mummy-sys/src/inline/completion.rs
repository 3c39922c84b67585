//! Completions through an extended completion queue: a cursor that is opened, advanced and closed.
//!
//! Each function is one load and one indirect call. `cq` comes from `ibv_create_cq_ex`. The queue's fields `wr_id` and
//! `status` belong to the completion under the cursor; the functions here read the other fields. A field that was not
//! requested in `ibv_cq_init_attr_ex::wc_flags` has a null pointer, which these functions do not check.

use core::ffi::{c_int, c_uint};

use crate::bindings::verbs::*;

/// Returns the queue as a plain completion queue. See `ibv_create_cq_ex(3)`.
#[inline]
#[must_use]
pub const fn ibv_cq_ex_to_cq(cq: *mut ibv_cq_ex) -> *mut ibv_cq {
    cq.cast()
}

/// Opens the cursor on the first completion. Returns zero, `ENOENT` if there is none (the cursor is then closed), or
/// another errno value. See `ibv_create_cq_ex(3)`.
///
/// # Safety
///
/// `cq` is a live extended completion queue, no cursor is open on it, and `attr` can be read.
#[inline]
pub unsafe fn ibv_start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    // SAFETY: by contract `cq` is live and extended, and every provider sets this operation.
    unsafe { ((*cq).start_poll.unwrap_unchecked())(cq, attr) }
}

/// Advances the cursor to the next completion. Returns zero, `ENOENT` if there is none (the cursor stays open), or
/// another errno value. See `ibv_create_cq_ex(3)`.
///
/// # Safety
///
/// `cq` is a live extended completion queue with an open cursor.
#[inline]
pub unsafe fn ibv_next_poll(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: by contract `cq` is live and extended, and every provider sets this operation.
    unsafe { ((*cq).next_poll.unwrap_unchecked())(cq) }
}

/// Closes the cursor and returns the entries to the device. See `ibv_create_cq_ex(3)`.
///
/// # Safety
///
/// `cq` is a live extended completion queue with an open cursor.
#[inline]
pub unsafe fn ibv_end_poll(cq: *mut ibv_cq_ex) {
    // SAFETY: by contract `cq` is live and extended, and every provider sets this operation.
    unsafe { ((*cq).end_poll.unwrap_unchecked())(cq) };
}

/// Returns the completed operation; valid only if the status is success. See `ibv_create_cq_ex(3)`.
///
/// # Safety
///
/// `cq` is a live extended completion queue with its cursor on a completion.
#[inline]
pub unsafe fn ibv_wc_read_opcode(cq: *mut ibv_cq_ex) -> ibv_wc_opcode {
    // SAFETY: by contract `cq` is live and extended, and every provider sets this operation.
    unsafe { ((*cq).read_opcode.unwrap_unchecked())(cq) }
}

/// Returns the vendor's error code. See `ibv_create_cq_ex(3)`.
///
/// # Safety
///
/// `cq` is a live extended completion queue with its cursor on a completion.
#[inline]
pub unsafe fn ibv_wc_read_vendor_err(cq: *mut ibv_cq_ex) -> u32 {
    // SAFETY: by contract `cq` is live and extended, and every provider sets this operation.
    unsafe { ((*cq).read_vendor_err.unwrap_unchecked())(cq) }
}

/// Returns the number of bytes received. See `ibv_create_cq_ex(3)`.
///
/// # Safety
///
/// `cq` is a live extended completion queue with its cursor on a completion, created with `IBV_WC_EX_WITH_BYTE_LEN`.
#[inline]
pub unsafe fn ibv_wc_read_byte_len(cq: *mut ibv_cq_ex) -> u32 {
    // SAFETY: by contract `cq` is live, and its provider set the readers that it was created with.
    unsafe { ((*cq).read_byte_len.unwrap_unchecked())(cq) }
}

/// Returns the immediate data received (big-endian). See `ibv_create_cq_ex(3)`.
///
/// # Safety
///
/// `cq` is a live extended completion queue with its cursor on a completion, created with `IBV_WC_EX_WITH_IMM`.
#[inline]
pub unsafe fn ibv_wc_read_imm_data(cq: *mut ibv_cq_ex) -> __be32 {
    // SAFETY: by contract `cq` is live, and its provider set the readers that it was created with.
    unsafe { ((*cq).read_imm_data.unwrap_unchecked())(cq) }
}

/// Returns the key that the received send invalidated; it shares storage with the immediate data. See
/// `ibv_create_cq_ex(3)`.
///
/// # Safety
///
/// `cq` is a live extended completion queue with its cursor on a completion, created with `IBV_WC_EX_WITH_IMM`.
#[inline]
pub unsafe fn ibv_wc_read_invalidated_rkey(cq: *mut ibv_cq_ex) -> u32 {
    // SAFETY: by contract `cq` is live, and its provider set the readers that it was created with.
    unsafe { ((*cq).read_imm_data.unwrap_unchecked())(cq) }
}

/// Returns the number of the local queue pair. See `ibv_create_cq_ex(3)`.
///
/// # Safety
///
/// `cq` is a live extended completion queue with its cursor on a completion, created with `IBV_WC_EX_WITH_QP_NUM`.
#[inline]
pub unsafe fn ibv_wc_read_qp_num(cq: *mut ibv_cq_ex) -> u32 {
    // SAFETY: by contract `cq` is live, and its provider set the readers that it was created with.
    unsafe { ((*cq).read_qp_num.unwrap_unchecked())(cq) }
}

/// Returns the number of the datagram's source queue pair. See `ibv_create_cq_ex(3)`.
///
/// # Safety
///
/// `cq` is a live extended completion queue with its cursor on a completion, created with `IBV_WC_EX_WITH_SRC_QP`.
#[inline]
pub unsafe fn ibv_wc_read_src_qp(cq: *mut ibv_cq_ex) -> u32 {
    // SAFETY: by contract `cq` is live, and its provider set the readers that it was created with.
    unsafe { ((*cq).read_src_qp.unwrap_unchecked())(cq) }
}

/// Returns the flags of valid optional fields. See `ibv_create_cq_ex(3)`.
///
/// # Safety
///
/// `cq` is a live extended completion queue with its cursor on a completion.
#[inline]
pub unsafe fn ibv_wc_read_wc_flags(cq: *mut ibv_cq_ex) -> c_uint {
    // SAFETY: by contract `cq` is live and extended, and every provider sets this operation.
    unsafe { ((*cq).read_wc_flags.unwrap_unchecked())(cq) }
}

/// Returns the local identifier of the datagram's source port. See `ibv_create_cq_ex(3)`.
///
/// # Safety
///
/// `cq` is a live extended completion queue with its cursor on a completion, created with `IBV_WC_EX_WITH_SLID`.
#[inline]
pub unsafe fn ibv_wc_read_slid(cq: *mut ibv_cq_ex) -> u32 {
    // SAFETY: by contract `cq` is live, and its provider set the readers that it was created with.
    unsafe { ((*cq).read_slid.unwrap_unchecked())(cq) }
}

/// Returns the service level. See `ibv_create_cq_ex(3)`.
///
/// # Safety
///
/// `cq` is a live extended completion queue with its cursor on a completion, created with `IBV_WC_EX_WITH_SL`.
#[inline]
pub unsafe fn ibv_wc_read_sl(cq: *mut ibv_cq_ex) -> u8 {
    // SAFETY: by contract `cq` is live, and its provider set the readers that it was created with.
    unsafe { ((*cq).read_sl.unwrap_unchecked())(cq) }
}

/// Returns the low bits of the datagram's destination local identifier. See `ibv_create_cq_ex(3)`.
///
/// # Safety
///
/// `cq` is a live extended completion queue with its cursor on a completion, created with
/// `IBV_WC_EX_WITH_DLID_PATH_BITS`.
#[inline]
pub unsafe fn ibv_wc_read_dlid_path_bits(cq: *mut ibv_cq_ex) -> u8 {
    // SAFETY: by contract `cq` is live, and its provider set the readers that it was created with.
    unsafe { ((*cq).read_dlid_path_bits.unwrap_unchecked())(cq) }
}

/// Returns the completion time in cycles of the device clock. See `ibv_create_cq_ex(3)`.
///
/// # Safety
///
/// `cq` is a live extended completion queue with its cursor on a completion, created with
/// `IBV_WC_EX_WITH_COMPLETION_TIMESTAMP`.
#[inline]
pub unsafe fn ibv_wc_read_completion_ts(cq: *mut ibv_cq_ex) -> u64 {
    // SAFETY: by contract `cq` is live, and its provider set the readers that it was created with.
    unsafe { ((*cq).read_completion_ts.unwrap_unchecked())(cq) }
}

/// Returns the completion time in nanoseconds of the wall clock. See `ibv_create_cq_ex(3)`.
///
/// # Safety
///
/// `cq` is a live extended completion queue with its cursor on a completion, created with
/// `IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK`.
#[inline]
pub unsafe fn ibv_wc_read_completion_wallclock_ns(cq: *mut ibv_cq_ex) -> u64 {
    // SAFETY: by contract `cq` is live, and its provider set the readers that it was created with.
    unsafe { ((*cq).read_completion_wallclock_ns.unwrap_unchecked())(cq) }
}

/// Returns the VLAN tag that the device removed. See `ibv_create_cq_ex(3)`.
///
/// # Safety
///
/// `cq` is a live extended completion queue with its cursor on a completion, created with `IBV_WC_EX_WITH_CVLAN`.
#[inline]
pub unsafe fn ibv_wc_read_cvlan(cq: *mut ibv_cq_ex) -> u16 {
    // SAFETY: by contract `cq` is live, and its provider set the readers that it was created with.
    unsafe { ((*cq).read_cvlan.unwrap_unchecked())(cq) }
}

/// Returns the tag of the matching flow rule. See `ibv_create_cq_ex(3)`.
///
/// # Safety
///
/// `cq` is a live extended completion queue with its cursor on a completion, created with `IBV_WC_EX_WITH_FLOW_TAG`.
#[inline]
pub unsafe fn ibv_wc_read_flow_tag(cq: *mut ibv_cq_ex) -> u32 {
    // SAFETY: by contract `cq` is live, and its provider set the readers that it was created with.
    unsafe { ((*cq).read_flow_tag.unwrap_unchecked())(cq) }
}

/// Stores the message's tag matching information in `tm_info`. See `ibv_create_cq_ex(3)`.
///
/// # Safety
///
/// `cq` is a live extended completion queue with its cursor on a completion, created with `IBV_WC_EX_WITH_TM_INFO`,
/// and `tm_info` can be written.
#[inline]
pub unsafe fn ibv_wc_read_tm_info(cq: *mut ibv_cq_ex, tm_info: *mut ibv_wc_tm_info) {
    // SAFETY: by contract `cq` is live, and its provider set the readers that it was created with.
    unsafe { ((*cq).read_tm_info.unwrap_unchecked())(cq, tm_info) };
}
