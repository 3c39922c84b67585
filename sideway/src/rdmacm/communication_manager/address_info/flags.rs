//! What is asked for.

use rdma_mummy_sys as sys;
use rdma_mummy_sys::since_v44;

bitflags::bitflags! {
    /// `ai_flags` — what is asked for, or what it is.
    ///
    /// References: [rdma_getaddrinfo(3)](https://man7.org/linux/man-pages/man3/rdma_getaddrinfo.3.html).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct AddressInfoFlags: u32 {
        /// For listening: the address found is this side's.
        #[doc(alias = "RAI_PASSIVE")]
        const Passive = sys::RAI_PASSIVE;
        /// The node is an address in numbers, so that nobody has to be asked.
        #[doc(alias = "RAI_NUMERICHOST")]
        const NumericHost = sys::RAI_NUMERICHOST;
        /// No route is looked for, if that takes time.
        #[doc(alias = "RAI_NOROUTE")]
        const NoRoute = sys::RAI_NOROUTE;
        /// The family of the hints says how the node is to be read.
        #[doc(alias = "RAI_FAMILY")]
        const Family = sys::RAI_FAMILY;
        /// [`resolve_addrinfo`](crate::rdmacm::communication_manager::Identifier::resolve_addrinfo) asks InfiniBand's subnet
        /// administrator for a service. RDMACM_1.4.
        #[doc(alias = "RAI_SA")]
        const SubnetAdministrator = since_v44::RAI_SA;
        /// [`resolve_addrinfo`](crate::rdmacm::communication_manager::Identifier::resolve_addrinfo) asks the name service, as it
        /// does anyway. RDMACM_1.4.
        #[doc(alias = "RAI_DNS")]
        const NameService = since_v44::RAI_DNS;
        // Later flags pass through.
        const _ = !0;
    }
}
