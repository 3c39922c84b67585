//! Addresses as C has them.

use std::mem;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use libc::{sa_family_t, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage};

/// An address for C to read.
#[derive(Clone, Copy)]
pub(super) struct RawAddress(sockaddr_storage);

impl RawAddress {
    /// What C is to be given; it takes the address to be writable and does not write.
    pub(super) fn as_mut_ptr(&mut self) -> *mut sockaddr {
        (&raw mut self.0).cast()
    }
}

impl From<SocketAddr> for RawAddress {
    fn from(address: SocketAddr) -> Self {
        // SAFETY: all-zero is legal: the struct has integers alone.
        let mut storage: sockaddr_storage = unsafe { mem::zeroed() };
        match address {
            SocketAddr::V4(address) => {
                let raw = sockaddr_in {
                    sin_family: libc::AF_INET as sa_family_t,
                    sin_port: address.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
                    sin_zero: [0; 8],
                };
                // SAFETY: the storage is larger than any address, and aligned for all.
                unsafe { (&raw mut storage).cast::<sockaddr_in>().write(raw) };
            }
            SocketAddr::V6(address) => {
                let raw = sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as sa_family_t,
                    sin6_port: address.port().to_be(),
                    sin6_flowinfo: address.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                    sin6_scope_id: address.scope_id(),
                };
                // SAFETY: as above.
                unsafe { (&raw mut storage).cast::<sockaddr_in6>().write(raw) };
            }
        }
        Self(storage)
    }
}

/// The address that C has stored; `None` where it is of another family, or of none yet.
///
/// # Safety
///
/// `raw` can be read as an address of the family that it says.
pub(super) unsafe fn read(raw: *const sockaddr) -> Option<SocketAddr> {
    if raw.is_null() {
        return None;
    }
    // SAFETY: the caller's promise; nothing is said of the alignment.
    match i32::from(unsafe { (&raw const (*raw).sa_family).read_unaligned() }) {
        libc::AF_INET => {
            // SAFETY: the caller's promise.
            let raw = unsafe { raw.cast::<sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(raw.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddrV4::new(ip, u16::from_be(raw.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the caller's promise.
            let raw = unsafe { raw.cast::<sockaddr_in6>().read_unaligned() };
            let (ip, port) = (Ipv6Addr::from(raw.sin6_addr.s6_addr), u16::from_be(raw.sin6_port));
            Some(SocketAddrV6::new(ip, port, raw.sin6_flowinfo, raw.sin6_scope_id).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_comes_back_as_it_was() {
        let addresses = ["192.0.2.7:7471", "[2001:db8::7]:1", "[::ffff:192.0.2.7]:65535", "0.0.0.0:0"];
        let mut link_local: SocketAddrV6 = "[fe80::1]:7".parse().unwrap();
        link_local.set_scope_id(3);
        link_local.set_flowinfo(9);
        let addresses = addresses.map(|text| text.parse::<SocketAddr>().unwrap()).into_iter();
        for address in addresses.chain([link_local.into()]) {
            let mut raw = RawAddress::from(address);
            // SAFETY: just made.
            assert_eq!(unsafe { read(raw.as_mut_ptr()) }, Some(address));
        }
    }

    #[test]
    fn bytes_on_the_wire_are_in_network_order() {
        let mut raw = RawAddress::from("1.2.3.4:258".parse::<SocketAddr>().unwrap());
        // SAFETY: so many bytes are there.
        let bytes = unsafe { std::slice::from_raw_parts(raw.as_mut_ptr().cast::<u8>(), 8) };
        assert_eq!(bytes[2..], [1, 2, 1, 2, 3, 4]);
    }

    #[test]
    fn an_address_of_no_family_is_none() {
        // SAFETY: all-zero is legal: the struct has integers alone.
        let mut raw = RawAddress(unsafe { mem::zeroed() });
        // SAFETY: it is there, and says no family.
        assert_eq!(unsafe { read(raw.as_mut_ptr()) }, None);
        // SAFETY: a null pointer is not followed.
        assert_eq!(unsafe { read(std::ptr::null()) }, None);
    }
}
