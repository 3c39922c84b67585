//! `struct ibv_ah`.

mod header;
mod link;
mod reply_address;
#[cfg(test)]
mod tests;

use std::ffi::c_int;

use rdma_mummy_sys::{ibv_ah, ibv_ah_attr, ibv_pd};

use super::context::Context;
use super::failure::null;
use super::gid;
use super::object::Object;
use super::port::PORT;
use super::protection_domain::ProtectionDomain;
use crate::sys::errno::Errno;
use crate::sys::fork::PerProcess;
use crate::sys::usage::{Quota, Share, Use};
use crate::wire::address::{Gid, Path};
use crate::wire::limits::MAX_AH;

pub(crate) use self::link::resolve_eth_l2_from_gid;
pub(crate) use self::reply_address::{create_ah_from_wc, init_ah_from_wc};

/// An address handle.
#[repr(C)]
pub(crate) struct AddressHandle {
    pub(crate) c: ibv_ah,
    pub(crate) path: Path,
    uses: Vec<Use>,
    _share: Share,
}

static QUOTA: PerProcess<Quota> = PerProcess::new(Quota::new(MAX_AH), || Box::new(Quota::new(MAX_AH)));

// SAFETY: an `AddressHandle` starts with an `ibv_ah`.
unsafe impl Object for AddressHandle {
    type C = ibv_ah;
}

/// `ibv_create_ah(pd, attr)`.
///
/// # Safety
///
/// As in C: the domain is alive, and the attributes are readable.
pub(crate) unsafe extern "C" fn create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
    // SAFETY: guaranteed by the caller.
    match path(unsafe { &*attr }) {
        // SAFETY: guaranteed by the caller.
        Ok(path) => unsafe { create(pd, path) },
        Err(errno) => null(errno),
    }
}

/// Creates an address handle.
///
/// # Safety
///
/// The domain is alive.
unsafe fn create(pd: *mut ibv_pd, path: Path) -> *mut ibv_ah {
    // SAFETY: guaranteed by the caller; the context of a domain that is alive is open.
    let (domain, context, handle) =
        unsafe { (ProtectionDomain::of(pd), (*pd).context, Context::of((*pd).context).handle()) };
    let uses = vec![domain.usage.begin(), domain.domain.usage.begin()];
    match QUOTA.get().take() {
        Ok(share) => AddressHandle { c: ibv_ah { context, pd, handle }, path, uses, _share: share }.into_c(),
        Err(errno) => null(errno),
    }
}

/// `ibv_destroy_ah(ah)`. Requests that were posted before have their own copy of the path.
///
/// # Safety
///
/// As in C: the handle is alive, and no longer used.
pub(crate) unsafe extern "C" fn destroy_ah(ah: *mut ibv_ah) -> c_int {
    // SAFETY: guaranteed by the caller.
    drop(unsafe { AddressHandle::from_c(ah) });
    0
}

/// Reads the path from the attributes of an address handle or a connected QP.
///
/// This function does not check whether the peer is reachable. If it is not, the first request fails. The drivers of
/// the kernel check this here, and fail with `ETIMEDOUT` or `ENETUNREACH`.
///
/// # Errors
///
/// `EINVAL` if the port is not 1, if there is no global route, if the GID table is empty at the source index, if the
/// destination is zero, or if source and destination have different address families. As in the kernel's drivers, a
/// source of either family may be used with every multicast group.
pub(crate) fn path(attr: &ibv_ah_attr) -> Result<Path, Errno> {
    path_from(attr, gid::by_index)
}

fn path_from(attr: &ibv_ah_attr, gid_at: impl FnOnce(u32) -> Option<Gid>) -> Result<Path, Errno> {
    // SAFETY: all sixteen bytes of a GID are valid, whichever union member was written.
    let destination = Gid(unsafe { attr.grh.dgid.raw });
    if attr.port_num != PORT || attr.is_global == 0 || destination == Gid::ZERO {
        return Err(Errno::INVALID);
    }
    let source = gid_at(attr.grh.sgid_index.into()).ok_or(Errno::INVALID)?;
    if source.ipv4().is_some() != destination.ipv4().is_some() && !destination.is_multicast() {
        return Err(Errno::INVALID);
    }
    Ok(Path {
        destination,
        source,
        source_index: attr.grh.sgid_index,
        flow_label: attr.grh.flow_label & 0xf_ffff,
        hop_limit: attr.grh.hop_limit,
        traffic_class: attr.grh.traffic_class,
        service_level: attr.sl,
        port: attr.port_num,
        static_rate: attr.static_rate,
    })
}
