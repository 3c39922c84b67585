//! `enum rdma_cm_event_type` and `enum rdma_port_space`.

use rdma_mummy_sys::{rdma_cm_event_type as c, rdma_port_space};

use crate::ffi::open_enum;

open_enum! {
    /// `enum rdma_cm_event_type` — the type of an event.
    #[doc(alias = "rdma_cm_event_type")]
    #[doc(alias = "rdma_event_str")]
    pub enum EventType {
        /// The address is resolved, and the identifier has a device.
        AddressResolved = c::RDMA_CM_EVENT_ADDR_RESOLVED.0 => "address resolved",
        /// The address could not be resolved.
        AddressError = c::RDMA_CM_EVENT_ADDR_ERROR.0 => "address error",
        /// The route is resolved.
        RouteResolved = c::RDMA_CM_EVENT_ROUTE_RESOLVED.0 => "route resolved",
        /// The route could not be resolved.
        RouteError = c::RDMA_CM_EVENT_ROUTE_ERROR.0 => "route error",
        /// A peer requests a connection.
        ConnectRequest = c::RDMA_CM_EVENT_CONNECT_REQUEST.0 => "connect request",
        /// The peer accepted, and waits until this side is ready.
        ConnectResponse = c::RDMA_CM_EVENT_CONNECT_RESPONSE.0 => "connect response",
        /// The connection could not be established.
        ConnectError = c::RDMA_CM_EVENT_CONNECT_ERROR.0 => "connect error",
        /// The peer does not respond, or it rejected the lookup of a queue pair for datagrams.
        Unreachable = c::RDMA_CM_EVENT_UNREACHABLE.0 => "unreachable",
        /// The peer rejected the connection.
        Rejected = c::RDMA_CM_EVENT_REJECTED.0 => "rejected",
        /// The connection is established.
        Established = c::RDMA_CM_EVENT_ESTABLISHED.0 => "established",
        /// The connection has ended.
        Disconnected = c::RDMA_CM_EVENT_DISCONNECTED.0 => "disconnected",
        /// The device is being removed.
        DeviceRemoval = c::RDMA_CM_EVENT_DEVICE_REMOVAL.0 => "device removal",
        /// A multicast group is joined.
        MulticastJoin = c::RDMA_CM_EVENT_MULTICAST_JOIN.0 => "multicast join",
        /// A multicast group could not be joined, or was lost.
        MulticastError = c::RDMA_CM_EVENT_MULTICAST_ERROR.0 => "multicast error",
        /// The network device's hardware address changed.
        AddressChange = c::RDMA_CM_EVENT_ADDR_CHANGE.0 => "address change",
        /// The queue pair of an ended connection can be used again.
        TimewaitExit = c::RDMA_CM_EVENT_TIMEWAIT_EXIT.0 => "time wait exit",
        /// The address information is resolved. Requires RDMACM_1.4.
        AddressInfoResolved = c::RDMA_CM_EVENT_ADDRINFO_RESOLVED.0 => "address information resolved",
        /// The address information could not be resolved. Requires RDMACM_1.4.
        AddressInfoError = c::RDMA_CM_EVENT_ADDRINFO_ERROR.0 => "address information error",
        /// An event that the program wrote. Requires RDMACM_1.4.
        User = c::RDMA_CM_EVENT_USER.0 => "user event",
    }
}

open_enum! {
    /// `enum rdma_port_space` — a port space, which determines the kind of ports and of connections.
    #[doc(alias = "rdma_port_space")]
    pub enum PortSpace {
        /// Datagrams on the queue pair of IP over InfiniBand.
        IpOverInfiniBand = rdma_port_space::RDMA_PS_IPOIB.0,
        /// Reliable connections, with TCP-like ports.
        Tcp = rdma_port_space::RDMA_PS_TCP.0,
        /// Datagrams, with UDP-like ports.
        Udp = rdma_port_space::RDMA_PS_UDP.0,
        /// Any InfiniBand service. A service identifier takes the place of the port.
        InfiniBand = rdma_port_space::RDMA_PS_IB.0,
    }
}

impl PortSpace {
    /// Whether identifiers of this port space look up queue pairs for datagrams instead of connecting.
    pub fn is_datagram(self) -> bool {
        matches!(self, Self::Udp | Self::IpOverInfiniBand)
    }
}
