//! The list of devices: those of the system, then those of each provider in this process.

use core::ffi::c_int;

use super::ibverbs::{IbverbsTable, library, loaded};
use super::provider::{self, Registered};
use super::route::stamp;
use super::union::{Lists, Source};
use super::{failure, gate};
use crate::bindings::verbs::{ibv_context, ibv_device};

static LISTS: Lists<ibv_device> = Lists::new();

/// `ibv_get_device_list`: see `ibv_get_device_list(3)`. The devices of the system come first, then those of each
/// provider in the order of registration. A provider that fails, the system's library among them, does not hide the
/// others.
///
/// # Errors
///
/// Null when all failed, with the errno of the first failure: `EOPNOTSUPP` when the library is missing, which
/// [`library`] explains, `ENOSYS` when the kernel has no RDMA. No devices at all is a list of length zero.
///
/// # Safety
///
/// `num_devices` is null or can be written to.
pub unsafe extern "C" fn ibv_get_device_list(num_devices: *mut c_int) -> *mut *mut ibv_device {
    let system = library().ok().map(|library| library.table());
    if provider::all().next().is_none() {
        let _hold = gate::hold();
        return match system.and_then(|table| table.ibv_get_device_list) {
            // SAFETY: the function is that of the library, and the caller keeps its contract.
            Some(get) => unsafe { get(num_devices) },
            None => {
                if !num_devices.is_null() {
                    // SAFETY: it can be written to by contract.
                    unsafe { *num_devices = 0 };
                }
                failure::null(libc::EOPNOTSUPP)
            }
        };
    }
    let unavailable = system.and_then(|table| table.ibv_get_device_list).is_none().then_some(libc::EOPNOTSUPP);
    let providers = provider::listed().map(|registered| (registered.ibverbs(), Some(registered)));
    let sources = system.map(|table| (table, None)).into_iter().chain(providers).filter_map(source);
    // SAFETY: `num_devices` is null or writable by contract, and the functions of a table are a pair of this kind.
    unsafe { LISTS.join(num_devices, unavailable, sources) }
}

type Element = (&'static IbverbsTable, Option<&'static Registered>);

fn source((table, registered): Element) -> Option<Source<ibv_device, impl Fn(*mut ibv_device) -> bool>> {
    let each = move |device: *mut ibv_device| {
        if let Some(registered) = registered.filter(|_| !device.is_null()) {
            // SAFETY: the device is of the list that this provider has made just now.
            unsafe { stamp(device, registered) };
        }
        true
    };
    Some(Source { get: table.ibv_get_device_list?, free: table.ibv_free_device_list, each })
}

/// `ibv_free_device_list`: see `ibv_get_device_list(3)`. Devices that were not opened are gone afterwards; null is
/// ignored.
///
/// # Safety
///
/// `list` is null, or came from `ibv_get_device_list` or `mlx5dv_get_vfio_device_list` and was not freed.
pub unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    // SAFETY: the caller gives the list up.
    if list.is_null() || unsafe { LISTS.free(list) } {
        return;
    }
    // What was not made here is the system library's, which is loaded if it has made a list.
    match loaded().and_then(|library| library.table().ibv_free_device_list) {
        // SAFETY: the list is that of the library by contract.
        Some(free) => unsafe { free(list) },
        None => failure::nothing(libc::EOPNOTSUPP),
    }
}

/// `ibv_import_device`: see `ibv_import_device(3)`.
///
/// # Errors
///
/// Besides those of the manual page, null with `EOPNOTSUPP` if the descriptor is no file but an event descriptor or the like: the
/// contexts of providers in this process, and in others, have such descriptors, and cannot be imported.
///
/// # Safety
///
/// `cmd_fd` is not used by others if this succeeds.
pub unsafe extern "C" fn ibv_import_device(cmd_fd: c_int) -> *mut ibv_context {
    // SAFETY: numbers.
    let mut status: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: `status` can be written to.
    let is_known = unsafe { libc::fstat(cmd_fd, &raw mut status) } == 0;
    let is_anonymous = is_known && status.st_mode & libc::S_IFMT == 0;
    match library().ok().and_then(|library| library.table().ibv_import_device).filter(|_| !is_anonymous) {
        // SAFETY: the function is that of the library, and the caller keeps its contract.
        Some(import) => unsafe { import(cmd_fd) },
        None => failure::null(libc::EOPNOTSUPP),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn context_of_a_provider_is_not_imported() {
        // SAFETY: takes numbers; the descriptor is closed once.
        unsafe {
            let descriptor = libc::eventfd(0, libc::EFD_CLOEXEC);
            assert!(descriptor >= 0 && ibv_import_device(descriptor).is_null());
            assert_eq!(failure::errno(), libc::EOPNOTSUPP);
            libc::close(descriptor);
        }
    }
}
