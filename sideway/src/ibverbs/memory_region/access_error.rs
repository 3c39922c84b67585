//! Why bytes of a region were not given.

use crate::ibverbs::AccessFlags;

/// Why a range of an [`OwnedMemoryRegion`](super::OwnedMemoryRegion) was not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegionAccessError {
    /// The range is not within the region.
    #[error("{length} bytes at offset {offset} are not within the {region} bytes of the region")]
    OutOfRange {
        /// Where it begins.
        offset: usize,
        /// Its bytes.
        length: usize,
        /// The bytes of the region.
        region: usize,
    },
    /// The range is longer than an entry of a list can say, which is 2^32 - 1 bytes.
    #[error("{length} bytes are more than one entry takes: 4294967295; use several")]
    EntryTooLong {
        /// Its bytes.
        length: usize,
    },
    /// A peer may change the bytes at any moment, so that there can be no reference to them: copy them with
    /// [`read_at`](super::OwnedMemoryRegion::read_at) and [`write_at`](super::OwnedMemoryRegion::write_at).
    #[error(
        "a peer may change the memory at any moment, as it was registered with {0:?}: no reference to it can be given, use read_at and write_at"
    )]
    PeersMayWrite(AccessFlags),
    /// A peer may read the bytes at any moment, so that there can be no reference to write them by: copy them with
    /// [`write_at`](super::OwnedMemoryRegion::write_at).
    #[error(
        "a peer may read the memory at any moment, as it was registered with {0:?}: no mutable reference to it can be given, use write_at"
    )]
    PeersMayRead(AccessFlags),
}
