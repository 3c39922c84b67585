//! `rdma_getaddrinfo`, which translates names and numbers to addresses with `getaddrinfo` of the C library.

use std::ffi::{CStr, CString, c_char, c_int};
use std::mem;
use std::net::SocketAddr;
use std::ptr;

use libc::{addrinfo, sockaddr_storage, socklen_t};
use rdma_mummy_sys::{
    RAI_NUMERICHOST, RAI_PASSIVE, ibv_qp_type, rdma_addrinfo, rdma_cm_event_type as event_type, rdma_cm_id,
    rdma_port_space,
};

use super::address::{read, write};
use super::calls::return_code;
use super::endpoint::complete;
use super::events::Pending;
use super::world;
use crate::sys::errno::Errno;

/// The result of a lookup.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    flags: c_int,
    family: c_int,
    qp_type: c_int,
    port_space: c_int,
    source: Option<SocketAddr>,
    destination: Option<SocketAddr>,
}

/// A list with one entry, and the addresses to which this entry points.
#[repr(C)]
struct Memory {
    info: rdma_addrinfo,
    source: sockaddr_storage,
    destination: sockaddr_storage,
}

impl List {
    /// Looks up names.
    ///
    /// # Safety
    ///
    /// `node` and `service` are null or C strings, and `hints` is null or readable, with its addresses.
    unsafe fn find(node: *const c_char, service: *const c_char, hints: *const rdma_addrinfo) -> Result<Self, Errno> {
        // SAFETY: guaranteed by the caller.
        let hints = unsafe { hints.as_ref() };
        if node.is_null() && service.is_null() && hints.is_none() {
            return Err(Errno::INVALID);
        }
        let flags = hints.map_or(0, |hints| hints.ai_flags);
        let mut list = Self {
            flags,
            family: hints.map_or(0, |hints| hints.ai_family),
            qp_type: hints.map_or(0, |hints| hints.ai_qp_type),
            port_space: hints.map_or(0, |hints| hints.ai_port_space),
            source: None,
            destination: None,
        };
        if let Some(hints) = hints {
            // SAFETY: guaranteed by the caller.
            unsafe {
                if hints.ai_src_len > 0 {
                    list.source = read(hints.ai_src_addr)?;
                }
                if hints.ai_dst_len > 0 {
                    list.destination = read(hints.ai_dst_addr)?;
                }
            }
        }
        if node.is_null() && service.is_null() {
            return Ok(list);
        }
        list.choose_kind()?;
        let passive = flags as u32 & RAI_PASSIVE != 0;
        // SAFETY: guaranteed by the caller.
        let found = unsafe { look_up(node, service, &list) }?;
        list.family = if found.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        list.flags = if passive { RAI_PASSIVE as c_int } else { 0 };
        if passive {
            (list.source, list.destination) = (Some(found), None);
        } else {
            list.destination = Some(found);
        }
        Ok(list)
    }

    /// If the QP type or the port space is missing, derives it from the other one.
    fn choose_kind(&mut self) -> Result<(), Errno> {
        if !matches!(self.family, 0 | libc::AF_INET | libc::AF_INET6) {
            return Err(Errno(libc::EAFNOSUPPORT));
        }
        let datagram = self.qp_type == ibv_qp_type::IBV_QPT_UD.0 as c_int
            || self.port_space == rdma_port_space::RDMA_PS_UDP.0 as c_int;
        let (qp_type, port_space) = match datagram {
            true => (ibv_qp_type::IBV_QPT_UD, rdma_port_space::RDMA_PS_UDP),
            false => (ibv_qp_type::IBV_QPT_RC, rdma_port_space::RDMA_PS_TCP),
        };
        if self.qp_type == 0 {
            self.qp_type = qp_type.0 as c_int;
        }
        if self.port_space == 0 {
            self.port_space = port_space.0 as c_int;
        }
        Ok(())
    }

    /// Converts the list to C.
    fn into_c(self) -> *mut rdma_addrinfo {
        // SAFETY: the type has only numbers and nullable pointers, for which zero is valid.
        let memory = Box::into_raw(Box::new(unsafe { mem::zeroed::<Memory>() }));
        // SAFETY: `memory` is on the heap, with space for any address.
        unsafe {
            let info = &mut (*memory).info;
            (info.ai_flags, info.ai_family) = (self.flags, self.family);
            (info.ai_qp_type, info.ai_port_space) = (self.qp_type, self.port_space);
            if let Some(source) = self.source {
                info.ai_src_len = write(source, &raw mut (*memory).source) as socklen_t;
                info.ai_src_addr = (&raw mut (*memory).source).cast();
            }
            if let Some(destination) = self.destination {
                info.ai_dst_len = write(destination, &raw mut (*memory).destination) as socklen_t;
                info.ai_dst_addr = (&raw mut (*memory).destination).cast();
            }
        }
        memory.cast()
    }
}

