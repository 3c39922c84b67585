//! `rdma_resolve_route`. Exactly one route exists between two addresses.

use std::ffi::c_int;
use std::mem;

use rdma_mummy_sys::{ibv_gid, ibv_mtu, ibv_sa_path_rec, rdma_cm_event_type as event_type, rdma_cm_id};

use super::address::gid;
use super::calls::return_code;
use super::endpoint::complete;
use super::events::Pending;
use super::id::{State, free_path};
use super::roce::path_mtu_code;
use super::{World, world};
use crate::sys::errno::Errno;
use crate::verbs::port::PKEY;
use crate::wire::transport::Fabric;

pub(super) const HOPS: u8 = 64;
/// The selector of a path record that means "exactly".
const EXACTLY: u8 = 2;
/// The packet lifetime of a path, as the exponent n in 4.096 µs × 2^n; the kernel reports this value for Ethernet.
const LIFE_TIME: u8 = 16;
/// The code for a rate of 100 Gbit/s.
pub(super) const RATE: u8 = 16;

impl World {
    /// Queues the event that reports a resolved route.
    pub(super) fn route_resolved(&mut self, id: usize) -> Result<(), Errno> {
        let identifier = self.id(id)?;
        if identifier.state != State::AddressResolved {
            return Err(Errno::INVALID);
        }
        identifier.state = State::RouteResolved;
        self.put(Pending::new(id, event_type::RDMA_CM_EVENT_ROUTE_RESOLVED));
        Ok(())
    }

    /// Writes the path to the C struct.
    pub(super) fn write_path(&mut self, id: usize) -> Result<(), Errno> {
        let identifier = self.id(id)?;
        let (Some(source), Some(destination)) = (identifier.source, identifier.destination) else {
            return Err(Errno::INVALID);
        };
        let mtu = match (identifier.fabric, identifier.roce) {
            (Fabric::Roce, None) => ibv_mtu(path_mtu_code(gid(source.ip()))?.into()),
            (_, Some(attached)) => attached.mtu(),
            _ => ibv_mtu::IBV_MTU_4096,
        };
        // SAFETY: the type has only numbers, for which zero is valid.
        let zero: ibv_sa_path_rec = unsafe { mem::zeroed() };
        let path = ibv_sa_path_rec {
            sgid: ibv_gid { raw: gid(source.ip()).0 },
            dgid: ibv_gid { raw: gid(destination.ip()).0 },
            hop_limit: HOPS,
            traffic_class: identifier.options.traffic_class,
            reversible: 1,
            numb_path: 1,
            pkey: PKEY.to_be(),
            mtu_selector: EXACTLY,
            mtu: mtu.0 as u8,
            rate_selector: EXACTLY,
            rate: RATE,
            packet_life_time_selector: EXACTLY,
            packet_life_time: LIFE_TIME,
            ..zero
        };
        // SAFETY: the identifier is alive, and its path, if any, was created here.
        unsafe {
            free_path((*identifier.c).route.path_rec);
            (*identifier.c).route.path_rec = Box::into_raw(Box::new(path));
            (*identifier.c).route.num_paths = 1;
        }
        Ok(())
    }
}

/// `rdma_resolve_route(id, timeout_ms)`.
///
/// # Safety
///
/// As in C: the identifier is alive.
pub(super) unsafe extern "C" fn resolve_route(id: *mut rdma_cm_id, _timeout_ms: c_int) -> c_int {
    return_code(resolve_route_and_wait(id))
}

pub(super) fn resolve_route_and_wait(id: *mut rdma_cm_id) -> Result<(), Errno> {
    world().route_resolved(id.addr())?;
    complete(id)
}
