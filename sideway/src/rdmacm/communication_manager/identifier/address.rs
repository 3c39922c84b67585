//! The two addresses of an identifier.

use std::net::SocketAddr;

use rdma_mummy_sys as sys;

use super::Identifier;
use crate::rdmacm::communication_manager::socket_address;

impl Identifier {
    /// `rdma_get_local_addr(id)` — this side's address, with its port; `None` where there is none yet, or not one of IP.
    ///
    /// # References
    ///
    /// [rdma_get_local_addr(3)](https://man7.org/linux/man-pages/man3/rdma_get_local_addr.3.html)
    #[doc(alias = "rdma_get_local_addr")]
    pub fn local_address(&self) -> Option<SocketAddr> {
        // SAFETY: the identifier is live, nobody else uses it, and the address is stored in room for any.
        self.with(|id| unsafe { socket_address::read(sys::rdma_get_local_addr(id)) })
    }

    /// `rdma_get_peer_addr(id)` — the other side's address, with its port; `None` where there is none yet, or not one of IP.
    ///
    /// # References
    ///
    /// [rdma_get_peer_addr(3)](https://man7.org/linux/man-pages/man3/rdma_get_peer_addr.3.html)
    #[doc(alias = "rdma_get_peer_addr")]
    pub fn peer_address(&self) -> Option<SocketAddr> {
        // SAFETY: the identifier is live, nobody else uses it, and the address is stored in room for any.
        self.with(|id| unsafe { socket_address::read(sys::rdma_get_peer_addr(id)) })
    }

    /// `rdma_get_src_port(id)` — this side's port, in host order; 0 where there is none yet.
    ///
    /// # References
    ///
    /// [rdma_get_src_port(3)](https://man7.org/linux/man-pages/man3/rdma_get_src_port.3.html)
    #[doc(alias = "rdma_get_src_port")]
    pub fn port(&self) -> u16 {
        // SAFETY: the identifier is live, and nobody else uses it.
        u16::from_be(self.with(|id| unsafe { sys::rdma_get_src_port(id) }))
    }

    /// `rdma_get_dst_port(id)` — the other side's port, in host order; 0 where there is none yet.
    ///
    /// # References
    ///
    /// [rdma_get_dst_port(3)](https://man7.org/linux/man-pages/man3/rdma_get_dst_port.3.html)
    #[doc(alias = "rdma_get_dst_port")]
    pub fn peer_port(&self) -> u16 {
        // SAFETY: the identifier is live, and nobody else uses it.
        u16::from_be(self.with(|id| unsafe { sys::rdma_get_dst_port(id) }))
    }
}
