//! The state transitions of the QP of an identifier: the attributes of each state, and the transitions that the library
//! makes.

use std::ffi::c_int;
use std::io;
use std::mem;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use rdma_mummy_sys::{
    ibv_access_flags as access, ibv_ah_attr, ibv_gid, ibv_qp, ibv_qp_attr, ibv_qp_attr_mask as mask,
    ibv_qp_state as qp_state, ibv_qp_type, rdma_cm_id,
};

use super::address::gid;
use super::calls::{checked, return_code};
use super::events::is_datagram;
use super::id::{Identifier, State};
use super::peer::QKEY;
use super::route::HOPS;
use super::{device, world};
use crate::qp::registry::QpRegistry;
use crate::sys::credentials::is_this_process;
use crate::sys::errno::Errno;
use crate::verbs::gid::index_of;
use crate::verbs::kind::Kind;
use crate::verbs::port::PORT;
use crate::verbs::queue_pair::modify_qp;
use crate::wire::transport::Fabric;

/// The local ACK timeout as the exponent n in 4.096 µs × 2^n, which is 67 ms.
pub(super) const TIMEOUT: u8 = 14;

/// Returns the path to the peer of an identifier.
pub(super) fn address_handle(id: &Identifier) -> ibv_ah_attr {
    address_handle_to(id, id.destination.map(|to| gid(to.ip()).0).unwrap_or_default())
}

pub(super) fn address_handle_to(id: &Identifier, to: [u8; 16]) -> ibv_ah_attr {
    // SAFETY: the type has only numbers, for which zero is valid.
    let mut attr: ibv_ah_attr = unsafe { mem::zeroed() };
    let source = id.source.map(|source| gid(source.ip()));
    (attr.is_global, attr.port_num) = (1, PORT);
    attr.grh.dgid = ibv_gid { raw: to };
    attr.grh.sgid_index = index_of(&|gid| Some(gid) == source).unwrap_or(0);
    (attr.grh.hop_limit, attr.grh.traffic_class) = (HOPS, id.options.traffic_class);
    attr
}

/// Returns the first PSN that the QP sends, and the first one that it expects.
fn starting_psns(id: &Identifier) -> (u32, u32) {
    match id.fabric {
        Fabric::Host | Fabric::Iwarp => (id.psn, id.remote_psn),
        Fabric::Roce => (id.remote_psn, id.psn),
    }
}

fn all(bits: &[mask]) -> u32 {
    bits.iter().fold(0, |all, one| all | one.0)
}

/// Returns the attributes that a QP needs in a state, and their mask.
fn attributes(id: *mut rdma_cm_id, state: qp_state) -> Result<(ibv_qp_attr, u32), Errno> {
    // SAFETY: the identifier is alive; the attributes are numbers only.
    let (datagram, kind, attached, mut attr) =
        unsafe { (is_datagram(id), (*id).qp_type, !(*id).verbs.is_null(), mem::zeroed::<ibv_qp_attr>()) };
    // SAFETY: the device of the identifier is open, or absent.
    let limits = unsafe { Kind::of((*id).verbs) }.limits;
    let mut world = world();
    let id = world.current(id.addr())?;
    if !attached {
        return Err(Errno::INVALID);
    }
    attr.qp_state = state;
    let requests = matches!(kind, ibv_qp_type::IBV_QPT_RC | ibv_qp_type::IBV_QPT_XRC_SEND);
    let responds = matches!(kind, ibv_qp_type::IBV_QPT_RC | ibv_qp_type::IBV_QPT_XRC_RECV);
    let only = |such: bool, bits: &[mask]| if such { all(bits) } else { 0 };
    let basics = all(&[mask::IBV_QP_STATE, mask::IBV_QP_PKEY_INDEX, mask::IBV_QP_PORT]);
    attr.port_num = PORT;
    if datagram {
        attr.qkey = QKEY;
        return Ok((attr, basics | mask::IBV_QP_QKEY.0));
    }
    if matches!(id.state, State::Idle | State::Bound | State::AddressResolved | State::RouteResolved | State::Listening)
    {
        return Ok((attr, basics | mask::IBV_QP_ACCESS_FLAGS.0));
    }
    // The packets may show that the peer has ended its attempt to connect.
    if matches!(id.state, State::Closed | State::Destroyed) {
        return Err(Errno::INVALID);
    }
    match state {
        qp_state::IBV_QPS_INIT => {
            let reads = access::IBV_ACCESS_REMOTE_READ.0 | access::IBV_ACCESS_REMOTE_ATOMIC.0;
            let reads = if id.responder_resources > 0 { reads } else { 0 };
            attr.qp_access_flags = access::IBV_ACCESS_REMOTE_WRITE.0 | reads;
            Ok((attr, basics | mask::IBV_QP_ACCESS_FLAGS.0))
        }
        qp_state::IBV_QPS_RTR => {
            attr.ah_attr = address_handle(id);
            attr.path_mtu = id.roce.map_or(limits.active_mtu, |attached| attached.mtu());
            (attr.dest_qp_num, attr.rq_psn) = (id.remote_qp, starting_psns(id).1);
            attr.max_dest_rd_atomic = id.responder_resources;
            let path = [
                mask::IBV_QP_STATE,
                mask::IBV_QP_AV,
                mask::IBV_QP_PATH_MTU,
                mask::IBV_QP_DEST_QPN,
                mask::IBV_QP_RQ_PSN,
            ];
            let responder = only(responds, &[mask::IBV_QP_MAX_DEST_RD_ATOMIC, mask::IBV_QP_MIN_RNR_TIMER]);
            Ok((attr, all(&path) | responder))
        }
        qp_state::IBV_QPS_RTS => {
            attr.sq_psn = starting_psns(id).0;
            let requested = id.roce.and_then(|attached| attached.ack_timeout());
            attr.timeout = id.options.ack_timeout.or(requested).unwrap_or(TIMEOUT);
            (attr.retry_cnt, attr.rnr_retry) = (id.retry_count.min(7), id.rnr_retry_count.min(7));
            attr.max_rd_atomic = id.initiator_depth;
            let retries = [mask::IBV_QP_RETRY_CNT, mask::IBV_QP_RNR_RETRY, mask::IBV_QP_MAX_QP_RD_ATOMIC];
            let timeout = only(requests || responds, &[mask::IBV_QP_TIMEOUT]);
            let start = all(&[mask::IBV_QP_STATE, mask::IBV_QP_SQ_PSN]);
            Ok((attr, start | only(requests, &retries) | timeout))
        }
        _ => Err(Errno::INVALID),
    }
}

