//! The service ids of librdmacm, and the addresses at the start of its private data (annex A11 of the specification).

use std::net::{Ipv4Addr, Ipv6Addr};

use rdma_mummy_sys::rdma_port_space;

use super::Malformed;
use crate::net::take;

/// Returns the service id of a port.
pub(crate) fn service_id(space: rdma_port_space, port: u16) -> u64 {
    u64::from(space.0) << 16 | u64::from(port)
}

/// Returns the port space and the port of a service id, or `None` if it has another use.
pub(crate) fn service_of(id: u64) -> Option<(rdma_port_space, u16)> {
    let space = rdma_port_space(u32::try_from(id >> 16).ok()?);
    let is_known = matches!(
        space,
        rdma_port_space::RDMA_PS_TCP
            | rdma_port_space::RDMA_PS_UDP
            | rdma_port_space::RDMA_PS_IB
            | rdma_port_space::RDMA_PS_IPOIB
    );
    // The truncation keeps the port.
    is_known.then_some((space, id as u16))
}

/// The first bytes of the private data of requests, which the kernel names `cma_hdr`. The service id has the
/// destination port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AddressHeader {
    pub(crate) source_port: u16,
    pub(crate) addresses: Addresses,
}

/// The IP addresses of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Addresses {
    V4 { source: Ipv4Addr, destination: Ipv4Addr },
    V6 { source: Ipv6Addr, destination: Ipv6Addr },
}

impl AddressHeader {
    /// The length of the header. The program's private data follows it.
    pub(crate) const LENGTH: usize = 36;

    /// Reads the header, and returns the private data of the program too.
    pub(crate) fn read(private: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let mut rest = private;
        let (Some([version, ip_version, a, b]), Some(source), Some(destination)) =
            (take(&mut rest), take::<16>(&mut rest), take::<16>(&mut rest))
        else {
            return Err(Malformed("the private data is shorter than its addresses"));
        };
        if version != 0 {
            return Err(Malformed("the addresses of the private data have an unknown version"));
        }
        let addresses = match ip_version >> 4 {
            4 => Addresses::V4 { source: last(source), destination: last(destination) },
            6 => Addresses::V6 { source: source.into(), destination: destination.into() },
            _ => return Err(Malformed("the private data has an unknown version of IP")),
        };
        Ok((Self { source_port: u16::from_be_bytes([a, b]), addresses }, rest))
    }

    /// Returns private data that consists of the header and the data of the program, padded with zeros. Returns `None`
    /// if the data is too long.
    pub(crate) fn before<const N: usize>(&self, data: &[u8]) -> Option<[u8; N]> {
        const { assert!(N >= Self::LENGTH, "private data has space for the header") };
        let mut private = [0; N];
        private[Self::LENGTH..].get_mut(..data.len())?.copy_from_slice(data);
        private[2..4].copy_from_slice(&self.source_port.to_be_bytes());
        match self.addresses {
            Addresses::V4 { source, destination } => {
                private[1] = 4 << 4;
                private[16..20].copy_from_slice(&source.octets());
                private[32..36].copy_from_slice(&destination.octets());
            }
            Addresses::V6 { source, destination } => {
                private[1] = 6 << 4;
                private[4..20].copy_from_slice(&source.octets());
                private[20..36].copy_from_slice(&destination.octets());
            }
        }
        Some(private)
    }
}

/// Returns the IPv4 address in the last four bytes of a field.
fn last([.., a, b, c, d]: [u8; 16]) -> Ipv4Addr {
    Ipv4Addr::new(a, b, c, d)
}
