//! `ibv_modify_qp`.

use std::ffi::c_int;
use std::sync::{Arc, Mutex};

use rdma_mummy_sys::{ibv_qp, ibv_qp_attr, ibv_qp_attr_mask as mask};

use super::transition::{relevant, rule};
use super::{Pair, attributes, show_state, state_from_c, state_to_c};
use crate::net::roce::link::Ends;
use crate::net::roce::socket;
use crate::qp::{Attributes, QueuePair, Reach, State};
use crate::sys::errno::Errno;
use crate::sys::unpoisoned;
use crate::verbs::address_handle::path;
use crate::verbs::failure;
use crate::verbs::kind::Kind;
use crate::wire::operation::Service;
use crate::wire::transport::Dedicated;
use crate::wiring;

/// `ibv_modify_qp(qp, attr, attr_mask)`: changes all attributes or none. `EBUSY` while this thread has an unfinished
/// batch. A batch of another thread is posted in the new state if it ends after this call.
///
/// # Safety
///
/// As in C: the QP is alive, and the attributes are readable.
pub(crate) unsafe extern "C" fn modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, attr_mask: c_int) -> c_int {
    // SAFETY: guaranteed by the caller.
    if unsafe { (*qp.cast::<Pair>()).turn.is_mine() } {
        return failure::code(Errno::BUSY);
    }
    // SAFETY: guaranteed by the caller.
    let changed = unsafe {
        let limit = Kind::of((*qp).context).limits.max_rd_atomic;
        modify(Pair::qp(qp), (*qp.cast::<Pair>()).handles.changing(), &*attr, (attr_mask as u32, limit))
    };
    match changed {
        Ok(state) => {
            // SAFETY: guaranteed by the caller.
            unsafe { show_state(qp, state_to_c(state)) };
            0
        }
        Err(errno) => failure::code(errno),
    }
}

/// Changes a QP, and returns its new state. `limit` is the maximum number of reads and atomics of each direction.
fn modify(
    pair: &QueuePair,
    changing: &Mutex<()>,
    attr: &ibv_qp_attr,
    (given, limit): (u32, u32),
) -> Result<State, Errno> {
    let _alone = unpoisoned(changing.lock());
    let given = relevant(pair.parts().service, given);
    let depths = [
        (mask::IBV_QP_MAX_QP_RD_ATOMIC, attr.max_rd_atomic),
        (mask::IBV_QP_MAX_DEST_RD_ATOMIC, attr.max_dest_rd_atomic),
    ];
    if depths.into_iter().any(|(bit, depth)| given & bit.0 != 0 && u32::from(depth) > limit) {
        return Err(Errno::INVALID);
    }
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
        let before = after.path;
        attributes::apply(&mut after, attr, given, path)?;
        // A connection keeps its path.
        if to == State::SendQueueDrain && after.path != before && matches!(pair.parts().reach, Reach::Connection) {
            return Err(Errno::NOT_SUPPORTED);
        }
        if to == State::ReadyToReceive && from == State::Init {
            reach_network(pair, &after)?;
        }
        match pair.change(from, to, after) {
            Ok(()) => return Ok(to),
            Err(errno) if pair.state() == from => return Err(errno),
            // The QP has failed since its state was read, so the attributes are checked again for the new state.
            Err(_) => {}
        }
    }
}

/// Lets a QP of a device on a network reach its peers.
fn reach_network(pair: &QueuePair, attributes: &Attributes) -> Result<(), Errno> {
    match pair.parts().reach {
        Reach::Connection if pair.parts().service != Service::Iwarp => {
            pair.set_connection(connection(pair, attributes)?)
        }
        Reach::Carrier(_) => wiring::roce().own(pair.number()).map_err(|errno| Errno(errno.raw_os_error())),
        Reach::Connection | Reach::Registry => Ok(()),
    }
}

/// Creates the connection of a QP on a network.
fn connection(pair: &QueuePair, attributes: &Attributes) -> Result<Arc<dyn Dedicated>, Errno> {
    let Attributes { path, path_mtu, destination_number, rq_psn, max_dest_rd_atomic, .. } = *attributes;
    let (parts, path) = (pair.parts(), path.ok_or(Errno::INVALID)?);
    let limit = socket::mtu(path.source).map_or(u32::MAX, |interface| socket::path_mtu(interface, socket::HEADERS));
    if path_mtu > limit {
        rdma_mummy_sys::log!(error, "a path MTU of {path_mtu} exceeds that of the interface, {limit}");
        return Err(Errno::INVALID);
    }
    let connected = wiring::roce().connect(Ends {
        number: pair.number(),
        service: parts.service,
        path,
        destination: destination_number,
        mtu: path_mtu,
        psn: rq_psn,
        depth: max_dest_rd_atomic,
        condition: parts.condition,
    });
    connected.map(|link| link as _).map_err(|error| {
        rdma_mummy_sys::log!(error, "{error}");
        Errno(error.errno())
    })
}
