//! C's memory of the connection manager, which is never freed but overwritten.

use std::mem::size_of;

use rdma_mummy_sys as ffi;

/// What stands in memory that was given back.
const GONE: u8 = 0xa5;

/// An event, with the private data behind it.
#[repr(C)]
pub(super) struct EventMemory {
    pub(super) event: ffi::rdma_cm_event,
    pub(super) private_data: [u8; 256],
}

/// A list of one address, with what it points to.
#[repr(C)]
pub(super) struct InfoMemory {
    pub(super) info: ffi::rdma_addrinfo,
    pub(super) source: [u64; 16],
    pub(super) destination: [u64; 16],
}

/// Overwrites what was given back.
///
/// # Safety
///
/// `object` is one that `forever` gave, and nobody uses it any more.
pub(super) unsafe fn overwrite<T>(object: *mut T) {
    // SAFETY: the memory is never freed, and has this size.
    unsafe { object.cast::<u8>().write_bytes(GONE, size_of::<T>()) };
}

/// The same for an identifier, save what tells its maker.
///
/// # Safety
///
/// As there.
pub(super) unsafe fn overwrite_id(id: *mut ffi::rdma_cm_id) {
    // SAFETY: the caller's promise.
    unsafe {
        overwrite(id);
        (*id).verbs = std::ptr::null_mut();
    }
}
