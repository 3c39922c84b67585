//! Access rights of memory regions.

use rdma_mummy_sys::{ib_uverbs_access_flags, ibv_access_flags as raw};

bitflags::bitflags! {
    /// `enum ibv_access_flags`: the access rights of a memory region, a memory window or a queue pair.
    ///
    /// Local reads are always permitted. A device that does not support a flag rejects the registration, except for the
    /// flags of [`OPTIONAL`](Self::OPTIONAL), which it ignores.
    ///
    /// References: [ibv_reg_mr(3)](https://man7.org/linux/man-pages/man3/ibv_reg_mr.3.html).
    #[doc(alias = "ibv_access_flags")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct AccessFlags: u32 {
        /// The device may write to the region for local requests: receives, reads and atomics.
        const LocalWrite = raw::IBV_ACCESS_LOCAL_WRITE.0;
        /// Peers may write. This flag requires [`LocalWrite`](Self::LocalWrite).
        const RemoteWrite = raw::IBV_ACCESS_REMOTE_WRITE.0;
        /// Peers may read.
        const RemoteRead = raw::IBV_ACCESS_REMOTE_READ.0;
        /// Peers may execute atomics. This flag requires [`LocalWrite`](Self::LocalWrite).
        const RemoteAtomic = raw::IBV_ACCESS_REMOTE_ATOMIC.0;
        /// Memory windows may be bound to the region. A window can grant reads to peers and, with
        /// [`LocalWrite`](Self::LocalWrite), writes and atomics, even if the region itself does not.
        const MemoryWindowBind = raw::IBV_ACCESS_MW_BIND.0;
        /// Requests use offsets from the start of the region or window instead of virtual addresses.
        const ZeroBased = raw::IBV_ACCESS_ZERO_BASED.0;
        /// On-demand paging: pages are not pinned; the device faults them in as needed, and the kernel may reclaim
        /// them. Registration is fast and locks no memory, but the first access to a page is slow;
        /// [`advise_mr`](super::protection_domain::ProtectionDomain::advise_mr) can prefetch it.
        /// [`OdpCapabilities`](super::device_context::OdpCapabilities) lists what a device supports.
        const OnDemand = raw::IBV_ACCESS_ON_DEMAND.0;
        /// With [`OnDemand`](Self::OnDemand), states that all of the memory is in huge pages, so that the device maps
        /// it in larger units. For pinned memory this flag is not needed, because drivers detect its huge pages
        /// themselves.
        const HugeTlb = raw::IBV_ACCESS_HUGETLB.0;
        /// Peers may flush their writes so that every observer sees them. rdma-core supports this since version 45.
        const FlushGlobal = raw::IBV_ACCESS_FLUSH_GLOBAL.0;
        /// Peers may flush their writes so that the data survives a power loss. rdma-core supports this since version 45.
        const FlushPersistent = raw::IBV_ACCESS_FLUSH_PERSISTENT.0;
        /// Writes to the region may become visible out of order, even within one message: only the completion
        /// guarantees that all writes have arrived. This is faster on some platforms. Devices that do not support the
        /// flag ignore it.
        const RelaxedOrdering = raw::IBV_ACCESS_RELAXED_ORDERING.0;
        // Unnamed bits are kept.
        const _ = !0;
    }
}

impl AccessFlags {
    /// All flags, including unnamed bits, that a device without support for them ignores instead of rejecting the
    /// registration.
    #[doc(alias = "IBV_ACCESS_OPTIONAL_FIRST")]
    #[doc(alias = "IB_UVERBS_ACCESS_OPTIONAL_RANGE")]
    pub const OPTIONAL: Self = Self::from_bits_retain(ib_uverbs_access_flags::IB_UVERBS_ACCESS_OPTIONAL_RANGE.0);

    /// The flags that do not permit a peer to change the memory: local requests may write, and peers may only read.
    const NO_REMOTE_CHANGE: Self = Self::LocalWrite
        .union(Self::RemoteRead)
        .union(Self::ZeroBased)
        .union(Self::OnDemand)
        .union(Self::HugeTlb)
        .union(Self::FlushGlobal)
        .union(Self::FlushPersistent)
        .union(Self::RelaxedOrdering);

    /// Whether peers may change memory registered with these flags, by a write, by an atomic, or through a window.
    /// Flags unknown to this version of the crate are treated as a permission to do so.
    pub const fn peers_may_write(self) -> bool {
        !self.difference(Self::NO_REMOTE_CHANGE).is_empty()
    }

    /// Whether peers may read memory registered with these flags. A permission to write implies the permission to read.
    pub const fn peers_may_read(self) -> bool {
        self.peers_may_write() || self.contains(Self::RemoteRead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peer_access_follows_from_flags_and_unknown_flags_permit_writes() {
        for (flags, write, read) in [
            (AccessFlags::empty(), false, false),
            (AccessFlags::LocalWrite | AccessFlags::RelaxedOrdering | AccessFlags::OnDemand, false, false),
            (AccessFlags::RemoteRead | AccessFlags::LocalWrite, false, true),
            (AccessFlags::RemoteWrite | AccessFlags::LocalWrite, true, true),
            (AccessFlags::RemoteAtomic | AccessFlags::LocalWrite, true, true),
            (AccessFlags::MemoryWindowBind, true, true),
            (AccessFlags::from_bits_retain(1 << 15), true, true),
            (AccessFlags::from_bits_retain(1 << 29), true, true),
        ] {
            assert_eq!((flags.peers_may_write(), flags.peers_may_read()), (write, read), "{flags:?}");
        }
    }

    #[test]
    fn optional_flags_are_bits_20_to_29() {
        assert_eq!(AccessFlags::OPTIONAL.bits(), ((1 << 30) - 1) & !((1 << 20) - 1));
        assert!(AccessFlags::OPTIONAL.contains(AccessFlags::RelaxedOrdering));
        assert!(!AccessFlags::OPTIONAL.intersects(AccessFlags::FlushPersistent | AccessFlags::HugeTlb));
    }
}
