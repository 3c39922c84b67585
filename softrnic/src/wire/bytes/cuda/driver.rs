//! libcuda, as far as it is needed.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::sync::OnceLock;

/// What a function of the driver returns where it fails: a `CUresult`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failure(pub(super) c_int);

/// `CUcontext` and `CUstream`, which are pointers of the driver's own: to us they are numbers.
pub(super) type Handle = usize;

/// The functions that are used, each with its arguments and the name that its symbol has: the version that the C header chooses.
macro_rules! functions {
    ($($field:ident($($argument:ty),*) = $symbol:literal;)*) => {
        /// libcuda, by its functions.
        #[derive(Debug)]
        pub(crate) struct Driver {
            $(pub(super) $field: unsafe extern "C" fn($($argument),*) -> c_int,)*
        }

        impl Driver {
            /// `None` where a function is missing: a driver too old to be asked where an allocation ends.
            ///
            /// # Safety
            ///
            /// `library` is libcuda, and stays loaded.
            unsafe fn load(library: *mut c_void) -> Option<Self> {
                // SAFETY: the caller's promise.
                let find = |name| unsafe { find(library, name) };
                Some(Self {
                    $($field: {
                        let symbol = find($symbol)?;
                        // SAFETY: what the CUDA driver API has of this name, whose type does not change.
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
    DRIVER.get_or_init(|| unsafe { Driver::load(library) }).as_ref()
}

/// A symbol of a library.
///
/// # Safety
///
/// The library is loaded.
unsafe fn find(library: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the caller's promise; the name ends with a nul.
    let symbol = unsafe { libc::dlsym(library, name.as_ptr()) };
    if symbol.is_null() {
        log::debug!("libcuda has no {name:?}: memory of GPUs is not registered");
        return None;
    }
    Some(symbol)
}
