//! A CUDA program for tests on a real GPU. It calls the driver through cudarc's own functions.

use std::ffi::c_int;
use std::io::Write;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr;
use std::sync::OnceLock;

use cudarc::driver::sys::{self, CUmemAccess_flags, CUmemAllocationType, CUmemLocationType, CUresult};

use crate::{CUcontext, CUdevice, Context};

/// Name of the environment variable whose value `1` makes a missing GPU a failure.
const REQUIRED: &str = "SOFTRNIC_TEST_CUDA";

/// An initialized libcuda with the primary context of the first GPU.
#[derive(Debug)]
pub struct Cuda {
    context: Context,
    /// The number of GPUs.
    pub devices: c_int,
}

/// Calls a function of the driver, which must succeed.
macro_rules! done {
    ($name:ident($($argument:expr),*)) => {
        // SAFETY: the arguments are correct at each call.
        assert_eq!(unsafe { sys::$name($($argument),*) }, CUresult::CUDA_SUCCESS, stringify!($name))
    };
}

impl Cuda {
    /// Returns the driver, whose context is then current on this thread. If there is no GPU, prints a message and
    /// returns `None`, and the test then ends.
    ///
    /// # Panics
    ///
    /// There is no GPU, and `SOFTRNIC_TEST_CUDA=1` is set.
    pub fn open() -> Option<&'static Self> {
        static CUDA: OnceLock<Result<Cuda, String>> = OnceLock::new();
        match CUDA.get_or_init(Self::load) {
            Ok(cuda) => {
                cuda.make_current(Some(cuda.context));
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
        crate::Driver::get().map_err(|absent| absent.to_string())?;
        let mut cuda = Self { context: Context::from(ptr::null_mut::<sys::CUctx_st>()), devices: 0 };
        done!(cuDeviceGetCount(&raw mut cuda.devices));
        if cuda.devices == 0 {
            return Err(crate::Absent::Gpu.to_string());
        }
        cuda.context = cuda.retain(0);
        Ok(cuda)
    }

    /// Returns the primary context of a GPU.
    pub fn retain(&self, index: c_int) -> Context {
        let (mut device, mut context): (CUdevice, CUcontext) = (0, ptr::null_mut());
        done!(cuDeviceGet(&raw mut device, index));
        done!(cuDevicePrimaryCtxRetain(&raw mut context, device));
        context.into()
    }

    /// Makes a context current on this thread; `None` makes none current.
    pub fn make_current(&self, context: Option<Context>) {
        done!(cuCtxSetCurrent(context.map_or(ptr::null_mut(), Context::raw)));
    }

    /// Returns the context that is current on this thread.
    pub fn current(&self) -> Option<Context> {
        let mut context: CUcontext = ptr::null_mut();
        done!(cuCtxGetCurrent(&raw mut context));
        (!context.is_null()).then(|| context.into())
    }

    /// Creates another context on the first GPU, which is not made current.
    pub fn new_context(&self) -> Context {
        let mut context: CUcontext = ptr::null_mut();
        done!(cuCtxCreate_v2(&raw mut context, 0, 0));
        // This restores the context that was current before.
        done!(cuCtxPopCurrent_v2(&raw mut context));
        context.into()
    }

    /// Destroys a context with its memory.
    pub fn destroy_context(&self, context: Context) {
        done!(cuCtxDestroy_v2(context.raw()));
    }

    /// Allocates GPU memory.
    pub fn allocate(&self, length: usize) -> u64 {
        let mut address = 0u64;
        done!(cuMemAlloc_v2(&raw mut address, length));
        address
    }

    /// Frees GPU memory.
    pub fn free(&self, address: u64) {
        done!(cuMemFree_v2(address));
    }

    /// Allocates memory that migrates between the host and the GPUs.
    pub fn allocate_managed(&self, length: usize) -> u64 {
        let mut address = 0u64;
        done!(cuMemAllocManaged(&raw mut address, length, sys::CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL as u32));
        address
    }

    /// Allocates host memory that GPUs can access.
    pub fn allocate_pinned(&self, length: usize) -> *mut u8 {
        let mut address = ptr::null_mut();
        done!(cuMemHostAlloc(&raw mut address, length, 0));
        address.cast()
    }

    /// Allocates memory from a pool, which has no context. Returns `None` if the driver does not support pools.
    pub fn allocate_pooled(&self, length: usize) -> Option<u64> {
        let mut address = 0u64;
        // SAFETY: the pointer is to a local variable; the null stream always exists.
        if unsafe { sys::cuMemAllocAsync(&raw mut address, length, ptr::null_mut()) } != CUresult::CUDA_SUCCESS {
            return None;
        }
        done!(cuStreamSynchronize(ptr::null_mut()));
        Some(address)
    }

    /// Reserves an address range and maps memory there, which is never freed. Returns the address and the length, which
    /// is at least `length`.
    pub fn allocate_mapped(&self, length: usize) -> (u64, usize) {
        let location = sys::CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: 0 };
        // SAFETY: zeros are valid values of these fields.
        let mut properties: sys::CUmemAllocationProp = unsafe { std::mem::zeroed() };
        properties.type_ = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location = location;
        let flags = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        let access = sys::CUmemAccessDesc { location, flags };
        let (mut unit, mut address, mut handle) = (0usize, 0u64, 0u64);
        let minimum = sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
        done!(cuMemGetAllocationGranularity(&raw mut unit, &raw const properties, minimum));
        let length = length.next_multiple_of(unit);
        done!(cuMemAddressReserve(&raw mut address, length, 0, 0, 0));
        done!(cuMemCreate(&raw mut handle, length, &raw const properties, 0));
        done!(cuMemMap(address, length, 0, handle, 0));
        done!(cuMemSetAccess(address, length, &raw const access, 1));
        (address, length)
    }

    /// Exports an allocation as a DMA buffer. Returns `None` if the driver does not support this.
    pub fn export(&self, address: u64, length: usize) -> Option<OwnedFd> {
        let mut fd: c_int = -1;
        let kind = sys::CUmemRangeHandleType::CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD;
        // SAFETY: the pointer is to a descriptor variable.
        let code = unsafe { sys::cuMemGetHandleForAddressRange((&raw mut fd).cast(), address, length, kind, 0) };
        // SAFETY: the driver has just created the descriptor for its caller.
        (code == CUresult::CUDA_SUCCESS).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Overwrites GPU memory.
    pub fn set(&self, address: u64, bytes: &[u8]) {
        done!(cuMemcpyHtoD_v2(address, bytes.as_ptr().cast(), bytes.len()));
        done!(cuCtxSynchronize());
    }

    /// Reads GPU memory.
    pub fn get(&self, address: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0u8; length];
        done!(cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), address, length));
        bytes
    }
}
