//! `struct ibv_qp` and `struct ibv_qp_ex`.

mod attributes;
mod create;
mod extended;
mod modify;
mod open;
mod operations;
mod post;
mod query;
mod request;
#[cfg(test)]
mod tests;
mod transition;

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rdma_mummy_sys::{ibv_qp, ibv_qp_cap, ibv_qp_ex_since_v44, ibv_qp_state};

use self::extended::Building;
use self::open::Handles;
use super::async_event::Source;
use super::object::Object;
use super::turn::Turn;
use crate::qp::{QueuePair, State};
use crate::sys::usage::Use;

pub(crate) use self::create::{create_qp, create_qp_ex, destroy_qp};
pub(crate) use self::extended::qp_to_qp_ex;
pub(crate) use self::modify::modify_qp;
pub(crate) use self::open::open_qp;
pub(crate) use self::post::{bind_mw, post_recv, post_send};
pub(crate) use self::query::{query_qp, query_qp_data_in_order};

/// A QP, which is basic or extended. Both kinds have space for the extended struct.
///
/// Programs write to fields of `c` (`wr_id` and `wr_flags`) while other threads use the other fields of this struct.
/// Verbs that may run at the same time therefore access single fields, and create no reference to the whole struct.
#[repr(C)]
pub(crate) struct Pair {
    pub(crate) c: ibv_qp_ex_since_v44,
    pub(crate) pair: Arc<QueuePair>,
    /// The capacities that were granted when the QP was created.
    cap: ibv_qp_cap,
    /// All handles of the QP. This object is one of them.
    handles: Arc<Handles>,
    events: Arc<Source<ibv_qp>>,
    /// The lock that a thread holds from `ibv_wr_start` to `ibv_wr_complete` or `ibv_wr_abort`.
    turn: Turn,
    /// The batch, which belongs to the thread that holds the turn.
    batch: UnsafeCell<Building>,
    pub(crate) uses: Vec<Use>,
}

// SAFETY: a `Pair` starts with an `ibv_qp_ex_since_v44`, which starts with an `ibv_qp_ex`, which starts with an
// `ibv_qp`.
unsafe impl Object for Pair {
    type C = ibv_qp;
}

impl Pair {
    /// Returns the QP of a C pointer.
    ///
    /// # Safety
    ///
    /// `qp` belongs to this provider, and is not destroyed during the lifetime of the reference.
    pub(crate) unsafe fn qp<'q>(qp: *mut ibv_qp) -> &'q Arc<QueuePair> {
        // SAFETY: guaranteed by the caller: `qp` points to a `Pair`, whose fields outside of the C struct are not
        // written.
        unsafe { &(*qp.cast::<Self>()).pair }
    }
}

/// Updates the state in the C struct.
///
/// # Safety
///
/// `qp` belongs to this provider and is not destroyed.
pub(crate) unsafe fn show_state(qp: *mut ibv_qp, state: ibv_qp_state) {
    // SAFETY: guaranteed by the caller: the field exists, is aligned, and has the size of a `u32`.
    unsafe { AtomicU32::from_ptr((&raw mut (*qp).state).cast()) }.store(state.0, Ordering::Relaxed);
}

fn state_to_c(state: State) -> ibv_qp_state {
    match state {
        State::Reset => ibv_qp_state::IBV_QPS_RESET,
        State::Init => ibv_qp_state::IBV_QPS_INIT,
        State::ReadyToReceive => ibv_qp_state::IBV_QPS_RTR,
        State::ReadyToSend => ibv_qp_state::IBV_QPS_RTS,
        State::SendQueueDrain => ibv_qp_state::IBV_QPS_SQD,
        State::SendQueueError => ibv_qp_state::IBV_QPS_SQE,
        State::Error => ibv_qp_state::IBV_QPS_ERR,
    }
}

/// Converts a state from C. Returns `None` if the state is invalid.
fn state_from_c(state: ibv_qp_state) -> Option<State> {
    match state {
        ibv_qp_state::IBV_QPS_RESET => Some(State::Reset),
        ibv_qp_state::IBV_QPS_INIT => Some(State::Init),
        ibv_qp_state::IBV_QPS_RTR => Some(State::ReadyToReceive),
        ibv_qp_state::IBV_QPS_RTS => Some(State::ReadyToSend),
        ibv_qp_state::IBV_QPS_SQD => Some(State::SendQueueDrain),
        ibv_qp_state::IBV_QPS_SQE => Some(State::SendQueueError),
        ibv_qp_state::IBV_QPS_ERR => Some(State::Error),
        _ => None,
    }
}
