//! The functions of the fake driver.

#![expect(non_snake_case, reason = "the functions have their names in C")]

use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ulonglong, c_void};
use std::fs::File;
use std::os::fd::IntoRawFd;
use std::ptr;

use super::world::{Attribute, Copy, world};
use super::{
    CALLS, COUNT, CURRENT, FAILS, Fake, GPUS, INVALID_CONTEXT, INVALID_VALUE, LIVE, NOT_SUPPORTED, OUT_OF_MEMORY,
    RETAINED,
};
use crate::{CUcontext, CUdevice, CUdeviceptr, CUmemRangeHandleType, CUpointer_attribute, CUstream, Driver};

macro_rules! driver {
    ($export:expr) => {
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
            cuPointerGetAttributes,
            cuStreamCreate,
            cuStreamSynchronize,
            cuMemcpyHtoDAsync_v2,
            cuMemcpyDtoHAsync_v2,
            cuMemcpyDtoDAsync_v2,
            cuMemcpyPeerAsync,
            cuMemsetD8Async,
            cuMemGetHandleForAddressRange: $export,
            cuGetErrorName,
        }
    };
}

pub(super) static NEW: Driver = driver!(Some(cuMemGetHandleForAddressRange));
pub(super) static OLD: Driver = driver!(None);

/// Records a call, and returns an error if the function is configured to fail.
fn begin(name: &'static str, copied: Option<usize>) -> Result<(), c_uint> {
    CALLS.with_borrow_mut(|calls| calls.push((name, copied)));
    FAILS.get().filter(|(fails, _)| *fails == name).map_or(Ok(()), |(_, code)| Err(code))
}

/// As [`begin`], for a function that requires a context. Returns the current context.
fn in_context(name: &'static str) -> Result<usize, c_uint> {
    begin(name, None)?;
    current().ok_or(INVALID_CONTEXT)
}

fn current() -> Option<usize> {
    CURRENT.with_borrow(|current| current.last().copied())
}

fn code(result: Result<(), c_uint>) -> c_uint {
    result.err().unwrap_or(0)
}

unsafe extern "C" fn cuInit(_flags: c_uint) -> c_uint {
    code(begin("cuInit", None))
}

unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> c_uint {
    // SAFETY: the caller passes a valid pointer.
    code(begin("cuDeviceGetCount", None).map(|()| unsafe { *count = COUNT.get() as c_int }))
}

unsafe extern "C" fn cuDeviceGet(device: *mut CUdevice, index: c_int) -> c_uint {
    if index as usize >= COUNT.get() {
        return INVALID_VALUE;
    }
    // SAFETY: the caller passes a valid pointer.
    code(begin("cuDeviceGet", None).map(|()| unsafe { *device = index + 100 }))
}

unsafe fn put_text(name: &'static str, to: *mut c_char, length: c_int, text: &[u8]) -> c_uint {
    assert!(text.len() <= length as usize);
    // SAFETY: the caller passes a buffer of this length.
    code(begin(name, None).map(|()| unsafe { ptr::copy_nonoverlapping(text.as_ptr(), to.cast(), text.len()) }))
}

unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, length: c_int, device: CUdevice) -> c_uint {
    // SAFETY: the caller passes a buffer of this length.
    unsafe { put_text("cuDeviceGetName", name, length, GPUS[device as usize - 100].0) }
}

unsafe extern "C" fn cuDeviceGetPCIBusId(text: *mut c_char, length: c_int, device: CUdevice) -> c_uint {
    // SAFETY: the caller passes a buffer of this length.
    unsafe { put_text("cuDeviceGetPCIBusId", text, length, GPUS[device as usize - 100].1) }
}

unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice) -> c_uint {
    code(begin("cuDevicePrimaryCtxRetain", None).map(|()| {
        assert!(GPUS.get(device as usize - 100).is_some(), "no such device: {device}");
        RETAINED.set(RETAINED.get() + 1);
        // SAFETY: the caller passes a valid pointer.
        unsafe { *context = ptr::without_provenance_mut(device as usize) };
    }))
}

unsafe extern "C" fn cuDevicePrimaryCtxRelease_v2(_device: CUdevice) -> c_uint {
    RETAINED.set(RETAINED.get() - 1);
    code(begin("cuDevicePrimaryCtxRelease", None))
}

unsafe extern "C" fn cuCtxPushCurrent_v2(context: CUcontext) -> c_uint {
    code(begin("cuCtxPushCurrent", None).map(|()| Fake.make_current(context.addr())))
}

unsafe extern "C" fn cuCtxPopCurrent_v2(context: *mut CUcontext) -> c_uint {
    let popped = CURRENT.with_borrow_mut(Vec::pop).expect("a context is current");
    // SAFETY: the caller passes a valid pointer.
    unsafe { *context = ptr::without_provenance_mut(popped) };
    0
}

unsafe extern "C" fn cuCtxSynchronize() -> c_uint {
    code(in_context("cuCtxSynchronize").map(|_| ()))
}

unsafe extern "C" fn cuMemAlloc_v2(address: *mut CUdeviceptr, length: usize) -> c_uint {
    code(in_context("cuMemAlloc").and_then(|context| {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(length).map_err(|_| OUT_OF_MEMORY)?;
        bytes.resize(length, 0xa5);
        // SAFETY: the caller passes a valid pointer.
        unsafe { *address = world().allocate(context, bytes) };
        LIVE.set(LIVE.get() + usize::from(length > 1));
        Ok(())
    }))
}

unsafe extern "C" fn cuMemFree_v2(address: CUdeviceptr) -> c_uint {
    code(in_context("cuMemFree").and_then(|_| {
        let length = world().free(address)?;
        LIVE.set(LIVE.get() - usize::from(length > 1));
        Ok(())
    }))
}

