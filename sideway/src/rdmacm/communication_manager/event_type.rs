//! `enum rdma_cm_event_type` and `enum rdma_port_space`.

use rdma_mummy_sys::{rdma_cm_event_type as c, rdma_port_space};

use crate::ffi::open_enum;

open_enum! {
    /// `enum rdma_cm_event_type` — what happened to an identifier.
    #[doc(alias = "rdma_cm_event_type")]
    #[doc(alias = "rdma_event_str")]
    pub enum EventType {
        /// The address is resolved, and the identifier is on a device.
        AddressResolved = c::RDMA_CM_EVENT_ADDR_RESOLVED.0 => "address resolved",
        /// The address could not be resolved.
        AddressError = c::RDMA_CM_EVENT_ADDR_ERROR.0 => "address error",
        /// The route is resolved.
        RouteResolved = c::RDMA_CM_EVENT_ROUTE_RESOLVED.0 => "route resolved",
        /// The route could not be resolved.
        RouteError = c::RDMA_CM_EVENT_ROUTE_ERROR.0 => "route error",
        /// Somebody wants to connect.
        ConnectRequest = c::RDMA_CM_EVENT_CONNECT_REQUEST.0 => "connect request",
        /// The peer has accepted, and waits to hear that this side is ready.
        ConnectResponse = c::RDMA_CM_EVENT_CONNECT_RESPONSE.0 => "connect response",
        /// The connection could not be made.
        ConnectError = c::RDMA_CM_EVENT_CONNECT_ERROR.0 => "connect error",
        /// The peer does not answer, or (datagrams) refuses.
        Unreachable = c::RDMA_CM_EVENT_UNREACHABLE.0 => "unreachable",
        /// The peer does not want the connection.
        Rejected = c::RDMA_CM_EVENT_REJECTED.0 => "rejected",
        /// The connection is there.
        Established = c::RDMA_CM_EVENT_ESTABLISHED.0 => "established",
        /// The connection has ended.
        Disconnected = c::RDMA_CM_EVENT_DISCONNECTED.0 => "disconnected",
        /// The device is going away.
        DeviceRemoval = c::RDMA_CM_EVENT_DEVICE_REMOVAL.0 => "device removal",
        /// A multicast group is joined.
        MulticastJoin = c::RDMA_CM_EVENT_MULTICAST_JOIN.0 => "multicast join",
        /// A multicast group could not be joined, or is lost.
        MulticastError = c::RDMA_CM_EVENT_MULTICAST_ERROR.0 => "multicast error",
        /// The network device has another address now.
        AddressChange = c::RDMA_CM_EVENT_ADDR_CHANGE.0 => "address change",
        /// The queue pair of a connection that has ended may be used again.
        TimewaitExit = c::RDMA_CM_EVENT_TIMEWAIT_EXIT.0 => "time wait exit",
        /// Addresses were found. RDMACM_1.4.
        AddressInfoResolved = c::RDMA_CM_EVENT_ADDRINFO_RESOLVED.0 => "address information resolved",
        /// No addresses were found. RDMACM_1.4.
        AddressInfoError = c::RDMA_CM_EVENT_ADDRINFO_ERROR.0 => "address information error",
        /// The program has written it. RDMACM_1.4.
        User = c::RDMA_CM_EVENT_USER.0 => "event of the program's",
    }
}

open_enum! {
    /// `enum rdma_port_space` — what ports are ports of, and what an identifier connects.
    #[doc(alias = "rdma_port_space")]
    pub enum PortSpace {
        /// Datagrams on the queue pair of IP over InfiniBand.
        IpOverInfiniBand = rdma_port_space::RDMA_PS_IPOIB.0,
        /// Reliable connections, with a port as in TCP.
        Tcp = rdma_port_space::RDMA_PS_TCP.0,
        /// Datagrams, with a port as in UDP.
        Udp = rdma_port_space::RDMA_PS_UDP.0,
        /// Any service of InfiniBand, with a service identifier for a port.
        InfiniBand = rdma_port_space::RDMA_PS_IB.0,
    }
}

impl PortSpace {
    /// Whether what is looked up is a queue pair for datagrams, to which there is no connection.
    pub fn is_datagram(self) -> bool {
        matches!(self, Self::Udp | Self::IpOverInfiniBand)
    }
}
