//! The device list: the system's devices, then those of each provider in this process.

use core::ffi::c_int;

use super::front::front;
use super::ibverbs::{IbverbsTable, library, loaded};
use super::provider::{self, Registered};
use super::route::stamp;
use super::union::{Lists, Source};
use super::{failure, gate};
use crate::bindings::verbs::{ibv_context, ibv_device};

static LISTS: Lists<ibv_device> = Lists::new();

/// `ibv_get_device_list`: see `ibv_get_device_list(3)`. Returns the system's devices first, then those of each provider
/// in order of registration. If a provider or the system's library fails, the others are still listed.
///
/// # Errors
///
/// If all fail, returns null with the errno of the first failure: `EOPNOTSUPP` if the library is missing ([`library`]
/// returns the reason), `ENOSYS` if the kernel has no RDMA. If there are no devices, returns a list of length zero.
///
/// # Safety
///
/// `num_devices` is null or can be written.
pub unsafe extern "C" fn ibv_get_device_list(num_devices: *mut c_int) -> *mut *mut ibv_device {
    front!(IbverbsTable, ibv_get_device_list(num_devices));
    let system = library().ok().map(|library| library.table());
    if provider::all().next().is_none() {
        let _hold = gate::hold();
        return match system.and_then(|table| table.ibv_get_device_list) {
            // SAFETY: the function comes from the library, and the caller upholds its contract.
            Some(get) => unsafe { get(num_devices) },
            None => {
                if !num_devices.is_null() {
                    // SAFETY: `num_devices` is writable by contract.
                    unsafe { *num_devices = 0 };
                }
                failure::null(libc::EOPNOTSUPP)
            }
        };
    }
    let unavailable = system.and_then(|table| table.ibv_get_device_list).is_none().then_some(libc::EOPNOTSUPP);
    let providers = provider::listed().map(|registered| (registered.ibverbs(), Some(registered)));
    let sources = system.map(|table| (table, None)).into_iter().chain(providers).filter_map(source);
    // SAFETY: `num_devices` is null or writable by contract, and each table has matching functions.
    unsafe { LISTS.join(num_devices, unavailable, sources) }
}

type Element = (&'static IbverbsTable, Option<&'static Registered>);

fn source((table, registered): Element) -> Option<Source<ibv_device, impl Fn(*mut ibv_device) -> bool>> {
    let each = move |device: *mut ibv_device| {
        if let Some(registered) = registered.filter(|_| !device.is_null()) {
            // SAFETY: this provider has just put the device into its list.
            unsafe { stamp(device, registered) };
        }
        true
    };
    Some(Source { get: table.ibv_get_device_list?, free: table.ibv_free_device_list, each })
}

/// `ibv_free_device_list`: see `ibv_get_device_list(3)`. Frees devices that were not opened; null is ignored.
///
/// # Safety
///
/// `list` is null, or came from `ibv_get_device_list` or `mlx5dv_get_vfio_device_list` and was not freed.
pub unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    front!(IbverbsTable, ibv_free_device_list(list));
    // SAFETY: the caller does not use the list again.
    if list.is_null() || unsafe { LISTS.free(list) } {
        return;
    }
    // Lists not created here come from the system's library, which is therefore loaded.
    match loaded().and_then(|library| library.table().ibv_free_device_list) {
        // SAFETY: by contract the list comes from the library.
        Some(free) => unsafe { free(list) },
        None => failure::nothing(libc::EOPNOTSUPP),
    }
}

/// `ibv_import_device`: see `ibv_import_device(3)`.
///
/// # Errors
///
/// Besides those of the manual page: null with `EOPNOTSUPP` if the descriptor is not a file but, for example, an event
/// descriptor. Contexts of providers have such descriptors, and cannot be imported.
///
/// # Safety
///
/// The caller does not use `cmd_fd` elsewhere if this succeeds.
pub unsafe extern "C" fn ibv_import_device(cmd_fd: c_int) -> *mut ibv_context {
    front!(IbverbsTable, ibv_import_device(cmd_fd));
    // SAFETY: the struct has only numbers.
    let mut status: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: `status` can be written.
    let is_known = unsafe { libc::fstat(cmd_fd, &raw mut status) } == 0;
    let is_anonymous = is_known && status.st_mode & libc::S_IFMT == 0;
    match library().ok().and_then(|library| library.table().ibv_import_device).filter(|_| !is_anonymous) {
        // SAFETY: the function comes from the library, and the caller upholds its contract.
        Some(import) => unsafe { import(cmd_fd) },
        None => failure::null(libc::EOPNOTSUPP),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn importing_provider_context_fails() {
        // SAFETY: the calls take numbers; the descriptor is closed once.
        unsafe {
            let descriptor = libc::eventfd(0, libc::EFD_CLOEXEC);
            assert!(descriptor >= 0 && ibv_import_device(descriptor).is_null());
            assert_eq!(failure::errno(), libc::EOPNOTSUPP);
            libc::close(descriptor);
        }
    }
}
