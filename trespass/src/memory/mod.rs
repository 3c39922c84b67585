//! Buffers in memory that is registered with the device once. The program, the worker and the device pass buffers to
//! each other without copies.

mod buf;
mod chunk;
mod list;
mod pages;
mod pool;
mod region;

use std::io;

use pages::Pages;

pub use buf::Buf;
pub(crate) use chunk::Domain;
pub use pool::Pool;
pub(crate) use region::{Ending, Progress, RegionMemory, Transfer};

/// Space for the frame header before a buffer's bytes, so that header and payload are contiguous in the program's
/// buffer.
pub(crate) const HEADROOM: usize = 16;

/// The error of an allocation of `length` bytes for a message.
#[cold]
pub(crate) fn no_memory(length: usize) -> io::Error {
    let text = format!(
        "cannot allocate {length} bytes: out of memory; free memory, or raise the limit of the address space (ulimit -v)"
    );
    io::Error::new(io::ErrorKind::OutOfMemory, text)
}

/// Checks whether there is memory for another connection or worker, beside what the existing ones need.
pub(crate) fn check_spare() -> io::Result<()> {
    Pages::check_spare().map_err(|error| {
        let text =
            format!("no memory is left: {error}; free memory, or raise the limit of the address space (ulimit -v)");
        io::Error::new(io::ErrorKind::OutOfMemory, text)
    })
}

/// Whether an existing object may take `length` bytes of what is left, so that some memory is left nevertheless.
pub(crate) fn has_last(length: usize) -> bool {
    Pages::check_last(length).is_ok()
}

/// The part of `HEADROOM` that a buffer uses, so that its bytes begin at a cache line.
const LINE: usize = 64;
