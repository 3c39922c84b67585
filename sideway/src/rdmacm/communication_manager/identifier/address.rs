//! The two addresses of an identifier.

use std::net::SocketAddr;

use libc::{sockaddr, sockaddr_storage};
use rdma_mummy_sys as sys;
use rdma_mummy_sys::rdma_cm_id;

use super::Identifier;
use crate::rdmacm::communication_manager::{Address, InfiniBandAddress, socket_address};

impl Identifier {
    /// `rdma_get_local_addr(id)` — returns the local IP address and port, or `None` if there is no address yet or it is
    /// not an IP address.
    ///
    /// # References
    ///
    /// [rdma_get_local_addr(3)](https://man7.org/linux/man-pages/man3/rdma_get_local_addr.3.html)
    #[doc(alias = "rdma_get_local_addr")]
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.address(sys::rdma_get_local_addr)?.ip()
    }

    /// `rdma_get_peer_addr(id)` — returns the peer's IP address and port, or `None` if there is no address yet or it is
    /// not an IP address.
    ///
    /// # References
    ///
    /// [rdma_get_peer_addr(3)](https://man7.org/linux/man-pages/man3/rdma_get_peer_addr.3.html)
    #[doc(alias = "rdma_get_peer_addr")]
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.peer()?.ip()
    }

    /// `rdma_get_local_addr(id)` — returns the local native InfiniBand address, or `None` if there is no address yet or
    /// it is an IP address.
    ///
    /// # References
    ///
    /// [rdma_get_local_addr(3)](https://man7.org/linux/man-pages/man3/rdma_get_local_addr.3.html)
    #[doc(alias = "rdma_get_local_addr")]
    pub fn local_ib_address(&self) -> Option<InfiniBandAddress> {
        self.address(sys::rdma_get_local_addr)?.infiniband()
    }

    /// `rdma_get_peer_addr(id)` — returns the peer's native InfiniBand address, or `None` if there is no address yet or
    /// it is an IP address.
    ///
    /// # References
    ///
    /// [rdma_get_peer_addr(3)](https://man7.org/linux/man-pages/man3/rdma_get_peer_addr.3.html)
    #[doc(alias = "rdma_get_peer_addr")]
    pub fn peer_ib_address(&self) -> Option<InfiniBandAddress> {
        self.peer()?.infiniband()
    }

    /// `rdma_get_src_port(id)` — returns the local port, in host order, or 0 if there is none yet.
    ///
    /// # References
    ///
    /// [rdma_get_src_port(3)](https://man7.org/linux/man-pages/man3/rdma_get_src_port.3.html)
    #[doc(alias = "rdma_get_src_port")]
    pub fn port(&self) -> u16 {
        // SAFETY: the identifier is live and locked.
        u16::from_be(self.with(|id| unsafe { sys::rdma_get_src_port(id) }))
    }

    /// `rdma_get_dst_port(id)` — returns the peer's port, in host order, or 0 if there is none yet.
    ///
    /// # References
    ///
    /// [rdma_get_dst_port(3)](https://man7.org/linux/man-pages/man3/rdma_get_dst_port.3.html)
    #[doc(alias = "rdma_get_dst_port")]
    pub fn peer_port(&self) -> u16 {
        // SAFETY: the identifier is live and locked.
        u16::from_be(self.with(|id| unsafe { sys::rdma_get_dst_port(id) }))
    }

    /// Returns the peer's address of any family.
    pub(super) fn peer(&self) -> Option<Address> {
        self.address(sys::rdma_get_peer_addr)
    }

    fn address(&self, get: unsafe fn(*mut rdma_cm_id) -> *mut sockaddr) -> Option<Address> {
        // SAFETY: the identifier is live and locked, and the storage of the address is large enough for any family.
        self.with(|id| unsafe { socket_address::read(get(id), size_of::<sockaddr_storage>()) })
    }
}
