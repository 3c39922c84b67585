//! The functions of libcuda that softrnic calls.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::sync::OnceLock;

/// An error of a driver function: a `CUresult`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failure(pub(super) c_int);

/// A `CUcontext` or a `CUstream`. Both are pointers that only the driver dereferences.
pub(super) type Handle = usize;

/// Declares the functions of the driver with their arguments and symbols. The suffix of a symbol is the version that
/// the C header selects.
macro_rules! functions {
    ($($field:ident($($argument:ty),*) = $symbol:literal;)*) => {
        /// The functions of libcuda.
        #[derive(Debug)]
        pub(crate) struct Driver {
            $(pub(super) $field: unsafe extern "C" fn($($argument),*) -> c_int,)*
        }

        impl Driver {
            /// Loads the functions. Returns `None` if one is missing, because such a driver is too old to report the
            /// bounds of an allocation.
            ///
            /// # Safety
            ///
            /// `library` is libcuda and stays loaded.
            unsafe fn load(library: *mut c_void) -> Option<Self> {
                // SAFETY: guaranteed by the caller.
                let find = |name| unsafe { find(library, name) };
                Some(Self {
                    $($field: {
                        let symbol = find($symbol)?;
                        // SAFETY: the CUDA driver API defines this symbol with this type, and never changes the type.
                        unsafe {
                            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) -> c_int>(symbol)
                        }
                    },)*
                })
            }
        }
    };
}

functions! {
    pointer_get_attributes(c_uint, *mut c_int, *mut *mut c_void, u64) = c"cuPointerGetAttributes";
    ctx_push_current(Handle) = c"cuCtxPushCurrent_v2";
    ctx_pop_current(*mut Handle) = c"cuCtxPopCurrent_v2";
    device_get(*mut c_int, c_int) = c"cuDeviceGet";
    device_primary_ctx_retain(*mut Handle, c_int) = c"cuDevicePrimaryCtxRetain";
    mem_alloc(*mut u64, usize) = c"cuMemAlloc_v2";
    stream_create(*mut Handle, c_uint) = c"cuStreamCreate";
    stream_synchronize(Handle) = c"cuStreamSynchronize";
    memcpy_htod_async(u64, *const c_void, usize, Handle) = c"cuMemcpyHtoDAsync_v2";
    memcpy_dtoh_async(*mut c_void, u64, usize, Handle) = c"cuMemcpyDtoHAsync_v2";
    memcpy_dtod_async(u64, u64, usize, Handle) = c"cuMemcpyDtoDAsync_v2";
    memcpy_peer_async(u64, Handle, u64, Handle, usize, Handle) = c"cuMemcpyPeerAsync";
    memset_d8_async(u64, u8, usize, Handle) = c"cuMemsetD8Async";
}

/// The attributes that the driver reports for an address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pointer {
    /// The context, or 0 if the memory belongs to none.
    pub(super) context: Handle,
    kind: u32,
    number: u64,
    is_managed: bool,
    /// The number of the GPU.
    pub(super) ordinal: c_int,
    /// The start of the allocation.
    pub(super) start: u64,
    pub(super) size: u64,
}

impl Pointer {
    /// Whether only the driver can access the memory.
    pub(super) fn is_on_device(&self) -> bool {
        /// The value of `CU_MEMORYTYPE_DEVICE`.
        const DEVICE: u32 = 2;
        self.kind == DEVICE && !self.is_managed
    }

    /// The ID of the allocation, truncated to 32 bits. The driver never reuses an ID in this process. The last 32 bits
    /// are unique among the allocations that exist.
    pub(super) fn buffer(&self) -> u32 {
        self.number as u32
    }
}

/// The values of `CUpointer_attribute` that are queried.
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
    /// Queries the attributes of an address. An unknown address has memory type 0.
    pub(super) fn query(&self, address: u64) -> Result<Pointer, Failure> {
        let mut attributes = attribute::ALL;
        // Some values have only one or four bytes. These are the low bytes of a word, because all platforms for which a
        // driver exists are little-endian.
        let mut values = [0u64; attribute::ALL.len()];
        let mut pointers = values.each_mut().map(|value| std::ptr::from_mut(value).cast::<c_void>());
        // SAFETY: the attributes and the values have this count, and no value exceeds eight bytes. The driver only
        // looks up the address.
        let code = unsafe {
            (self.pointer_get_attributes)(
                attributes.len() as c_uint,
                attributes.as_mut_ptr(),
                pointers.as_mut_ptr(),
                address,
            )
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

/// Converts a `CUresult`, which is `CUDA_SUCCESS` or an error.
pub(super) fn result(code: c_int) -> Result<(), Failure> {
    if code == 0 { Ok(()) } else { Err(Failure(code)) }
}

/// Returns the driver, if the process has loaded it. The process may load it later.
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
    // SAFETY: the name ends with a nul byte. `RTLD_NOLOAD` loads nothing, so no code runs.
    let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if library.is_null() {
        return None;
    }
    // SAFETY: the library is libcuda, and stays loaded because the handle is never closed.
    DRIVER.get_or_init(|| unsafe { Driver::load(library) }).as_ref()
}

/// Finds a symbol of a library.
///
/// # Safety
///
/// The library is loaded.
unsafe fn find(library: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: guaranteed by the caller; the name ends with a nul byte.
    let symbol = unsafe { libc::dlsym(library, name.as_ptr()) };
    if symbol.is_null() {
        log::debug!("cannot register memory of GPUs: libcuda lacks {name:?}; update the CUDA driver");
        return None;
    }
    Some(symbol)
}
