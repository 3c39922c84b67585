//! `enum rdma_port_space`.

use rdma_mummy_sys::rdma_port_space as c;

use crate::ffi::open_enum;

open_enum! {
    /// `enum rdma_port_space` — what ports are ports of, and what an identifier connects.
    #[doc(alias = "rdma_port_space")]
    pub enum PortSpace {
        /// Datagrams on the queue pair of IP over InfiniBand.
        IpOverInfiniBand = c::RDMA_PS_IPOIB.0,
        /// Reliable connections, with a port as in TCP.
        Tcp = c::RDMA_PS_TCP.0,
        /// Datagrams, with a port as in UDP.
        Udp = c::RDMA_PS_UDP.0,
        /// Any service of InfiniBand, with a service identifier for a port.
        InfiniBand = c::RDMA_PS_IB.0,
    }
}

impl PortSpace {
    /// Whether what is looked up is a queue pair for datagrams, to which there is no connection.
    pub fn is_datagram(self) -> bool {
        matches!(self, Self::Udp | Self::IpOverInfiniBand)
    }
}