/// `rdma_init_qp_attr(id, qp_attr, qp_attr_mask)`: reads the state from the attributes, and writes all attributes that
/// this state needs.
///
/// # Safety
///
/// As in C: the identifier is alive, the attributes are readable and writable, and the mask is writable.
pub(super) unsafe extern "C" fn init_qp_attr(
    id: *mut rdma_cm_id,
    qp_attr: *mut ibv_qp_attr,
    qp_attr_mask: *mut c_int,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    let state = unsafe { (*qp_attr).qp_state };
    let initialised = attributes(id, state).map(|(attr, bits)| {
        // SAFETY: guaranteed by the caller. The mask fits into an `int`.
        unsafe {
            qp_attr.write(attr);
            qp_attr_mask.write(bits as c_int);
        }
    });
    return_code(initialised)
}

fn modify(qp: *mut ibv_qp, attr: &mut ibv_qp_attr, bits: u32) -> Result<(), Errno> {
    // SAFETY: the QP belongs to the identifier, and lives as long as the identifier.
    unsafe { device::present((*qp).context)? };
    // SAFETY: the QP belongs to the identifier, and lives as long as the identifier. The caller holds no lock for which
    // the call could wait.
    checked(unsafe { modify_qp(qp, attr, bits as c_int) })
}

fn change(id: *mut rdma_cm_id, qp: *mut ibv_qp, state: qp_state) -> Result<(), Errno> {
    let (mut attr, bits) = attributes(id, state)?;
    modify(qp, &mut attr, bits)
}

/// Moves a new QP to the last state that it can reach without a peer.
pub(super) fn initialise(id: *mut rdma_cm_id, qp: *mut ibv_qp) -> Result<(), Errno> {
    change(id, qp, qp_state::IBV_QPS_INIT)?;
    // SAFETY: the identifier is alive; the attributes are numbers only.
    let (datagram, mut attr) = unsafe { (is_datagram(id), mem::zeroed::<ibv_qp_attr>()) };
    if !datagram {
        return Ok(());
    }
    attr.qp_state = qp_state::IBV_QPS_RTR;
    modify(qp, &mut attr, mask::IBV_QP_STATE.0)?;
    attr.qp_state = qp_state::IBV_QPS_RTS;
    modify(qp, &mut attr, all(&[mask::IBV_QP_STATE, mask::IBV_QP_SQ_PSN]))
}

fn queue_pair(id: *mut rdma_cm_id) -> Option<*mut ibv_qp> {
    // SAFETY: the identifier is alive.
    Some(unsafe { (*id).qp }).filter(|qp| !qp.is_null())
}

pub(super) fn ready_to_receive(id: *mut rdma_cm_id) -> Result<(), Errno> {
    let Some(qp) = queue_pair(id) else { return Ok(()) };
    change(id, qp, qp_state::IBV_QPS_INIT)?;
    let (mut attr, bits) = attributes(id, qp_state::IBV_QPS_RTR)?;
    // A connection whose peer cannot be reached fails now. Otherwise it would be established, and each message would be
    // retransmitted in vain.
    let link = world().id(id.addr())?.link.as_ref().map(|link| Arc::clone(&link.socket));
    if link.is_some_and(|link| !is_this_process(link.as_fd())) {
        QpRegistry::of_process().reach(attr.dest_qp_num).inspect_err(|errno| {
            rdma_mummy_sys::log!(warn, "cannot connect to another process: {}", io::Error::from_raw_os_error(errno.0));
        })?;
    }
    modify(qp, &mut attr, bits)
}

pub(super) fn ready_to_send(id: *mut rdma_cm_id) -> Result<(), Errno> {
    let Some(qp) = queue_pair(id) else { return Ok(()) };
    change(id, qp, qp_state::IBV_QPS_RTS)
}

pub(super) fn to_error(id: *mut rdma_cm_id) -> Result<(), Errno> {
    world().id(id.addr())?;
    let Some(qp) = queue_pair(id) else { return Ok(()) };
    // SAFETY: the type has only numbers, for which zero is valid.
    let mut attr: ibv_qp_attr = unsafe { mem::zeroed() };
    attr.qp_state = qp_state::IBV_QPS_ERR;
    modify(qp, &mut attr, mask::IBV_QP_STATE.0)
}