/// Queries the C library. As in librdmacm, negative codes of the C library are returned in errno.
///
/// # Safety
///
/// `node` and `service` are null or C strings.
unsafe fn look_up(node: *const c_char, service: *const c_char, list: &List) -> Result<SocketAddr, Errno> {
    // SAFETY: guaranteed by the caller.
    let copy = |text: *const c_char| (!text.is_null()).then(|| CString::from(unsafe { CStr::from_ptr(text) }));
    let (node, service) = (copy(node), copy(service));
    let pointer = |text: &Option<CString>| text.as_ref().map_or(ptr::null(), |text| text.as_ptr());
    // SAFETY: the type has only numbers and nullable pointers, for which zero is valid.
    let mut hints: addrinfo = unsafe { mem::zeroed() };
    let has = |flag: u32| list.flags as u32 & flag != 0;
    hints.ai_flags = if has(RAI_PASSIVE) { libc::AI_PASSIVE } else { 0 };
    hints.ai_flags |= if has(RAI_NUMERICHOST) { libc::AI_NUMERICHOST } else { 0 };
    hints.ai_family = list.family;
    let datagram = list.port_space == rdma_port_space::RDMA_PS_UDP.0 as c_int;
    (hints.ai_socktype, hints.ai_protocol) =
        if datagram { (libc::SOCK_DGRAM, libc::IPPROTO_UDP) } else { (libc::SOCK_STREAM, libc::IPPROTO_TCP) };
    let mut found: *mut addrinfo = ptr::null_mut();
    // SAFETY: the strings are C strings, the hints are readable, and `found` is writable.
    let code = unsafe { libc::getaddrinfo(pointer(&node), pointer(&service), &raw const hints, &raw mut found) };
    if code == libc::EAI_SYSTEM {
        return Err(super::calls::last());
    }
    if code != 0 || found.is_null() {
        return Err(Errno(if code == 0 { libc::EAI_NONAME } else { code }));
    }
    // SAFETY: the list is complete until it is freed, with an address in each entry.
    let address = unsafe { read((*found).ai_addr) };
    // SAFETY: the list came from `getaddrinfo`, and is no longer used.
    unsafe { libc::freeaddrinfo(found) };
    address?.ok_or(Errno(libc::EAI_NONAME))
}

/// `rdma_getaddrinfo(node, service, hints, res)`.
///
/// # Safety
///
/// As in C: the strings are null or C strings, the hints are null or readable, and the list is writable.
pub(super) unsafe extern "C" fn getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
    res: *mut *mut rdma_addrinfo,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    return_code(unsafe { List::find(node, service, hints).map(|list| res.write(list.into_c())) })
}

/// `rdma_freeaddrinfo(res)`.
///
/// # Safety
///
/// As in C: the list came from `rdma_getaddrinfo`, and is no longer used.
pub(super) unsafe extern "C" fn freeaddrinfo(res: *mut rdma_addrinfo) {
    if !res.is_null() {
        // SAFETY: guaranteed by the caller: the list is the start of a box made by `into_c`.
        drop(unsafe { Box::from_raw(res.cast::<Memory>()) });
    }
}

/// `rdma_resolve_addrinfo(id, node, service, hints)`: an event reports the addresses.
///
/// # Safety
///
/// As in C: the identifier is alive, the strings are null or C strings, and the hints are null or readable.
pub(super) unsafe extern "C" fn resolve_addrinfo(
    id: *mut rdma_cm_id,
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
) -> c_int {
    let resolve = || {
        // SAFETY: guaranteed by the caller.
        let list = unsafe { List::find(node, service, hints) }?;
        {
            let mut world = world();
            world.id(id.addr())?.information = Some(list);
            world.put(Pending::new(id.addr(), event_type::RDMA_CM_EVENT_ADDRINFO_RESOLVED));
        }
        complete(id)
    };
    return_code(resolve())
}

/// `rdma_query_addrinfo(id, info)`.
///
/// # Safety
///
/// As in C: the identifier is alive, and the list is writable.
pub(super) unsafe extern "C" fn query_addrinfo(id: *mut rdma_cm_id, info: *mut *mut rdma_addrinfo) -> c_int {
    let query = || world().id(id.addr())?.information.ok_or(Errno(libc::ENODATA));
    // SAFETY: guaranteed by the caller.
    return_code(query().map(|list| unsafe { info.write(list.into_c()) }))
}
