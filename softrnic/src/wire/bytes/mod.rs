//! The bytes of a message: where they are, and how they are copied.
//!
//! A transport reads the bytes of a packet when it sends the packet. It passes the bytes that it receives to
//! [`Deliver`](super::transport::Deliver). [`Segment`] and the functions that copy therefore belong to a layer below
//! memory regions and transports. The CUDA driver copies GPU memory (`cuda`).

mod copy;
pub(crate) mod cuda;
mod segment;

pub(crate) use self::copy::{append_bytes, atomic, copy, read_bytes, transfer, write_bytes};
pub(crate) use self::cuda::End;
pub(crate) use self::segment::{Place, Segment, Segments, with_segment, with_segments};

/// The reason why memory cannot be used. If the memory is local, the request completes with `IBV_WC_LOC_PROT_ERR`. If
/// it is the responder's, the request completes with an access error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The key was never valid, or is no longer valid.
    Key,
    /// The region belongs to another protection domain, or the window to another QP.
    Domain,
    /// The range exceeds the region.
    Bounds,
    /// The access rights of the region or window do not allow the access.
    Rights,
    /// A peer cannot invalidate the key.
    Invalidation,
    /// The address of an atomic is not a multiple of eight.
    Alignment,
    /// The memory is registered but can no longer be copied.
    Unmapped,
}

/// The operation that [`atomic`] executes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Atomic {
    CompareSwap { compare: u64, swap: u64 },
    FetchAdd(u64),
    Store(u64),
}
