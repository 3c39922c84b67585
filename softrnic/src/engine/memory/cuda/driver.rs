//! libcuda, as far as it is needed.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::sync::OnceLock;

/// What a function of the driver returns where it fails: a `CUresult`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failure(pub(super) c_int);

/// `CUcontext` and `CUstream`, which are pointers of the driver's own: to us they are numbers.
pub(super) type Handle = usize;

/// Functions of libcuda. Their names are those in C, without `cu`; the versions are the ones that its header chooses since CUDA 4.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(super) pointer_get_attributes: unsafe extern "C" fn(c_uint, *mut c_int, *mut *mut c_void, u64) -> c_int,
    pub(super) ctx_push_current: unsafe extern "C" fn(Handle) -> c_int,
    pub(super) ctx_pop_current: unsafe extern "C" fn(*mut Handle) -> c_int,
    pub(super) device_get: unsafe extern "C" fn(*mut c_int, c_int) -> c_int,
    pub(super) device_primary_ctx_retain: unsafe extern "C" fn(*mut Handle, c_int) -> c_int,
    pub(super) mem_alloc: unsafe extern "C" fn(*mut u64, usize) -> c_int,
    pub(super) stream_create: unsafe extern "C" fn(*mut Handle, c_uint) -> c_int,
    pub(super) stream_synchronize: unsafe extern "C" fn(Handle) -> c_int,
    pub(super) memcpy_htod_async: unsafe extern "C" fn(u64, *const c_void, usize, Handle) -> c_int,
    pub(super) memcpy_dtoh_async: unsafe extern "C" fn(*mut c_void, u64, usize, Handle) -> c_int,
    pub(super) memcpy_dtod_async: unsafe extern "C" fn(u64, u64, usize, Handle) -> c_int,
    pub(super) memcpy_peer_async: unsafe extern "C" fn(u64, Handle, u64, Handle, usize, Handle) -> c_int,
    pub(super) memset_d8_async: unsafe extern "C" fn(u64, u8, usize, Handle) -> c_int,
}

/// What the driver knows of an address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pointer {
    /// 0 where no context has it.
    pub(super) context: Handle,
    kind: u32,
    number: u64,
    is_managed: bool,
    /// Of the GPU.
    pub(super) ordinal: c_int,
    /// The allocation.
    pub(super) start: u64,
    pub(super) size: u64,
}

impl Pointer {
    /// Whether nobody but the driver can go there.
    pub(super) fn is_on_device(&self) -> bool {
        /// `CU_MEMORYTYPE_DEVICE`
        const DEVICE: u32 = 2;
        self.kind == DEVICE && !self.is_managed
    }

    /// The number of the allocation, which no later one of this process has: its last 32 bits, for all that are alive at a time.
    pub(super) fn buffer(&self) -> u32 {
        self.number as u32
    }
}

/// Names that the driver has for what it tells of a pointer (`CUpointer_attribute`).
mod attribute {
    pub(super) const CONTEXT: i32 = 1;
    pub(super) const MEMORY_TYPE: i32 = 2;
    pub(super) const BUFFER_ID: i32 = 7;
    pub(super) const IS_MANAGED: i32 = 8;
    pub(super) const DEVICE_ORDINAL: i32 = 9;
    pub(super) const RANGE_START_ADDR: i32 = 11;
    pub(super) const RANGE_SIZE: i32 = 12;
    pub(super) const ALL: [i32; 7] =
        [CONTEXT, MEMORY_TYPE, BUFFER_ID, IS_MANAGED, DEVICE_ORDINAL, RANGE_START_ADDR, RANGE_SIZE];
}

