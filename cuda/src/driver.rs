//! The table of libcuda's functions.

use std::ffi::{CStr, CString, c_char, c_int, c_uchar, c_uint, c_ulonglong, c_void};
use std::sync::OnceLock;

use cudarc::driver::sys::{
    self, CUcontext, CUdevice, CUdeviceptr, CUmemRangeHandleType, CUpointer_attribute, CUstream,
};

use rdma_mummy_sys::load::gate;

/// Declares the functions by their symbols. The suffix of a symbol is the version that the C header selects.
macro_rules! functions {
    ($($Name:ident($($argument:ty),*);)*) => {
        $(const _: unsafe fn($($argument),*) -> sys::CUresult = sys::$Name;)*

        /// The functions of libcuda. Each returns a `CUresult` as a number.
        #[derive(Debug)]
        #[expect(non_snake_case, reason = "the functions have their names in C")]
        #[expect(missing_docs, reason = "the reference of the CUDA driver API describes the functions")]
        pub struct Driver {
            $(pub $Name: unsafe extern "C" fn($($argument),*) -> c_uint,)*
            /// This function is optional, because it requires CUDA 11.7.
            pub cuMemGetHandleForAddressRange:
                Option<unsafe extern "C" fn(*mut c_void, CUdeviceptr, usize, CUmemRangeHandleType, c_ulonglong) -> c_uint>,
            pub(crate) cuGetErrorName: unsafe extern "C" fn(c_uint, *mut *const c_char) -> c_uint,
        }

        impl Driver {
            /// # Safety
            ///
            /// For each name, `find` returns the address of the libcuda function of that name, which stays loaded.
            unsafe fn load(find: impl Fn(&CStr) -> Option<*mut c_void>) -> Result<Self, Absent> {
                Ok(Self {
                    // SAFETY: the constants above compare the types with the prototypes of cudarc. A `CUresult` has the
                    // size of a `c_uint`.
                    $($Name: unsafe { function(&find, stringify!($Name)) }?,)*
                    // SAFETY: as above.
                    cuMemGetHandleForAddressRange: unsafe { function(&find, "cuMemGetHandleForAddressRange") }.ok(),
                    // SAFETY: as above; this function accepts any number.
                    cuGetErrorName: unsafe { function(&find, "cuGetErrorName") }?,
                })
            }
        }
    };
}

functions! {
    cuInit(c_uint);
    cuDeviceGetCount(*mut c_int);
    cuDeviceGet(*mut CUdevice, c_int);
    cuDeviceGetName(*mut c_char, c_int, CUdevice);
    cuDeviceGetPCIBusId(*mut c_char, c_int, CUdevice);
    cuDevicePrimaryCtxRetain(*mut CUcontext, CUdevice);
    cuDevicePrimaryCtxRelease_v2(CUdevice);
    cuCtxPushCurrent_v2(CUcontext);
    cuCtxPopCurrent_v2(*mut CUcontext);
    cuCtxSynchronize();
    cuMemAlloc_v2(*mut CUdeviceptr, usize);
    cuMemFree_v2(CUdeviceptr);
    cuMemsetD8_v2(CUdeviceptr, c_uchar, usize);
    cuMemcpyHtoD_v2(CUdeviceptr, *const c_void, usize);
    cuMemcpyDtoH_v2(*mut c_void, CUdeviceptr, usize);
    cuPointerSetAttribute(*const c_void, CUpointer_attribute, CUdeviceptr);
    cuPointerGetAttributes(c_uint, *mut CUpointer_attribute, *mut *mut c_void, CUdeviceptr);
    cuStreamCreate(*mut CUstream, c_uint);
    cuStreamSynchronize(CUstream);
    cuMemcpyHtoDAsync_v2(CUdeviceptr, *const c_void, usize, CUstream);
    cuMemcpyDtoHAsync_v2(*mut c_void, CUdeviceptr, usize, CUstream);
    cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, usize, CUstream);
    cuMemcpyPeerAsync(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, usize, CUstream);
    cuMemsetD8Async(CUdeviceptr, c_uchar, usize, CUstream);
}

const _: unsafe fn(*mut c_void, CUdeviceptr, usize, CUmemRangeHandleType, c_ulonglong) -> sys::CUresult =
    sys::cuMemGetHandleForAddressRange;
const _: unsafe fn(sys::CUresult, *mut *const c_char) -> sys::CUresult = sys::cuGetErrorName;
const _: () = assert!(size_of::<sys::CUresult>() == size_of::<c_uint>());

/// The reason why there is no driver or no GPU.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Absent {
    /// The library was not found.
    #[error("libcuda.so.1 is missing")]
    Library,
    /// The library is too old for this function.
    #[error("libcuda.so.1 has no {0}")]
    Symbol(&'static str),
    /// The driver cannot be initialized.
    #[error("{0}")]
    Init(Failure),
    /// The driver works, but lists no GPU.
    #[error("the CUDA driver reports no GPU")]
    Gpu,
}

impl Absent {
    /// Returns what the user can do about it.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Library => {
                "install NVIDIA's driver, pass it to the container (`--gpus all`), or add its folder to LD_LIBRARY_PATH"
            }
            Self::Symbol(_) => "install a newer NVIDIA driver",
            Self::Init(_) | Self::Gpu => "check `nvidia-smi`, CUDA_VISIBLE_DEVICES and the container's GPUs",
        }
    }
}

/// The failure of a function of the driver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{function}: {}", result(.name, *.code))]
pub struct Failure {
    /// The function's name in the CUDA reference.
    pub function: &'static str,
    /// The `CUresult` that the function returned.
    pub code: c_uint,
    /// The name of `code`, or an empty string if the driver has none.
    pub name: String,
}

