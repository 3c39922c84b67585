//! The enumerated values of a port: MTU, width, states, link layer.

use rdma_mummy_sys as raw;

use crate::ffi::open_enum;

open_enum! {
    /// `enum ibv_mtu` — how many bytes of payload a packet carries at most.
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
    /// The MTU in bytes, or `None` for a value that this version of the crate does not know.
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

    /// The MTU of exactly so many bytes, or `None` where there is no such MTU.
    pub fn from_bytes(bytes: u32) -> Option<Self> {
        Self::KNOWN.iter().copied().find(|mtu| mtu.bytes() == Some(bytes))
    }
}

open_enum! {
    /// How many lanes a link has.
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
    /// The number of lanes, or `None` for a value that this version of the crate does not know.
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
    /// What a port's packets travel in.
    pub enum LinkLayer {
        /// Not said, which means InfiniBand: a driver that is older than Ethernet ports.
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
        /// Does not change the state; a port is not in it.
        Nop = raw::ibv_port_state::IBV_PORT_NOP.0 => "no state change",
        /// Down: nothing passes.
        Down = raw::ibv_port_state::IBV_PORT_DOWN.0 => "down",
        /// The link is up and the subnet manager has not configured the port: is one running?
        Initializing = raw::ibv_port_state::IBV_PORT_INIT.0 => "initializing",
        /// Configured and not yet active.
        Armed = raw::ibv_port_state::IBV_PORT_ARMED.0 => "armed",
        /// Active: messages pass.
        Active = raw::ibv_port_state::IBV_PORT_ACTIVE.0 => "active",
        /// The link has failed and may yet recover.
        ActiveDefer = raw::ibv_port_state::IBV_PORT_ACTIVE_DEFER.0 => "active, link recovering",
    }
}

open_enum! {
    /// The physical state of a port.
    pub enum PhysicalState {
        /// Does not change the state; a port is not in it.
        NoStateChange = 0 => "no state change",
        /// Asleep.
        Sleep = 1 => "sleep",
        /// Looking for a link partner: is the cable plugged in?
        Polling = 2 => "polling",
        /// Disabled by an administrator.
        Disabled = 3 => "disabled",
        /// Agreeing with the partner on width and speed.
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
    fn mtus_and_bytes_are_one_to_one() {
        for &mtu in Mtu::KNOWN {
            assert_eq!(mtu.bytes().and_then(Mtu::from_bytes), Some(mtu));
            assert_eq!(mtu.to_string(), mtu.bytes().unwrap().to_string());
        }
        assert_eq!(Mtu::from_bytes(1500), None);
        assert_eq!(Mtu::from_raw(6).bytes(), None);
        assert_eq!(Mtu::from_raw(6).to_string(), "unknown (6)");
    }

    #[test]
    fn widths_name_their_lanes() {
        for &width in PortWidth::KNOWN {
            assert_eq!(width.to_string(), format!("{}X", width.lanes().unwrap()));
        }
        assert_eq!(PortWidth::from_raw(32).lanes(), None);
    }
}
