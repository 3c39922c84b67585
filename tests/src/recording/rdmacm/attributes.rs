//! What a queue pair needs to connect: the attributes of each state, and the transitions that the library makes itself.

use libc::c_int;
use rdma_mummy_sys as ffi;
use rdma_mummy_sys::ibv_qp_attr_mask as mask;

use super::address::Address;
use super::calls::{Access, On, answer, on_id};
use super::connect::QKEY;
use super::events::is_datagram;
use super::id::State;
use crate::recording::control::set_ece;
use crate::recording::objects::forever;
use crate::recording::qp::modify_qp;

/// The way to an address.
pub(super) fn address_handle(to: Option<Address>) -> ffi::ibv_ah_attr {
    // SAFETY: a struct of integers.
    let mut attr: ffi::ibv_ah_attr = unsafe { std::mem::zeroed() };
    attr.is_global = 1;
    attr.port_num = 1;
    attr.grh.hop_limit = 64;
    if let Some(to) = to {
        attr.grh.dgid = to.gid();
    }
    attr
}

/// Writes the one path there is into the C struct, as for an InfiniBand device.
pub(super) fn path(on: On) {
    let record = forever::<ffi::ibv_sa_path_rec>();
    // SAFETY: the record is new, and the identifier is alive.
    unsafe {
        (*record).sgid = (*on.id).route.addr.addr.ibaddr.sgid;
        (*record).dgid = (*on.id).route.addr.addr.ibaddr.dgid;
        (*record).pkey = 0xffff;
        (*record).hop_limit = 64;
        (*record).reversible = 1;
        (*record).numb_path = 1;
        (*record).mtu_selector = 2;
        (*record).mtu = 3;
        (*record).rate_selector = 2;
        (*record).rate = 7;
        (*record).packet_life_time_selector = 2;
        (*record).packet_life_time = 16;
        (*on.id).route.path_rec = record;
        (*on.id).route.num_paths = 1;
    }
}

pub(super) unsafe extern "C" fn init_qp_attr(
    id: *mut ffi::rdma_cm_id,
    attr: *mut ffi::ibv_qp_attr,
    attr_mask: *mut c_int,
) -> c_int {
    // SAFETY: the state can be read by contract, and nothing else of the attributes is.
    let state = unsafe { (*attr).qp_state };
    answer(on_id("rdma_init_qp_attr", id, Access::Reads, &[("state", state.0.into())], |on| {
        // SAFETY: both can be written by contract.
        unsafe { init(on, state, attr, attr_mask) }
    }))
}

/// Writes what the library copies from the kernel: all but the state and the rate limit, whatever the mask says.
///
/// # Safety
///
/// Both pointers can be written to.
unsafe fn init(
    on: On,
    state: ffi::ibv_qp_state,
    attr: *mut ffi::ibv_qp_attr,
    attr_mask: *mut c_int,
) -> Result<(), c_int> {
    let (from_kernel, bits) = attributes(on, state)?;
    // SAFETY: the caller's promise.
    unsafe {
        macro_rules! copy {
            ($($field:ident)+) => { $( (*attr).$field = from_kernel.$field; )+ };
        }
        copy! {
            cur_qp_state path_mtu path_mig_state qkey rq_psn sq_psn dest_qp_num qp_access_flags cap ah_attr alt_ah_attr
            pkey_index alt_pkey_index en_sqd_async_notify sq_draining max_rd_atomic max_dest_rd_atomic min_rnr_timer
            port_num timeout retry_cnt rnr_retry alt_port_num alt_timeout
        }
        *attr_mask = bits as c_int;
        let mut inner = on.lock();
        inner.output("rdma_init_qp_attr: attr", attr);
        inner.output("rdma_init_qp_attr: mask", attr_mask);
    }
    Ok(())
}

/// One mask of many.
pub(super) fn all(masks: &[mask]) -> u32 {
    masks.iter().fold(0, |bits, one| bits | one.0)
}