/// Formats a `CUresult` as its name, if the driver has one, and its number.
fn result(name: &str, code: c_uint) -> String {
    if name.is_empty() { format!("error {code}") } else { format!("{name} ({code})") }
}

impl Driver {
    /// Loads and initializes libcuda.
    ///
    /// # Errors
    ///
    /// libcuda is missing or too old, or its initialization fails.
    pub fn get() -> Result<&'static Self, Absent> {
        static DRIVER: OnceLock<Result<Driver, Absent>> = OnceLock::new();
        #[cfg(feature = "test")]
        if let Some(driver) = crate::fake::of_thread() {
            return driver.start();
        }
        let driver = DRIVER.get().unwrap_or_else(|| {
            // A child that is forked meanwhile would wait for this thread, which it does not have.
            let _hold = gate::hold();
            DRIVER.get_or_init(Self::load_library)
        });
        driver.as_ref().map_err(Clone::clone)?.start()
    }

    /// Returns libcuda if the process has loaded it, and `None` otherwise. The process may load it later. This function
    /// neither loads nor initializes libcuda.
    pub fn of_process() -> Option<&'static Self> {
        static DRIVER: OnceLock<Option<Driver>> = OnceLock::new();
        #[cfg(feature = "test")]
        if let Some(driver) = crate::fake::of_thread() {
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
        // The logger may call this function, so it gets its line after the initialization.
        let mut failed = None;
        // As in `get`.
        let hold = gate::hold();
        let driver = DRIVER.get_or_init(|| {
            // SAFETY: the library is loaded, and the name ends with a nul byte.
            let find = |name: &CStr| Some(unsafe { libc::dlsym(library, name.as_ptr()) });
            // SAFETY: the library is libcuda, and stays loaded because the handle is never closed.
            unsafe { Self::load(find) }.map_err(|absent| failed = Some(absent)).ok()
        });
        drop(hold);
        if let Some(absent) = failed {
            rdma_mummy_sys::log!(debug, "cannot use memory of GPUs: {absent}; {}", absent.remedy());
        }
        driver.as_ref()
    }

    fn load_library() -> Result<Self, Absent> {
        // SAFETY: the user requested libcuda, so its initializers may run.
        if !unsafe { sys::is_culib_present() } {
            return Err(Absent::Library);
        }
        // SAFETY: as above. cudarc never closes the library.
        let library = unsafe { sys::culib() };
        // SAFETY: the address is only read here.
        let find =
            |name: &CStr| unsafe { library.get::<*mut c_void>(name.to_bytes_with_nul()) }.ok().map(|found| *found);
        // SAFETY: the library is libcuda.
        unsafe { Self::load(find) }
    }

    fn start(&'static self) -> Result<&'static Self, Absent> {
        // SAFETY: the argument is a number; repeated calls are allowed.
        self.result("cuInit", unsafe { (self.cuInit)(0) }).map_err(Absent::Init)?;
        Ok(self)
    }

    /// Converts the return value of a function of the driver.
    ///
    /// # Errors
    ///
    /// The code is not `CUDA_SUCCESS`.
    pub fn result(&self, function: &'static str, code: c_uint) -> Result<(), Failure> {
        if code == 0 {
            return Ok(());
        }
        let mut name: *const c_char = std::ptr::null();
        // SAFETY: the pointer is to a local variable; the driver accepts any code.
        let found = unsafe { (self.cuGetErrorName)(code, &raw mut name) };
        let name = if found == 0 && !name.is_null() {
            // SAFETY: the driver returns a nul-terminated static string.
            unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
        } else {
            String::new()
        };
        Err(Failure { function, code, name })
    }
}

/// Finds a function by its name.
///
/// # Safety
///
/// `find` returns the address of the function, whose type is `F`.
unsafe fn function<F>(find: impl Fn(&CStr) -> Option<*mut c_void>, name: &'static str) -> Result<F, Absent> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    let symbol = CString::new(name).ok().and_then(|name| find(&name)).filter(|address| !address.is_null());
    let address = symbol.ok_or(Absent::Symbol(name))?;
    // SAFETY: the caller guarantees the type, and the sizes are equal.
    Ok(unsafe { std::mem::transmute_copy(&address) })
}

#[cfg(test)]
mod tests {
    use super::*;

    extern "C" fn function() {}

    /// Loads a library that has all functions but one.
    fn without(missing: &str) -> Result<Driver, Absent> {
        let find = |name: &CStr| (name.to_str() != Ok(missing)).then_some(function as *mut c_void);
        // SAFETY: no function is called.
        unsafe { Driver::load(find) }
    }

    #[test]
    fn missing_function_is_an_error_that_names_it() {
        assert_eq!(without("cuStreamCreate").unwrap_err(), Absent::Symbol("cuStreamCreate"));
        assert_eq!(without("cuGetErrorName").unwrap_err(), Absent::Symbol("cuGetErrorName"));
        assert!(without("cuMemGetHandleForAddressRange").unwrap().cuMemGetHandleForAddressRange.is_none());
        assert!(without("").unwrap().cuMemGetHandleForAddressRange.is_some());
    }

    #[test]
    fn unknown_result_is_reported_as_a_number() {
        let failure = |name: &str| Failure { function: "cuInit", code: 12345, name: name.to_owned() };
        assert_eq!(failure("").to_string(), "cuInit: error 12345");
        assert_eq!(failure("CUDA_ERROR_NEW").to_string(), "cuInit: CUDA_ERROR_NEW (12345)");
    }
}
