//! libcuda, as far as it is needed: loaded when it is asked for, and no part of the build.
//!
//! The prototypes are cudarc's, which the compiler compares with those here, but for what is returned: a `CUresult` is an `enum` of the codes
//! that cudarc knows, and a driver may be newer.

use std::ffi::{CStr, c_char, c_int, c_uchar, c_uint, c_ulonglong, c_void};
use std::fmt;
use std::sync::OnceLock;

use cudarc::driver::sys::{self, CUcontext, CUdevice, CUdeviceptr, CUmemRangeHandleType, CUpointer_attribute};

/// The functions that are used, by the names that their symbols have.
macro_rules! functions {
    ($($Name:ident($($argument:ty),*);)*) => {
        $(const _: unsafe fn($($argument),*) -> sys::CUresult = sys::$Name;)*

        /// libcuda, by its functions.
        #[derive(Debug)]
        #[expect(non_snake_case, reason = "they are called as in C")]
        pub(super) struct Driver {
            $(pub(super) $Name: unsafe extern "C" fn($($argument),*) -> c_uint,)*
            /// Newer than the others: CUDA 11.7.
            pub(super) cuMemGetHandleForAddressRange:
                Option<unsafe extern "C" fn(*mut c_void, CUdeviceptr, usize, CUmemRangeHandleType, c_ulonglong) -> c_uint>,
            pub(super) cuGetErrorName: unsafe extern "C" fn(c_uint, *mut *const c_char) -> c_uint,
        }

        impl Driver {
            /// # Safety
            ///
            /// `find` gives each function of libcuda by its name.
            unsafe fn load(find: impl Find) -> Result<Self, Absent> {
                // SAFETY: the types are those of cudarc's bindings, with a number for the enum of 32 bits that is returned.
                unsafe {
                    Ok(Self {
                        $($Name: find.find(stringify!($Name)).ok_or(Absent::Symbol(stringify!($Name)))?,)*
                        cuMemGetHandleForAddressRange: find.find("cuMemGetHandleForAddressRange"),
                        cuGetErrorName: find.find("cuGetErrorName").ok_or(Absent::Symbol("cuGetErrorName"))?,
                    })
                }
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
}

const _: unsafe fn(*mut c_void, CUdeviceptr, usize, CUmemRangeHandleType, c_ulonglong) -> sys::CUresult =
    sys::cuMemGetHandleForAddressRange;
const _: () = assert!(size_of::<sys::CUresult>() == size_of::<c_uint>());

/// Where functions are.
trait Find {
    /// # Safety
    ///
    /// The function of this name is an `F`.
    unsafe fn find<F: Copy>(&self, name: &str) -> Option<F>;
}

/// The library that cudarc has loaded.
struct Library;

impl Find for Library {
    unsafe fn find<F: Copy>(&self, name: &str) -> Option<F> {
        // SAFETY: `load` has seen that the library is there, so that this does not panic; the type is the caller's promise. The library is
        // never closed, so that what is copied out of it stays.
        unsafe { sys::culib().get::<F>(name.as_bytes()).ok().map(|symbol| *symbol) }
    }
}

/// Why there is no driver, or no GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Absent {
    Library,
    Symbol(&'static str),
    Init(Failure),
    Gpu,
}

impl Absent {
    /// What can be done.
    pub(super) fn remedy(&self) -> &'static str {
        match self {
            Self::Library => {
                "it comes with NVIDIA's driver, which has to be installed, and given to a container (`--gpus all`); ldconfig or \
                 LD_LIBRARY_PATH has to know where it is"
            }
            Self::Symbol(_) => "NVIDIA's driver is too old: install a newer one",
            Self::Init(_) | Self::Gpu => {
                "does `nvidia-smi` show one? CUDA_VISIBLE_DEVICES can hide GPUs, and a container has those that it is given"
            }
        }
    }
}

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Library => f.write_str("libcuda.so.1 is not there"),
            Self::Symbol(name) => write!(f, "libcuda.so.1 has no {name}"),
            Self::Init(failure) => failure.fmt(f),
            Self::Gpu => f.write_str("the CUDA driver sees none"),
        }
    }
}

impl std::error::Error for Absent {}

/// A function of the driver that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) function: &'static str,
    /// A `CUresult`.
    pub(super) code: c_uint,
    pub(super) name: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { function, code, name } = self;
        if name.is_empty() { write!(f, "{function}: error {code}") } else { write!(f, "{function}: {name} ({code})") }
    }
}

impl std::error::Error for Failure {}

impl Driver {
    /// The driver, initialized.
    pub(super) fn get() -> Result<&'static Self, Absent> {
        static DRIVER: OnceLock<Result<Driver, Absent>> = OnceLock::new();
        #[cfg(test)]
        if let Some(driver) = super::fake::of_thread() {
            return driver.start();
        }
        DRIVER.get_or_init(Self::load_library).as_ref().map_err(Clone::clone)?.start()
    }

    fn load_library() -> Result<Self, Absent> {
        // SAFETY: libcuda may be loaded: that is what the user has asked for.
        if !unsafe { sys::is_culib_present() } {
            return Err(Absent::Library);
        }
        // SAFETY: the library is libcuda.
        unsafe { Self::load(Library) }
    }

    fn start(&'static self) -> Result<&'static Self, Absent> {
        // SAFETY: a number; it may be called again.
        self.result("cuInit", unsafe { (self.cuInit)(0) }).map_err(Absent::Init)?;
        Ok(self)
    }

    /// What a function has returned.
    pub(super) fn result(&self, function: &'static str, code: c_uint) -> Result<(), Failure> {
        if code == 0 {
            return Ok(());
        }
        let mut name: *const c_char = std::ptr::null();
        // SAFETY: the place is there to be written; the driver knows which codes it has.
        let found = unsafe { (self.cuGetErrorName)(code, &raw mut name) };
        let name = if found == 0 && !name.is_null() {
            // SAFETY: a text of the driver's that ends with a nul and stays.
            unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
        } else {
            String::new()
        };
        Err(Failure { function, code, name })
    }
}
