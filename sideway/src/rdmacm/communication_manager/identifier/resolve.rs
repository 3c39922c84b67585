//! The active side: finding the device and the way to a peer.

use std::net::SocketAddr;
use std::ptr;
use std::time::Duration;

use libc::c_int;
use rdma_mummy_sys as sys;
use rdma_mummy_sys::{rdma_cm_id, rdma_ib_addr};

use super::Identifier;
use crate::error::VerbError;
use crate::ibverbs::address::Gid;
use crate::rdmacm::communication_manager::socket_address::RawAddress;
use crate::rdmacm::communication_manager::{Address, InfiniBandAddress, PathRecord};

impl Identifier {
    /// `rdma_resolve_addr(id, src_addr, dst_addr, timeout_ms)` — looks for the device that leads to `destination`, and for the
    /// hardware address there, within `timeout` (whole milliseconds, at most about 24 days). From `source`, which is an address of
    /// this machine, or from the one that the routing table gives.
    /// [`AddressResolved`](super::super::EventKind::AddressResolved) or
    /// [`AddressError`](super::super::EventKind::AddressError) comes.
    ///
    /// # Errors
    ///
    /// - `ENETUNREACH`, `EHOSTUNREACH`: the routing table has no way there.
    /// - `ENODEV`, `EADDRNOTAVAIL`: no RDMA device has `source`.
    /// - `EINVAL`: an address is resolved already, or the two are of different families.
    ///
    /// # References
    ///
    /// [rdma_resolve_addr(3)](https://man7.org/linux/man-pages/man3/rdma_resolve_addr.3.html)
    #[doc(alias = "rdma_resolve_addr")]
    pub fn resolve_addr(
        &self,
        source: Option<SocketAddr>,
        destination: SocketAddr,
        timeout: Duration,
    ) -> Result<(), VerbError> {
        self.resolve(source.map(Address::from), destination.into(), timeout)
    }

    /// `rdma_resolve_addr(id, src_addr, dst_addr, timeout_ms)` — the same with addresses of InfiniBand's own.
    ///
    /// # Errors
    ///
    /// As [`resolve_addr`](Self::resolve_addr); `ENODEV` also where no port of an InfiniBand device is in the partition.
    ///
    /// # References
    ///
    /// [rdma_resolve_addr(3)](https://man7.org/linux/man-pages/man3/rdma_resolve_addr.3.html)
    #[doc(alias = "rdma_resolve_addr")]
    pub fn resolve_ib_addr(
        &self,
        source: Option<InfiniBandAddress>,
        destination: InfiniBandAddress,
        timeout: Duration,
    ) -> Result<(), VerbError> {
        self.resolve(source.map(Address::from), destination.into(), timeout)
    }

    fn resolve(&self, source: Option<Address>, destination: Address, timeout: Duration) -> Result<(), VerbError> {
        let mut source_raw = source.map(RawAddress::from);
        let mut destination_raw = RawAddress::from(destination);
        let source_raw = source_raw.as_mut().map_or(ptr::null_mut(), RawAddress::as_mut_ptr);
        // SAFETY: the identifier is live, and the addresses can be read for the whole call.
        self.call("rdma_resolve_addr", |id| unsafe {
            sys::rdma_resolve_addr(id, source_raw, destination_raw.as_mut_ptr(), milliseconds(timeout))
        })
        .map_err(|error| explain_address(error, source, destination))
    }

    /// `rdma_resolve_route(id, timeout_ms)` — looks for the route to the resolved address, within `timeout` (whole milliseconds, at
    /// most about 24 days). [`RouteResolved`](super::super::EventKind::RouteResolved) or
    /// [`RouteError`](super::super::EventKind::RouteError) comes.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: no address is resolved.
    /// - `ENODEV`: the address is one of this machine that leads to no RDMA device, such as 127.0.0.1.
    ///
    /// # References
    ///
    /// [rdma_resolve_route(3)](https://man7.org/linux/man-pages/man3/rdma_resolve_route.3.html)
    #[doc(alias = "rdma_resolve_route")]
    pub fn resolve_route(&self, timeout: Duration) -> Result<(), VerbError> {
        // SAFETY: the identifier is live, and on a device, which the library looks at.
        self.call_on_device("rdma_resolve_route", |id| unsafe { sys::rdma_resolve_route(id, milliseconds(timeout)) })
            .map_err(|error| explain_route(error, self.peer()))
    }
}

/// For C: whole milliseconds, rounded up, as many as there are.
pub(super) fn milliseconds(timeout: Duration) -> c_int {
    c_int::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX)
}

#[cold]
pub(in crate::rdmacm::communication_manager) fn explain_address(
    error: VerbError,
    source: Option<Address>,
    destination: Address,
) -> VerbError {
    let families = source.map(|source| (source.family(), destination.family())).filter(|(one, other)| one != other);
    let from = source.map(|source| format!(" from {source}")).unwrap_or_default();
    if let (Some((one, other)), libc::EINVAL) = (families, error.errno().raw()) {
        return error
            .with_hint(format!("resolving {destination}{from}: one address is of {one} and the other of {other}"));
    }
    let why = match error.errno().raw() {
        libc::ENETUNREACH | libc::EHOSTUNREACH => ": the routing table has no way there (`ip route get` shows)",
        libc::ENODEV | libc::EADDRNOTAVAIL if source.is_some() => ": no RDMA device has the source address",
        libc::ENODEV if destination.infiniband().is_some() => {
            ": no port of an InfiniBand device leads there (RoCE has no routes to such addresses)"
        }
        libc::ENODEV => ": no RDMA device leads there (`rdma link` shows which network devices have one)",
        libc::EINVAL => ": perhaps an address is resolved already: an identifier resolves one",
        _ => "",
    };
    error.with_hint(format!("resolving {destination}{from}{why}"))
}

#[cold]
fn explain_route(error: VerbError, destination: Option<Address>) -> VerbError {
    let Some(destination) = destination.filter(|_| error.hint().is_none()) else { return error };
    let ip = destination.ip().map(|address| address.ip());
    let is_of_this_machine = ip.is_some_and(|ip| ip.is_loopback() || ip.is_unspecified());
    let why = match error.errno().raw() {
        libc::ENODEV if destination.infiniband().is_some() => {
            ": no InfiniBand device leads there (RoCE has no routes to such addresses)"
        }
        libc::ENODEV if is_of_this_machine => ": the address leads to no RDMA device: use one that a device has",
        libc::ENODEV => ": the address leads to no RDMA device",
        libc::EINVAL => ": perhaps the address is not resolved, or the route is already",
        _ => "",
    };
    error.with_hint(format!("resolving the route to {destination}{why}"))
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_c_cannot_count_is_the_longest_it_can() {
        assert_eq!(milliseconds(Duration::ZERO), 0);
        assert_eq!(milliseconds(Duration::from_nanos(1)), 1);
        assert_eq!(milliseconds(Duration::from_millis(2000)), 2000);
        assert_eq!(milliseconds(Duration::from_millis(i32::MAX as u64)), i32::MAX);
        assert_eq!(milliseconds(Duration::from_millis(i32::MAX as u64 + 1)), i32::MAX);
        assert_eq!(milliseconds(Duration::MAX), i32::MAX);
    }
}
