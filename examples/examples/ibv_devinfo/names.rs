//! The words of rdma-core's program for values, where the library's own differ.

use sideway::ibverbs::device::TransportType;
use sideway::ibverbs::device_context::{AtomicCapability, PhysicalState, PortSpeed, PortState};

/// A value as its word and its number: `PORT_ACTIVE (4)`.
pub(crate) fn with_number(word: Option<&str>, number: u32) -> String {
    format!("{} ({number})", word.unwrap_or("unknown"))
}

pub(crate) fn transport(transport: TransportType) -> String {
    let word = transport.name().map(|_| transport.to_string());
    // C prints a signed number: what the library does not know is -1.
    format!("{} ({})", word.as_deref().unwrap_or("unknown"), transport.raw() as i32)
}

pub(crate) fn atomic_capability(capability: AtomicCapability) -> String {
    let word = match capability {
        AtomicCapability::None => Some("ATOMIC_NONE"),
        AtomicCapability::Hca => Some("ATOMIC_HCA"),
        AtomicCapability::Global => Some("ATOMIC_GLOB"),
        _ => None,
    };
    with_number(word, capability.raw())
}

pub(crate) fn port_state(state: PortState) -> String {
    let word = match state {
        PortState::Down => Some("PORT_DOWN"),
        PortState::Init => Some("PORT_INIT"),
        PortState::Armed => Some("PORT_ARMED"),
        PortState::Active => Some("PORT_ACTIVE"),
        _ => None,
    };
    with_number(word, state.raw())
}

pub(crate) fn physical_state(state: PhysicalState) -> String {
    let word = match state {
        PhysicalState::Sleep => Some("SLEEP"),
        PhysicalState::Polling => Some("POLLING"),
        PhysicalState::Disabled => Some("DISABLED"),
        // Spelled as there.
        PhysicalState::PortConfigurationTraining => Some("PORT_CONFIGURATION TRAINNING"),
        PhysicalState::LinkUp => Some("LINK_UP"),
        PhysicalState::LinkErrorRecovery => Some("LINK_ERROR_RECOVERY"),
        PhysicalState::PhyTest => Some("PHY TEST"),
        _ => None,
    };
    with_number(word, state.raw())
}

/// The rate of a lane, rounded as it is commonly named.
pub(crate) fn speed(speed: PortSpeed) -> String {
    let word = match speed {
        PortSpeed::Sdr => Some("2.5 Gbps"),
        PortSpeed::Ddr => Some("5.0 Gbps"),
        PortSpeed::Qdr | PortSpeed::Fdr10 => Some("10.0 Gbps"),
        PortSpeed::Fdr => Some("14.0 Gbps"),
        PortSpeed::Edr => Some("25.0 Gbps"),
        PortSpeed::Hdr => Some("50.0 Gbps"),
        PortSpeed::Ndr => Some("100.0 Gbps"),
        PortSpeed::Xdr => Some("200.0 Gbps"),
        _ => None,
    };
    with_number(word, speed.raw())
}

/// How many virtual lanes the code stands for.
pub(crate) fn virtual_lanes(code: u8) -> String {
    let word = match code {
        1 => Some("1"),
        2 => Some("2"),
        3 => Some("4"),
        4 => Some("8"),
        5 => Some("15"),
        _ => None,
    };
    with_number(word, code.into())
}
