//! Memory: what registering, windows, device memory, imports and fork hand to C, and what they make of its answers, seen
//! from the recording device.
#![expect(clippy::unwrap_used, reason = "a test")]

mod device_memory;
mod failures;
mod fork;
mod imports;
mod owned;
mod regions;
mod windows;
