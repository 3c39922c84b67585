//! Imports regions (`ibv_import_mr`) and device memory (`ibv_import_dm`) by their handles.

use std::ptr;
use std::sync::Mutex;

use rdma_mummy_sys::{ibv_context, ibv_dm, ibv_mr, ibv_pd};

use super::context::Context;
use super::device_memory::{self, DeviceMemory};
use super::exports::Exported;
use super::failure;
use super::memory_region::MemoryRegion;
use super::object::Object;
use super::protection_domain::ProtectionDomain;
use crate::sys::errno::Errno;

const NO_SUCH: Errno = Errno(libc::ENOENT);

/// `ibv_import_mr(pd, mr_handle)`: imports the keys of a region, without its address.
///
/// # Safety
///
/// As in C: the domain is alive.
pub(crate) unsafe extern "C" fn import_mr(pd: *mut ibv_pd, handle: u32) -> *mut ibv_mr {
    // SAFETY: guaranteed by the caller; the context of a domain that is alive is open.
    let (domain, open) = unsafe { (ProtectionDomain::of(pd), Context::of((*pd).context)) };
    let Some((region, Exported { length, lkey, rkey, .. })) = open.exports.region(handle) else {
        return failure::null(NO_SUCH);
    };
    let c = ibv_mr { context: domain.c.context, pd, addr: ptr::null_mut(), length, handle, lkey, rkey };
    let (uses, registered) = (Mutex::new(vec![domain.usage.begin()]), Mutex::default());
    MemoryRegion { c, region, is_plain: false, uses, registered }.into_c()
}

/// `ibv_unimport_mr(mr)`: the region stays registered.
///
/// # Safety
///
/// As in C: the object was imported, and is no longer used.
pub(crate) unsafe extern "C" fn unimport_mr(mr: *mut ibv_mr) {
    // SAFETY: guaranteed by the caller.
    drop(unsafe { MemoryRegion::from_c(mr) });
}

/// `ibv_import_dm(context, dm_handle)`.
///
/// # Safety
///
/// As in C: the context is open.
pub(crate) unsafe extern "C" fn import_dm(context: *mut ibv_context, handle: u32) -> *mut ibv_dm {
    // SAFETY: guaranteed by the caller.
    match unsafe { Context::of(context) }.exports.memory(handle) {
        // SAFETY: guaranteed by the caller.
        Some(buffer) => unsafe { device_memory::new(context, handle, buffer) },
        None => failure::null(NO_SUCH),
    }
}

/// `ibv_unimport_dm(dm)`: if other objects or regions use the memory, it stays allocated.
///
/// # Safety
///
/// As in C: the object was imported, and is no longer used.
pub(crate) unsafe extern "C" fn unimport_dm(dm: *mut ibv_dm) {
    // SAFETY: guaranteed by the caller.
    drop(unsafe { DeviceMemory::from_c(dm) });
}

#[cfg(test)]
mod tests {
    use rdma_mummy_sys::{ibv_alloc_dm_attr, ibv_rereg_mr_flags};

    use super::super::device_memory::{alloc_dm, free_dm};
    use super::super::memory_region::{dereg_mr, reg_mr, rereg_mr};
    use super::super::protection_domain::{alloc_pd, dealloc_pd, import_pd, unimport_pd};
    use super::super::{context::close_device, open::open_device};
    use super::*;

    const LOCAL_WRITE: i32 = 1;

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn imported_region_has_the_same_keys() {
        let memory = Box::into_raw(vec![0_u64; 16].into_boxed_slice());
        // SAFETY: all objects are created here and destroyed at the end in order, and the memory last.
        unsafe {
            let context = open_device(ptr::null_mut());
            let pd = alloc_pd(context);
            let mr = reg_mr(pd, memory.cast(), 64, LOCAL_WRITE);
            let same = import_pd(context, (*pd).handle);
            let imported = import_mr(same, (*mr).handle);
            assert_eq!(((*imported).lkey, (*imported).rkey), ((*mr).lkey, (*mr).rkey));
            assert_eq!(((*imported).length, (*imported).handle), (64, (*mr).handle));
            assert_eq!(((*imported).pd, (*imported).context), (same, context));
            assert!((*imported).addr.is_null());
            unimport_pd(same);
            unimport_mr(imported);
            unimport_pd(same);

            let flags = ibv_rereg_mr_flags::IBV_REREG_MR_CHANGE_TRANSLATION.0.cast_signed();
            assert_eq!(rereg_mr(mr, flags, ptr::null_mut(), memory.cast(), 128, 0), 0);
            let imported = import_mr(pd, (*mr).handle);
            assert_eq!((*imported).length, 128);
            let handle = (*mr).handle;
            assert_eq!(dereg_mr(mr), 0, "an import does not keep the region registered");
            assert!(import_mr(pd, handle).is_null());
            assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::ENOENT));
            unimport_mr(imported);
            assert_eq!((dealloc_pd(pd), close_device(context)), (0, 0));
            drop(Box::from_raw(memory));
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn imported_device_memory_is_shared() {
        // SAFETY: all objects are created here and destroyed at the end in order.
        unsafe {
            let context = open_device(ptr::null_mut());
            let mut attr = ibv_alloc_dm_attr { length: 100, log_align_req: 0, comp_mask: 0 };
            let dm = alloc_dm(context, &raw mut attr);
            let imported = import_dm(context, (*dm).handle);
            assert!(import_dm(context, (*dm).handle + 1).is_null());
            let (to, from) = ((*dm).memcpy_to_dm.unwrap(), (*imported).memcpy_from_dm.unwrap());
            assert_eq!(to(dm, 88, b"01234567".as_ptr().cast(), 8), 0);
            let mut bytes = [0_u8; 4];
            assert_eq!(from(bytes.as_mut_ptr().cast(), imported, 92, 4), 0);
            assert_eq!(bytes, *b"4567");
            assert_eq!(close_device(context), -1);
            let handle = (*dm).handle;
            assert_eq!(free_dm(dm), 0);
            assert!(import_dm(context, handle).is_null());
            unimport_dm(imported);
            assert_eq!(close_device(context), 0);
        }
    }
}
