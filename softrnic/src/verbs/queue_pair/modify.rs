//! `ibv_modify_qp`; and enhanced connection establishment, for which the device has no options to agree on.

use std::ffi::c_int;
use std::sync::Mutex;

use rdma_mummy_sys::{ibv_ece, ibv_qp, ibv_qp_attr, ibv_qp_attr_mask as mask};

use super::transition::rule;
use super::{Pair, attributes, show_state, state_from_c, state_to_c};
use crate::qp::{Attributes, QueuePair, State};
use crate::sys::errno::Errno;
use crate::sys::unpoisoned;
use crate::verbs::address_handle::path;
use crate::verbs::failure;

/// `ibv_modify_qp(qp, attr, attr_mask)`: all of it, or nothing. `EBUSY` amid a batch of this thread's; one that another thread builds
/// meets the new state when it ends.
///
/// # Safety
///
/// As for C: the queue pair is alive, and the attributes can be read.
pub(crate) unsafe extern "C" fn modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, attr_mask: c_int) -> c_int {
    // SAFETY: the caller's promise.
    if unsafe { (*qp.cast::<Pair>()).turn.is_mine() } {
        return failure::code(Errno::BUSY);
    }
    // SAFETY: the caller's promise.
    let changed = unsafe { modify(Pair::qp(qp), (*qp.cast::<Pair>()).handles.changing(), &*attr, attr_mask as u32) };
    match changed {
        Ok(state) => {
            // SAFETY: the caller's promise.
            unsafe { show_state(qp, state_to_c(state)) };
            0
        }
        Err(errno) => failure::code(errno),
    }
}

/// Changes a queue pair, and gives the state that it is in then.
fn modify(pair: &QueuePair, changing: &Mutex<()>, attr: &ibv_qp_attr, given: u32) -> Result<State, Errno> {
    let _alone = unpoisoned(changing.lock());
    loop {
        let from = pair.state();
        if given & mask::IBV_QP_CUR_STATE.0 != 0 && state_from_c(attr.cur_qp_state) != Some(from) {
            return Err(Errno::INVALID);
        }
        let to = if given & mask::IBV_QP_STATE.0 != 0 { state_from_c(attr.qp_state) } else { Some(from) };
        let to = to.ok_or(Errno::INVALID)?;
        rule(pair.parts().service, from, to).ok_or(Errno::INVALID)?.check(given)?;
        let mut after = if to == State::Reset { Attributes::new() } else { pair.attributes() };
        if (from, to) == (State::ReadyToSend, State::SendQueueDrain) {
            after.drain_notify = false;
        }
        attributes::apply(&mut after, attr, given, path)?;
        match pair.change(from, to, after) {
            Ok(()) => return Ok(to),
            Err(errno) if pair.state() == from => return Err(errno),
            // It has failed meanwhile, and what was checked is not what it is: the new state decides.
            Err(_) => {}
        }
    }
}

/// `ibv_set_ece(qp, ece)`: takes any options, and accepts none of them.
///
/// # Safety
///
/// As for C: the options can be read and written.
pub(crate) unsafe extern "C" fn set_ece(_qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        if (*ece).comp_mask != 0 {
            return failure::code(Errno::INVALID);
        }
        (*ece).options = 0;
    }
    0
}

/// `ibv_query_ece(qp, ece)`.
///
/// # Safety
///
/// As for C: the options can be written.
pub(crate) unsafe extern "C" fn query_ece(_qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { ece.write(ibv_ece { vendor_id: 0, options: 0, comp_mask: 0 }) };
    0
}
