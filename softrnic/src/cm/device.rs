//! The open devices, which identifiers and device lists share. Each device is opened once, together with a protection
//! domain, and stays open until the process ends.

use std::collections::BTreeSet;
use std::ffi::c_int;
use std::ptr;
use std::sync::Mutex;

use rdma_mummy_sys::{ibv_context, ibv_device, ibv_pd, ibv_xrcd, ibv_xrcd_init_attr, ibv_xrcd_init_attr_mask as part};

use super::calls::made;
use crate::sys::errno::Errno;
use crate::sys::fork::PerProcess;
use crate::sys::unpoisoned;
use crate::verbs::open::open_device;
use crate::verbs::protection_domain::alloc_pd;
use crate::verbs::xrc_domain::open_xrcd;
use crate::verbs::{device, failure};
use crate::wire::condition::Condition;
use crate::wire::transport::Fabric;

/// An open device.
#[derive(Clone, Copy)]
pub(super) struct Open {
    device: *mut ibv_device,
    pub(super) context: *mut ibv_context,
    pub(super) pd: *mut ibv_pd,
    xrcd: *mut ibv_xrcd,
}

// SAFETY: contexts and domains are not bound to a thread.
unsafe impl Send for Open {}

/// The open devices.
static OPENED: PerProcess<Mutex<Vec<Open>>> = PerProcess::new(Mutex::new(Vec::new()), Box::default);
/// The lists that were returned to the program, by their addresses and lengths.
static LISTS: PerProcess<Mutex<BTreeSet<(usize, usize)>>> = PerProcess::new(Mutex::new(BTreeSet::new()), Box::default);

/// Opens all devices that are not open yet.
fn open_all() -> Result<Vec<Open>, Errno> {
    let mut opened = unpoisoned(OPENED.get().lock());
    for device in device::all() {
        if opened.iter().any(|open| open.device == device.as_c()) {
            continue;
        }
        // SAFETY: the device belongs to this provider, and so does its open context.
        let open = unsafe {
            let context = made(open_device(device.as_c()))?;
            Open { device: device.as_c(), context, pd: made(alloc_pd(context))?, xrcd: ptr::null_mut() }
        };
        opened.push(open);
    }
    Ok(opened.clone())
}

/// Returns the device for a connection, which is the first one of the fabric. All devices of a fabric have the
/// same addresses.
pub(super) fn first(fabric: Fabric) -> Result<Open, Errno> {
    let device = device::first(fabric).ok_or(Errno(libc::ENODEV))?;
    open_all()?.into_iter().find(|open| open.device == device.as_c()).ok_or(Errno(libc::ENODEV))
}

/// Returns `EIO` if the device of a context was removed.
///
/// # Safety
///
/// The context is null or belongs to this provider.
pub(super) unsafe fn present(context: *mut ibv_context) -> Result<(), Errno> {
    // SAFETY: guaranteed by the caller.
    if unsafe { Condition::of(context) }.is_removed() { Err(Errno::IO) } else { Ok(()) }
}

/// Forgets a device that was removed. Its context stays open, because the program may use it.
pub(super) fn forget(device: *mut ibv_device) {
    unpoisoned(OPENED.get().lock()).retain(|open| open.device != device);
}

/// Whether the port of the device for connections is down.
pub(super) fn is_down(fabric: Fabric) -> bool {
    device::first(fabric).is_some_and(|device| device.condition().is_down())
}

/// Whether a device of this fabric exists.
pub(super) fn exists(fabric: Fabric) -> bool {
    device::first(fabric).is_some()
}

/// Returns the fabric of the first device that reaches other hosts, among those that an identifier can use.
pub(super) fn reaching(may_use: impl Fn(Fabric) -> bool) -> Option<Fabric> {
    device::all().map(|device| device.kind().fabric).find(|&fabric| fabric != Fabric::Host && may_use(fabric))
}

/// Returns the XRC domain that the identifiers of a device share.
pub(super) fn xrc_domain(context: *mut ibv_context) -> Result<*mut ibv_xrcd, Errno> {
    let mut opened = unpoisoned(OPENED.get().lock());
    let open = opened.iter_mut().find(|open| open.context == context).ok_or(Errno(libc::ENODEV))?;
    if open.xrcd.is_null() {
        let mut attr = ibv_xrcd_init_attr {
            comp_mask: part::IBV_XRCD_INIT_ATTR_FD.0 | part::IBV_XRCD_INIT_ATTR_OFLAGS.0,
            fd: -1,
            oflags: libc::O_CREAT,
        };
        // SAFETY: the context is open, and the attributes are readable.
        open.xrcd = made(unsafe { open_xrcd(context, &raw mut attr) })?;
    }
    Ok(open.xrcd)
}

/// `rdma_get_devices(num_devices)`.
///
/// # Safety
///
/// As in C: the number is null or writable.
pub(super) unsafe extern "C" fn get_devices(num_devices: *mut c_int) -> *mut *mut ibv_context {
    let opened = open_all();
    let count = opened.as_ref().map_or(0, Vec::len);
    if !num_devices.is_null() {
        // SAFETY: `num_devices` is writable unless null. The builder's limit is far below `c_int::MAX`.
        unsafe { num_devices.write(count as c_int) };
    }
    match opened {
        Ok(opened) if opened.is_empty() => failure::null(Errno(libc::ENODEV)),
        Ok(opened) => {
            let list: Box<[_]> = opened.iter().map(|open| open.context).chain([ptr::null_mut()]).collect();
            let length = list.len();
            let list: *mut *mut ibv_context = Box::into_raw(list).cast();
            unpoisoned(LISTS.get().lock()).insert((list.addr(), length));
            list
        }
        Err(errno) => failure::null(errno),
    }
}

/// `rdma_free_devices(list)`.
///
/// # Safety
///
/// As in C: the list came from `rdma_get_devices`, and is no longer used.
pub(super) unsafe extern "C" fn free_devices(list: *mut *mut ibv_context) {
    let mut lists = unpoisoned(LISTS.get().lock());
    if let Some(&(address, length)) = lists.iter().find(|(address, _)| *address == list.addr()) {
        lists.remove(&(address, length));
        // SAFETY: a list in the set is a boxed slice of this length that is not yet freed.
        drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(list, length)) });
    }
}
