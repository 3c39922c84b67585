//! `rdma_join_multicast` and `rdma_leave_multicast`: the multicast groups of an identifier.

use std::ffi::{c_int, c_void};
use std::net::SocketAddr;

use libc::sockaddr;
use rdma_mummy_sys::{
    ibv_gid, rdma_cm_event_type as event_type, rdma_cm_id, rdma_cm_join_mc_attr_ex, rdma_cm_join_mc_attr_mask as mask,
    rdma_cm_mc_join_flags as flags, rdma_ud_param,
};

use super::address::{gid, read};
use super::calls::{checked, return_code};
use super::endpoint::complete;
use super::events::{Parameters, Pending, is_datagram, no_datagram};
use super::id::State;
use super::peer::QKEY;
use super::transition::address_handle_to;
use super::{World, world, world_after};
use crate::sys::errno::Errno;
use crate::verbs::multicast::{attach_mcast, detach_mcast};
use crate::wire::address::Gid;
use crate::wire::packet::MULTICAST_NUMBER;

/// The error that the kernel returns if a port has no groups of the address family. libc does not define it.
const ENOTSUPP: c_int = 524;

/// A group that an identifier has joined.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    pub(super) number: u64,
    address: SocketAddr,
    sends_only: bool,
    /// Whether the QP is attached to the group.
    attached: bool,
    /// The numbers of reported and acknowledged events.
    pub(super) reported: u32,
    pub(super) completed: u32,
}

impl Group {
    fn gid(&self) -> Gid {
        gid(self.address.ip())
    }
}

/// `rdma_join_multicast(id, addr, context)`.
///
/// # Safety
///
/// As in C: the identifier is alive, and the address has the size of its family.
pub(super) unsafe extern "C" fn join_multicast(
    id: *mut rdma_cm_id,
    addr: *mut sockaddr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    let address = unsafe { read(addr) };
    return_code(address.and_then(|address| join(id, address.ok_or(Errno::INVALID)?, false, context)))
}

/// `rdma_join_multicast_ex(id, mc_join_attr, context)`.
///
/// # Safety
///
/// As in C: the identifier is alive, and the attributes are readable, with their address.
pub(super) unsafe extern "C" fn join_multicast_ex(
    id: *mut rdma_cm_id,
    mc_join_attr: *mut rdma_cm_join_mc_attr_ex,
    context: *mut c_void,
) -> c_int {
    let join = || {
        // SAFETY: guaranteed by the caller.
        let attr = unsafe { *mc_join_attr };
        if attr.comp_mask >= mask::RDMA_CM_JOIN_MC_ATTR_RESERVED.0 {
            return Err(Errno(libc::ENOTSUP));
        }
        let all = mask::RDMA_CM_JOIN_MC_ATTR_ADDRESS.0 | mask::RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS.0;
        if attr.comp_mask != all || attr.join_flags >= flags::RDMA_MC_JOIN_FLAG_RESERVED.0 {
            return Err(Errno::INVALID);
        }
        // SAFETY: guaranteed by the caller: the bit of `addr` is set.
        let address = unsafe { read(attr.addr) }?.ok_or(Errno::INVALID)?;
        let sends_only = attr.join_flags == flags::RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER.0;
        join(id, address, sends_only, context)
    };
    return_code(join())
}

fn join(id: *mut rdma_cm_id, address: SocketAddr, sends_only: bool, context: *mut c_void) -> Result<(), Errno> {
    {
        let mut world = world();
        world.groups += 1;
        let number = world.groups;
        let identifier = world.id(id.addr())?;
        // SAFETY: the identifier is alive.
        let (datagram, attached) = unsafe { (is_datagram(id), !(*id).verbs.is_null()) };
        let early = matches!(identifier.state, State::Bound | State::AddressResolved | State::RouteResolved);
        if !datagram || !attached || !early || !gid(address.ip()).is_multicast() {
            return Err(Errno::INVALID);
        }
        // As in the kernel, only groups with IPv4 addresses are supported for RoCE v2.
        if address.is_ipv6() {
            return Err(Errno(ENOTSUPP));
        }
        if identifier.groups.iter().any(|group| group.address.ip() == address.ip()) {
            return Err(Errno(libc::EADDRINUSE));
        }
        let group = Group { number, address, sends_only, attached: false, reported: 0, completed: 0 };
        let ah_attr = address_handle_to(identifier, group.gid().0);
        identifier.groups.push(group);
        // As in C, the pointer to the private data contains the context of the group.
        let private_data = context.cast_const();
        let parameters = rdma_ud_param { ah_attr, qp_num: MULTICAST_NUMBER, qkey: QKEY, private_data, ..no_datagram() };
        let parameters = Parameters::Datagram(parameters);
        let kind = event_type::RDMA_CM_EVENT_MULTICAST_JOIN;
        world.put(Pending { parameters, group: Some(number), ..Pending::new(id.addr(), kind) });
    }
    complete(id)
}

/// Attaches the QP to the group when the program takes the event of the join.
pub(super) fn joined(id: *mut rdma_cm_id, number: Option<u64>) -> Result<(), Errno> {
    // SAFETY: the identifier is alive, because its event is not acknowledged.
    let qp = unsafe { (*id).qp };
    let found = world().id(id.addr())?.groups.iter().find(|group| Some(group.number) == number).copied();
    let Some(group) = found.filter(|group| !group.sends_only && !qp.is_null()) else { return Ok(()) };
    // SAFETY: the QP belongs to the identifier.
    checked(unsafe { attach_mcast(qp, &ibv_gid { raw: group.gid().0 }, 0) })?;
    if let Some(group) = world().id(id.addr())?.groups.iter_mut().find(|group| Some(group.number) == number) {
        group.attached = true;
    }
    Ok(())
}

/// `rdma_leave_multicast(id, addr)`: waits until all events of the group that were taken are acknowledged.
///
/// # Safety
///
/// As in C: the identifier is alive, and the address has the size of its family.
pub(super) unsafe extern "C" fn leave_multicast(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int {
    // SAFETY: guaranteed by the caller.
    let address = unsafe { read(addr) };
    return_code(address.and_then(|address| leave(id, address.ok_or(Errno::INVALID)?)))
}

fn leave(id: *mut rdma_cm_id, address: SocketAddr) -> Result<(), Errno> {
    let group = {
        let mut world = world();
        let identifier = world.id(id.addr())?;
        let place = identifier.groups.iter().rposition(|group| group.address.ip() == address.ip());
        let group = identifier.groups[place.ok_or(Errno(libc::EADDRNOTAVAIL))?];
        let channel = identifier.channel;
        if let Some(channel) = world.channels.get_mut(&channel) {
            channel.remove(|pending| pending.group == Some(group.number));
        }
        group
    };
    // SAFETY: the identifier is alive.
    let qp = unsafe { (*id).qp };
    if group.attached && !qp.is_null() {
        // SAFETY: the QP belongs to the identifier. An error of the detach is ignored.
        unsafe { detach_mcast(qp, &ibv_gid { raw: group.gid().0 }, 0) };
    }
    let waits = |world: &mut World| {
        let group = world.id(id.addr()).ok().and_then(|id| id.groups.iter().find(|one| one.number == group.number));
        group.is_some_and(|group| group.completed < group.reported)
    };
    let mut world = world_after(waits);
    world.id(id.addr())?.groups.retain(|one| one.number != group.number);
    Ok(())
}
