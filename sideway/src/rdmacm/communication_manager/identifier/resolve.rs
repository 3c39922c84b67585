//! The active side: resolving address and route.

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
    /// `rdma_resolve_addr(id, src_addr, dst_addr, timeout_ms)` — resolves which device leads to `destination`, and the
    /// hardware address of the next hop, within `timeout` (whole milliseconds, at most about 24 days). `source` is an
    /// address of this machine. If it is `None`, the routing table selects the source address.
    /// [`AddressResolved`](super::super::EventKind::AddressResolved) or
    /// [`AddressError`](super::super::EventKind::AddressError) follows.
    ///
    /// # Errors
    ///
    /// - `ENETUNREACH`, `EHOSTUNREACH`: the routing table has no route to the address.
    /// - `ENODEV`, `EADDRNOTAVAIL`: no RDMA device has `source`.
    /// - `EINVAL`: an address is already resolved, or the two addresses belong to different families.
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

    /// `rdma_resolve_addr(id, src_addr, dst_addr, timeout_ms)` — resolves a native InfiniBand address, in the same way
    /// as [`resolve_addr`](Self::resolve_addr).
    ///
    /// # Errors
    ///
    /// The errors are those of [`resolve_addr`](Self::resolve_addr). In addition, returns `ENODEV` if no port of an
    /// InfiniBand device is in the partition.
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
        // SAFETY: the identifier is live, and the addresses are readable during the call.
        self.call("rdma_resolve_addr", |id| unsafe {
            sys::rdma_resolve_addr(id, source_raw, destination_raw.as_mut_ptr(), milliseconds(timeout))
        })
        .map_err(|error| explain_address(error, source, destination))
    }

    /// `rdma_resolve_route(id, timeout_ms)` — resolves the route to the resolved address, within `timeout` (whole
    /// milliseconds, at most about 24 days). [`RouteResolved`](super::super::EventKind::RouteResolved) or
    /// [`RouteError`](super::super::EventKind::RouteError) follows.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the address is not resolved yet.
    /// - `ENODEV`: the address is a local one that leads to no RDMA device, such as 127.0.0.1.
    ///
    /// # References
    ///
    /// [rdma_resolve_route(3)](https://man7.org/linux/man-pages/man3/rdma_resolve_route.3.html)
    #[doc(alias = "rdma_resolve_route")]
    pub fn resolve_route(&self, timeout: Duration) -> Result<(), VerbError> {
        // SAFETY: the identifier is live, and on a device, which the library reads.
        self.call_on_device("rdma_resolve_route", |id| unsafe { sys::rdma_resolve_route(id, milliseconds(timeout)) })
            .map_err(|error| explain_route(error, self.peer()))
    }
}

/// Converts a time to whole milliseconds for C. The result is rounded up, and limited to C's maximum.
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
        return error.with_hint(format!(
            "resolving {destination}{from}: one address is {one}, and the other is {other}; use \
                one family"
        ));
    }
    let why = match error.errno().raw() {
        libc::ENETUNREACH | libc::EHOSTUNREACH => ": the routing table has no route there; check with `ip route get`",
        libc::ENODEV | libc::EADDRNOTAVAIL if source.is_some() => {
            ": no RDMA device has the source address; use one \
            of a network device that `rdma link` lists"
        }
        libc::ENODEV if destination.infiniband().is_some() => {
            ": no port of an InfiniBand device leads there (RoCE has no routes to such addresses); use an IP address"
        }
        libc::ENODEV => ": no RDMA device leads there; use an address of a network device that `rdma link` lists",
        libc::EINVAL => ": an address may already be resolved; create another identifier",
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
            ": no InfiniBand device leads there (RoCE has no routes to such addresses); use an IP address"
        }
        libc::ENODEV if is_of_this_machine => ": the address leads to no RDMA device; use the address of a device",
        libc::ENODEV => ": the address leads to no RDMA device",
        libc::EINVAL => ": the address may not be resolved yet, or the route already is",
        _ => "",
    };
    error.with_hint(format!("resolving the route to {destination}{why}"))
}

impl Identifier {
    /// `id->route.path_rec`, `id->route.num_paths` — returns the paths to the peer. There is one path after the route
    /// was resolved or the connect request has arrived. Before that, and on iWARP, there is none.
    ///
    /// # References
    ///
    /// [rdma_resolve_route(3)](https://man7.org/linux/man-pages/man3/rdma_resolve_route.3.html)
    #[doc(alias = "rdma_route")]
    pub fn paths(&self) -> Vec<PathRecord> {
        // SAFETY: the identifier is live and locked, so the records do not change.
        self.with(|id| unsafe { copy_paths(id) })
    }

    /// `id->route.addr.addr.ibaddr.sgid` — returns the GID of this side's port. Returns `None` if the identifier does
    /// not have a device yet, and on iWARP.
    #[doc(alias = "rdma_ib_addr")]
    pub fn local_gid(&self) -> Option<Gid> {
        Some(Gid::from(self.ib_address().sgid)).filter(|gid| !gid.is_zero())
    }

    /// `id->route.addr.addr.ibaddr.dgid` — returns the GID of the peer's port. Returns `None` if the address is not
    /// resolved yet, and on iWARP.
    pub fn peer_gid(&self) -> Option<Gid> {
        Some(Gid::from(self.ib_address().dgid)).filter(|gid| !gid.is_zero())
    }

    /// `id->route.addr.addr.ibaddr.pkey` — returns the P_Key of the partition, in host order. Returns `None` if the
    /// identifier does not have a device yet, and on networks other than InfiniBand.
    pub fn pkey(&self) -> Option<u16> {
        Some(u16::from_be(self.ib_address().pkey)).filter(|&pkey| pkey != 0)
    }

    fn ib_address(&self) -> rdma_ib_addr {
        // SAFETY: the identifier is live and locked, and the union has only this member.
        self.with(|id| unsafe { (*id).route.addr.addr.ibaddr })
    }
}

/// # Safety
///
/// The identifier is live, and no other thread writes to it.
unsafe fn copy_paths(id: *mut rdma_cm_id) -> Vec<PathRecord> {
    // SAFETY: the caller upholds the contract of this function.
    let (records, count) = unsafe { ((*id).route.path_rec, (*id).route.num_paths) };
    if records.is_null() {
        return Vec::new();
    }
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: `records` points to `count` initialised records, which the library keeps until it stores others.
    (0..count).map(|index| PathRecord::from_raw(unsafe { *records.add(index) })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unrepresentable_timeout_is_longest_in_c() {
        assert_eq!(milliseconds(Duration::ZERO), 0);
        assert_eq!(milliseconds(Duration::from_nanos(1)), 1);
        assert_eq!(milliseconds(Duration::from_millis(2000)), 2000);
        assert_eq!(milliseconds(Duration::from_millis(i32::MAX as u64)), i32::MAX);
        assert_eq!(milliseconds(Duration::from_millis(i32::MAX as u64 + 1)), i32::MAX);
        assert_eq!(milliseconds(Duration::MAX), i32::MAX);
    }
}
