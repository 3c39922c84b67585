//! Buffers in memory that is registered with the device once. The program, the worker and the device pass buffers to
//! each other without copies.

mod buf;
mod chunk;
mod list;
mod pages;
mod pool;
mod region;

pub use buf::Buf;
pub(crate) use chunk::Domain;
pub use pool::Pool;
pub(crate) use region::{Ending, Progress, RegionMemory, Transfer};

/// Space for the frame header before a buffer's bytes, so that header and payload are contiguous in the program's
/// buffer.
pub(crate) const HEADROOM: usize = 16;

/// The part of `HEADROOM` that a buffer uses, so that its bytes begin at a cache line.
const LINE: usize = 64;
