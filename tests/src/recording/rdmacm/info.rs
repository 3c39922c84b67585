//! Lists of addresses: numbers alone, and always one.

use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::{mem, ptr};

use libc::{c_char, c_int, sockaddr, sockaddr_in, sockaddr_in6};
use rdma_mummy_sys as ffi;
use rdma_mummy_sys::{ibv_qp_type as pair_type, rdma_cm_event_type as event_type, rdma_port_space as space};

use super::address::Address;
use super::calls::{Access, answer, belongs, device_of, on_device, on_id, own_device};
use super::endpoint::complete;
use super::events::{Pending, queue};
use super::memory::{InfoMemory, overwrite};
use crate::recording::calls::Kind;
use crate::recording::objects::forever;
use crate::recording::state::Device;

/// What comes out as errno, as it is, from the library: `EAI_NONAME`.
const NO_NAME: c_int = libc::EAI_NONAME;
const NO_SERVICE: c_int = libc::EAI_SERVICE;

/// The address as C has it.
fn in_c(address: SocketAddr) -> Address {
    // SAFETY: the structs are integers, and `read` gets a whole one of the family that it says.
    let read = unsafe {
        match address {
            SocketAddr::V4(address) => {
                let mut c: sockaddr_in = mem::zeroed();
                c.sin_family = libc::AF_INET as u16;
                c.sin_port = address.port().to_be();
                c.sin_addr.s_addr = u32::from_ne_bytes(address.ip().octets());
                Address::read((&raw const c).cast())
            }
            SocketAddr::V6(address) => {
                let mut c: sockaddr_in6 = mem::zeroed();
                c.sin6_family = libc::AF_INET6 as u16;
                c.sin6_port = address.port().to_be();
                c.sin6_addr.s6_addr = address.ip().octets();
                Address::read((&raw const c).cast())
            }
        }
    };
    read.unwrap_or_else(|| unreachable!("both families are known"))
}

/// # Safety
///
/// Null, or a string that ends.
unsafe fn text<'a>(string: *const c_char) -> Option<&'a str> {
    // SAFETY: the caller's promise.
    (!string.is_null()).then(|| unsafe { CStr::from_ptr(string) }.to_str().unwrap_or("?"))
}

fn look_up(node: Option<&str>, service: Option<&str>, passive: bool, family: c_int) -> Result<Address, c_int> {
    let port = service.map_or(Ok(0), |service| service.parse::<u16>().map_err(|_| NO_SERVICE))?;
    let six = family == libc::AF_INET6;
    let ip = match node {
        Some(node) => node.parse::<IpAddr>().map_err(|_| NO_NAME)?,
        None if passive && six => Ipv6Addr::UNSPECIFIED.into(),
        None if passive => Ipv4Addr::UNSPECIFIED.into(),
        None if six => Ipv6Addr::LOCALHOST.into(),
        None => Ipv4Addr::LOCALHOST.into(),
    };
    if family != 0 && ip.is_ipv6() != six {
        return Err(NO_NAME);
    }
    Ok(in_c(SocketAddr::new(ip, port)))
}

