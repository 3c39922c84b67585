//! Memory: the arguments of C for registration, windows, device memory, imports and fork, and the handling of its
//! results, on the recording device.
#![expect(clippy::unwrap_used, reason = "a test")]

mod device_memory;
mod failures;
mod fork;
mod imports;
mod owned;
mod regions;
mod windows;
