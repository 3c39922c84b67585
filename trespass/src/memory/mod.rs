//! Buffers: memory that is registered with the device once, and passes between program, worker and device without copies.

mod buf;
mod chunk;
mod free_list;
mod pages;
mod pool;
mod region;

pub use buf::Buf;
pub(crate) use chunk::Domain;
pub use pool::Pool;
pub(crate) use region::{Progress, RegionMemory, Transfer};

/// Room before a buffer's bytes, for the frame header: a message leaves from the program's own buffer, header and payload in one piece.
pub(crate) const HEADROOM: usize = 16;

/// What a buffer has of it, so that its bytes begin at a cache line.
const LINE: usize = 64;
