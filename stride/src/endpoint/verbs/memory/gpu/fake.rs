//! A CUDA driver for tests, whose GPUs use host memory. The driver checks that a context is current when a function
//! requires one.

#![expect(non_snake_case, reason = "the functions are called as in C")]

use std::alloc::{Layout, alloc, dealloc};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ulonglong, c_void};
use std::fs::File;
use std::os::fd::IntoRawFd;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::driver::{CUcontext, CUdevice, CUdeviceptr, CUmemRangeHandleType, CUpointer_attribute, Driver};

const INVALID_VALUE: c_uint = 1;
const OUT_OF_MEMORY: c_uint = 2;
const INVALID_CONTEXT: c_uint = 201;
const NOT_SUPPORTED: c_uint = 801;

/// The GPUs, each with its name and PCI address.
const CARDS: [(&[u8], &[u8]); 2] = [(b"Fake A\0", b"0000:17:00.0\0"), (b"Fake B\0", b"0000:CA:00.0\0")];

macro_rules! driver {
    ($make:expr) => {
        Driver {
            cuInit,
            cuDeviceGetCount,
            cuDeviceGet,
            cuDeviceGetName,
            cuDeviceGetPCIBusId,
            cuDevicePrimaryCtxRetain,
            cuDevicePrimaryCtxRelease_v2,
            cuCtxPushCurrent_v2,
            cuCtxPopCurrent_v2,
            cuCtxSynchronize,
            cuMemAlloc_v2,
            cuMemFree_v2,
            cuMemsetD8_v2,
            cuMemcpyHtoD_v2,
            cuMemcpyDtoH_v2,
            cuPointerSetAttribute,
            cuMemGetHandleForAddressRange: $make,
            cuGetErrorName,
        }
    };
}

static NEW: Driver = driver!(Some(cuMemGetHandleForAddressRange));
static OLD: Driver = driver!(None);

thread_local! {
    static LOADED: Cell<Option<&'static Driver>> = const { Cell::new(None) };
    /// The function that is configured to fail, and its error.
    static FAILS: Cell<Option<(&'static str, c_uint)>> = const { Cell::new(None) };
    static COUNT: Cell<usize> = const { Cell::new(CARDS.len()) };
    static CURRENT: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    static CALLS: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
    /// The number of allocations of this thread that exist. The next value is the number of retained contexts.
    static LIVE: Cell<usize> = const { Cell::new(0) };
    static RETAINED: Cell<usize> = const { Cell::new(0) };
}

/// All allocations by start address. The `bool` is the value of the attribute that makes copies synchronous.
static MEMORY: Mutex<BTreeMap<u64, (usize, Layout, bool)>> = Mutex::new(BTreeMap::new());

fn memory() -> MutexGuard<'static, BTreeMap<u64, (usize, Layout, bool)>> {
    MEMORY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the driver if this thread has loaded it.
pub(super) fn of_thread() -> Option<&'static Driver> {
    LOADED.get()
}

/// A handle that controls the fake driver of this thread.
#[derive(Clone, Copy, Debug)]
pub(in crate::endpoint::verbs) struct Fake;

impl Fake {
    /// Makes libcuda available on this thread.
    pub(in crate::endpoint::verbs) fn load() -> Self {
        LOADED.set(Some(&NEW));
        Self
    }

    /// Makes a version of libcuda available on this thread that does not support DMA buffers.
    pub(super) fn load_old() -> Self {
        LOADED.set(Some(&OLD));
        Self
    }

    /// Makes a function fail on this thread. `None` clears the failure.
    pub(in crate::endpoint::verbs) fn fails(self, failure: Option<(&'static str, c_uint)>) {
        FAILS.set(failure);
    }

    pub(super) fn count(self, count: usize) {
        COUNT.set(count);
    }

    /// Makes a context current on this thread.
    pub(super) fn make_current(self, context: usize) {
        CURRENT.with_borrow_mut(|current| current.push(context));
    }

    pub(super) fn current(self) -> Vec<usize> {
        CURRENT.with_borrow(Clone::clone)
    }

    /// Returns how many allocations of this thread exist, and how many contexts are retained.
    pub(in crate::endpoint::verbs) fn live(self) -> (usize, usize) {
        (LIVE.get(), RETAINED.get())
    }

    /// Returns the CUDA functions that were called since the last call of this method.
    pub(in crate::endpoint::verbs) fn calls(self) -> Vec<&'static str> {
        CALLS.take()
    }
}

