//! Completions through an extended completion queue: a cursor that is opened, moved and closed.
//!
//! Each function is one load and one indirect call. `cq` comes from `ibv_create_cq_ex`. The fields `wr_id` and `status`
//! of the queue are those of the completion under the cursor; the others are read by the functions here. A field that
//! was not asked for in `ibv_cq_init_attr_ex::wc_flags` has a null pointer, and no function here looks.

use core::ffi::{c_int, c_uint};

use crate::bindings::verbs::*;

/// The same queue for the functions that take a plain one. See `ibv_create_cq_ex(3)`.
#[inline]
#[must_use]
pub const fn ibv_cq_ex_to_cq(cq: *mut ibv_cq_ex) -> *mut ibv_cq {
    cq.cast()
}

/// Opens the cursor on the first completion: zero, `ENOENT` if there is none (the cursor is then closed), or another
/// errno. See `ibv_create_cq_ex(3)`.
///
/// # Safety
///
/// `cq` is a live extended completion queue, no cursor is open on it, and `attr` can be read.
#[inline]
pub unsafe fn ibv_start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    // SAFETY: by contract `cq` is live and extended, and every provider fills this operation in.
    unsafe { ((*cq).start_poll.unwrap_unchecked())(cq, attr) }
}

/// Moves the cursor to the next completion: zero, `ENOENT` if there is none (the cursor stays open), or another errno.
/// See `ibv_create_cq_ex(3)`.
///
/// # Safety
///
/// `cq` is a live extended completion queue with an open cursor.
#[inline]
pub unsafe fn ibv_next_poll(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: by contract `cq` is live and extended, and every provider fills this operation in.
    unsafe { ((*cq).next_poll.unwrap_unchecked())(cq) }
}

/// Closes the cursor and gives the entries back to the device. See `ibv_create_cq_ex(3)`.
///
/// # Safety
///
/// `cq` is a live extended completion queue with an open cursor.
#[inline]
pub unsafe fn ibv_end_poll(cq: *mut ibv_cq_ex) {
    // SAFETY: by contract `cq` is live and extended, and every provider fills this operation in.
    unsafe { ((*cq).end_poll.unwrap_unchecked())(cq) };
}

/// The operation that completed; of meaning only if the status is success. See `ibv_create_cq_ex(3)`.
///
/// # Safety
///
/// `cq` is a live extended completion queue with its cursor on a completion.
#[inline]
pub unsafe fn ibv_wc_read_opcode(cq: *mut ibv_cq_ex) -> ibv_wc_opcode {
    // SAFETY: by contract `cq` is live and extended, and every provider fills this operation in.
    unsafe { ((*cq).read_opcode.unwrap_unchecked())(cq) }
}

/// The device's own code of the failure. See `ibv_create_cq_ex(3)`.
///
/// # Safety
///
/// `cq` is a live extended completion queue with its cursor on a completion.
#[inline]
pub unsafe fn ibv_wc_read_vendor_err(cq: *mut ibv_cq_ex) -> u32 {
    // SAFETY: by contract `cq` is live and extended, and every provider fills this operation in.
    unsafe { ((*cq).read_vendor_err.unwrap_unchecked())(cq) }
}

/// How many bytes arrived. See `ibv_create_cq_ex(3)`.
///
/// # Safety
///
/// `cq` is a live extended completion queue with its cursor on a completion, created with `IBV_WC_EX_WITH_BYTE_LEN`.
#[inline]
pub unsafe fn ibv_wc_read_byte_len(cq: *mut ibv_cq_ex) -> u32 {
    // SAFETY: by contract `cq` is live, and its provider filled in the field that it was created with.
    unsafe { ((*cq).read_byte_len.unwrap_unchecked())(cq) }
}

/// The immediate data that arrived (big-endian). See `ibv_create_cq_ex(3)`.
///
/// # Safety
///
/// `cq` is a live extended completion queue with its cursor on a completion, created with `IBV_WC_EX_WITH_IMM`.
#[inline]
pub unsafe fn ibv_wc_read_imm_data(cq: *mut ibv_cq_ex) -> __be32 {
    // SAFETY: by contract `cq` is live, and its provider filled in the field that it was created with.
    unsafe { ((*cq).read_imm_data.unwrap_unchecked())(cq) }
}

/// The key that the arriving send invalidated: it shares its place with the immediate data. See `ibv_create_cq_ex(3)`.
///
/// # Safety
///
/// `cq` is a live extended completion queue with its cursor on a completion, created with `IBV_WC_EX_WITH_IMM`.
#[inline]
pub unsafe fn ibv_wc_read_invalidated_rkey(cq: *mut ibv_cq_ex) -> u32 {
    // SAFETY: by contract `cq` is live, and its provider filled in the field that it was created with.
    unsafe { ((*cq).read_imm_data.unwrap_unchecked())(cq) }
}

/// The number of the local queue pair. See `ibv_create_cq_ex(3)`.
///
/// # Safety
///
/// `cq` is a live extended completion queue with its cursor on a completion, created with `IBV_WC_EX_WITH_QP_NUM`.
#[inline]
pub unsafe fn ibv_wc_read_qp_num(cq: *mut ibv_cq_ex) -> u32 {
    // SAFETY: by contract `cq` is live, and its provider filled in the field that it was created with.
    unsafe { ((*cq).read_qp_num.unwrap_unchecked())(cq) }
}

