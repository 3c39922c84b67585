//! A region that owns its memory, and the errors of accessing it.

use std::ops::{Bound, RangeBounds};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use super::{LocalKey, MemoryRegion, RemoteKey, copy};
use crate::error::{Errno, VerbError};
use crate::ibverbs::AccessFlags;
use crate::ibverbs::work_request::ScatterGatherEntry;

/// A region that owns its memory: zeroed pages that contain no other object of the program, registered while it exists.
/// Created by [`create_mr_builder`](crate::ibverbs::protection_domain::ProtectionDomain::create_mr_builder).
///
/// Bytes are copied in and out. References are available only if no peer can access the bytes. The contract of
/// [`setup_sge`](crate::ibverbs::work_request::SetScatterGatherEntry::setup_sge) then excludes conflicts with local
/// requests.
///
/// | registered with | [`read_at`](Self::read_at), [`write_at`](Self::write_at) | [`as_slice`](Self::as_slice) | [`as_mut_slice`](Self::as_mut_slice) |
/// |---|---|---|---|
/// | no flag, `LocalWrite` | yes | yes | yes |
/// | `RemoteRead` | yes | yes | no |
/// | `RemoteWrite`, `RemoteAtomic`, `MemoryWindowBind`, unknown flags | yes | no | no |
///
/// The [`MemoryRegion`] inside keeps the pages, and can be shared ([`region`](Self::region)). The pages are freed when
/// its last owner ends the registration. If that fails they are leaked, so the device never accesses reused memory.
/// Children of `fork(2)` do not have the pages (`MADV_DONTFORK`).
#[derive(Debug)]
pub struct OwnedMemoryRegion {
    region: Arc<MemoryRegion>,
    first: NonNull<u8>,
    len: usize,
    access: AccessFlags,
}

// SAFETY: the pages belong to the region, not to a thread. `&mut self` is required to write the pages, and `&self` to
// read them.
unsafe impl Send for OwnedMemoryRegion {}
// SAFETY: as for Send.
unsafe impl Sync for OwnedMemoryRegion {}

impl OwnedMemoryRegion {
    /// Wraps `region` and its pages.
    ///
    /// # Safety
    ///
    /// `region` owns the `len` bytes at `first`, initialised and not accessed by other code, until its registration has
    /// ended. The region has no other owner, and is registered with at most the rights `access`, at the address of
    /// these bytes in this process.
    pub(super) unsafe fn new(region: MemoryRegion, first: NonNull<u8>, len: usize, access: AccessFlags) -> Self {
        Self { region: Arc::new(region), first, len, access }
    }

    /// Copies bytes from `offset` to `bytes`, at any time. Concurrent writes by a peer or a local request may be
    /// visible in part.
    ///
    /// # Errors
    ///
    /// [`RegionAccessError::OutOfRange`].
    pub fn read_at(&self, offset: usize, bytes: &mut [u8]) -> Result<(), RegionAccessError> {
        let from = self.at(offset, bytes.len())?;
        // SAFETY: the range is within the pages, which are initialised (`new`) and mapped as long as the region. In
        // this program only `write_at` and `as_mut_slice` write the pages, through `&mut self`. `bytes` does not
        // overlap the pages: a mutable slice of them would borrow `self` mutably.
        unsafe { copy::read(from, bytes) };
        Ok(())
    }

    /// Copies `bytes` to `offset`, at any time. A concurrent read by a peer or a local request may return a mixture of
    /// old and new bytes.
    ///
    /// # Errors
    ///
    /// [`RegionAccessError::OutOfRange`].
    pub fn write_at(&mut self, offset: usize, bytes: &[u8]) -> Result<(), RegionAccessError> {
        let to = self.at(offset, bytes.len())?;
        // SAFETY: the range is within the pages, and `&mut self` excludes other accesses and slices in this program:
        // `bytes` does not overlap them.
        unsafe { copy::write(to, bytes) };
        Ok(())
    }

    /// Returns all bytes, if no peer may write them.
    ///
    /// No outstanding local request may write them: the caller of
    /// [`setup_sge`](crate::ibverbs::work_request::SetScatterGatherEntry::setup_sge) has ensured this.
    ///
    /// # Errors
    ///
    /// [`RegionAccessError::PeersMayWrite`].
    pub fn as_slice(&self) -> Result<&[u8], RegionAccessError> {
        if self.access.peers_may_write() {
            return Err(RegionAccessError::PeersMayWrite(self.access));
        }
        // SAFETY: the bytes are initialised, mapped as long as the region, which `self` owns, and not written while
        // `self` is borrowed: this program needs `&mut self`, peers lack the access right, and local requests are
        // excluded by the contract of `setup_sge`.
        Ok(unsafe { slice::from_raw_parts(self.first.as_ptr(), self.len) })
    }

