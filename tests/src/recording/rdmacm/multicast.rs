//! Multicast groups of an identifier.

use libc::{c_int, c_void, sockaddr};
use rdma_mummy_sys as ffi;
use rdma_mummy_sys::{
    rdma_cm_event_type as event_type, rdma_cm_join_mc_attr_mask as mask, rdma_cm_mc_join_flags as flags,
};

use super::address::Address;
use super::attributes::address_handle;
use super::calls::{Access, On, answer, on_id};
use super::connect::{QKEY, no_datagram};
use super::endpoint::complete;
use super::events::{Pending, is_datagram, queue};
use super::id::{PATIENCE, State};
use super::raise::ConnectionParameters;
use crate::recording::control::{attach_mcast, detach_mcast};
use crate::recording::state::Inner;

/// A group that was joined.
pub(super) struct Group {
    pub(super) number: usize,
    address: Address,
    sends_only: bool,
    /// Where the queue pair was attached, once it was tried.
    joined: Option<ffi::ibv_gid>,
    /// Events that were taken, and acknowledged.
    pub(super) reported: u32,
    pub(super) completed: u32,
}

pub(super) unsafe extern "C" fn join_multicast(
    id: *mut ffi::rdma_cm_id,
    address: *mut sockaddr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    let address = unsafe { Address::read(address) };
    answer(on_id("rdma_join_multicast", id, Access::Reads, &[("context", context.addr() as u64)], |on| {
        join(on, address.ok_or(libc::EINVAL)?, false, context)
    }))
}

pub(super) unsafe extern "C" fn join_multicast_ex(
    id: *mut ffi::rdma_cm_id,
    attr: *mut ffi::rdma_cm_join_mc_attr_ex,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the attributes can be read by contract.
    let attr = unsafe { *attr };
    let arguments = [
        ("comp_mask", attr.comp_mask.into()),
        ("join_flags", attr.join_flags.into()),
        ("context", context.addr() as u64),
    ];
    answer(on_id("rdma_join_multicast_ex", id, Access::Reads, &arguments, |on| {
        if attr.comp_mask >= mask::RDMA_CM_JOIN_MC_ATTR_RESERVED.0 {
            return Err(libc::ENOTSUP);
        }
        let all = mask::RDMA_CM_JOIN_MC_ATTR_ADDRESS.0 | mask::RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS.0;
        if attr.comp_mask != all || attr.join_flags >= flags::RDMA_MC_JOIN_FLAG_RESERVED.0 {
            return Err(libc::EINVAL);
        }
        // SAFETY: an address by contract, as its bit is set.
        let address = unsafe { Address::read(attr.addr) };
        let sends_only = attr.join_flags == flags::RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER.0;
        join(on, address.ok_or(libc::EINVAL)?, sends_only, context)
    }))
}

fn join(on: On, address: Address, sends_only: bool, context: *mut c_void) -> Result<(), c_int> {
    {
        let mut inner = on.lock();
        let state = inner.manager.id(on.id.addr())?.state;
        let bound = matches!(state, State::Bound | State::AddressResolved) && inner.manager.id(on.id.addr())?.attached;
        if !bound || !is_datagram(on.id) {
            return Err(libc::EINVAL);
        }
        inner.manager.groups += 1;
        let number = inner.manager.groups;
        let group = Group { number, address, sends_only, joined: None, reported: 0, completed: 0 };
        inner.manager.id(on.id.addr())?.groups.push(group);
        let ah_attr = address_handle(Some(address));
        let parameters = ffi::rdma_ud_param { ah_attr, qp_num: 0xff_ffff, qkey: QKEY, ..no_datagram() };
        // As in C, the context of the group stands where private data does.
        let parameters = ConnectionParameters::Datagram(ffi::rdma_ud_param { private_data: context, ..parameters });
        let kind = event_type::RDMA_CM_EVENT_MULTICAST_JOIN;
        queue(&mut inner, Pending { parameters, group: Some(number), ..Pending::of(on.id, kind) });
    }
    complete(on)
}

/// The event that says that the group was joined attaches the queue pair.
pub(super) fn joined(on: On, pending: &Pending) -> Result<(), c_int> {
    let number = pending.group;
    let found = on.with(|id| {
        let group = id.groups.iter_mut().find(|group| Some(group.number) == number)?;
        let gid = group.address.gid();
        group.joined = Some(gid);
        Some((gid, group.sends_only))
    })?;
    // SAFETY: the identifier is alive.
    let qp = unsafe { (*on.id).qp };
    match found {
        Some((gid, false)) if !qp.is_null() => {
            // SAFETY: the queue pair is the identifier's.
            match unsafe { attach_mcast(qp, &gid, 0) } {
                0 => Ok(()),
                errno => Err(errno),
            }
        }
        _ => Ok(()),
    }
}

pub(super) unsafe extern "C" fn leave_multicast(id: *mut ffi::rdma_cm_id, address: *mut sockaddr) -> c_int {
    // SAFETY: the caller's promise.
    let address = unsafe { Address::read(address) };
    answer(on_id("rdma_leave_multicast", id, Access::Reads, &[], |on| leave(on, address.ok_or(libc::EINVAL)?)))
}

fn leave(on: On, address: Address) -> Result<(), c_int> {
    let mut inner = on.lock();
    let identifier = inner.manager.id(on.id.addr())?;
    // The one that was joined last comes first.
    let place = identifier.groups.iter().rposition(|group| group.address.bytes() == address.bytes());
    let place = place.ok_or(libc::EADDRNOTAVAIL)?;
    let Group { number, sends_only, joined, .. } = identifier.groups[place];
    let channel = identifier.channel;
    if let Some(channel) = inner.manager.channels.get_mut(&channel) {
        channel.remove(|pending| pending.group == Some(number));
    }
    drop(inner);
    // SAFETY: the identifier is alive, and its queue pair, if there is one.
    unsafe {
        let qp = (*on.id).qp;
        if !qp.is_null() && !sends_only {
            // As in C, what comes of it is of no interest; a GID of zeros stands for one that was never joined.
            detach_mcast(qp, &joined.unwrap_or(ffi::ibv_gid { raw: [0; 16] }), 0);
        }
    }
    let address = on.id.addr();
    let waits = |inner: &mut Inner| {
        let groups = inner
            .manager
            .id(address)
            .map(|id| id.groups.iter().any(|group| group.number == number && group.completed < group.reported));
        groups.unwrap_or(false)
    };
    let waited = on.device.state.acknowledged.wait_timeout_while(on.lock(), PATIENCE, waits);
    let (mut inner, timeout) = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
    if timeout.timed_out() {
        inner.violation("a group was left with an event that was never acknowledged");
    }
    inner.manager.id(address)?.groups.retain(|group| group.number != number);
    Ok(())
}
