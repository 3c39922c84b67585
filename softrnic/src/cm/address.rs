//! Addresses: how they are converted from C, bound and resolved, and how port numbers are read.

use std::ffi::c_int;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::ptr;
use std::sync::Arc;

use libc::{sockaddr, sockaddr_in, sockaddr_in6};
use rdma_mummy_sys::{ibv_gid, rdma_cm_event_type as event_type, rdma_cm_id, rdma_port_space};

use super::calls::return_code;
use super::endpoint::complete;
use super::events::Pending;
use super::id::State;
use super::iwarp;
use super::port::{Host, Port};
use super::{World, device, world};
use crate::sys::addresses;
use crate::sys::errno::Errno;
use crate::verbs::port::PORT;
use crate::wire::address::Gid;
use crate::wire::transport::Fabric;

/// The value of `AF_IB`, which is the family of `struct sockaddr_ib`.
const INFINIBAND: c_int = 27;

/// Reads an address from C. Returns `None` if the pointer is null.
///
/// # Safety
///
/// `address` is null, or has the size of its family.
pub(super) unsafe fn read(address: *const sockaddr) -> Result<Option<SocketAddr>, Errno> {
    if address.is_null() {
        return Ok(None);
    }
    // SAFETY: guaranteed by the caller; every address starts with its family.
    unsafe {
        match i32::from((&raw const (*address).sa_family).read_unaligned()) {
            libc::AF_INET => {
                let address = address.cast::<sockaddr_in>().read_unaligned();
                let ip = Ipv4Addr::from(address.sin_addr.s_addr.to_ne_bytes());
                Ok(Some(SocketAddr::new(ip.into(), u16::from_be(address.sin_port))))
            }
            libc::AF_INET6 => {
                let address = address.cast::<sockaddr_in6>().read_unaligned();
                let ip = Ipv6Addr::from(address.sin6_addr.s6_addr);
                let port = u16::from_be(address.sin6_port);
                Ok(Some(SocketAddrV6::new(ip, port, 0, address.sin6_scope_id).into()))
            }
            // The kernel returns the same error if the devices are Ethernet devices.
            INFINIBAND => Err(Errno(libc::ENODEV)),
            _ => Err(Errno(libc::EAFNOSUPPORT)),
        }
    }
}

/// Writes an address for C, and returns its length.
///
/// # Safety
///
/// `to` has space for a `struct sockaddr_storage`.
pub(super) unsafe fn write<T>(address: SocketAddr, to: *mut T) -> usize {
    // SAFETY: guaranteed by the caller; the structs consist of numbers, for which zero is valid.
    unsafe {
        match address {
            SocketAddr::V4(address) => {
                let mut c: sockaddr_in = mem::zeroed();
                c.sin_family = libc::AF_INET as u16;
                c.sin_port = address.port().to_be();
                c.sin_addr.s_addr = u32::from_ne_bytes(address.ip().octets());
                to.cast::<sockaddr_in>().write_unaligned(c);
                size_of::<sockaddr_in>()
            }
            SocketAddr::V6(address) => {
                let mut c: sockaddr_in6 = mem::zeroed();
                c.sin6_family = libc::AF_INET6 as u16;
                c.sin6_port = address.port().to_be();
                c.sin6_addr.s6_addr = address.ip().octets();
                c.sin6_scope_id = address.scope_id();
                to.cast::<sockaddr_in6>().write_unaligned(c);
                size_of::<sockaddr_in6>()
            }
        }
    }
}

/// Returns the GID of an address.
pub(super) fn gid(ip: IpAddr) -> Gid {
    match ip.to_canonical() {
        IpAddr::V4(ip) => Gid::from_ipv4(ip.octets()),
        IpAddr::V6(ip) => Gid(ip.octets()),
    }
}

/// Returns whether the address belongs to this host.
fn is_local(ip: IpAddr) -> bool {
    addresses::all().iter().any(|address| Gid::from(address.ip) == gid(ip))
}

