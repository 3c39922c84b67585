//! What a memory region allows.

use rdma_mummy_sys::ibv_access_flags as raw;

bitflags::bitflags! {
    /// `enum ibv_access_flags`: what a memory region, a memory window or a queue pair lets be done.
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
        /// Memory windows may be bound to the region.
        const MemoryWindowBind = raw::IBV_ACCESS_MW_BIND.0;
        /// Remote addresses count from the region's start instead of being virtual addresses.
        const ZeroBased = raw::IBV_ACCESS_ZERO_BASED.0;
        /// Pages are not pinned but faulted in when the device needs them (on-demand paging).
        const OnDemand = raw::IBV_ACCESS_ON_DEMAND.0;
        /// The memory is in huge pages (with on-demand paging).
        const HugeTlb = raw::IBV_ACCESS_HUGETLB.0;
        /// A flush to global visibility is allowed.
        const FlushGlobal = 1 << 8;
        /// A flush to persistence is allowed.
        const FlushPersistent = 1 << 9;
        /// The device may write in relaxed order. Optional: ignored where it is not supported.
        const RelaxedOrdering = raw::IBV_ACCESS_RELAXED_ORDERING.0;
        // Later kernels' flags pass through.
        const _ = !0;
    }
}
