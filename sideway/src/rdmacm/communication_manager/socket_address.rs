//! C socket addresses.

use std::mem;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use libc::{sa_family_t, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage};
use rdma_mummy_sys::sockaddr_ib;

use super::{Address, AddressFamily, InfiniBandAddress};

/// An address in C form.
#[derive(Clone, Copy)]
pub(super) struct RawAddress(sockaddr_storage);

impl RawAddress {
    /// Returns a pointer for C. C takes it as a mutable pointer but does not write to it.
    pub(super) fn as_mut_ptr(&mut self) -> *mut sockaddr {
        (&raw mut self.0).cast()
    }

    /// Returns the length of the address, which depends on its family.
    pub(super) fn length(&self) -> usize {
        length_of(self.0.ss_family).unwrap_or(size_of::<sockaddr_storage>())
    }
}

impl From<SocketAddr> for RawAddress {
    fn from(address: SocketAddr) -> Self {
        Address::from(address).into()
    }
}

impl From<InfiniBandAddress> for RawAddress {
    fn from(address: InfiniBandAddress) -> Self {
        Address::from(address).into()
    }
}

impl From<Address> for RawAddress {
    fn from(address: Address) -> Self {
        // SAFETY: all zeros are a valid value, because the struct has only integers.
        let mut storage: sockaddr_storage = unsafe { mem::zeroed() };
        match address {
            Address::Ip(SocketAddr::V4(address)) => {
                let raw = sockaddr_in {
                    sin_family: libc::AF_INET as sa_family_t,
                    sin_port: address.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
                    sin_zero: [0; 8],
                };
                // SAFETY: the storage is larger than any address, and is aligned for all of them.
                unsafe { (&raw mut storage).cast::<sockaddr_in>().write(raw) };
            }
            Address::Ip(SocketAddr::V6(address)) => {
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
            Address::InfiniBand(address) => {
                // SAFETY: as above.
                unsafe { (&raw mut storage).cast::<sockaddr_ib>().write(address.into()) };
            }
        }
        Self(storage)
    }
}

/// Reads the address that C stored in `length` bytes. Returns `None` if there is no address, if it is incomplete, or if
/// its family is unsupported.
///
/// # Safety
///
/// `raw` is null, or `length` bytes can be read at `raw`.
pub(super) unsafe fn read(raw: *const sockaddr, length: usize) -> Option<Address> {
    if raw.is_null() || length < size_of::<sa_family_t>() {
        return None;
    }
    // SAFETY: this follows from the contract of this function. The family is the first field, and its alignment is
    // unknown.
    let family = unsafe { raw.cast::<sa_family_t>().read_unaligned() };
    if length < length_of(family)? {
        return None;
    }
    match AddressFamily::from_raw(family.into()) {
        AddressFamily::Ipv4 => {
            // SAFETY: this follows from the contract of this function. An address of this family fits in the length.
            let raw = unsafe { raw.cast::<sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(raw.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddr::from(SocketAddrV4::new(ip, u16::from_be(raw.sin_port))).into())
        }
        AddressFamily::Ipv6 => {
            // SAFETY: as above.
            let raw = unsafe { raw.cast::<sockaddr_in6>().read_unaligned() };
            let (ip, port) = (Ipv6Addr::from(raw.sin6_addr.s6_addr), u16::from_be(raw.sin6_port));
            Some(SocketAddr::from(SocketAddrV6::new(ip, port, raw.sin6_flowinfo, raw.sin6_scope_id)).into())
        }
        AddressFamily::InfiniBand => {
            // SAFETY: as above.
            let raw = unsafe { raw.cast::<sockaddr_ib>().read_unaligned() };
            Some(InfiniBandAddress::from(raw).into())
        }
        _ => None,
    }
}

/// Returns the length of an address of this family.
fn length_of(family: sa_family_t) -> Option<usize> {
    match AddressFamily::from_raw(family.into()) {
        AddressFamily::Ipv4 => Some(size_of::<sockaddr_in>()),
        AddressFamily::Ipv6 => Some(size_of::<sockaddr_in6>()),
        AddressFamily::InfiniBand => Some(size_of::<sockaddr_ib>()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses() -> Vec<Address> {
        let addresses = ["192.0.2.7:7471", "[2001:db8::7]:1", "[::ffff:192.0.2.7]:65535", "0.0.0.0:0"];
        let mut link_local: SocketAddrV6 = "[fe80::1]:7".parse().unwrap();
        link_local.set_scope_id(3);
        link_local.set_flowinfo(9);
        let mut infiniband = InfiniBandAddress::new("fe80::7".parse().unwrap());
        infiniband.setup_service_id(77, 78).setup_scope_id(79);
        let addresses = addresses.map(|text| text.parse::<SocketAddr>().unwrap().into()).into_iter();
        addresses.chain([SocketAddr::from(link_local).into(), infiniband.into()]).collect()
    }

    #[test]
    fn socket_address_survives_round_trip() {
        for address in addresses() {
            let mut raw = RawAddress::from(address);
            // SAFETY: the address was just created.
            assert_eq!(unsafe { read(raw.as_mut_ptr(), raw.length()) }, Some(address));
        }
    }

    #[test]
    fn truncated_address_is_none() {
        for address in addresses() {
            let mut raw = RawAddress::from(address);
            for length in 0..raw.length() {
                // An exact, unaligned copy.
                // SAFETY: the storage has `length` bytes.
                let cut = unsafe { std::slice::from_raw_parts(raw.as_mut_ptr().cast::<u8>(), length) }.to_vec();
                // SAFETY: the copy has `length` bytes.
                assert_eq!(unsafe { read(cut.as_ptr().cast(), length) }, None, "{length} bytes of {address}");
            }
        }
    }

    #[test]
    fn wire_bytes_are_in_network_order() {
        let mut raw = RawAddress::from("1.2.3.4:258".parse::<SocketAddr>().unwrap());
        // SAFETY: the storage has 8 bytes.
        let bytes = unsafe { std::slice::from_raw_parts(raw.as_mut_ptr().cast::<u8>(), 8) };
        assert_eq!(bytes[2..], [1, 2, 1, 2, 3, 4]);
    }

    #[test]
    fn address_without_family_is_none() {
        // SAFETY: all zeros are a valid value, because the struct has only integers.
        let mut raw = RawAddress(unsafe { mem::zeroed() });
        // SAFETY: `raw` is readable for its whole length.
        assert_eq!(unsafe { read(raw.as_mut_ptr(), raw.length()) }, None);
        // SAFETY: a null pointer is not dereferenced.
        assert_eq!(unsafe { read(std::ptr::null(), 128) }, None);
    }
}
