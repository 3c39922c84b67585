//! Addresses and routes: binding, resolving, listening.

use std::mem::size_of;

use libc::{c_int, sockaddr, sockaddr_in, sockaddr_in6};
use rdma_mummy_sys as ffi;
use rdma_mummy_sys::rdma_cm_event_type as event_type;

use super::calls::{Access, On, answer, on_id};
use super::devices;
use super::endpoint::complete;
use super::events::{Pending, queue};
use super::id::State;
use crate::recording::state::Inner;

/// The family of `struct sockaddr_ib`.
const AF_IB: u16 = 27;
/// The first port that is given to who asks for none.
const FIRST_PORT: u16 = 49152;

/// A socket address as it stands in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address {
    raw: [u8; 48],
    length: usize,
}

impl Address {
    /// `None` for null and for families that there is no room for.
    ///
    /// # Safety
    ///
    /// `address` is null or an address of the family that it says.
    pub(super) unsafe fn read(address: *const sockaddr) -> Option<Self> {
        if address.is_null() {
            return None;
        }
        // SAFETY: the family stands first, and tells how long the rest is.
        unsafe {
            let length = length_of(address.cast::<u16>().read_unaligned())?;
            let mut raw = [0; 48];
            address.cast::<u8>().copy_to_nonoverlapping(raw.as_mut_ptr(), length);
            Some(Self { raw, length })
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.raw[..self.length]
    }

    pub(super) fn family(&self) -> u16 {
        u16::from_ne_bytes([self.raw[0], self.raw[1]])
    }

    fn port_place(&self) -> usize {
        if self.family() == AF_IB { 30 } else { 2 }
    }

    pub(super) fn port(&self) -> u16 {
        u16::from_be_bytes([self.raw[self.port_place()], self.raw[self.port_place() + 1]])
    }

    pub(super) fn with_port(mut self, port: u16) -> Self {
        let place = self.port_place();
        self.raw[place..place + 2].copy_from_slice(&port.to_be_bytes());
        self
    }

    /// The address without its port.
    pub(super) fn host(&self) -> &[u8] {
        if c_int::from(self.family()) == libc::AF_INET { &self.raw[4..8] } else { &self.raw[8..24] }
    }

    pub(super) fn is_any(&self) -> bool {
        self.host().iter().all(|&byte| byte == 0)
    }

    /// The address as a GID of RoCE.
    pub(super) fn gid(&self) -> ffi::ibv_gid {
        let mut raw = [0; 16];
        if let Ok(four) = <[u8; 4]>::try_from(self.host()) {
            raw[10..12].fill(0xff);
            raw[12..].copy_from_slice(&four);
        } else {
            raw.copy_from_slice(self.host());
        }
        ffi::ibv_gid { raw }
    }

    /// Whether one who listens here is meant by this destination.
    pub(super) fn covers(&self, destination: &Self) -> bool {
        self.port() == destination.port() && (self.is_any() || self.host() == destination.host())
    }

    /// # Safety
    ///
    /// There is room for a `struct sockaddr_storage`.
    pub(super) unsafe fn write<T>(&self, to: *mut T) {
        // SAFETY: the caller's promise; an address is shorter.
        unsafe { to.cast::<u8>().copy_from_nonoverlapping(self.raw.as_ptr(), self.length) };
    }
}

fn length_of(family: u16) -> Option<usize> {
    match c_int::from(family) {
        libc::AF_INET => Some(size_of::<sockaddr_in>()),
        libc::AF_INET6 => Some(size_of::<sockaddr_in6>()),
        _ if family == AF_IB => Some(size_of::<ffi::sockaddr_ib>()),
        _ => None,
    }
}

/// Binds the identifier to a device, and writes that into its C struct.
pub(super) fn attach(on: On) -> Result<(), c_int> {
    if on.with(|id| id.attached)? {
        return Ok(());
    }
    let (context, pd) = devices::acquire(on.device, true)?;
    let mut inner = on.lock();
    inner.manager.id(on.id.addr())?.attached = true;
    // SAFETY: the identifier is alive.
    unsafe {
        (*on.id).verbs = context;
        (*on.id).pd = pd;
        (*on.id).port_num = 1;
        (*on.id).route.addr.addr.ibaddr.pkey = 0xffff;
    }
    Ok(())
}

/// Writes the addresses that are known into the C struct.
pub(super) fn write_addresses(on: On) -> Result<(), c_int> {
    let mut inner = on.lock();
    let (source, destination) = inner.manager.id(on.id.addr()).map(|id| (id.source, id.destination))?;
    // SAFETY: the identifier is alive.
    unsafe {
        let addresses = &raw mut (*on.id).route.addr;
        if let Some(source) = source {
            source.write(&raw mut (*addresses).__bindgen_anon_1);
            (*addresses).addr.ibaddr.sgid = source.gid();
        }
        if let Some(destination) = destination {
            destination.write(&raw mut (*addresses).__bindgen_anon_2);
            (*addresses).addr.ibaddr.dgid = destination.gid();
        }
    }
    Ok(())
}

/// Gives the identifier a port, or `EADDRINUSE`.
fn take_port(inner: &mut Inner, id: usize, address: Address) -> Result<(), c_int> {
    // SAFETY: identifiers are never freed, and the port space is never changed.
    let space = |c: *mut ffi::rdma_cm_id| unsafe { (*c).ps };
    let (ps, reuses) = inner.manager.id(id).map(|id| (space(id.c), id.reuses))?;
    let clashes = |address: &Address| {
        inner.manager.ids.iter().any(|(&other, found)| {
            let both = reuses && found.reuses && found.state != State::Listening;
            let held = found.source.filter(|_| found.holds_port);
            other != id
                && !both
                && space(found.c) == ps
                && held.is_some_and(|held| {
                    held.port() == address.port() && (held.covers(address) || address.covers(&held))
                })
        })
    };
    let mut address = address;
    if address.port() != 0 {
        if clashes(&address) {
            return Err(libc::EADDRINUSE);
        }
    } else {
        let mut port = FIRST_PORT + inner.manager.ports % (u16::MAX - FIRST_PORT);
        while clashes(&address.with_port(port)) {
            port = port.checked_add(1).unwrap_or(FIRST_PORT);
        }
        address = address.with_port(port);
        inner.manager.ports = port - FIRST_PORT + 1;
    }
    let identifier = inner.manager.id(id)?;
    (identifier.source, identifier.holds_port) = (Some(address), true);
    Ok(())
}

/// Binds to an address; only a specific one tells the device.
fn bind(on: On, address: Address) -> Result<(), c_int> {
    {
        let mut inner = on.lock();
        if inner.manager.id(on.id.addr())?.state != State::Idle {
            return Err(libc::EINVAL);
        }
        take_port(&mut inner, on.id.addr(), address)?;
        inner.manager.id(on.id.addr())?.state = State::Bound;
    }
    if address.is_any() { Ok(()) } else { attach(on) }
}

pub(super) unsafe extern "C" fn bind_addr(id: *mut ffi::rdma_cm_id, address: *mut sockaddr) -> c_int {
    // SAFETY: the caller's promise.
    let address = unsafe { Address::read(address) };
    let port = address.map_or(0, |address| address.port());
    answer(on_id("rdma_bind_addr", id, Access::Writes, &[("port", port.into())], |on| {
        bind_to(on, address.ok_or(libc::EINVAL)?)
    }))
}

pub(super) fn bind_to(on: On, address: Address) -> Result<(), c_int> {
    bind(on, address)?;
    write_addresses(on)
}

pub(super) unsafe extern "C" fn resolve_addr(
    id: *mut ffi::rdma_cm_id,
    source: *mut sockaddr,
    destination: *mut sockaddr,
    timeout_ms: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    let (from, to) = unsafe { (Address::read(source), Address::read(destination)) };
    let arguments = [
        ("port", to.map_or(0, |to| to.port()).into()),
        ("timeout", timeout_ms as u64),
        ("source", from.is_some().into()),
    ];
    answer(on_id("rdma_resolve_addr", id, Access::Writes, &arguments, |on| {
        let to = to.ok_or(libc::EINVAL)?;
        if from.is_none() && !source.is_null() {
            return Err(libc::EINVAL);
        }
        resolve(on, from, to)
    }))
}

pub(super) fn resolve(on: On, from: Option<Address>, to: Address) -> Result<(), c_int> {
    if on.with(|id| id.state)? == State::Idle {
        // Without a source, one of this side's addresses: that of the destination, as nothing leaves this process.
        bind(on, from.unwrap_or(to).with_port(from.map_or(0, |from| from.port())))?;
    }
    {
        let mut inner = on.lock();
        if inner.manager.shared.gone {
            return Err(libc::ENODEV);
        }
        let identifier = inner.manager.id(on.id.addr())?;
        if identifier.state != State::Bound {
            return Err(libc::EINVAL);
        }
        if let Some(source) = identifier.source.filter(Address::is_any) {
            identifier.source = Some(to.with_port(source.port()));
        }
        (identifier.state, identifier.destination) = (State::AddressResolved, Some(to));
        // SAFETY: the identifier is alive.
        unsafe { to.write(&raw mut (*on.id).route.addr.__bindgen_anon_2) };
        queue(&mut inner, Pending::of(on.id, event_type::RDMA_CM_EVENT_ADDR_RESOLVED));
    }
    complete(on)
}

pub(super) unsafe extern "C" fn resolve_route(id: *mut ffi::rdma_cm_id, timeout_ms: c_int) -> c_int {
    let arguments = [("timeout", timeout_ms as u64)];
    answer(on_id("rdma_resolve_route", id, Access::Writes, &arguments, resolve_route_of))
}

pub(super) fn resolve_route_of(on: On) -> Result<(), c_int> {
    // SAFETY: the identifier is alive.
    if unsafe { (*on.id).verbs }.is_null() {
        return on.crash("rdma_resolve_route on an identifier without a device");
    }
    route_resolved(on)?;
    complete(on)
}

pub(super) fn route_resolved(on: On) -> Result<(), c_int> {
    let mut inner = on.lock();
    let identifier = inner.manager.id(on.id.addr())?;
    if identifier.state != State::AddressResolved {
        return Err(libc::EINVAL);
    }
    identifier.state = State::RouteResolved;
    queue(&mut inner, Pending::of(on.id, event_type::RDMA_CM_EVENT_ROUTE_RESOLVED));
    Ok(())
}

pub(super) unsafe extern "C" fn listen(id: *mut ffi::rdma_cm_id, backlog: c_int) -> c_int {
    answer(on_id("rdma_listen", id, Access::Writes, &[("backlog", backlog as u64)], |on| {
        if on.with(|id| id.state)? == State::Idle {
            let mut raw = [0; 48];
            raw[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
            bind(on, Address { raw, length: size_of::<sockaddr_in>() })?;
        }
        on.with(|id| {
            if id.state != State::Bound {
                return Err(libc::EINVAL);
            }
            id.state = State::Listening;
            Ok(())
        })??;
        write_addresses(on)
    }))
}

/// # Safety
///
/// The address can be read as far as its family goes.
unsafe fn port(address: *const sockaddr) -> u16 {
    // SAFETY: the caller's promise.
    unsafe { Address::read(address) }.map_or(0, |address| address.port().to_be())
}

pub(super) unsafe extern "C" fn get_src_port(id: *mut ffi::rdma_cm_id) -> u16 {
    let read = on_id("rdma_get_src_port", id, Access::Reads, &[], |on| {
        // SAFETY: the identifier is alive, and has room for any address.
        let read = unsafe { port((&raw const (*on.id).route.addr.__bindgen_anon_1).cast()) };
        Ok(on.lock().number("rdma_get_src_port", read))
    });
    read.unwrap_or(0)
}

pub(super) unsafe extern "C" fn get_dst_port(id: *mut ffi::rdma_cm_id) -> u16 {
    let read = on_id("rdma_get_dst_port", id, Access::Reads, &[], |on| {
        // SAFETY: the identifier is alive, and has room for any address.
        let read = unsafe { port((&raw const (*on.id).route.addr.__bindgen_anon_2).cast()) };
        Ok(on.lock().number("rdma_get_dst_port", read))
    });
    read.unwrap_or(0)
}
