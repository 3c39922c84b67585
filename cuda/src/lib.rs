//! The functions of the CUDA driver that move GPU memory. The library libcuda is loaded at run time; neither the build
//! nor a run on a machine without a GPU requires it.
//!
//! The types and prototypes are those of [cudarc]. Two properties differ from cudarc's own dynamic loading:
//!
//! - Results are numbers. cudarc reads them as an `enum`, and a newer driver may return codes that no `enum` contains.
//! - If libcuda lacks a function, loading fails with an error, whereas cudarc panics at the first call.
//!
//! [`Driver::get`] loads and initializes libcuda. [`Driver::of_process`] returns libcuda only if the program has loaded
//! it. The feature `test` adds a fake driver (`Fake`) and a CUDA program for tests on a real GPU (`Cuda`).
//!
//! [cudarc]: https://docs.rs/cudarc

mod context;
mod driver;
#[cfg(feature = "test")]
mod fake;
mod pointer;
#[cfg(feature = "test")]
mod program;

pub use cudarc::driver::sys::{CUcontext, CUdevice, CUdeviceptr, CUmemRangeHandleType, CUpointer_attribute, CUstream};

pub use self::context::{Context, Current, Stream};
pub use self::driver::{Absent, Driver, Failure};
#[cfg(feature = "test")]
pub use self::fake::Fake;
pub use self::pointer::Pointer;
#[cfg(feature = "test")]
pub use self::program::Cuda;