impl Driver {
    /// What the driver knows of an address; of one that it does not know, that it is of no kind.
    pub(super) fn look_at(&self, address: u64) -> Result<Pointer, Failure> {
        let mut asked = attribute::ALL;
        // Some are of four bytes, or of one: the low ones, on the machines that there are drivers for.
        let mut values = [0u64; attribute::ALL.len()];
        let mut places = values.each_mut().map(|value| std::ptr::from_mut(value).cast::<c_void>());
        // SAFETY: so many attributes, and as many places of eight bytes, which none of them exceeds. The address is only looked up.
        let code = unsafe {
            (self.pointer_get_attributes)(asked.len() as c_uint, asked.as_mut_ptr(), places.as_mut_ptr(), address)
        };
        result(code)?;
        let [context, kind, number, is_managed, ordinal, start, size] = values;
        Ok(Pointer {
            context: context as Handle,
            kind: kind as u32,
            number,
            is_managed: is_managed != 0,
            ordinal: ordinal as c_int,
            start,
            size,
        })
    }
}

/// `CUDA_SUCCESS`, or what else the driver says.
pub(super) fn result(code: c_int) -> Result<(), Failure> {
    if code == 0 { Ok(()) } else { Err(Failure(code)) }
}

/// Whether the process has libcuda.
pub(crate) fn is_loaded() -> bool {
    of_process().is_some()
}

/// The driver that the process has loaded, if it has: it may still come.
pub(super) fn of_process() -> Option<&'static Driver> {
    static DRIVER: OnceLock<Option<Driver>> = OnceLock::new();
    #[cfg(test)]
    if let Some(driver) = super::fake::of_thread() {
        return Some(driver);
    }
    if cfg!(miri) || !cfg!(all(target_pointer_width = "64", target_endian = "little")) {
        return None;
    }
    if let Some(driver) = DRIVER.get() {
        return driver.as_ref();
    }
    // SAFETY: a name that ends with a nul; nothing is loaded by it, and so nothing runs.
    let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if library.is_null() {
        return None;
    }
    // SAFETY: it is libcuda, and never closed, so that it stays where it is.
    DRIVER.get_or_init(|| unsafe { load(library) }).as_ref()
}

/// The functions of a library. `None` where one is missing: a driver too old to be asked where an allocation ends.
///
/// # Safety
///
/// `library` is libcuda, and stays loaded.
unsafe fn load(library: *mut c_void) -> Option<Driver> {
    let find = |name: &CStr| {
        // SAFETY: the library is loaded, and the name ends with a nul.
        let symbol = unsafe { libc::dlsym(library, name.as_ptr()) };
        if symbol.is_null() {
            log::debug!("libcuda has no {name:?}: memory of GPUs is not registered");
        }
        (!symbol.is_null()).then_some(symbol)
    };
    /// A symbol as a function of the type that is wanted.
    macro_rules! function {
        ($name:literal) => {{
            let symbol = find($name)?;
            // SAFETY: the types above are those of the CUDA driver API, which does not change what a name stands for.
            unsafe { std::mem::transmute::<*mut c_void, _>(symbol) }
        }};
    }
    Some(Driver {
        pointer_get_attributes: function!(c"cuPointerGetAttributes"),
        ctx_push_current: function!(c"cuCtxPushCurrent_v2"),
        ctx_pop_current: function!(c"cuCtxPopCurrent_v2"),
        device_get: function!(c"cuDeviceGet"),
        device_primary_ctx_retain: function!(c"cuDevicePrimaryCtxRetain"),
        mem_alloc: function!(c"cuMemAlloc_v2"),
        stream_create: function!(c"cuStreamCreate"),
        stream_synchronize: function!(c"cuStreamSynchronize"),
        memcpy_htod_async: function!(c"cuMemcpyHtoDAsync_v2"),
        memcpy_dtoh_async: function!(c"cuMemcpyDtoHAsync_v2"),
        memcpy_dtod_async: function!(c"cuMemcpyDtoDAsync_v2"),
        memcpy_peer_async: function!(c"cuMemcpyPeerAsync"),
        memset_d8_async: function!(c"cuMemsetD8Async"),
    })
}
