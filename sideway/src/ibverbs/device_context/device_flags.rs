//! The sets of flags in the attributes of a device.

use rdma_mummy_sys as raw;
use rdma_mummy_sys::{ibv_device_cap_flags as device, ibv_qp_type, ibv_rx_hash_fields as hash};

bitflags::bitflags! {
    /// `enum ibv_device_cap_flags` — the capabilities of a device. The upper 32 bits are those of
    /// `device_cap_flags_ex`.
    #[doc(alias = "ibv_device_cap_flags")]
    #[doc(alias = "device_cap_flags_ex")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct DeviceCapabilityFlags: u64 {
        /// The size of a queue can be changed after its queue pair was created.
        const ResizeMaxWorkRequest = device::IBV_DEVICE_RESIZE_MAX_WR.0 as u64;
        /// The device counts packets with bad P_Keys.
        const BadPartitionKeyCounter = device::IBV_DEVICE_BAD_PKEY_CNTR.0 as u64;
        /// The device counts packets with bad Q_Keys.
        const BadQueueKeyCounter = device::IBV_DEVICE_BAD_QKEY_CNTR.0 as u64;
        /// The device supports multicast of raw packets.
        const RawMulticast = device::IBV_DEVICE_RAW_MULTI.0 as u64;
        /// Automatic path migration.
        const AutoPathMigration = device::IBV_DEVICE_AUTO_PATH_MIG.0 as u64;
        /// A queue pair can be moved to another port.
        const ChangePhysicalPort = device::IBV_DEVICE_CHANGE_PHY_PORT.0 as u64;
        /// The device sends a datagram only from the port that its address vector names.
        const UnreliableDatagramAddressVectorPortEnforce = device::IBV_DEVICE_UD_AV_PORT_ENFORCE.0 as u64;
        /// The verb that modifies a queue pair can check the current state of the queue pair.
        const CurrentQueuePairStateModification = device::IBV_DEVICE_CURR_QP_STATE_MOD.0 as u64;
        /// Ports can be shut down.
        const ShutdownPort = device::IBV_DEVICE_SHUTDOWN_PORT.0 as u64;
        /// Ports can be initialized in several ways.
        const InitType = device::IBV_DEVICE_INIT_TYPE.0 as u64;
        /// The device raises an event when a port becomes active.
        const PortActiveEvent = device::IBV_DEVICE_PORT_ACTIVE_EVENT.0 as u64;
        /// The GUID of the system image is valid.
        const SystemImageGuid = device::IBV_DEVICE_SYS_IMAGE_GUID.0 as u64;
        /// A responder on a reliable connection reports to the sender that no receive is posted.
        const ReliableConnectionReceiverNotReadyNakGeneration = device::IBV_DEVICE_RC_RNR_NAK_GEN.0 as u64;
        /// Shared receive queues can be resized.
        const SharedReceiveQueueResize = device::IBV_DEVICE_SRQ_RESIZE.0 as u64;
        /// A program can request a notification after N completions.
        const NotifyCompletionQueueCount = device::IBV_DEVICE_N_NOTIFY_CQ.0 as u64;
        /// Memory windows of type 1.
        const MemoryWindow = device::IBV_DEVICE_MEM_WINDOW.0 as u64;
        /// The device computes and checks the IP, UDP and TCP checksums of datagrams.
        const UnreliableDatagramIpChecksum = device::IBV_DEVICE_UD_IP_CSUM.0 as u64;
        /// Extended reliable connections.
        const ExtendedReliableConnection = device::IBV_DEVICE_XRC.0 as u64;
        /// The device supports fast registration, local invalidation, and sends with invalidation.
        const MemoryManagementExtensions = device::IBV_DEVICE_MEM_MGT_EXTENSIONS.0 as u64;
        /// Memory windows of type 2A.
        const MemoryWindowType2A = device::IBV_DEVICE_MEM_WINDOW_TYPE_2A.0 as u64;
        /// Memory windows of type 2B.
        const MemoryWindowType2B = device::IBV_DEVICE_MEM_WINDOW_TYPE_2B.0 as u64;
        /// The device computes and checks the IP checksums of messages on reliable connections.
        const ReliableConnectionIpChecksum = device::IBV_DEVICE_RC_IP_CSUM.0 as u64;
        /// The device computes and checks the IP checksums of raw packets.
        const RawIpChecksum = device::IBV_DEVICE_RAW_IP_CSUM.0 as u64;
        /// Flow steering.
        const ManagedFlowSteering = device::IBV_DEVICE_MANAGED_FLOW_STEERING.0 as u64;
        /// The frame check sequence of raw packets can be received.
        const RawScatterFcs = raw::IBV_DEVICE_RAW_SCATTER_FCS;
        /// The device can pad its writes over PCI Express to full cache lines.
        const PciWriteEndPadding = raw::IBV_DEVICE_PCI_WRITE_END_PADDING;
        /// The device supports flushes that make data visible to every observer.
        const FlushGlobal = raw::IB_UVERBS_DEVICE_FLUSH_GLOBAL;
        /// The device supports flushes that make data survive a power loss.
        const FlushPersistent = raw::IB_UVERBS_DEVICE_FLUSH_PERSISTENT;
        /// Atomic writes.
        const AtomicWrite = raw::IB_UVERBS_DEVICE_ATOMIC_WRITE;
        // Unnamed bits are kept.
        const _ = !0;
    }
}

