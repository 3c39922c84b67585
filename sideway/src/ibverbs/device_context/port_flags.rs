//! The sets of flags in the attributes of a port.

use rdma_mummy_sys::{ibv_port_cap_flags as raw, ibv_port_cap_flags2 as raw2};

bitflags::bitflags! {
    /// `enum ibv_port_cap_flags` — the capabilities of a port, which the InfiniBand specification calls
    /// `CapabilityMask` of `PortInfo`.
    ///
    /// Most bits concern the management of an InfiniBand subnet.
    #[doc(alias = "ibv_port_cap_flags")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct PortCapabilityFlags: u32 {
        /// A subnet manager runs on this port.
        const SubnetManager = raw::IBV_PORT_SM.0;
        /// Notices.
        const Notice = raw::IBV_PORT_NOTICE_SUP.0;
        /// Traps.
        const Trap = raw::IBV_PORT_TRAP_SUP.0;
        /// The port supports the optional values of the delay between packets.
        const OptionalInterPacketDelay = raw::IBV_PORT_OPT_IPD_SUP.0;
        /// Automatic path migration.
        const AutomaticMigration = raw::IBV_PORT_AUTO_MIGR_SUP.0;
        /// Mapping of service levels to virtual lanes.
        const ServiceLevelMapping = raw::IBV_PORT_SL_MAP_SUP.0;
        /// The management keys (M_Keys) of the port survive a reset.
        const MKeyNonVolatile = raw::IBV_PORT_MKEY_NVRAM.0;
        /// The P_Keys of the port survive a reset.
        const PKeyNonVolatile = raw::IBV_PORT_PKEY_NVRAM.0;
        /// LED information.
        const LedInfo = raw::IBV_PORT_LED_INFO_SUP.0;
        /// A GUID of the system image.
        const SystemImageGuid = raw::IBV_PORT_SYS_IMAGE_GUID_SUP.0;
        /// Traps about P_Keys on external ports of a switch.
        const PKeySwitchExternalPortTrap = raw::IBV_PORT_PKEY_SW_EXT_PORT_TRAP_SUP.0;
        /// Speeds above QDR.
        const ExtendedSpeeds = raw::IBV_PORT_EXTENDED_SPEEDS_SUP.0;
        /// [`PortCapabilityFlags2`] is valid.
        const CapabilityMask2 = raw::IBV_PORT_CAP_MASK2_SUP.0;
        /// Communication management.
        const ConnectionManagement = raw::IBV_PORT_CM_SUP.0;
        /// SNMP tunnelling.
        const SnmpTunnel = raw::IBV_PORT_SNMP_TUNNEL_SUP.0;
        /// Reinitialization.
        const Reinit = raw::IBV_PORT_REINIT_SUP.0;
        /// Device management.
        const DeviceManagement = raw::IBV_PORT_DEVICE_MGMT_SUP.0;
        /// Vendor-defined management classes.
        const VendorClass = raw::IBV_PORT_VENDOR_CLASS_SUP.0;
        /// Notices about directed routes.
        const DirectedRouteNotice = raw::IBV_PORT_DR_NOTICE_SUP.0;
        /// The port sends notices about changes of its capabilities.
        const CapabilityMaskNotice = raw::IBV_PORT_CAP_MASK_NOTICE_SUP.0;
        /// Boot management.
        const BootManagement = raw::IBV_PORT_BOOT_MGMT_SUP.0;
        /// Measurement of link latency.
        const LinkLatency = raw::IBV_PORT_LINK_LATENCY_SUP.0;
        /// Reregistration of clients with the subnet administrator.
        const ClientReregistration = raw::IBV_PORT_CLIENT_REG_SUP.0;
        /// The GIDs of the port are derived from IP addresses (RoCE).
        const IpBasedGids = raw::IBV_PORT_IP_BASED_GIDS.0;
        // Unnamed bits are kept.
        const _ = !0;
    }
}

bitflags::bitflags! {
    /// `enum ibv_port_cap_flags2` — further capabilities of a port (`CapabilityMask2`). They are valid only if
    /// [`PortCapabilityFlags::CapabilityMask2`] is set.
    #[doc(alias = "ibv_port_cap_flags2")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct PortCapabilityFlags2: u16 {
        /// Node descriptions can be set.
        const SetNodeDescription = raw2::IBV_PORT_SET_NODE_DESC_SUP.0 as u16;
        /// Extended port information.
        const ExtendedPortInfo = raw2::IBV_PORT_INFO_EXT_SUP.0 as u16;
        /// Virtualization.
        const Virtualization = raw2::IBV_PORT_VIRT_SUP.0 as u16;
        /// Table of the states of a switch's ports.
        const SwitchPortStateTable = raw2::IBV_PORT_SWITCH_PORT_STATE_TABLE_SUP.0 as u16;
        /// Links of two lanes.
        const LinkWidth2X = raw2::IBV_PORT_LINK_WIDTH_2X_SUP.0 as u16;
        /// The speed HDR.
        const LinkSpeedHdr = raw2::IBV_PORT_LINK_SPEED_HDR_SUP.0 as u16;
        /// The speed NDR.
        const LinkSpeedNdr = raw2::IBV_PORT_LINK_SPEED_NDR_SUP.0 as u16;
        /// The speed XDR.
        const LinkSpeedXdr = raw2::IBV_PORT_LINK_SPEED_XDR_SUP.0 as u16;
        // Unnamed bits are kept.
        const _ = !0;
    }
}

bitflags::bitflags! {
    /// Addressing requirements of a port: `flags` of `struct ibv_port_attr`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct PortFlags: u8 {
        /// Every packet needs a GRH, even within the subnet.
        const GrhRequired = 1;
        // Unnamed bits are kept.
        const _ = !0;
    }
}