/// Returns the source and the destination address for a connection to `to`, and the fabric. If the address belongs to
/// this host, a device that shares memory is preferred, because it is faster. Otherwise it is the first device that
/// reaches other hosts. Returns `ENETUNREACH` if no device or no route exists.
fn route_to(to: SocketAddr, may_be_iwarp: bool) -> Result<(IpAddr, SocketAddr, Fabric), Errno> {
    let mut to = to;
    if to.ip().to_canonical().is_unspecified() {
        to.set_ip(if to.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
    }
    let reaching = device::reaching(|fabric| fabric != Fabric::Iwarp || may_be_iwarp);
    let nearest = if device::exists(Fabric::Host) { Fabric::Host } else { reaching.unwrap_or(Fabric::Host) };
    if gid(to.ip()).is_multicast() {
        return Ok((source_for(to), to, nearest));
    }
    if is_local(to.ip()) {
        return Ok((to.ip(), to, nearest));
    }
    let unreachable = Errno(libc::ENETUNREACH);
    let fabric = reaching.ok_or(unreachable)?;
    Ok((routed(to).ok_or(unreachable)?, to, fabric))
}

/// Returns the source address that the kernel would use for a destination, or `None` if there is no route.
fn routed(to: SocketAddr) -> Option<IpAddr> {
    let any: SocketAddr =
        if to.is_ipv4() { (Ipv4Addr::UNSPECIFIED, 0).into() } else { (Ipv6Addr::UNSPECIFIED, 0).into() };
    let socket = UdpSocket::bind(any).ok()?;
    // Connecting a UDP socket sends no packet. The port must not be 0.
    let mut to = to;
    to.set_port(to.port().max(1));
    socket.connect(to).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// Returns the source address that the kernel would use for a multicast group.
fn source_for(group: SocketAddr) -> IpAddr {
    match routed(group) {
        Some(address) if is_local(address) => address,
        _ if group.is_ipv4() => Ipv4Addr::LOCALHOST.into(),
        _ => Ipv6Addr::LOCALHOST.into(),
    }
}

impl World {
    /// Binds an identifier to the device.
    pub(super) fn attach(&mut self, id: usize) -> Result<(), Errno> {
        let c = self.id(id)?.c;
        // SAFETY: the identifier is alive. As in the kernel, this port space requires an InfiniBand device.
        if unsafe { (*c).ps } == rdma_port_space::RDMA_PS_IPOIB {
            return Err(Errno::INVALID);
        }
        let fabric = self.id(id)?.fabric;
        let known = Some(fabric).filter(|&fabric| device::exists(fabric));
        let open = device::first(known.or_else(|| device::reaching(|_| true)).ok_or(Errno(libc::ENODEV))?)?;
        // SAFETY: the identifier is alive.
        unsafe {
            // `rdma_bind_addr` may have bound the identifier to another device, before the destination was known.
            if (*c).verbs.is_null() || fabric != Fabric::Host && (*c).qp.is_null() {
                ((*c).verbs, (*c).pd, (*c).port_num) = (open.context, open.pd, PORT);
            }
        }
        self.write_addresses(id)
    }

    /// Writes the addresses that are known so far to the C struct.
    pub(super) fn write_addresses(&mut self, id: usize) -> Result<(), Errno> {
        let identifier = self.id(id)?;
        // SAFETY: the identifier is alive, and has space for two addresses.
        unsafe {
            let addresses = &raw mut (*identifier.c).route.addr;
            let is_on_a_device = !(*identifier.c).verbs.is_null();
            if let Some(source) = identifier.source {
                write(source, &raw mut (*addresses).__bindgen_anon_1);
                if is_on_a_device {
                    (*addresses).addr.ibaddr.sgid = ibv_gid { raw: gid(source.ip()).0 };
                }
            }
            if let Some(destination) = identifier.destination {
                write(destination, &raw mut (*addresses).__bindgen_anon_2);
                if is_on_a_device {
                    (*addresses).addr.ibaddr.dgid = ibv_gid { raw: gid(destination.ip()).0 };
                }
            }
        }
        Ok(())
    }

    /// Binds an identifier to an address. If the address is not a wildcard, it also selects the device.
    pub(super) fn bind(&mut self, id: usize, address: SocketAddr) -> Result<(), Errno> {
        self.bind_to(id, address, true)
    }

    fn bind_to(&mut self, id: usize, address: SocketAddr, listens: bool) -> Result<(), Errno> {
        if self.id(id)?.state != State::Idle {
            return Err(Errno::INVALID);
        }
        let any = address.ip().to_canonical().is_unspecified();
        if !any && !is_local(address.ip()) {
            return Err(Errno(libc::EADDRNOTAVAIL));
        }
        let port = self.take_port(id, address, listens)?;
        let identifier = self.id(id)?;
        identifier.source = Some(SocketAddr::new(address.ip(), port.number).with_scope_of(address));
        (identifier.port, identifier.state) = (Some(port), State::Bound);
        match (any, listens) {
            (true, true) => self.write_addresses(id),
            (false, true) => self.attach(id),
            // The event reports this failure.
            (_, false) => Ok(()),
        }
    }

    fn take_port(&mut self, id: usize, address: SocketAddr, listens: bool) -> Result<Arc<Port>, Errno> {
        let identifier = self.id(id)?;
        // SAFETY: the identifier is alive.
        let (space, is_stream) = unsafe { ((*identifier.c).ps, iwarp::listens(identifier.c, address)) };
        let af_only = identifier.options.af_only;
        let host = Host::of(address.ip(), af_only);
        let reuses = identifier.options.reuse_address;
        let number = address.port();
        if number == 0 {
            // A listener also binds the TCP port with this number.
            let is_free = |number| {
                let address = SocketAddr::new(address.ip(), number).with_scope_of(address);
                !(listens && is_stream) || iwarp::bound(address, af_only).err() != Some(Errno(libc::EADDRINUSE))
            };
            return Port::take_any(space, host, listens, is_free).map(Arc::new);
        }
        let mut mine: Vec<Arc<Port>> = Vec::new();
        for other in self.ids.values() {
            let Some(port) = other.port.as_ref().filter(|port| port.conflicts(space, number, host)) else { continue };
            if !(reuses && other.options.reuse_address && other.state != State::Listening) {
                return Err(host.in_use(port.host));
            }
            mine.push(Arc::clone(port));
        }
        if let Some(same) = mine.iter().find(|port| port.host == host) {
            return Ok(Arc::clone(same));
        }
        Port::take(space, number, host, |number, host| mine.iter().any(|one| one.number == number && one.host == host))
            .map(Arc::new)
    }

    /// Begins to resolve an address. An event reports the result.
    pub(super) fn resolve(&mut self, id: usize, from: Option<SocketAddr>, to: SocketAddr) -> Result<(), Errno> {
        // SAFETY: the identifier is alive.
        let route = route_to(to, unsafe { iwarp::is_possible(self.id(id)?.c) });
        if self.id(id)?.state == State::Idle {
            let from = match (from, &route) {
                (Some(from), _) if from.is_ipv4() != to.is_ipv4() => return Err(Errno::INVALID),
                (Some(from), _) => from,
                (None, Ok((source, to, _))) => SocketAddr::new(*source, 0).with_scope_of(*to),
                (None, Err(_)) if to.is_ipv4() => SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0),
                (None, Err(_)) => SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0),
            };
            self.bind_to(id, from, false)?;
        }
        let identifier = self.id(id)?;
        if identifier.state != State::Bound {
            return Err(Errno::INVALID);
        }
        // As in the kernel, if no route exists, the call fails and no event is raised.
        let (source, to, fabric) = route?;
        identifier.fabric = fabric;
        if let Some(old) = identifier.source.filter(|old| old.ip().to_canonical().is_unspecified()) {
            identifier.source = Some(SocketAddr::new(source, old.port()).with_scope_of(to));
        }
        (identifier.destination, identifier.state) = (Some(to), State::AddressResolved);
        // SAFETY: the identifier is alive, and has space for an address.
        unsafe { write(to, &raw mut (*identifier.c).route.addr.__bindgen_anon_2) };
        self.put(Pending::new(id, event_type::RDMA_CM_EVENT_ADDR_RESOLVED));
        Ok(())
    }
}