/// The number of the queue pair that the datagram came from. See `ibv_create_cq_ex(3)`.
///
/// # Safety
///
/// `cq` is a live extended completion queue with its cursor on a completion, created with `IBV_WC_EX_WITH_SRC_QP`.
#[inline]
pub unsafe fn ibv_wc_read_src_qp(cq: *mut ibv_cq_ex) -> u32 {
    // SAFETY: by contract `cq` is live, and its provider filled in the field that it was created with.
    unsafe { ((*cq).read_src_qp.unwrap_unchecked())(cq) }
}

/// Which of the optional fields are of meaning. See `ibv_create_cq_ex(3)`.
///
/// # Safety
///
/// `cq` is a live extended completion queue with its cursor on a completion.
#[inline]
pub unsafe fn ibv_wc_read_wc_flags(cq: *mut ibv_cq_ex) -> c_uint {
    // SAFETY: by contract `cq` is live and extended, and every provider fills this operation in.
    unsafe { ((*cq).read_wc_flags.unwrap_unchecked())(cq) }
}

/// The local identifier of the port that the datagram came from. See `ibv_create_cq_ex(3)`.
///
/// # Safety
///
/// `cq` is a live extended completion queue with its cursor on a completion, created with `IBV_WC_EX_WITH_SLID`.
#[inline]
pub unsafe fn ibv_wc_read_slid(cq: *mut ibv_cq_ex) -> u32 {
    // SAFETY: by contract `cq` is live, and its provider filled in the field that it was created with.
    unsafe { ((*cq).read_slid.unwrap_unchecked())(cq) }
}

/// The service level. See `ibv_create_cq_ex(3)`.
///
/// # Safety
///
/// `cq` is a live extended completion queue with its cursor on a completion, created with `IBV_WC_EX_WITH_SL`.
#[inline]
pub unsafe fn ibv_wc_read_sl(cq: *mut ibv_cq_ex) -> u8 {
    // SAFETY: by contract `cq` is live, and its provider filled in the field that it was created with.
    unsafe { ((*cq).read_sl.unwrap_unchecked())(cq) }
}

/// The low bits of the local identifier that the datagram was sent to. See `ibv_create_cq_ex(3)`.
///
/// # Safety
///
/// `cq` is a live extended completion queue with its cursor on a completion, created with
/// `IBV_WC_EX_WITH_DLID_PATH_BITS`.
#[inline]
pub unsafe fn ibv_wc_read_dlid_path_bits(cq: *mut ibv_cq_ex) -> u8 {
    // SAFETY: by contract `cq` is live, and its provider filled in the field that it was created with.
    unsafe { ((*cq).read_dlid_path_bits.unwrap_unchecked())(cq) }
}

/// When it completed, in cycles of the device clock. See `ibv_create_cq_ex(3)`.
///
/// # Safety
///
/// `cq` is a live extended completion queue with its cursor on a completion, created with
/// `IBV_WC_EX_WITH_COMPLETION_TIMESTAMP`.
#[inline]
pub unsafe fn ibv_wc_read_completion_ts(cq: *mut ibv_cq_ex) -> u64 {
    // SAFETY: by contract `cq` is live, and its provider filled in the field that it was created with.
    unsafe { ((*cq).read_completion_ts.unwrap_unchecked())(cq) }
}

/// When it completed, in nanoseconds of the wall clock. See `ibv_create_cq_ex(3)`.
///
/// # Safety
///
/// `cq` is a live extended completion queue with its cursor on a completion, created with
/// `IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK`.
#[inline]
pub unsafe fn ibv_wc_read_completion_wallclock_ns(cq: *mut ibv_cq_ex) -> u64 {
    // SAFETY: by contract `cq` is live, and its provider filled in the field that it was created with.
    unsafe { ((*cq).read_completion_wallclock_ns.unwrap_unchecked())(cq) }
}

/// The VLAN tag that the device took off. See `ibv_create_cq_ex(3)`.
///
/// # Safety
///
/// `cq` is a live extended completion queue with its cursor on a completion, created with `IBV_WC_EX_WITH_CVLAN`.
#[inline]
pub unsafe fn ibv_wc_read_cvlan(cq: *mut ibv_cq_ex) -> u16 {
    // SAFETY: by contract `cq` is live, and its provider filled in the field that it was created with.
    unsafe { ((*cq).read_cvlan.unwrap_unchecked())(cq) }
}

/// The tag of the flow rule that the packet matched. See `ibv_create_cq_ex(3)`.
///
/// # Safety
///
/// `cq` is a live extended completion queue with its cursor on a completion, created with `IBV_WC_EX_WITH_FLOW_TAG`.
#[inline]
pub unsafe fn ibv_wc_read_flow_tag(cq: *mut ibv_cq_ex) -> u32 {
    // SAFETY: by contract `cq` is live, and its provider filled in the field that it was created with.
    unsafe { ((*cq).read_flow_tag.unwrap_unchecked())(cq) }
}

/// Stores what tag matching says of the message in `tm_info`. See `ibv_create_cq_ex(3)`.
///
/// # Safety
///
/// `cq` is a live extended completion queue with its cursor on a completion, created with `IBV_WC_EX_WITH_TM_INFO`,
/// and `tm_info` can be written.
#[inline]
pub unsafe fn ibv_wc_read_tm_info(cq: *mut ibv_cq_ex, tm_info: *mut ibv_wc_tm_info) {
    // SAFETY: by contract `cq` is live, and its provider filled in the field that it was created with.
    unsafe { ((*cq).read_tm_info.unwrap_unchecked())(cq, tm_info) };
}