/// A new list of one.
///
/// # Safety
///
/// As for `rdma_getaddrinfo`.
unsafe fn make(
    device: &'static Device,
    node: *const c_char,
    service: *const c_char,
    hints: *const ffi::rdma_addrinfo,
) -> Result<*mut ffi::rdma_addrinfo, c_int> {
    // SAFETY: the caller's promise.
    let (node, service, hints) = unsafe { (text(node), text(service), hints.as_ref()) };
    if node.is_none() && service.is_none() && hints.is_none() {
        return Err(libc::EINVAL);
    }
    let named = node.is_some() || service.is_some();
    let passive = hints.is_some_and(|hints| hints.ai_flags as u32 & ffi::RAI_PASSIVE != 0);
    let found = match named {
        true => Some(look_up(node, service, passive, hints.map_or(0, |hints| hints.ai_family))?),
        false => None,
    };
    let memory = forever::<InfoMemory>();
    // SAFETY: the memory is new, and has room for addresses; the hints' addresses can be read.
    unsafe {
        let (source, destination) = (&raw mut (*memory).source, &raw mut (*memory).destination);
        let info = &mut (*memory).info;
        let put = |address: Address, to: *mut [u64; 16]| {
            address.write(to);
            (to.cast::<sockaddr>(), address.bytes().len() as libc::socklen_t)
        };
        let asked = hints.map_or((0, 0), |hints| (hints.ai_qp_type, hints.ai_port_space));
        if let Some(found) = found {
            let datagram = asked.0 == pair_type::IBV_QPT_UD.0 as c_int || asked.1 == space::RDMA_PS_UDP.0 as c_int;
            let (kind, ps) = match datagram {
                true => (pair_type::IBV_QPT_UD.0, space::RDMA_PS_UDP.0),
                false => (pair_type::IBV_QPT_RC.0, space::RDMA_PS_TCP.0),
            };
            info.ai_qp_type = if asked.0 == 0 { kind as c_int } else { asked.0 };
            info.ai_port_space = if asked.1 == 0 { ps as c_int } else { asked.1 };
            info.ai_family = found.family().into();
            if passive {
                info.ai_flags = ffi::RAI_PASSIVE as c_int;
                (info.ai_src_addr, info.ai_src_len) = put(found, source);
            } else {
                (info.ai_dst_addr, info.ai_dst_len) = put(found, destination);
            }
        } else if let Some(hints) = hints {
            (info.ai_qp_type, info.ai_port_space) = asked;
            (info.ai_flags, info.ai_family) = (hints.ai_flags, hints.ai_family);
            if let Some(to) = Address::read(hints.ai_dst_addr).filter(|_| hints.ai_dst_len > 0) {
                (info.ai_dst_addr, info.ai_dst_len) = put(to, destination);
            }
        }
        let from = hints.filter(|hints| info.ai_src_len == 0 && hints.ai_src_len > 0);
        if let Some(from) = from.and_then(|hints| Address::read(hints.ai_src_addr)) {
            (info.ai_src_addr, info.ai_src_len) = put(from, source);
        }
    }
    let info = memory.cast::<ffi::rdma_addrinfo>();
    belongs(info, device);
    let mut inner = device.state.lock();
    // SAFETY: the list is new. Lengths are outputs where there is nothing that they are of.
    unsafe {
        inner.output("a list of addresses: flags", &raw mut (*info).ai_flags);
        inner.output("a list of addresses: family", &raw mut (*info).ai_family);
        inner.output("a list of addresses: type", &raw mut (*info).ai_qp_type);
        inner.output("a list of addresses: port space", &raw mut (*info).ai_port_space);
        for (there, length) in [
            (!(*info).ai_src_addr.is_null(), &raw mut (*info).ai_src_len),
            (!(*info).ai_dst_addr.is_null(), &raw mut (*info).ai_dst_len),
        ] {
            let what = if there { "a list of addresses: length" } else { "a list of addresses: length of nothing" };
            inner.output(what, length);
        }
        inner.output("a list of addresses: length of nothing", &raw mut (*info).ai_route_len);
        inner.output("a list of addresses: length of nothing", &raw mut (*info).ai_connect_len);
    }
    inner.made(Kind::AddressInformation, info, &[]);
    drop(inner);
    Ok(info)
}

pub(super) unsafe extern "C" fn getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const ffi::rdma_addrinfo,
    list: *mut *mut ffi::rdma_addrinfo,
) -> c_int {
    let made = own_device().and_then(|device| {
        // SAFETY: the caller's promise.
        on_device(device, "rdma_getaddrinfo", &[], || unsafe { make(device, node, service, hints) })
    });
    // SAFETY: it can be written to by contract.
    answer(made.map(|made| unsafe { *list = made }))
}

pub(super) unsafe extern "C" fn freeaddrinfo(list: *mut ffi::rdma_addrinfo) {
    let Some(device) = device_of(list) else { return };
    let mut inner = device.state.note("rdma_freeaddrinfo", &[("list", list.addr() as u64)]);
    if inner.destroy(Kind::AddressInformation, list.addr()).is_ok() {
        // SAFETY: the list is gone, and nobody uses it any more.
        unsafe { overwrite(list.cast::<InfoMemory>()) };
    }
}

/// Asks for addresses, which an event says are there.
pub(super) unsafe extern "C" fn resolve_addrinfo(
    id: *mut ffi::rdma_cm_id,
    node: *const c_char,
    service: *const c_char,
    hints: *const ffi::rdma_addrinfo,
) -> c_int {
    answer(on_id("rdma_resolve_addrinfo", id, Access::Reads, &[], |on| {
        // SAFETY: the caller's promise.
        let found = unsafe { make(on.device, node, service, hints)? };
        // It stays with the identifier: only a copy of it is the program's.
        let mut inner = on.lock();
        inner.hide(found.addr());
        inner.manager.id(on.id.addr())?.information = found;
        queue(&mut inner, Pending::of(on.id, event_type::RDMA_CM_EVENT_ADDRINFO_RESOLVED));
        drop(inner);
        complete(on)
    }))
}

pub(super) unsafe extern "C" fn query_addrinfo(id: *mut ffi::rdma_cm_id, list: *mut *mut ffi::rdma_addrinfo) -> c_int {
    let made = on_id("rdma_query_addrinfo", id, Access::Reads, &[], |on| {
        let found = on.with(|id| id.information)?;
        if found.is_null() {
            return Err(libc::ENODATA);
        }
        // SAFETY: what was found is never freed; as hints it is copied.
        unsafe { make(on.device, ptr::null(), ptr::null(), found) }
    });
    // SAFETY: it can be written to by contract.
    answer(made.map(|made| unsafe { *list = made }))
}