/// What the kernel says.
fn attributes(on: On, state: ffi::ibv_qp_state) -> Result<(ffi::ibv_qp_attr, u32), c_int> {
    // SAFETY: a struct of integers.
    let mut attr: ffi::ibv_qp_attr = unsafe { std::mem::zeroed() };
    let (at, destination, remote_qp, depth, resources, attached) = on
        .with(|id| (id.state, id.destination, id.remote_qp, id.initiator_depth, id.responder_resources, id.attached))?;
    if !attached {
        return Err(libc::EINVAL);
    }
    attr.port_num = 1;
    let bits = all(&[mask::IBV_QP_STATE, mask::IBV_QP_PKEY_INDEX, mask::IBV_QP_PORT]);
    if is_datagram(on.id) {
        attr.qkey = QKEY;
        return Ok((attr, bits | mask::IBV_QP_QKEY.0));
    }
    if matches!(at, State::Idle | State::Bound | State::AddressResolved | State::RouteResolved | State::Listening) {
        return Ok((attr, bits | mask::IBV_QP_ACCESS_FLAGS.0));
    }
    let remote = ffi::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0;
    let reads = ffi::ibv_access_flags::IBV_ACCESS_REMOTE_READ.0 | ffi::ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC.0;
    match state {
        ffi::ibv_qp_state::IBV_QPS_INIT => {
            attr.qp_access_flags = remote | if resources > 0 { reads } else { 0 };
            Ok((attr, bits | mask::IBV_QP_ACCESS_FLAGS.0))
        }
        ffi::ibv_qp_state::IBV_QPS_RTR => {
            attr.ah_attr = address_handle(destination);
            attr.path_mtu = ffi::ibv_mtu::IBV_MTU_1024;
            attr.dest_qp_num = remote_qp;
            attr.rq_psn = 0x11;
            attr.max_dest_rd_atomic = resources;
            attr.min_rnr_timer = 0;
            let bits = all(&[
                mask::IBV_QP_STATE,
                mask::IBV_QP_AV,
                mask::IBV_QP_PATH_MTU,
                mask::IBV_QP_DEST_QPN,
                mask::IBV_QP_RQ_PSN,
                mask::IBV_QP_MAX_DEST_RD_ATOMIC,
                mask::IBV_QP_MIN_RNR_TIMER,
            ]);
            Ok((attr, bits))
        }
        ffi::ibv_qp_state::IBV_QPS_RTS => {
            attr.sq_psn = 0x12;
            (attr.timeout, attr.retry_cnt, attr.rnr_retry) = (14, 7, 7);
            attr.max_rd_atomic = depth;
            let bits = all(&[
                mask::IBV_QP_STATE,
                mask::IBV_QP_SQ_PSN,
                mask::IBV_QP_TIMEOUT,
                mask::IBV_QP_RETRY_CNT,
                mask::IBV_QP_RNR_RETRY,
                mask::IBV_QP_MAX_QP_RD_ATOMIC,
            ]);
            Ok((attr, bits))
        }
        _ => Err(libc::EINVAL),
    }
}

/// A transition of this queue pair with what the kernel says, changed.
pub(super) fn transition(
    on: On,
    qp: *mut ffi::ibv_qp,
    state: ffi::ibv_qp_state,
    change: impl FnOnce(&mut ffi::ibv_qp_attr),
) -> Result<(), c_int> {
    let (mut attr, bits) = attributes(on, state)?;
    attr.qp_state = state;
    change(&mut attr);
    modify(qp, &mut attr, bits)
}

/// A transition that takes nothing but the state, and perhaps the first number of a packet.
pub(super) fn modify(qp: *mut ffi::ibv_qp, attr: &mut ffi::ibv_qp_attr, bits: u32) -> Result<(), c_int> {
    // SAFETY: the queue pair is one of this provider's, which are never freed.
    match unsafe { modify_qp(qp, attr, bits as c_int) } {
        0 => Ok(()),
        errno => Err(errno),
    }
}

fn queue_pair(on: On) -> *mut ffi::ibv_qp {
    // SAFETY: the identifier is alive.
    unsafe { (*on.id).qp }
}

pub(super) fn ready_to_receive(on: On, resources: Option<u8>) -> Result<(), c_int> {
    let qp = queue_pair(on);
    if qp.is_null() {
        return Ok(());
    }
    transition(on, qp, ffi::ibv_qp_state::IBV_QPS_INIT, |_| {})?;
    transition(on, qp, ffi::ibv_qp_state::IBV_QPS_RTR, |attr| {
        if let Some(resources) = resources {
            attr.max_dest_rd_atomic = resources;
        }
    })
}

pub(super) fn ready_to_send(on: On, depth: Option<u8>) -> Result<(), c_int> {
    let qp = queue_pair(on);
    if qp.is_null() {
        return Ok(());
    }
    transition(on, qp, ffi::ibv_qp_state::IBV_QPS_RTS, |attr| {
        if let Some(depth) = depth {
            attr.max_rd_atomic = depth;
        }
    })
}

/// Tells the queue pair the extensions of the other side, once they are known, and leaves those that it takes with the
/// identifier. As in C, only a refusal of the connection counts.
pub(super) fn extend(on: On, qp: *mut ffi::ibv_qp) -> Result<(), c_int> {
    let mut ece = on.with(|id| id.remote_ece)?;
    if ece.vendor_id == 0 {
        return Ok(());
    }
    // SAFETY: the queue pair is one of this provider's, which are never freed.
    match unsafe { set_ece(qp, &mut ece) } {
        0 => on.with(|id| id.local_ece.options = ece.options),
        libc::ECONNREFUSED => Err(libc::ECONNREFUSED),
        _ => Ok(()),
    }
}

pub(super) fn to_error(on: On) -> Result<(), c_int> {
    let qp = queue_pair(on);
    if qp.is_null() {
        return Ok(());
    }
    // SAFETY: a struct of integers.
    let mut attr: ffi::ibv_qp_attr = unsafe { std::mem::zeroed() };
    attr.qp_state = ffi::ibv_qp_state::IBV_QPS_ERR;
    modify(qp, &mut attr, mask::IBV_QP_STATE.0)
}