    /// Returns all bytes, if no peer may read or write them.
    ///
    /// No outstanding local request may read or write them: the caller of `setup_sge` has ensured this.
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
        // SAFETY: as in `as_slice`, and nothing reads them either.
        Ok(unsafe { slice::from_raw_parts_mut(self.first.as_ptr(), self.len) })
    }

    /// Returns a pointer to the first byte, for unsafe code that shares the memory in other ways: atomics, rings, flags
    /// written by a peer.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.first.as_ptr()
    }

    /// Returns the address of the first byte in local and remote requests.
    #[inline]
    pub fn addr(&self) -> u64 {
        self.first.as_ptr() as u64
    }

    /// Returns the length in bytes.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "the length is at least one byte")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the key for local requests.
    #[inline]
    pub fn lkey(&self) -> LocalKey {
        self.region.lkey()
    }

    /// Returns the key for the peer's requests.
    #[inline]
    pub fn rkey(&self) -> RemoteKey {
        self.region.rkey()
    }

    /// Returns the access flags of the registration.
    pub fn access(&self) -> AccessFlags {
        self.access
    }

    /// Returns the registration. A clone keeps the memory registered and mapped after `self` was dropped.
    pub fn region(&self) -> &Arc<MemoryRegion> {
        &self.region
    }

    /// Creates a scatter/gather entry for `range`: `region.sge(..)`, `region.sge(64..128)`.
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

    /// Ends the registration, frees the memory and returns errors, which drop only logs.
    ///
    /// # Errors
    ///
    /// - `EBUSY`: the [`region`](Self::region) has another owner, which will end the registration.
    /// - Otherwise as for [`MemoryRegion::close`]: registration and memory are then leaked.
    pub fn close(self) -> Result<(), VerbError> {
        match Arc::into_inner(self.region) {
            Some(region) => region.close(),
            None => Err(VerbError::new("ibv_dereg_mr", Errno::EBUSY)
                .with_hint("another owner holds a clone of the region; drop all clones to end the registration")),
        }
    }

    /// Returns a pointer to `offset`, if `length` bytes from there are within the region.
    #[inline]
    fn at(&self, offset: usize, length: usize) -> Result<*mut u8, RegionAccessError> {
        if offset.checked_add(length).is_none_or(|end| end > self.len) {
            return Err(RegionAccessError::OutOfRange { offset, length, region: self.len });
        }
        Ok(self.first.as_ptr().wrapping_add(offset))
    }

    /// Returns the start and the length of a range.
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

/// A range of an [`OwnedMemoryRegion`](super::OwnedMemoryRegion) cannot be accessed.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegionAccessError {
    /// The range exceeds the region.
    #[error("{length} bytes at offset {offset} exceed the region of {region} bytes")]
    OutOfRange {
        /// The start of the range.
        offset: usize,
        /// The length of the range.
        length: usize,
        /// The length of the region.
        region: usize,
    },
    /// The range exceeds the length of one scatter/gather entry, 2^32 - 1 bytes.
    #[error("{length} bytes exceed the maximum of one scatter/gather entry, 4294967295; use several entries")]
    EntryTooLong {
        /// The length of the range.
        length: usize,
    },
    /// A peer may change the bytes at any time, so no reference to them can exist: copy them with
    /// [`read_at`](super::OwnedMemoryRegion::read_at) and [`write_at`](super::OwnedMemoryRegion::write_at).
    #[error(
        "cannot return a reference: peers may change the memory, which was registered with {0:?}; use read_at and \
        write_at"
    )]
    PeersMayWrite(AccessFlags),
    /// A peer may read the bytes at any time, so no mutable reference to them can exist: copy them with
    /// [`write_at`](super::OwnedMemoryRegion::write_at).
    #[error(
        "cannot return a mutable reference: peers may read the memory, which was registered with {0:?}; use write_at"
    )]
    PeersMayRead(AccessFlags),
}

crate::error::debug_is_text!(RegionAccessError);