/// Called at the start of each function. Records the call, and returns an error if the function is configured to fail.
fn begin(name: &'static str) -> Result<(), c_uint> {
    CALLS.with_borrow_mut(|calls| calls.push(name));
    match FAILS.get() {
        Some((fails, code)) if fails == name => Err(code),
        _ => Ok(()),
    }
}

fn in_context(name: &'static str) -> Result<(), c_uint> {
    begin(name)?;
    if CURRENT.with_borrow(Vec::is_empty) { Err(INVALID_CONTEXT) } else { Ok(()) }
}

fn code(result: Result<(), c_uint>) -> c_uint {
    result.err().unwrap_or(0)
}

/// Returns the memory if the range is within one allocation, and if copies of that allocation are synchronous.
fn within(start: u64, bytes: usize) -> Result<*mut u8, c_uint> {
    let memory = memory();
    let (begin, (length, _, is_sync)) = memory.range(..=start).next_back().ok_or(INVALID_VALUE)?;
    let is_within = start + bytes as u64 <= begin + *length as u64;
    if is_within && *is_sync { Ok(ptr::with_exposed_provenance_mut(start as usize)) } else { Err(INVALID_VALUE) }
}

unsafe extern "C" fn cuInit(_flags: c_uint) -> c_uint {
    code(begin("cuInit"))
}

unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> c_uint {
    // SAFETY: the caller passes a valid pointer.
    code(begin("cuDeviceGetCount").map(|()| unsafe { *count = COUNT.get() as c_int }))
}

unsafe extern "C" fn cuDeviceGet(device: *mut CUdevice, index: c_int) -> c_uint {
    if index as usize >= COUNT.get() {
        return INVALID_VALUE;
    }
    // SAFETY: the caller passes a valid pointer.
    code(begin("cuDeviceGet").map(|()| unsafe { *device = index + 100 }))
}

unsafe fn put(name: &'static str, to: *mut c_char, length: c_int, text: &[u8]) -> c_uint {
    assert!(text.len() <= length as usize);
    // SAFETY: the caller passes a buffer of this length.
    code(begin(name).map(|()| unsafe { ptr::copy_nonoverlapping(text.as_ptr(), to.cast(), text.len()) }))
}

unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, length: c_int, device: CUdevice) -> c_uint {
    // SAFETY: the caller passes a buffer of this length.
    unsafe { put("cuDeviceGetName", name, length, CARDS[device as usize - 100].0) }
}

unsafe extern "C" fn cuDeviceGetPCIBusId(text: *mut c_char, length: c_int, device: CUdevice) -> c_uint {
    // SAFETY: the caller passes a buffer of this length.
    unsafe { put("cuDeviceGetPCIBusId", text, length, CARDS[device as usize - 100].1) }
}

unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice) -> c_uint {
    code(begin("cuDevicePrimaryCtxRetain").map(|()| {
        RETAINED.set(RETAINED.get() + 1);
        // SAFETY: the caller passes a valid pointer.
        unsafe { *context = ptr::without_provenance_mut(device as usize) };
    }))
}

unsafe extern "C" fn cuDevicePrimaryCtxRelease_v2(_device: CUdevice) -> c_uint {
    RETAINED.set(RETAINED.get() - 1);
    code(begin("cuDevicePrimaryCtxRelease"))
}

unsafe extern "C" fn cuCtxPushCurrent_v2(context: CUcontext) -> c_uint {
    code(begin("cuCtxPushCurrent").map(|()| Fake.make_current(context.addr())))
}

unsafe extern "C" fn cuCtxPopCurrent_v2(context: *mut CUcontext) -> c_uint {
    let popped = CURRENT.with_borrow_mut(Vec::pop).expect("something is pushed");
    // SAFETY: the caller passes a valid pointer.
    unsafe { *context = ptr::without_provenance_mut(popped) };
    0
}

unsafe extern "C" fn cuCtxSynchronize() -> c_uint {
    code(in_context("cuCtxSynchronize"))
}

