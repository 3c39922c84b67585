//! The one context of each device that all identifiers and lists share, and its domain.

use std::ptr;
use std::sync::{Mutex, PoisonError};

use libc::c_int;
use rdma_mummy_sys as ffi;

use super::calls::{belongs, device_of, on_device, own_device};
use crate::recording::calls::Kind;
use crate::recording::device::{close_device, listed, open_device};
use crate::recording::failure::set_errno;
use crate::recording::objects::{alloc_pd, dealloc_pd};
use crate::recording::state::Device;

/// Held by whoever opens or closes a device, which takes more than one step.
static OPENING: Mutex<()> = Mutex::new(());

/// What is shared of a device.
pub(super) struct Shared {
    pub(super) context: *mut ffi::ibv_context,
    pub(super) pd: *mut ffi::ibv_pd,
    pub(super) xrcd: *mut ffi::ibv_xrcd,
    references: u32,
    pub(super) gone: bool,
}

impl Default for Shared {
    fn default() -> Self {
        Self { context: ptr::null_mut(), pd: ptr::null_mut(), xrcd: ptr::null_mut(), references: 0, gone: false }
    }
}

/// Takes a reference, and opens the device if nobody has; with its domain where that is asked for.
pub(super) fn acquire(
    device: &'static Device,
    domain: bool,
) -> Result<(*mut ffi::ibv_context, *mut ffi::ibv_pd), c_int> {
    let _opening = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
    let Shared { mut context, mut pd, gone, .. } = device.state.lock().manager.shared;
    if gone {
        return Err(libc::ENODEV);
    }
    if context.is_null() {
        // SAFETY: the device is one of this provider's.
        context = unsafe { open_device(device.as_c()) };
        if context.is_null() {
            return Err(libc::ENODEV);
        }
        let mut inner = device.state.lock();
        inner.hide(context.addr());
        inner.manager.shared.context = context;
    }
    if domain && pd.is_null() {
        // SAFETY: the context was opened by this provider.
        pd = unsafe { alloc_pd(context) };
        if pd.is_null() {
            return Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO));
        }
        let mut inner = device.state.lock();
        inner.hide(pd.addr());
        inner.manager.shared.pd = pd;
    }
    device.state.lock().manager.shared.references += 1;
    Ok((context, pd))
}

/// Gives a reference back: with the last one the domain goes, and the context if the device is gone.
pub(super) fn release(device: &'static Device, of_id: bool) {
    let _opening = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut inner = device.state.lock();
    let shared = &mut inner.manager.shared;
    shared.references = shared.references.saturating_sub(1);
    if shared.references > 0 {
        return;
    }
    let gone = shared.gone;
    drop(inner);
    // As the library does: with the end of a list the domain stays.
    if of_id || gone {
        let Shared { pd, xrcd, .. } = device.state.lock().manager.shared;
        end_domains(device, pd, xrcd);
    }
    if gone {
        close(device);
    }
}

fn end_domains(device: &'static Device, pd: *mut ffi::ibv_pd, xrcd: *mut ffi::ibv_xrcd) {
    let mut inner = device.state.lock();
    inner.unhide(pd.addr());
    inner.unhide(xrcd.addr());
    inner.manager.shared.pd = ptr::null_mut();
    inner.manager.shared.xrcd = ptr::null_mut();
    drop(inner);
    // SAFETY: both are null or alive, and nobody else's.
    unsafe {
        if !pd.is_null() && dealloc_pd(pd) == libc::EBUSY {
            device.state.lock().violation("something outlived the identifiers whose domain it was made in");
        }
        if !xrcd.is_null() && crate::recording::xrc::close_xrcd(xrcd) == libc::EBUSY {
            device.state.lock().violation("something outlived the identifiers whose XRC domain it was made in");
        }
    }
}

/// Closes the context, which nobody holds any more.
fn close(device: &'static Device) {
    let mut inner = device.state.lock();
    let context = std::mem::replace(&mut inner.manager.shared.context, ptr::null_mut());
    inner.unhide(context.addr());
    drop(inner);
    // SAFETY: the context is null or open, and nobody else's.
    if !context.is_null() && unsafe { close_device(context) } != 0 {
        device.state.lock().violation("something outlived the context that the connection manager closed");
    }
}

/// The device is gone: its context is closed with the last reference.
pub(in crate::recording) fn remove(device: &'static Device) {
    let references = {
        let mut inner = device.state.lock();
        inner.manager.shared.gone = true;
        inner.manager.shared.references
    };
    if references == 0 {
        let _opening = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
        let Shared { pd, xrcd, .. } = device.state.lock().manager.shared;
        end_domains(device, pd, xrcd);
        close(device);
    }
}

fn is_gone(device: &'static Device) -> bool {
    device.state.lock().manager.shared.gone
}

pub(super) unsafe extern "C" fn get_devices(count: *mut c_int) -> *mut *mut ffi::ibv_context {
    let made = own_device().and_then(|owner| on_device(owner, "rdma_get_devices", &[], || list(owner)));
    // SAFETY: null, or it can be written to by contract.
    let tell = |number: usize| unsafe {
        if !count.is_null() {
            *count = number as c_int;
        }
    };
    match made {
        Ok((list, length)) => {
            tell(length);
            list
        }
        Err(errno) => {
            set_errno(errno);
            tell(0);
            ptr::null_mut()
        }
    }
}

fn list(owner: &'static Device) -> Result<(*mut *mut ffi::ibv_context, usize), c_int> {
    let devices: Vec<_> = listed().into_iter().filter(|device| !is_gone(device)).collect();
    let mut contexts = Vec::new();
    for (index, device) in devices.iter().enumerate() {
        match acquire(device, false) {
            Ok((context, _)) => contexts.push(context),
            Err(errno) => {
                devices[..index].iter().for_each(|device| release(device, false));
                return Err(errno);
            }
        }
    }
    let length = contexts.len();
    contexts.push(ptr::null_mut());
    let list = Box::leak(contexts.into_boxed_slice()).as_mut_ptr();
    belongs(list, owner);
    let mut inner = owner.state.lock();
    inner.made(Kind::OpenDevices, list, &[]);
    inner.manager.lists.insert(list.addr(), devices);
    Ok((list, length))
}

pub(super) unsafe extern "C" fn free_devices(list: *mut *mut ffi::ibv_context) {
    let Some(owner) = device_of(list) else { return };
    let mut inner = owner.state.note("rdma_free_devices", &[("list", list.addr() as u64)]);
    if inner.destroy(Kind::OpenDevices, list.addr()).is_err() {
        return;
    }
    let devices = inner.manager.lists.remove(&list.addr()).unwrap_or_default();
    drop(inner);
    for (index, device) in devices.into_iter().enumerate() {
        release(device, false);
        // SAFETY: the list has so many entries, and nobody uses it any more.
        unsafe { list.add(index).write(ptr::without_provenance_mut(0xa5a5)) };
    }
}