bitflags::bitflags! {
    /// `enum ibv_odp_general_caps` — on-demand paging, for all transports.
    #[doc(alias = "ibv_odp_general_caps")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct OdpGeneralCapabilities: u64 {
        /// On-demand paging is supported.
        const Supported = raw::ibv_odp_general_caps::IBV_ODP_SUPPORT.0 as u64;
        /// One region can cover the whole address space.
        const Implicit = raw::ibv_odp_general_caps::IBV_ODP_SUPPORT_IMPLICIT.0 as u64;
        // Unnamed bits are kept.
        const _ = !0;
    }
}

bitflags::bitflags! {
    /// `enum ibv_odp_transport_cap_bits` — the operations for which one transport supports on-demand paging.
    #[doc(alias = "ibv_odp_transport_cap_bits")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct OdpTransportCapabilities: u32 {
        /// Sends.
        const Send = raw::ibv_odp_transport_cap_bits::IBV_ODP_SUPPORT_SEND.0;
        /// Receives.
        const Receive = raw::ibv_odp_transport_cap_bits::IBV_ODP_SUPPORT_RECV.0;
        /// RDMA writes.
        const Write = raw::ibv_odp_transport_cap_bits::IBV_ODP_SUPPORT_WRITE.0;
        /// RDMA reads.
        const Read = raw::ibv_odp_transport_cap_bits::IBV_ODP_SUPPORT_READ.0;
        /// Atomics.
        const Atomic = raw::ibv_odp_transport_cap_bits::IBV_ODP_SUPPORT_ATOMIC.0;
        /// Receives on shared receive queues.
        const SharedReceiveQueue = raw::ibv_odp_transport_cap_bits::IBV_ODP_SUPPORT_SRQ_RECV.0;
        // Unnamed bits are kept.
        const _ = !0;
    }
}

bitflags::bitflags! {
    /// A set of queue pair types in capabilities: bit n stands for the type `enum ibv_qp_type` n.
    #[doc(alias = "ibv_is_qpt_supported")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct QueuePairTypeSupport: u32 {
        /// Reliable connections.
        const ReliableConnection = 1 << ibv_qp_type::IBV_QPT_RC.0;
        /// Unreliable connections.
        const UnreliableConnection = 1 << ibv_qp_type::IBV_QPT_UC.0;
        /// Unreliable datagrams.
        const UnreliableDatagram = 1 << ibv_qp_type::IBV_QPT_UD.0;
        /// Raw packets.
        const RawPacket = 1 << ibv_qp_type::IBV_QPT_RAW_PACKET.0;
        /// The sending side of extended reliable connections.
        const ReliableConnectionExtendedSend = 1 << ibv_qp_type::IBV_QPT_XRC_SEND.0;
        /// The receiving side of extended reliable connections.
        const ReliableConnectionExtendedRecv = 1 << ibv_qp_type::IBV_QPT_XRC_RECV.0;
        // Unnamed bits are kept.
        const _ = !0;
    }
}

bitflags::bitflags! {
    /// `enum ibv_rx_hash_function_flags` — hash functions for receive side scaling.
    #[doc(alias = "ibv_rx_hash_function_flags")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct RxHashFunctions: u8 {
        /// Toeplitz.
        const Toeplitz = raw::ibv_rx_hash_function_flags::IBV_RX_HASH_FUNC_TOEPLITZ.0 as u8;
        // Unnamed bits are kept.
        const _ = !0;
    }
}

