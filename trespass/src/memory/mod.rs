//! Buffers: memory that is registered with the device once, and moves between program, worker and device without
//! copies.

mod buf;
mod chunk;
mod list;
mod pages;
mod pool;
mod region;

pub use buf::Buf;
pub(crate) use chunk::Domain;
pub use pool::Pool;
pub(crate) use region::{Progress, RegionMemory, Transfer};

/// Space before a buffer's bytes for the frame header, so that header and payload are sent from the program's buffer in
/// one piece.
pub(crate) const HEADROOM: usize = 16;

/// The part of it that a buffer uses, so that its bytes begin at a cache line.
const LINE: usize = 64;
