//! Two providers, each a small table that logs its calls.

use std::io::Error;
use std::mem;
use std::ptr::{self, null_mut};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use libc::{c_int, c_void};
use rdma_mummy_sys as ffi;
use rdma_mummy_sys::load::ibverbs::IbverbsTable;
use rdma_mummy_sys::load::provider::{Provider, ProviderId, register};
use rdma_mummy_sys::since_v44::IbverbsSinceV44;

use crate::providers::connections::connection_table;

/// A library name that does not exist, so that the tests behave the same on every machine.
pub(crate) const NO_LIBRARY: [(&str, &str); 3] = [
    ("RDMA_MUMMY_LIBIBVERBS", "/nonexistent/libibverbs.so.1"),
    ("RDMA_MUMMY_LIBRDMACM", "/nonexistent/librdmacm.so.1"),
    ("RDMA_MUMMY_LIBMLX5", "/nonexistent/libmlx5.so.1"),
];

/// The calls, by provider.
pub(crate) static CALLS: Mutex<Vec<(usize, &str)>> = Mutex::new(Vec::new());
/// Providers that refuse to list.
pub(crate) static BROKEN: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];

pub(crate) fn called(provider: usize, verb: &'static str) {
    CALLS.lock().unwrap().push((provider, verb));
}

pub(crate) fn calls() -> Vec<(usize, &'static str)> {
    mem::take(&mut *CALLS.lock().unwrap())
}

pub(crate) fn errno() -> i32 {
    Error::last_os_error().raw_os_error().unwrap()
}

/// A C struct of integers, pointers and optional function pointers, all zero, for the rest of the process.
pub(crate) fn forever<T>() -> *mut T {
    // SAFETY: only used for such structs, of which zero is a value.
    Box::leak(Box::new(unsafe { mem::zeroed() }))
}

/// The verbs of provider `N`, which has `N` devices named `soft-N`.
mod verbs {
    use super::*;

    pub(super) unsafe extern "C" fn get_device_list<const N: usize>(count: *mut c_int) -> *mut *mut ffi::ibv_device {
        called(N, "get_device_list");
        if BROKEN[N].load(Ordering::Relaxed) {
            // SAFETY: this is the errno of the thread.
            unsafe { *libc::__errno_location() = libc::ENOMEM };
            return null_mut();
        }
        let mut list: Vec<*mut ffi::ibv_device> = Vec::new();
        for _ in 0..N {
            let device = forever::<ffi::ibv_device>();
            let name = format!("soft-{N}\0");
            // SAFETY: the device was made just now, and the name is shorter than the field.
            unsafe { ptr::copy_nonoverlapping(name.as_ptr(), (&raw mut (*device).name).cast(), name.len()) };
            list.push(device);
        }
        list.push(null_mut());
        // SAFETY: `count` is writable by contract.
        unsafe { *count = N as c_int };
        Box::leak(list.into_boxed_slice()).as_mut_ptr()
    }

    pub(super) unsafe extern "C" fn free_device_list<const N: usize>(list: *mut *mut ffi::ibv_device) {
        called(N, "free_device_list");
        // SAFETY: the list is one of the function above, with its null at the end.
        drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(list, N + 1)) });
    }

    pub(super) unsafe extern "C" fn get_device_name<const N: usize>(
        device: *mut ffi::ibv_device,
    ) -> *const libc::c_char {
        called(N, "get_device_name");
        // SAFETY: the device is alive.
        unsafe { (&raw const (*device).name).cast() }
    }

    pub(super) unsafe extern "C" fn open_device<const N: usize>(device: *mut ffi::ibv_device) -> *mut ffi::ibv_context {
        called(N, "open_device");
        let context = forever::<ffi::ibv_context>();
        // SAFETY: the context was made just now.
        unsafe { (*context).device = device };
        context
    }

    pub(super) unsafe extern "C" fn query_device<const N: usize>(
        _context: *mut ffi::ibv_context,
        attr: *mut ffi::ibv_device_attr,
    ) -> c_int {
        called(N, "query_device");
        // SAFETY: `attr` is writable by contract.
        unsafe { (*attr).vendor_id = N as u32 };
        0
    }

    pub(super) unsafe extern "C" fn alloc_pd<const N: usize>(context: *mut ffi::ibv_context) -> *mut ffi::ibv_pd {
        called(N, "alloc_pd");
        let pd = forever::<ffi::ibv_pd>();
        // SAFETY: the domain was made just now.
        unsafe { (*pd).context = context };
        pd
    }

    pub(super) unsafe extern "C" fn dealloc_pd<const N: usize>(_pd: *mut ffi::ibv_pd) -> c_int {
        called(N, "dealloc_pd");
        0
    }

    pub(super) unsafe extern "C" fn alloc_buf<const N: usize>(
        _pd: *mut ffi::ibv_pd,
        _size: usize,
        buf: *mut *mut ffi::ibv_buf,
    ) -> *mut c_void {
        called(N, "alloc_buf");
        let memory = Box::leak(Box::new([0_u64; 1])).as_mut_ptr();
        // SAFETY: `buf` is writable by contract.
        unsafe { *buf = memory.cast() };
        memory.cast()
    }

    pub(super) unsafe extern "C" fn free_buf<const N: usize>(buf: *mut ffi::ibv_buf) {
        called(N, "free_buf");
        // SAFETY: the memory is that of the function above.
        drop(unsafe { Box::from_raw(buf.cast::<[u64; 1]>()) });
    }

    pub(super) unsafe extern "C" fn export_buf_dmabuf_fd<const N: usize>(_buf: *mut ffi::ibv_buf) -> c_int {
        called(N, "export_buf_dmabuf_fd");
        N as c_int
    }

    pub(super) unsafe extern "C" fn ack_async_event<const N: usize>(_event: *mut ffi::ibv_async_event) {
        called(N, "ack_async_event");
    }
}

pub(crate) fn table<const N: usize>() -> IbverbsTable {
    IbverbsTable {
        ibv_get_device_list: Some(verbs::get_device_list::<N>),
        ibv_free_device_list: Some(verbs::free_device_list::<N>),
        ibv_get_device_name: Some(verbs::get_device_name::<N>),
        ibv_open_device: Some(verbs::open_device::<N>),
        ibv_query_device: Some(verbs::query_device::<N>),
        ibv_alloc_pd: Some(verbs::alloc_pd::<N>),
        ibv_dealloc_pd: Some(verbs::dealloc_pd::<N>),
        ibv_ack_async_event: Some(verbs::ack_async_event::<N>),
        since_v44: IbverbsSinceV44 {
            ibv_alloc_buf: Some(verbs::alloc_buf::<N>),
            ibv_free_buf: Some(verbs::free_buf::<N>),
            ibv_export_buf_dmabuf_fd: Some(verbs::export_buf_dmabuf_fd::<N>),
            ..Default::default()
        },
        ..Default::default()
    }
}

/// Registers providers 1 and 2.
pub(crate) fn two() -> [ProviderId; 2] {
    // SAFETY: the functions do what the tests below need of their names.
    unsafe {
        [
            register(Provider::new("one", table::<1>()).with_rdmacm(connection_table::<1>())).unwrap(),
            register(Provider::new("two", table::<2>()).with_rdmacm(connection_table::<2>())).unwrap(),
        ]
    }
}
