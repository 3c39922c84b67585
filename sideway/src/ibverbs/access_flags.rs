//! What a memory region allows.

use rdma_mummy_sys::{ib_uverbs_access_flags, ibv_access_flags as raw};

bitflags::bitflags! {
    /// `enum ibv_access_flags`: what a memory region, a memory window or a queue pair lets be done.
    ///
    /// Local reading is always allowed. A device that does not know a flag refuses the registration, except for the flags
    /// of [`OPTIONAL`](Self::OPTIONAL), which it leaves out.
    ///
    /// References: [ibv_reg_mr(3)](https://man7.org/linux/man-pages/man3/ibv_reg_mr.3.html).
    #[doc(alias = "ibv_access_flags")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct AccessFlags: u32 {
        /// The device may write the region for local requests: receives, reads and atomics of this side.
        const LocalWrite = raw::IBV_ACCESS_LOCAL_WRITE.0;
        /// Peers may write; needs [`LocalWrite`](Self::LocalWrite).
        const RemoteWrite = raw::IBV_ACCESS_REMOTE_WRITE.0;
        /// Peers may read.
        const RemoteRead = raw::IBV_ACCESS_REMOTE_READ.0;
        /// Peers may do atomics; needs [`LocalWrite`](Self::LocalWrite).
        const RemoteAtomic = raw::IBV_ACCESS_REMOTE_ATOMIC.0;
        /// Memory windows may be bound to the region. A window gives peers reading, and with
        /// [`LocalWrite`](Self::LocalWrite) writing and atomics, also where the region itself does not.
        const MemoryWindowBind = raw::IBV_ACCESS_MW_BIND.0;
        /// Requests count from the start of the region or window instead of naming virtual addresses.
        const ZeroBased = raw::IBV_ACCESS_ZERO_BASED.0;
        /// On-demand paging: pages are not pinned; the device faults them in when it needs them, and the kernel may take
        /// them away. Registering is quick and locks no memory, and the first access to a page is slow, which
        /// [`advise_mr`](super::protection_domain::ProtectionDomain::advise_mr) helps against. What a device can do so is told by
        /// [`OdpCapabilities`](super::device_context::OdpCapabilities).
        const OnDemand = raw::IBV_ACCESS_ON_DEMAND.0;
        /// With [`OnDemand`](Self::OnDemand): all of the memory is in huge pages, so that the device maps it in larger steps.
        /// For pinned memory drivers find huge pages by themselves.
        const HugeTlb = raw::IBV_ACCESS_HUGETLB.0;
        /// Peers may flush their writes to where every observer sees them. rdma-core 45.
        const FlushGlobal = raw::IBV_ACCESS_FLUSH_GLOBAL.0;
        /// Peers may flush their writes to where they survive a loss of power. rdma-core 45.
        const FlushPersistent = raw::IBV_ACCESS_FLUSH_PERSISTENT.0;
        /// Writes to the region may become visible out of order, with those of one message too: only the completion tells
        /// that all are there. Faster on some platforms. Optional: ignored where it is not supported.
        const RelaxedOrdering = raw::IBV_ACCESS_RELAXED_ORDERING.0;
        // Later kernels' flags pass through.
        const _ = !0;
    }
}

impl AccessFlags {
    /// All bits, with a name or without, that a device may ignore rather than refuse.
    #[doc(alias = "IBV_ACCESS_OPTIONAL_FIRST")]
    #[doc(alias = "IB_UVERBS_ACCESS_OPTIONAL_RANGE")]
    pub const OPTIONAL: Self = Self::from_bits_retain(ib_uverbs_access_flags::IB_UVERBS_ACCESS_OPTIONAL_RANGE.0);

    /// The flags that let nobody but this side's requests, and peers that read, at the bytes.
    const NO_REMOTE_CHANGE: Self = Self::LocalWrite
        .union(Self::RemoteRead)
        .union(Self::ZeroBased)
        .union(Self::OnDemand)
        .union(Self::HugeTlb)
        .union(Self::FlushGlobal)
        .union(Self::FlushPersistent)
        .union(Self::RelaxedOrdering);

    /// Whether a peer may change memory that is registered so: by a write, by an atomic, or through a window. A flag that
    /// this version of the crate does not know counts as leave to do so.
    pub const fn peers_may_write(self) -> bool {
        !self.difference(Self::NO_REMOTE_CHANGE).is_empty()
    }

    /// Whether a peer may read memory that is registered so; one that may write may read.
    pub const fn peers_may_read(self) -> bool {
        self.peers_may_write() || self.contains(Self::RemoteRead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_peers_may_do_follows_from_the_flags_and_unknown_ones_count_as_writing() {
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