/// Copies the scope from another address, if both are IPv6 addresses.
pub(super) trait Scope {
    fn with_scope_of(self, other: Self) -> Self;
}

impl Scope for SocketAddr {
    fn with_scope_of(mut self, other: Self) -> Self {
        if let (SocketAddr::V6(to), SocketAddr::V6(from)) = (&mut self, other) {
            to.set_scope_id(from.scope_id());
        }
        self
    }
}

/// `rdma_bind_addr(id, addr)`.
///
/// # Safety
///
/// As in C: the identifier is alive, and the address has the size of its family.
pub(super) unsafe extern "C" fn bind_addr(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int {
    // SAFETY: guaranteed by the caller.
    let address = unsafe { read(addr) };
    return_code(address.and_then(|address| world().bind(id.addr(), address.ok_or(Errno::INVALID)?)))
}

/// `rdma_resolve_addr(id, src_addr, dst_addr, timeout_ms)`.
///
/// # Safety
///
/// As in C: the identifier is alive, and each address is null or has the size of its family.
pub(super) unsafe extern "C" fn resolve_addr(
    id: *mut rdma_cm_id,
    src_addr: *mut sockaddr,
    dst_addr: *mut sockaddr,
    _timeout_ms: c_int,
) -> c_int {
    let resolve = || {
        // SAFETY: guaranteed by the caller.
        let (from, to) = unsafe { (read(src_addr)?, read(dst_addr)?) };
        resolve_and_wait(id, from, to.ok_or(Errno::INVALID)?)
    };
    return_code(resolve())
}

pub(super) fn resolve_and_wait(id: *mut rdma_cm_id, from: Option<SocketAddr>, to: SocketAddr) -> Result<(), Errno> {
    world().resolve(id.addr(), from, to)?;
    complete(id)
}

/// Returns the port of a C address in big-endian byte order.
///
/// # Safety
///
/// The address belongs to a live identifier.
unsafe fn port_of<T>(address: *const T) -> u16 {
    // SAFETY: guaranteed by the caller.
    unsafe { read(address.cast()) }.ok().flatten().map_or(0, |address| address.port().to_be())
}

/// `rdma_get_src_port(id)`.
///
/// # Safety
///
/// As in C: the identifier is alive.
pub(super) unsafe extern "C" fn get_src_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: guaranteed by the caller.
    unsafe { port_of(ptr::from_ref(&(*id).route.addr.__bindgen_anon_1)) }
}

/// `rdma_get_dst_port(id)`.
///
/// # Safety
///
/// As in C: the identifier is alive.
pub(super) unsafe extern "C" fn get_dst_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: guaranteed by the caller.
    unsafe { port_of(ptr::from_ref(&(*id).route.addr.__bindgen_anon_2)) }
}
