//! The bytes of a message: where they are, and how they are copied.
//!
//! A transport reads them when a message is put, and gives those that have come to [`Deliver`](super::transport::Deliver); so a [`Segment`] and the copy stand
//! below both memory regions and transports. Memory of GPUs is copied by its driver (`cuda`).

mod copy;
pub(crate) mod cuda;
mod segment;

pub(crate) use self::copy::{atomic, copy, read_bytes, transfer, write_bytes};
pub(crate) use self::cuda::End;
pub(crate) use self::segment::{Place, Segment, Segments};

/// Why local memory cannot be used: `IBV_WC_LOC_PROT_ERR`; or memory of the peer's: a refusal with an access error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// No such key, or not any more.
    Key,
    /// A region of another protection domain, or a window of another queue pair.
    Domain,
    /// Not within the region.
    Bounds,
    /// The region or window does not allow it.
    Rights,
    /// An atomic at an address that is not a multiple of eight.
    Alignment,
    /// It is registered, and cannot be copied (any more).
    Unmapped,
}

/// What [`atomic`] does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Atomic {
    CompareSwap { compare: u64, swap: u64 },
    FetchAdd(u64),
    Store(u64),
}
