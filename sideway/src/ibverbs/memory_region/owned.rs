//! A region with memory of its own, and why it does not give a range of it.

use std::ops::{Bound, RangeBounds};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use super::{LocalKey, MemoryRegion, RemoteKey, copy};
use crate::error::{Errno, VerbError};
use crate::ibverbs::AccessFlags;
use crate::ibverbs::work_request::ScatterGatherEntry;

/// Memory that is registered as long as it exists: pages of its own, all zero at first, which no other object of the program
/// is in. Made by [`create_mr_builder`](crate::ibverbs::protection_domain::ProtectionDomain::create_mr_builder).
///
/// Bytes are copied in and out. A reference to them is given only where nothing but requests of this side can reach
/// them; with the contract of [`setup_sge`](crate::ibverbs::work_request::SetScatterGatherEntry::setup_sge), which names
/// memory to such requests, that makes them ordinary memory while none is outstanding.
///
/// | registered with | [`read_at`](Self::read_at), [`write_at`](Self::write_at) | [`as_slice`](Self::as_slice) | [`as_mut_slice`](Self::as_mut_slice) |
/// |---|---|---|---|
/// | no flag, `LocalWrite` | yes | yes | yes |
/// | `RemoteRead` | yes | yes | no |
/// | `RemoteWrite`, `RemoteAtomic`, `MemoryWindowBind`, unknown flags | yes | no | no |
///
/// The pages are held by the [`MemoryRegion`] inside, which others may hold too ([`region`](Self::region)). They go when
/// the last of them has ended the registration, and stay for ever where that fails: a device never knows memory that is
/// used for something else. Children of `fork(2)` do not have the pages (`MADV_DONTFORK`).
#[derive(Debug)]
pub struct OwnedMemoryRegion {
    region: Arc<MemoryRegion>,
    first: NonNull<u8>,
    len: usize,
    access: AccessFlags,
}

// SAFETY: the pages belong to the region and to no thread. They are written through `&mut self` and read through `&self`.
unsafe impl Send for OwnedMemoryRegion {}
// SAFETY: as for Send.
unsafe impl Sync for OwnedMemoryRegion {}

impl OwnedMemoryRegion {
    /// The owner of the pages that `region` is of.
    ///
    /// # Safety
    ///
    /// `region` holds the `len` bytes at `first`, initialised and reached by nothing else of the program, until its
    /// registration has ended; it is registered with no more than `access`, at the address by which this process knows
    /// them; and nobody else holds it.
    pub(super) unsafe fn new(region: MemoryRegion, first: NonNull<u8>, len: usize, access: AccessFlags) -> Self {
        Self { region: Arc::new(region), first, len, access }
    }

    /// Copies bytes from `offset` to `bytes`, at any moment: what a peer, or a request of this side, writes meanwhile is seen
    /// or not, in any mixture.
    ///
    /// # Errors
    ///
    /// [`RegionAccessError::OutOfRange`].
    pub fn read_at(&self, offset: usize, bytes: &mut [u8]) -> Result<(), RegionAccessError> {
        let from = self.at(offset, bytes.len())?;
        // SAFETY: the range is within the pages, which are initialised (`new`) and mapped as long as the region. Of this
        // program only `write_at` and `as_mut_slice` write them, by `&mut self`; `bytes` is none of them, as a slice of them
        // that can be written borrows `self` mutably too.
        unsafe { copy::read(from, bytes) };
        Ok(())
    }

    /// Copies `bytes` to `offset`, at any moment: a peer, or a request of this side, that reads meanwhile sees old and new,
    /// in any mixture.
    ///
    /// # Errors
    ///
    /// [`RegionAccessError::OutOfRange`].
    pub fn write_at(&mut self, offset: usize, bytes: &[u8]) -> Result<(), RegionAccessError> {
        let to = self.at(offset, bytes.len())?;
        // SAFETY: the range is within the pages, and `&mut self` says that nobody else in this program reads or writes
        // them, nor holds a slice of them: `bytes` is none of them.
        unsafe { copy::write(to, bytes) };
        Ok(())
    }

    /// All bytes, where no peer may write them.
    ///
    /// That no request of this side is outstanding which writes them is promised by who posted it
    /// ([`setup_sge`](crate::ibverbs::work_request::SetScatterGatherEntry::setup_sge)).
    ///
    /// # Errors
    ///
    /// [`RegionAccessError::PeersMayWrite`].
    pub fn as_slice(&self) -> Result<&[u8], RegionAccessError> {
        if self.access.peers_may_write() {
            return Err(RegionAccessError::PeersMayWrite(self.access));
        }
        // SAFETY: the bytes are initialised, mapped as long as the region, which `self` holds, and not written while `self`
        // is borrowed: not by this program, which needs `&mut self`; not by a peer, which has no leave to; not by a
        // request, by the contract under which its memory was named.
        Ok(unsafe { slice::from_raw_parts(self.first.as_ptr(), self.len) })
    }