unsafe extern "C" fn cuMemsetD8_v2(address: CUdeviceptr, value: c_uchar, length: usize) -> c_uint {
    code(in_context("cuMemsetD8").and_then(|_| {
        world().at_sync(address, length)?.fill(value);
        Ok(())
    }))
}

unsafe extern "C" fn cuMemcpyHtoD_v2(to: CUdeviceptr, from: *const c_void, length: usize) -> c_uint {
    code(in_context("cuMemcpyHtoD").and_then(|_| {
        // SAFETY: the caller's bytes are readable, and no part of GPU memory.
        unsafe { ptr::copy_nonoverlapping(from.cast(), world().at_sync(to, length)?.as_mut_ptr(), length) };
        Ok(())
    }))
}

unsafe extern "C" fn cuMemcpyDtoH_v2(to: *mut c_void, from: CUdeviceptr, length: usize) -> c_uint {
    code(in_context("cuMemcpyDtoH").and_then(|_| {
        // SAFETY: the caller's bytes are writable, and no part of GPU memory.
        unsafe { ptr::copy_nonoverlapping(world().at_sync(from, length)?.as_ptr(), to.cast(), length) };
        Ok(())
    }))
}

unsafe extern "C" fn cuPointerSetAttribute(
    value: *const c_void,
    attribute: CUpointer_attribute,
    address: CUdeviceptr,
) -> c_uint {
    code(in_context("cuPointerSetAttribute").and_then(|_| {
        assert_eq!(attribute, CUpointer_attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS);
        // SAFETY: the caller passes a pointer to a number.
        world().make_sync(address, unsafe { *value.cast::<c_uint>() } == 1)
    }))
}

unsafe extern "C" fn cuPointerGetAttributes(
    count: c_uint,
    asked: *mut CUpointer_attribute,
    values: *mut *mut c_void,
    address: CUdeviceptr,
) -> c_uint {
    code(begin("cuPointerGetAttributes", None).and_then(|()| {
        for index in 0..count as usize {
            // SAFETY: each list has `count` entries.
            let (asked, value) = unsafe { (*asked.add(index), *values.add(index)) };
            let attribute = world().attribute(address, asked)?;
            // SAFETY: the values have the types that the driver documents.
            unsafe {
                match attribute {
                    Attribute::Byte(byte) => *value.cast() = byte,
                    Attribute::Half(half) => *value.cast() = half,
                    Attribute::Word(word) => *value.cast() = word,
                }
            }
        }
        Ok(())
    }))
}

unsafe extern "C" fn cuStreamCreate(stream: *mut CUstream, flags: c_uint) -> c_uint {
    assert_eq!(flags, 1, "the stream must not synchronize with others");
    code(in_context("cuStreamCreate").map(|context| {
        // SAFETY: the caller passes a valid pointer.
        unsafe { *stream = ptr::without_provenance_mut(world().new_stream(context)) };
    }))
}

unsafe extern "C" fn cuStreamSynchronize(stream: CUstream) -> c_uint {
    let is_run = world().synchronize(stream.addr());
    code(is_run.and_then(|()| begin("cuStreamSynchronize", None)))
}

/// Adds a copy to a stream of the current context.
fn put(name: &'static str, stream: CUstream, length: usize, copy: Copy) -> c_uint {
    code(begin(name, Some(length)).and_then(|()| world().put(stream.addr(), current(), copy)))
}

unsafe extern "C" fn cuMemcpyHtoDAsync_v2(
    to: CUdeviceptr,
    from: *const c_void,
    length: usize,
    stream: CUstream,
) -> c_uint {
    put("cuMemcpyHtoDAsync", stream, length, Copy::ToDevice(to, from.expose_provenance(), length))
}

unsafe extern "C" fn cuMemcpyDtoHAsync_v2(
    to: *mut c_void,
    from: CUdeviceptr,
    length: usize,
    stream: CUstream,
) -> c_uint {
    put("cuMemcpyDtoHAsync", stream, length, Copy::ToHost(to.expose_provenance(), from, length))
}

unsafe extern "C" fn cuMemcpyDtoDAsync_v2(
    to: CUdeviceptr,
    from: CUdeviceptr,
    length: usize,
    stream: CUstream,
) -> c_uint {
    put("cuMemcpyDtoDAsync", stream, length, Copy::Within(to, from, length))
}

unsafe extern "C" fn cuMemcpyPeerAsync(
    to: CUdeviceptr,
    to_context: CUcontext,
    from: CUdeviceptr,
    from_context: CUcontext,
    length: usize,
    stream: CUstream,
) -> c_uint {
    let are_of = {
        let world = world();
        world.is_of(to, to_context.addr()) && world.is_of(from, from_context.addr())
    };
    assert!(are_of, "memory of another context");
    put("cuMemcpyPeerAsync", stream, length, Copy::Within(to, from, length))
}

unsafe extern "C" fn cuMemsetD8Async(at: CUdeviceptr, value: c_uchar, length: usize, stream: CUstream) -> c_uint {
    put("cuMemsetD8Async", stream, length, Copy::Fill(at, value, length))
}

unsafe extern "C" fn cuMemGetHandleForAddressRange(
    handle: *mut c_void,
    address: CUdeviceptr,
    length: usize,
    kind: CUmemRangeHandleType,
    flags: c_ulonglong,
) -> c_uint {
    code(in_context("cuMemGetHandleForAddressRange").and_then(|_| {
        world().at_sync(address, length)?;
        let is_aligned = address.is_multiple_of(4096) && length.is_multiple_of(4096);
        let is_dma_buf = kind == CUmemRangeHandleType::CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD;
        if !is_aligned || flags != 0 || !is_dma_buf {
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
