//! Who serves connections of rdma_cm on this machine.

use rdma_mummy_sys::load::rdmacm::{VARIABLE, library, serves};
use sideway::ibverbs::device::{DeviceInfo, DeviceList, TransportType};

use super::make_ready;
use crate::endpoint::SOFTRNIC;

/// Whether it is softrnic, which reaches the programs of this host alone.
pub(in crate::control) fn is_softrnic() -> bool {
    serves().is_ok_and(|provider| provider.is_some_and(|provider| provider.name() == SOFTRNIC))
}

/// Why softrnic serves them, where nobody has asked for that: what the system lacks.
pub(in crate::control) fn lack() -> Option<String> {
    let was_asked = std::env::var_os(VARIABLE).is_some_and(|name| !name.is_empty());
    if was_asked || !is_softrnic() {
        return None;
    }
    Some(library().map_or_else(|error| error.to_string(), |_| "the system has no RDMA device".to_owned()))
}

/// A device of iWARP, of which a listener takes the port of TCP too: in hardware, so that clients over TCP reach it and not the socket.
pub(in crate::control) fn iwarp() -> Option<String> {
    make_ready().ok()?;
    // Its listeners take no port of TCP.
    if is_softrnic() {
        return None;
    }
    let list = DeviceList::new().ok()?;
    first_iwarp(list.iter().map(|device| (device.name(), device.transport_type())))
}

fn first_iwarp(mut devices: impl Iterator<Item = (String, TransportType)>) -> Option<String> {
    devices.find(|(_, transport)| *transport == TransportType::IWarp).map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_device_of_iwarp_is_enough() {
        let of = |all: &[(&str, TransportType)]| {
            first_iwarp(all.iter().map(|(name, transport)| ((*name).to_owned(), *transport)))
        };
        let (roce, iwarp) = (("mlx5_0", TransportType::InfiniBand), ("cxgb4_0", TransportType::IWarp));
        assert_eq!(of(&[roce, iwarp]).as_deref(), Some("cxgb4_0"));
        assert_eq!(of(&[roce]), None);
        assert_eq!(of(&[]), None);
    }
}
