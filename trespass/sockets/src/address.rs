//! Socket addresses in C's layout.

use std::ffi::c_int;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::ptr;

use libc::{sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage, socklen_t};

use crate::system;

/// Reads an address.
///
/// # Safety
///
/// `address` is null or has `length` bytes.
pub(crate) unsafe fn read(address: *const sockaddr, length: socklen_t) -> Option<SocketAddr> {
    let length = length as usize;
    if address.is_null() || length < size_of::<libc::sa_family_t>() {
        return None;
    }
    // SAFETY: the caller's bytes are as long as the type that the family names, which is checked.
    unsafe {
        match c_int::from((*address).sa_family) {
            libc::AF_INET if length >= size_of::<sockaddr_in>() => {
                let address = address.cast::<sockaddr_in>().read_unaligned();
                let ip = address.sin_addr.s_addr.to_ne_bytes();
                Some(SocketAddr::new(IpAddr::from(ip), u16::from_be(address.sin_port)))
            }
            libc::AF_INET6 if length >= size_of::<sockaddr_in6>() => {
                let address = address.cast::<sockaddr_in6>().read_unaligned();
                let (ip, port) = (Ipv6Addr::from(address.sin6_addr.s6_addr), u16::from_be(address.sin6_port));
                Some(SocketAddrV6::new(ip, port, address.sin6_flowinfo, address.sin6_scope_id).into())
            }
            _ => None,
        }
    }
}

/// Stores an address, as much of it as the program has space for, in the form of the socket's family.
///
/// # Safety
///
/// `to` is null or has `*length` bytes.
pub(crate) unsafe fn store(address: SocketAddr, family: c_int, to: *mut sockaddr, length: *mut socklen_t) {
    if to.is_null() || length.is_null() {
        return;
    }
    let ip = match (family, address.ip()) {
        (libc::AF_INET6, IpAddr::V4(ip)) => IpAddr::V6(ip.to_ipv6_mapped()),
        (_, ip) => ip,
    };
    // SAFETY: zeros are a valid address without a family; the types below fit into it. The caller has space for
    // `length` bytes.
    unsafe {
        let mut storage: sockaddr_storage = mem::zeroed();
        let place = &raw mut storage;
        let size = match ip {
            IpAddr::V4(ip) => {
                let place = place.cast::<sockaddr_in>();
                (*place).sin_family = libc::AF_INET as libc::sa_family_t;
                (*place).sin_port = address.port().to_be();
                (*place).sin_addr.s_addr = u32::from_ne_bytes(ip.octets());
                size_of::<sockaddr_in>()
            }
            IpAddr::V6(ip) => {
                let place = place.cast::<sockaddr_in6>();
                (*place).sin6_family = libc::AF_INET6 as libc::sa_family_t;
                (*place).sin6_port = address.port().to_be();
                (*place).sin6_addr.s6_addr = ip.octets();
                if let SocketAddr::V6(address) = address {
                    (*place).sin6_scope_id = address.scope_id();
                }
                size_of::<sockaddr_in6>()
            }
        };
        ptr::copy_nonoverlapping(place.cast::<u8>(), to.cast::<u8>(), size.min(*length as usize));
        *length = size as socklen_t;
    }
}

/// The local address of a socket of the kernel.
pub(crate) fn local(fd: c_int) -> Option<SocketAddr> {
    let mut length = size_of::<sockaddr_storage>() as socklen_t;
    // SAFETY: zeros are a valid address, and the length is that of the storage.
    unsafe {
        let mut storage: sockaddr_storage = mem::zeroed();
        let place = (&raw mut storage).cast::<sockaddr>();
        match system::getsockname(fd, place, &raw mut length) {
            0 => read(place, length),
            _ => None,
        }
    }
}

/// The address without the form that IPv6 has for those of IPv4.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => SocketAddr::new(IpAddr::V4(ip), address.port()),
        IpAddr::V6(_) => address,
    }
}

/// The address at which the system reaches the peer: an unspecified one stands for this host.
pub(crate) fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        _ => return address,
    };
    SocketAddr::new(ip, address.port())
}
