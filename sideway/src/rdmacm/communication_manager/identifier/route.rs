//! The way to the peer.

use rdma_mummy_sys::{rdma_cm_id, rdma_ib_addr};

use super::Identifier;
use crate::ibverbs::address::Gid;
use crate::rdmacm::communication_manager::PathRecord;

impl Identifier {
    /// `id->route.path_rec`, `id->route.num_paths` — the ways to the peer. One, once the route is resolved or the connect request
    /// is there; before, and on iWARP, none.
    ///
    /// # References
    ///
    /// [rdma_resolve_route(3)](https://man7.org/linux/man-pages/man3/rdma_resolve_route.3.html)
    #[doc(alias = "rdma_route")]
    pub fn paths(&self) -> Vec<PathRecord> {
        // SAFETY: the identifier is live, and nobody else uses it, so that the records stay as they are meanwhile.
        self.with(|id| unsafe { copy_paths(id) })
    }

    /// `id->route.addr.addr.ibaddr.sgid` — the GID of this side's port; `None` before the identifier is on a device, and on iWARP.
    #[doc(alias = "rdma_ib_addr")]
    pub fn local_gid(&self) -> Option<Gid> {
        Some(Gid::from(self.ib_address().sgid)).filter(|gid| !gid.is_zero())
    }

    /// `id->route.addr.addr.ibaddr.dgid` — the GID of the peer's port; `None` before it is known, and on iWARP.
    pub fn peer_gid(&self) -> Option<Gid> {
        Some(Gid::from(self.ib_address().dgid)).filter(|gid| !gid.is_zero())
    }

    /// `id->route.addr.addr.ibaddr.pkey` — the P_Key of the partition, in host order; `None` before the identifier is on a device,
    /// and elsewhere than on InfiniBand.
    pub fn pkey(&self) -> Option<u16> {
        Some(u16::from_be(self.ib_address().pkey)).filter(|&pkey| pkey != 0)
    }

    fn ib_address(&self) -> rdma_ib_addr {
        // SAFETY: the identifier is live, and nobody else uses it; the union has this member alone.
        self.with(|id| unsafe { (*id).route.addr.addr.ibaddr })
    }
}

/// # Safety
///
/// The identifier is live, and nobody else writes to it.
unsafe fn copy_paths(id: *mut rdma_cm_id) -> Vec<PathRecord> {
    // SAFETY: the caller's promise.
    let (records, count) = unsafe { ((*id).route.path_rec, (*id).route.num_paths) };
    if records.is_null() {
        return Vec::new();
    }
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: the library has so many records there, each of them written, and keeps them until it has others.
    (0..count).map(|index| PathRecord::from_raw(unsafe { *records.add(index) })).collect()
}
