//! The libcuda functions that this program calls. The library is loaded at run time; the build does not require it.
//!
//! Tests compare the function types with those of cudarc. Results are numbers here, whereas cudarc has an `enum`: a
//! newer driver may return codes that no `enum` contains.

use std::ffi::{CStr, c_char, c_int, c_uchar, c_uint, c_ulonglong, c_void};
use std::sync::OnceLock;

use libloading::Library;

/// A GPU, identified by its number in the driver.
pub(super) type CUdevice = c_int;
/// An address in the memory of a GPU.
pub(super) type CUdeviceptr = c_ulonglong;
/// A context of the driver.
pub(super) type CUcontext = *mut CUctx_st;

/// The target of a context pointer, whose contents are unknown to this program.
#[derive(Debug)]
#[repr(C)]
pub(super) struct CUctx_st([u8; 0]);

/// The name of a property of a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
#[expect(non_camel_case_types, reason = "it is called as in C")]
pub(super) struct CUpointer_attribute(c_uint);

impl CUpointer_attribute {
    /// If set, functions that copy memory return only after the copy is complete.
    pub(super) const SYNC_MEMOPS: Self = Self(6);
}

/// The kind of a handle for a range of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct CUmemRangeHandleType(c_uint);

impl CUmemRangeHandleType {
    /// The handle is the descriptor of a DMA buffer.
    pub(super) const DMA_BUF_FD: Self = Self(1);
}

/// Declares the functions that the program uses, by their symbol names.
macro_rules! functions {
    ($($Name:ident($($argument:ty),*);)*) => {
        $(
            #[cfg(test)]
            const _: unsafe fn($(<$argument as InCudarc>::Type),*) -> sys::CUresult = sys::$Name;
        )*

        /// The functions of libcuda.
        #[derive(Debug)]
        #[expect(non_snake_case, reason = "they are called as in C")]
        pub(super) struct Driver {
            $(pub(super) $Name: unsafe extern "C" fn($($argument),*) -> c_uint,)*
            /// This function is optional, because it requires CUDA 11.7.
            pub(super) cuMemGetHandleForAddressRange:
                Option<unsafe extern "C" fn(*mut c_void, CUdeviceptr, usize, CUmemRangeHandleType, c_ulonglong) -> c_uint>,
            pub(super) cuGetErrorName: unsafe extern "C" fn(c_uint, *mut *const c_char) -> c_uint,
        }

        impl Driver {
            /// # Safety
            ///
            /// For each name, `find` must return the libcuda function of that name.
            unsafe fn load(find: impl Find) -> Result<Self, Absent> {
                // SAFETY: tests compare the types with the bindings of cudarc; an enum is a 32-bit number here.
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

/// File names of libcuda: the one of the driver, and the link that the toolkit installs.
const LIBRARIES: [&str; 2] = ["libcuda.so.1", "libcuda.so"];

/// Looks up functions by name.
trait Find {
    /// # Safety
    ///
    /// The function with this name must have the type `F`.
    unsafe fn find<F: Copy>(&self, name: &str) -> Option<F>;
}

/// The loaded libcuda, which is never closed.
struct Loaded(&'static Library);

impl Find for Loaded {
    unsafe fn find<F: Copy>(&self, name: &str) -> Option<F> {
        // SAFETY: the caller guarantees the type. The library is never closed, so the copied pointer stays valid.
        unsafe { self.0.get::<F>(name.as_bytes()).ok().map(|symbol| *symbol) }
    }
}

/// The reason why there is no driver or no GPU.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Absent {
    #[error("libcuda.so.1 is missing")]
    Library,
    #[error("libcuda.so.1 has no {0}")]
    Symbol(&'static str),
    #[error("{0}")]
    Init(Failure),
    #[error("the CUDA driver reports no GPU")]
    Gpu,
}

impl Absent {
    /// Returns what the user can do about it.
    pub(super) fn remedy(&self) -> &'static str {
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
pub(super) struct Failure {
    pub(super) function: &'static str,
    /// The `CUresult` that the function returned.
    pub(super) code: c_uint,
    pub(super) name: String,
}

/// Formats a `CUresult` as its name, if the driver has one, and its number.
fn result(name: &str, code: c_uint) -> String {
    if name.is_empty() { format!("error {code}") } else { format!("{name} ({code})") }
}

impl Driver {
    /// Returns the driver, after it has been initialized.
    pub(super) fn get() -> Result<&'static Self, Absent> {
        static DRIVER: OnceLock<Result<Driver, Absent>> = OnceLock::new();
        #[cfg(test)]
        if let Some(driver) = super::fake::of_thread() {
            return driver.start();
        }
        DRIVER.get_or_init(Self::load_library).as_ref().map_err(Clone::clone)?.start()
    }

    fn load_library() -> Result<Self, Absent> {
        // SAFETY: the user requested libcuda, so its initializers may run.
        let library = LIBRARIES.iter().find_map(|name| unsafe { Library::new(name) }.ok()).ok_or(Absent::Library)?;
        // SAFETY: the library is libcuda.
        unsafe { Self::load(Loaded(Box::leak(Box::new(library)))) }
    }

    fn start(&'static self) -> Result<&'static Self, Absent> {
        // SAFETY: the argument is a number; repeated calls are allowed.
        self.result("cuInit", unsafe { (self.cuInit)(0) }).map_err(Absent::Init)?;
        Ok(self)
    }

    /// Converts the return value of a function of the driver.
    pub(super) fn result(&self, function: &'static str, code: c_uint) -> Result<(), Failure> {
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

#[cfg(test)]
use cudarc::driver::sys;

/// The type in cudarc that corresponds to this type.
#[cfg(test)]
trait InCudarc {
    type Type;
}

#[cfg(test)]
mod in_cudarc {
    use super::*;

    macro_rules! types {
        ($($Ours:ty => $Theirs:ty),*) => {
            $(
                impl InCudarc for $Ours {
                    type Type = $Theirs;
                }
                const _: () = assert!(size_of::<$Ours>() == size_of::<$Theirs>());
            )*
        };
    }
    types! {
        c_char => c_char, c_int => c_int, c_uchar => c_uchar, c_uint => c_uint, c_ulonglong => c_ulonglong, usize => usize, c_void => c_void,
        CUctx_st => sys::CUctx_st, CUpointer_attribute => sys::CUpointer_attribute, CUmemRangeHandleType => sys::CUmemRangeHandleType
    }

    impl<T: InCudarc> InCudarc for *mut T {
        type Type = *mut T::Type;
    }

    impl<T: InCudarc> InCudarc for *const T {
        type Type = *const T::Type;
    }

    const _: unsafe fn(*mut c_void, CUdeviceptr, usize, sys::CUmemRangeHandleType, c_ulonglong) -> sys::CUresult =
        sys::cuMemGetHandleForAddressRange;
    const _: () = assert!(size_of::<sys::CUresult>() == size_of::<c_uint>());

    #[test]
    fn constants_equal_those_of_cudarc() {
        let sync = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS as c_uint;
        let dma_buf = sys::CUmemRangeHandleType::CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD as c_uint;
        assert_eq!((CUpointer_attribute::SYNC_MEMOPS.0, CUmemRangeHandleType::DMA_BUF_FD.0), (sync, dma_buf));
    }
}
