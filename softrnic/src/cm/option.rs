//! `rdma_set_option`, and enhanced connection establishment (ECE).

use std::ffi::{c_int, c_uint, c_void};

use rdma_mummy_sys::{
    RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, RDMA_OPTION_ID_AFONLY,
    RDMA_OPTION_ID_REUSEADDR, RDMA_OPTION_ID_TOS, ibv_ece, ibv_qp_type, rdma_cm_id,
};

use super::calls::{bytes, return_code};
use super::id::State;
use super::world;
use crate::sys::errno::Errno;

/// The largest time-out, which has five bits.
const MAX_TIMEOUT: u8 = 31;

/// The options of an identifier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) traffic_class: u8,
    pub(super) reuse_address: bool,
    pub(super) af_only: bool,
    pub(super) ack_timeout: Option<u8>,
}

/// `rdma_set_option(id, level, optname, optval, optlen)`.
///
/// # Safety
///
/// As in C: the identifier is alive, and `optlen` bytes are readable.
pub(super) unsafe extern "C" fn set_option(
    id: *mut rdma_cm_id,
    level: c_int,
    optname: c_int,
    optval: *mut c_void,
    optlen: usize,
) -> c_int {
    let set = || {
        // SAFETY: guaranteed by the caller; no supported option is longer.
        let value = unsafe { bytes(optval, optlen.min(4)) };
        // SAFETY: guaranteed by the caller.
        let qp_type = unsafe { (*id).qp_type };
        let mut world = world();
        let identifier = world.id(id.addr())?;
        let is_set = value.iter().any(|&byte| byte != 0);
        let is_unbound = identifier.state == State::Idle;
        match (level as c_uint, optname as c_uint, optlen, value.first()) {
            (RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, 1, Some(&class)) => identifier.options.traffic_class = class,
            (RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, 1, Some(&timeout)) => {
                let connects = [ibv_qp_type::IBV_QPT_RC, ibv_qp_type::IBV_QPT_XRC_SEND, ibv_qp_type::IBV_QPT_XRC_RECV];
                if timeout > MAX_TIMEOUT || !connects.contains(&qp_type) {
                    return Err(Errno::INVALID);
                }
                identifier.options.ack_timeout = Some(timeout);
            }
            (RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, 4, _) if is_unbound || is_set => {
                identifier.options.reuse_address = is_set;
            }
            (RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, 4, _) if is_unbound => identifier.options.af_only = is_set,
            // Routes of InfiniBand are not supported on Ethernet.
            (RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, ..) | (RDMA_OPTION_ID, ..) => return Err(Errno::INVALID),
            _ => return Err(Errno(libc::ENOSYS)),
        }
        Ok(())
    };
    return_code(set())
}

/// `rdma_set_local_ece(id, ece)`: the identifier must have no QP.
///
/// # Safety
///
/// As in C: the identifier is alive, and the options are null or readable.
pub(super) unsafe extern "C" fn set_local_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int {
    let set = || {
        // SAFETY: guaranteed by the caller.
        let (ece, has_qp) = unsafe { (*ece.as_ref().ok_or(Errno::INVALID)?, !(*id).qp.is_null()) };
        if has_qp || ece.vendor_id == 0 || ece.comp_mask != 0 {
            return Err(Errno::INVALID);
        }
        world().id(id.addr())?.local_ece = ece;
        Ok(())
    };
    return_code(set())
}

/// `rdma_get_remote_ece(id, ece)`: the identifier must have no QP.
///
/// # Safety
///
/// As in C: the identifier is alive, and the options are null or writable.
pub(super) unsafe extern "C" fn get_remote_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int {
    let get = || {
        // SAFETY: guaranteed by the caller.
        if ece.is_null() || !unsafe { (*id).qp }.is_null() {
            return Err(Errno::INVALID);
        }
        let remote = world().id(id.addr())?.remote_ece;
        // SAFETY: guaranteed by the caller.
        unsafe { ece.write(remote) };
        Ok(())
    };
    return_code(get())
}
