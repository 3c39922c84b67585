//! Flags of address lookups.

use rdma_mummy_sys as sys;
use rdma_mummy_sys::since_v44;

bitflags::bitflags! {
    /// `ai_flags` — flags of a lookup and of its results.
    ///
    /// References: [rdma_getaddrinfo(3)](https://man7.org/linux/man-pages/man3/rdma_getaddrinfo.3.html).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct AddressInfoFlags: u32 {
        /// Looks up a local address, to listen on.
        #[doc(alias = "RAI_PASSIVE")]
        const Passive = sys::RAI_PASSIVE;
        /// The node is a numeric address, so no name is looked up.
        #[doc(alias = "RAI_NUMERICHOST")]
        const NumericHost = sys::RAI_NUMERICHOST;
        /// Skips the lookup of a route if it would take time.
        #[doc(alias = "RAI_NOROUTE")]
        const NoRoute = sys::RAI_NOROUTE;
        /// Interprets the node according to the family of the hints.
        #[doc(alias = "RAI_FAMILY")]
        const Family = sys::RAI_FAMILY;
        /// [`resolve_addrinfo`](crate::rdmacm::communication_manager::Identifier::resolve_addrinfo) queries
        /// InfiniBand's subnet administrator for a service. Requires RDMACM_1.4.
        #[doc(alias = "RAI_SA")]
        const SubnetAdministrator = since_v44::RAI_SA;
        /// [`resolve_addrinfo`](crate::rdmacm::communication_manager::Identifier::resolve_addrinfo) queries the name
        /// service, which is the default. Requires RDMACM_1.4.
        #[doc(alias = "RAI_DNS")]
        const NameService = since_v44::RAI_DNS;
        // Unnamed bits are kept.
        const _ = !0;
    }
}