bitflags::bitflags! {
    /// `enum ibv_rx_hash_fields` — packet fields that receive side scaling can hash.
    #[doc(alias = "ibv_rx_hash_fields")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct RxHashFields: u64 {
        /// The source address of IPv4.
        const SourceIpv4 = hash::IBV_RX_HASH_SRC_IPV4.0 as u64;
        /// The destination address of IPv4.
        const DestinationIpv4 = hash::IBV_RX_HASH_DST_IPV4.0 as u64;
        /// The source address of IPv6.
        const SourceIpv6 = hash::IBV_RX_HASH_SRC_IPV6.0 as u64;
        /// The destination address of IPv6.
        const DestinationIpv6 = hash::IBV_RX_HASH_DST_IPV6.0 as u64;
        /// The source port of TCP.
        const SourcePortTcp = hash::IBV_RX_HASH_SRC_PORT_TCP.0 as u64;
        /// The destination port of TCP.
        const DestinationPortTcp = hash::IBV_RX_HASH_DST_PORT_TCP.0 as u64;
        /// The source port of UDP.
        const SourcePortUdp = hash::IBV_RX_HASH_SRC_PORT_UDP.0 as u64;
        /// The destination port of UDP.
        const DestinationPortUdp = hash::IBV_RX_HASH_DST_PORT_UDP.0 as u64;
        /// The security parameter index of IPsec.
        const IpsecSpi = hash::IBV_RX_HASH_IPSEC_SPI.0 as u64;
        /// The hash covers the inner packet of a tunnel.
        const Inner = hash::IBV_RX_HASH_INNER.0 as u64;
        // Unnamed bits are kept.
        const _ = !0;
    }
}

bitflags::bitflags! {
    /// `enum ibv_raw_packet_caps` — capabilities of raw packet queue pairs.
    #[doc(alias = "ibv_raw_packet_caps")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct RawPacketCapabilities: u32 {
        /// The device can strip the customer VLAN tag.
        const CvlanStripping = raw::ibv_raw_packet_caps::IBV_RAW_PACKET_CAP_CVLAN_STRIPPING.0;
        /// The device can deliver the frame check sequence with the packet.
        const ScatterFcs = raw::ibv_raw_packet_caps::IBV_RAW_PACKET_CAP_SCATTER_FCS.0;
        /// The device computes and checks IP checksums.
        const IpChecksum = raw::ibv_raw_packet_caps::IBV_RAW_PACKET_CAP_IP_CSUM.0;
        /// If no receive is posted, the device can delay packets instead of dropping them.
        const DelayDrop = raw::ibv_raw_packet_caps::IBV_RAW_PACKET_CAP_DELAY_DROP.0;
        // Unnamed bits are kept.
        const _ = !0;
    }
}

bitflags::bitflags! {
    /// `enum ibv_tm_cap_flags` — transports that support tag matching.
    #[doc(alias = "ibv_tm_cap_flags")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct TagMatchingFlags: u32 {
        /// Reliable connections.
        const ReliableConnection = raw::ibv_tm_cap_flags::IBV_TM_CAP_RC.0;
        // Unnamed bits are kept.
        const _ = !0;
    }
}

bitflags::bitflags! {
    /// `enum ibv_pci_atomic_op_size` — sizes of atomic operations over PCI Express.
    #[doc(alias = "ibv_pci_atomic_op_size")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct PciAtomicOperationSize: u16 {
        /// Four bytes.
        const Size4Byte = raw::ibv_pci_atomic_op_size::IBV_PCI_ATOMIC_OPERATION_4_BYTE_SIZE_SUP.0 as u16;
        /// Eight bytes.
        const Size8Byte = raw::ibv_pci_atomic_op_size::IBV_PCI_ATOMIC_OPERATION_8_BYTE_SIZE_SUP.0 as u16;
        /// Sixteen bytes.
        const Size16Byte = raw::ibv_pci_atomic_op_size::IBV_PCI_ATOMIC_OPERATION_16_BYTE_SIZE_SUP.0 as u16;
        // Unnamed bits are kept.
        const _ = !0;
    }
}