    /// All bytes, where no peer may read or write them.
    ///
    /// That no request of this side is outstanding which reads or writes them is promised by who posted it.
    ///
    /// # Errors
    ///
    /// [`RegionAccessError::PeersMayWrite`], [`RegionAccessError::PeersMayRead`].
    pub fn as_mut_slice(&mut self) -> Result<&mut [u8], RegionAccessError> {
        if self.access.peers_may_write() {
            return Err(RegionAccessError::PeersMayWrite(self.access));
        }
        if self.access.peers_may_read() {
            return Err(RegionAccessError::PeersMayRead(self.access));
        }
        // SAFETY: as in `as_slice`, and nobody reads them either.
        Ok(unsafe { slice::from_raw_parts_mut(self.first.as_ptr(), self.len) })
    }

    /// The first byte, for unsafe code with other ways to share the memory: atomics, rings, a peer's flags.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.first.as_ptr()
    }

    /// The address of the first byte, by which requests of both sides name it.
    #[inline]
    pub fn addr(&self) -> u64 {
        self.first.as_ptr() as u64
    }

    /// Bytes.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "there is at least a byte")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The key for requests of this side.
    #[inline]
    pub fn lkey(&self) -> LocalKey {
        self.region.lkey()
    }

    /// The key for requests of the peer.
    #[inline]
    pub fn rkey(&self) -> RemoteKey {
        self.region.rkey()
    }

    /// What the memory is registered for.
    pub fn access(&self) -> AccessFlags {
        self.access
    }

    /// The registration. A clone of it keeps the memory registered, and mapped, after `self` has gone.
    pub fn region(&self) -> &Arc<MemoryRegion> {
        &self.region
    }

    /// An entry of a list that names `range` of the bytes: `region.sge(..)`, `region.sge(64..128)`.
    ///
    /// # Errors
    ///
    /// [`RegionAccessError::OutOfRange`], [`RegionAccessError::EntryTooLong`].
    #[inline]
    pub fn sge(&self, range: impl RangeBounds<usize>) -> Result<ScatterGatherEntry, RegionAccessError> {
        let (offset, length) = self.resolve(range)?;
        let entry = u32::try_from(length).map_err(|_| RegionAccessError::EntryTooLong { length })?;
        Ok(ScatterGatherEntry::new(self.lkey(), self.addr() + offset as u64, entry))
    }

    /// Ends the registration, gives the memory back and reports, where dropping only logs.
    ///
    /// # Errors
    ///
    /// - `EBUSY`: somebody else holds the [`region`](Self::region); it ends when he lets it go.
    /// - else as [`MemoryRegion::close`]: the registration and the memory are leaked then.
    pub fn close(self) -> Result<(), VerbError> {
        match Arc::into_inner(self.region) {
            Some(region) => region.close(),
            None => Err(VerbError::new("ibv_dereg_mr", Errno::EBUSY)
                .with_hint("a clone of the region is held elsewhere; the registration ends when that is dropped")),
        }
    }

    /// The byte at `offset`, where `length` bytes from there are within.
    #[inline]
    fn at(&self, offset: usize, length: usize) -> Result<*mut u8, RegionAccessError> {
        if offset.checked_add(length).is_none_or(|end| end > self.len) {
            return Err(RegionAccessError::OutOfRange { offset, length, region: self.len });
        }
        Ok(self.first.as_ptr().wrapping_add(offset))
    }

    /// Where a range begins, and its bytes.
    #[inline]
    fn resolve(&self, range: impl RangeBounds<usize>) -> Result<(usize, usize), RegionAccessError> {
        let start = match range.start_bound() {
            Bound::Included(&start) => Some(start),
            Bound::Excluded(&start) => start.checked_add(1),
            Bound::Unbounded => Some(0),
        };
        let end = match range.end_bound() {
            Bound::Included(&end) => end.checked_add(1),
            Bound::Excluded(&end) => Some(end),
            Bound::Unbounded => Some(self.len),
        };
        match (start, end) {
            (Some(start), Some(end)) if start <= end && end <= self.len => Ok((start, end - start)),
            (start, end) => {
                let (offset, end) = (start.unwrap_or(usize::MAX), end.unwrap_or(usize::MAX));
                Err(RegionAccessError::OutOfRange { offset, length: end.saturating_sub(offset), region: self.len })
            }
        }
    }
}

/// Why a range of an [`OwnedMemoryRegion`](super::OwnedMemoryRegion) was not given.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
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

crate::error::debug_is_text!(RegionAccessError);
