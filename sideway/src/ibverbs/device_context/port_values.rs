//! The enumerated values of a port: MTU, width, states, link layer.

use rdma_mummy_sys as raw;

use crate::ffi::open_enum;

open_enum! {
    /// `enum ibv_mtu` — the maximum payload of a packet.
    #[doc(alias = "ibv_mtu")]
    pub enum Mtu {
        /// 256 bytes.
        Mtu256 = raw::ibv_mtu::IBV_MTU_256.0 => "256",
        /// 512 bytes.
        Mtu512 = raw::ibv_mtu::IBV_MTU_512.0 => "512",
        /// 1024 bytes.
        Mtu1024 = raw::ibv_mtu::IBV_MTU_1024.0 => "1024",
        /// 2048 bytes.
        Mtu2048 = raw::ibv_mtu::IBV_MTU_2048.0 => "2048",
        /// 4096 bytes.
        Mtu4096 = raw::ibv_mtu::IBV_MTU_4096.0 => "4096",
    }
}

impl Mtu {
    /// Returns the MTU in bytes, or `None` for an unknown value.
    pub const fn bytes(self) -> Option<u32> {
        match self {
            Self::Mtu256 => Some(256),
            Self::Mtu512 => Some(512),
            Self::Mtu1024 => Some(1024),
            Self::Mtu2048 => Some(2048),
            Self::Mtu4096 => Some(4096),
            _ => None,
        }
    }

    /// Returns the MTU of exactly `bytes` bytes, or `None` if there is no such MTU.
    pub fn from_bytes(bytes: u32) -> Option<Self> {
        Self::KNOWN.iter().copied().find(|mtu| mtu.bytes() == Some(bytes))
    }
}

open_enum! {
    /// The number of lanes of a link.
    pub enum PortWidth {
        /// One lane.
        Width1X = 1 => "1X",
        /// Four lanes.
        Width4X = 2 => "4X",
        /// Eight lanes.
        Width8X = 4 => "8X",
        /// Twelve lanes.
        Width12X = 8 => "12X",
        /// Two lanes.
        Width2X = 16 => "2X",
    }
}

impl PortWidth {
    /// Returns the number of lanes, or `None` for an unknown value.
    pub const fn lanes(self) -> Option<u32> {
        match self {
            Self::Width1X => Some(1),
            Self::Width2X => Some(2),
            Self::Width4X => Some(4),
            Self::Width8X => Some(8),
            Self::Width12X => Some(12),
            _ => None,
        }
    }
}

open_enum! {
    /// The link layer of a port.
    pub enum LinkLayer {
        /// The driver does not report the link layer. This means InfiniBand, because only drivers that predate Ethernet
        /// ports do so.
        Unspecified = raw::IBV_LINK_LAYER_UNSPECIFIED,
        /// InfiniBand.
        InfiniBand = raw::IBV_LINK_LAYER_INFINIBAND,
        /// Ethernet: RoCE or iWARP.
        Ethernet = raw::IBV_LINK_LAYER_ETHERNET,
    }
}

open_enum! {
    /// `enum ibv_port_state` — the logical state of a port.
    #[doc(alias = "ibv_port_state")]
    #[doc(alias = "ibv_port_state_str")]
    pub enum PortState {
        /// No state change. A port never has this state.
        Nop = raw::ibv_port_state::IBV_PORT_NOP.0 => "no state change",
        /// The port is down and transfers no packets.
        Down = raw::ibv_port_state::IBV_PORT_DOWN.0 => "down",
        /// The link is up, but no subnet manager has configured the port. Check whether a subnet manager is running.
        Initializing = raw::ibv_port_state::IBV_PORT_INIT.0 => "initializing",
        /// The port is configured, but not active yet.
        Armed = raw::ibv_port_state::IBV_PORT_ARMED.0 => "armed",
        /// The port is active and transfers messages.
        Active = raw::ibv_port_state::IBV_PORT_ACTIVE.0 => "active",
        /// The link has failed and may recover.
        ActiveDefer = raw::ibv_port_state::IBV_PORT_ACTIVE_DEFER.0 => "active, link recovering",
    }
}

open_enum! {
    /// The physical state of a port.
    pub enum PhysicalState {
        /// No state change. A port never has this state.
        NoStateChange = 0 => "no state change",
        /// Asleep.
        Sleep = 1 => "sleep",
        /// The port is searching for a link partner. Check whether the cable is plugged in.
        Polling = 2 => "polling",
        /// The port was disabled by an administrator.
        Disabled = 3 => "disabled",
        /// The port is negotiating width and speed with its link partner.
        PortConfigurationTraining = 4 => "training",
        /// The link is up.
        LinkUp = 5 => "link up",
        /// The link is recovering from errors.
        LinkErrorRecovery = 6 => "link error recovery",
        /// Under test.
        PhyTest = 7 => "phy test",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mtu_bytes_round_trip() {
        for &mtu in Mtu::KNOWN {
            assert_eq!(mtu.bytes().and_then(Mtu::from_bytes), Some(mtu));
            assert_eq!(mtu.to_string(), mtu.bytes().unwrap().to_string());
        }
        assert_eq!(Mtu::from_bytes(1500), None);
        assert_eq!(Mtu::from_raw(6).bytes(), None);
        assert_eq!(Mtu::from_raw(6).to_string(), "unknown (6)");
    }

    #[test]
    fn width_has_lanes() {
        for &width in PortWidth::KNOWN {
            assert_eq!(width.to_string(), format!("{}X", width.lanes().unwrap()));
        }
        assert_eq!(PortWidth::from_raw(32).lanes(), None);
    }
}
