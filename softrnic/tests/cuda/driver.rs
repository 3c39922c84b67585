//! Uses the CUDA driver API as programs do.

use std::ffi::{c_int, c_uint, c_void};
use std::io::Write;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::OnceLock;

use libloading::Library;

/// Name of the environment variable whose value `1` makes a missing GPU a failure.
const REQUIRED: &str = "SOFTRNIC_TEST_CUDA";

/// An initialized libcuda with the primary context of the first GPU.
pub(crate) struct Cuda {
    library: Library,
    context: usize,
    pub(crate) devices: c_int,
}

/// Calls a function of the driver, and evaluates to its result.
macro_rules! call {
    ($cuda:expr, $name:literal, $($argument:expr => $type:ty),*) => {{
        // SAFETY: the function has this type; its arguments are correct at each call.
        unsafe {
            let function = $cuda.library.get::<unsafe extern "C" fn($($type),*) -> c_int>($name.as_bytes()).unwrap();
            function($($argument),*)
        }
    }};
}

/// Calls a function of the driver, which must succeed.
macro_rules! done {
    ($cuda:expr, $name:literal, $($rest:tt)*) => {
        assert_eq!(call!($cuda, $name, $($rest)*), 0, $name)
    };
}

impl Cuda {
    /// Returns the driver, whose context is then current on this thread. If there is no GPU, prints a message and
    /// returns `None`, and the test then ends.
    pub(crate) fn open() -> Option<&'static Self> {
        static CUDA: OnceLock<Result<Cuda, String>> = OnceLock::new();
        match CUDA.get_or_init(Self::load) {
            Ok(cuda) => {
                cuda.make_current(cuda.context);
                Some(cuda)
            }
            Err(reason) => {
                assert!(std::env::var(REQUIRED).as_deref() != Ok("1"), "{REQUIRED}=1, but {reason}");
                let name = std::thread::current().name().unwrap_or_default().to_owned();
                // `eprintln!` cannot be used, because the test harness hides its output if the test passes.
                let mut stderr = std::io::stderr();
                let _ = writeln!(stderr, "DID NOT RUN: {name}: {reason} ({REQUIRED}=1 makes this a failure)");
                None
            }
        }
    }

    fn load() -> Result<Self, String> {
        // SAFETY: loading the CUDA driver is sound.
        let library = unsafe { Library::new("libcuda.so.1") }.map_err(|error| error.to_string())?;
        let mut cuda = Self { library, context: 0, devices: 0 };
        let code = call!(cuda, "cuInit", 0 => c_uint);
        if code != 0 {
            return Err(format!("cuInit failed with {code}"));
        }
        let mut device = 0;
        done!(cuda, "cuDeviceGetCount", &raw mut cuda.devices => *mut c_int);
        if cuda.devices == 0 {
            return Err("there is no GPU".to_owned());
        }
        done!(cuda, "cuDeviceGet", &raw mut device => *mut c_int, 0 => c_int);
        cuda.context = cuda.retain(device);
        Ok(cuda)
    }

    /// Returns the primary context of a device.
    pub(crate) fn retain(&self, device: c_int) -> usize {
        let mut context = 0usize;
        done!(self, "cuDevicePrimaryCtxRetain", &raw mut context => *mut usize, device => c_int);
        context
    }

    /// Makes a context current on this thread. The context 0 stands for none.
    pub(crate) fn make_current(&self, context: usize) {
        done!(self, "cuCtxSetCurrent", context => usize);
    }

    pub(crate) fn current(&self) -> usize {
        let mut context = 0usize;
        done!(self, "cuCtxGetCurrent", &raw mut context => *mut usize);
        context
    }

    /// Creates another context on the first GPU, which is not made current.
    pub(crate) fn new_context(&self) -> usize {
        let mut context = 0usize;
        done!(self, "cuCtxCreate_v2", &raw mut context => *mut usize, 0 => c_uint, 0 => c_int);
        // This restores the context that was current before.
        done!(self, "cuCtxPopCurrent_v2", &raw mut context => *mut usize);
        context
    }

    pub(crate) fn destroy_context(&self, context: usize) {
        done!(self, "cuCtxDestroy_v2", context => usize);
    }

    pub(crate) fn allocate(&self, length: usize) -> u64 {
        let mut address = 0u64;
        done!(self, "cuMemAlloc_v2", &raw mut address => *mut u64, length => usize);
        address
    }

    pub(crate) fn free(&self, address: u64) {
        done!(self, "cuMemFree_v2", address => u64);
    }

    /// Allocates memory that migrates between the host and the GPUs.
    pub(crate) fn allocate_managed(&self, length: usize) -> u64 {
        let mut address = 0u64;
        done!(self, "cuMemAllocManaged", &raw mut address => *mut u64, length => usize, 1 => c_uint);
        address
    }

    /// Allocates host memory that GPUs can access.
    pub(crate) fn allocate_pinned(&self, length: usize) -> *mut u8 {
        let mut address: *mut c_void = std::ptr::null_mut();
        done!(self, "cuMemHostAlloc", &raw mut address => *mut *mut c_void, length => usize, 0 => c_uint);
        address.cast()
    }

    /// Allocates memory from a pool, which has no context. Returns `None` if the driver does not support pools.
    pub(crate) fn allocate_pooled(&self, length: usize) -> Option<u64> {
        let mut address = 0u64;
        // SAFETY: the symbol is only looked up.
        unsafe { self.library.get::<*const c_void>(b"cuMemAllocAsync") }.ok()?;
        let code = call!(self, "cuMemAllocAsync", &raw mut address => *mut u64, length => usize, 0 => usize);
        if code != 0 {
            return None;
        }
        done!(self, "cuStreamSynchronize", 0 => usize);
        Some(address)
    }

    /// Reserves an address range and maps memory there, which is never freed.
    pub(crate) fn allocate_mapped(&self, length: usize) -> (u64, usize) {
        // `CUmemAllocationProp`: pinned memory on device 0. `CUmemAccessDesc`: read and write access from device 0.
        let (properties, access) = ([1i32, 0, 1, 0, 0, 0, 0, 0], [1i32, 0, 3]);
        let (mut unit, mut address, mut handle) = (0usize, 0u64, 0u64);
        done!(self, "cuMemGetAllocationGranularity",
            &raw mut unit => *mut usize, properties.as_ptr() => *const i32, 0 => c_int);
        let length = length.next_multiple_of(unit);
        done!(self, "cuMemAddressReserve",
            &raw mut address => *mut u64, length => usize, 0 => usize, 0 => u64, 0 => u64);
        done!(self, "cuMemCreate", &raw mut handle => *mut u64, length => usize, properties.as_ptr() => *const i32, 0 => u64);
        done!(self, "cuMemMap", address => u64, length => usize, 0 => usize, handle => u64, 0 => u64);
        done!(self, "cuMemSetAccess", address => u64, length => usize, access.as_ptr() => *const i32, 1 => usize);
        (address, length)
    }

    /// Exports an allocation as a DMA buffer. Returns `None` if the driver does not support this.
    pub(crate) fn export(&self, address: u64, length: usize) -> Option<OwnedFd> {
        /// The value of `CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD`.
        const DMA_BUF: c_int = 1;
        let mut fd = -1;
        let code = call!(self, "cuMemGetHandleForAddressRange",
            &raw mut fd => *mut c_int, address => u64, length => usize, DMA_BUF => c_int, 0 => u64);
        // SAFETY: the driver has just created the descriptor for its caller.
        (code == 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
    }

    pub(crate) fn set(&self, address: u64, bytes: &[u8]) {
        done!(self, "cuMemcpyHtoD_v2", address => u64, bytes.as_ptr() => *const u8, bytes.len() => usize);
        done!(self, "cuCtxSynchronize",);
    }

    pub(crate) fn get(&self, address: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0u8; length];
        done!(self, "cuMemcpyDtoH_v2", bytes.as_mut_ptr() => *mut u8, address => u64, length => usize);
        bytes
    }
}
