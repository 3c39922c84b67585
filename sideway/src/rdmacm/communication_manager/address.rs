//! The addresses of the connection manager.

use std::fmt;
use std::net::SocketAddr;

use super::InfiniBandAddress;
use crate::ffi::open_enum;

open_enum! {
    /// `ai_family` — an address family.
    pub enum AddressFamily {
        /// Any family.
        Unspecified = libc::AF_UNSPEC => "any family",
        /// `AF_INET`.
        Ipv4 = libc::AF_INET => "IPv4",
        /// `AF_INET6`.
        Ipv6 = libc::AF_INET6 => "IPv6",
        /// `AF_IB`.
        InfiniBand = libc::AF_IB => "InfiniBand",
    }
}

/// `struct sockaddr` — an address of a family that the connection manager supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Address {
    /// An IP address with a port.
    Ip(SocketAddr),
    /// A native InfiniBand address.
    InfiniBand(InfiniBandAddress),
}

impl Address {
    /// Returns the family.
    pub fn family(&self) -> AddressFamily {
        match self {
            Self::Ip(SocketAddr::V4(_)) => AddressFamily::Ipv4,
            Self::Ip(SocketAddr::V6(_)) => AddressFamily::Ipv6,
            Self::InfiniBand(_) => AddressFamily::InfiniBand,
        }
    }

    /// Returns the address if it is an IP address.
    pub fn ip(&self) -> Option<SocketAddr> {
        match self {
            Self::Ip(address) => Some(*address),
            Self::InfiniBand(_) => None,
        }
    }

    /// Returns the address if it is a native InfiniBand address.
    pub fn infiniband(&self) -> Option<InfiniBandAddress> {
        match self {
            Self::Ip(_) => None,
            Self::InfiniBand(address) => Some(*address),
        }
    }

    /// Whether this is the unspecified address, with which a listener listens on all addresses of this machine.
    pub(super) fn is_unspecified(&self) -> bool {
        match self {
            Self::Ip(address) => address.ip().is_unspecified(),
            Self::InfiniBand(address) => address.gid().is_zero(),
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Ip(address)
    }
}

impl From<InfiniBandAddress> for Address {
    fn from(address: InfiniBandAddress) -> Self {
        Self::InfiniBand(address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::InfiniBand(address) => address.fmt(f),
        }
    }
}