unsafe extern "C" fn cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize) -> c_uint {
    code(in_context("cuMemAlloc").and_then(|()| {
        // The allocation starts within a GPU page, as those of the real driver may.
        let layout = Layout::from_size_align(bytes + 512, 64 << 10).map_err(|_| OUT_OF_MEMORY)?;
        // SAFETY: the size is at least 512 bytes.
        let start = unsafe { alloc(layout) };
        if start.is_null() {
            return Err(OUT_OF_MEMORY);
        }
        // SAFETY: the allocation has this length.
        let start = unsafe {
            start.write_bytes(0xa5, layout.size());
            start.add(512).expose_provenance() as u64
        };
        memory().insert(start, (bytes, layout, false));
        LIVE.set(LIVE.get() + 1);
        // SAFETY: the caller passes a valid pointer.
        unsafe { *address = start };
        Ok(())
    }))
}

unsafe extern "C" fn cuMemFree_v2(address: CUdeviceptr) -> c_uint {
    code(in_context("cuMemFree").and_then(|()| {
        let (_, layout, _) = memory().remove(&address).ok_or(INVALID_VALUE)?;
        LIVE.set(LIVE.get() - 1);
        // SAFETY: the memory was allocated with this layout, 512 bytes before this address.
        unsafe { dealloc(ptr::with_exposed_provenance_mut::<u8>(address as usize).sub(512), layout) };
        Ok(())
    }))
}

unsafe extern "C" fn cuMemsetD8_v2(address: CUdeviceptr, value: c_uchar, bytes: usize) -> c_uint {
    code(in_context("cuMemsetD8").and_then(|()| {
        // SAFETY: the range is within an allocation.
        unsafe { within(address, bytes)?.write_bytes(value, bytes) };
        Ok(())
    }))
}

unsafe extern "C" fn cuMemcpyHtoD_v2(to: CUdeviceptr, from: *const c_void, bytes: usize) -> c_uint {
    code(in_context("cuMemcpyHtoD").and_then(|()| {
        // SAFETY: the range is within an allocation, and the caller's bytes do not overlap it.
        unsafe { ptr::copy_nonoverlapping(from.cast(), within(to, bytes)?, bytes) };
        Ok(())
    }))
}

unsafe extern "C" fn cuMemcpyDtoH_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize) -> c_uint {
    code(in_context("cuMemcpyDtoH").and_then(|()| {
        // SAFETY: the range is within an allocation, and the caller's bytes do not overlap it.
        unsafe { ptr::copy_nonoverlapping(within(from, bytes)?.cast_const(), to.cast(), bytes) };
        Ok(())
    }))
}

unsafe extern "C" fn cuPointerSetAttribute(
    value: *const c_void,
    attribute: CUpointer_attribute,
    address: CUdeviceptr,
) -> c_uint {
    code(in_context("cuPointerSetAttribute").and_then(|()| {
        assert_eq!(attribute, CUpointer_attribute::SYNC_MEMOPS);
        let mut memory = memory();
        let allocation = memory.get_mut(&address).ok_or(INVALID_VALUE)?;
        // SAFETY: the caller passes a pointer to a number.
        allocation.2 = unsafe { *value.cast::<c_uint>() } == 1;
        Ok(())
    }))
}

unsafe extern "C" fn cuMemGetHandleForAddressRange(
    handle: *mut c_void,
    address: CUdeviceptr,
    bytes: usize,
    kind: CUmemRangeHandleType,
    flags: c_ulonglong,
) -> c_uint {
    code(in_context("cuMemGetHandleForAddressRange").and_then(|()| {
        within(address, bytes)?;
        let is_aligned = address.is_multiple_of(4096) && bytes.is_multiple_of(4096);
        if !is_aligned || flags != 0 || kind != CUmemRangeHandleType::DMA_BUF_FD {
            return Err(INVALID_VALUE);
        }
        // The file is not a DMA buffer, but its descriptor is valid.
        let file = File::open("/dev/null").map_err(|_| NOT_SUPPORTED)?;
        // SAFETY: the caller passes a pointer to a descriptor.
        unsafe { *handle.cast::<c_int>() = file.into_raw_fd() };
        Ok(())
    }))
}

unsafe extern "C" fn cuGetErrorName(code: c_uint, name: *mut *const c_char) -> c_uint {
    let text = match code {
        OUT_OF_MEMORY => c"CUDA_ERROR_OUT_OF_MEMORY",
        100 => c"CUDA_ERROR_NO_DEVICE",
        NOT_SUPPORTED => c"CUDA_ERROR_NOT_SUPPORTED",
        _ => return INVALID_VALUE,
    };
    // SAFETY: the caller passes a valid pointer.
    unsafe { *name = text.as_ptr() };
    0
}
