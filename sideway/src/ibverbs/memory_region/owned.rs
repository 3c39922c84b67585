//! A region that owns its memory, and the errors of accessing it.

use std::ops::{Bound, RangeBounds};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use super::{LocalKey, MemoryRegion, RemoteKey, ScatterGatherEntry, copy};
use crate::error::{Errno, VerbError};
use crate::ibverbs::AccessFlags;

/// A region that owns its memory. The memory consists of pages that are initially zero and contain no other object of
/// the program. It is registered as long as the region exists. Create such a region with
/// [`create_mr_builder`](crate::ibverbs::protection_domain::ProtectionDomain::create_mr_builder).
///
/// [`read_at`](Self::read_at) and [`write_at`](Self::write_at) copy bytes out of and into the memory. References to the
/// bytes are available only if no peer can access the bytes in conflict with them, as the table shows. The contract of
/// [`setup_sge`](crate::ibverbs::work_request::SetScatterGatherEntry::setup_sge) excludes conflicts with local
/// requests.
///
/// | registered with | [`read_at`](Self::read_at), [`write_at`](Self::write_at) | [`as_slice`](Self::as_slice) | [`as_mut_slice`](Self::as_mut_slice) |
/// |---|---|---|---|
/// | no flag, `LocalWrite` | yes | yes | yes |
/// | `RemoteRead` | yes | yes | no |
/// | `RemoteWrite`, `RemoteAtomic`, `MemoryWindowBind`, unknown flags | yes | no | no |
///
/// The [`MemoryRegion`] inside owns the pages, and can be shared ([`region`](Self::region)). The pages are freed when
/// the last owner of the [`MemoryRegion`] ends the registration. If ending it fails, the pages are leaked, so the
/// device never accesses memory that is used for another purpose. Children of `fork(2)` do not have the pages
/// (`MADV_DONTFORK`).
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
// SAFETY: the reasons given for `Send` apply.
unsafe impl Sync for OwnedMemoryRegion {}

impl OwnedMemoryRegion {
    /// Wraps `region` and its pages.
    ///
    /// # Safety
    ///
    /// `region` owns the `len` bytes at `first` until its registration has ended. These bytes are initialised, and no
    /// other code accesses them. The region has no other owner. It is registered with at most the rights `access`, at
    /// the address of these bytes in this process.
    pub(super) unsafe fn new(region: MemoryRegion, first: NonNull<u8>, len: usize, access: AccessFlags) -> Self {
        Self { region: Arc::new(region), first, len, access }
    }

    /// Copies the bytes at `offset` to `bytes`. This is permitted at any time. Concurrent writes by a peer or a local
    /// request may be partly visible.
    ///
    /// # Errors
    ///
    /// Returns [`RegionAccessError::OutOfRange`] if the range exceeds the region.
    pub fn read_at(&self, offset: usize, bytes: &mut [u8]) -> Result<(), RegionAccessError> {
        let from = self.at(offset, bytes.len())?;
        // SAFETY: the range is within the pages, which are initialised (`new`) and stay mapped as long as the region
        // lives. In this program only `write_at` and `as_mut_slice` write to the pages, through `&mut self`. `bytes`
        // does not overlap the pages, because a mutable slice of them would borrow `self` mutably.
        unsafe { copy::read(from, bytes) };
        Ok(())
    }

    /// Copies `bytes` to `offset`. This is permitted at any time. A concurrent read by a peer or a local request may
    /// return a mixture of old and new bytes.
    ///
    /// # Errors
    ///
    /// Returns [`RegionAccessError::OutOfRange`] if the range exceeds the region.
    pub fn write_at(&mut self, offset: usize, bytes: &[u8]) -> Result<(), RegionAccessError> {
        let to = self.at(offset, bytes.len())?;
        // SAFETY: the range is within the pages. `&mut self` excludes other accesses and slices of the pages in this
        // program, so `bytes` does not overlap them.
        unsafe { copy::write(to, bytes) };
        Ok(())
    }

    /// Returns all bytes, if no peer is permitted to write them.
    ///
    /// No outstanding local request can write them either, because the caller of
    /// [`setup_sge`](crate::ibverbs::work_request::SetScatterGatherEntry::setup_sge) has ensured this.
    ///
    /// # Errors
    ///
    /// Returns [`RegionAccessError::PeersMayWrite`] if peers may write the bytes.
    pub fn as_slice(&self) -> Result<&[u8], RegionAccessError> {
        if self.access.peers_may_write() {
            return Err(RegionAccessError::PeersMayWrite(self.access));
        }
        // SAFETY: the bytes are initialised, and stay mapped as long as the region lives, which `self` owns. They are
        // not written while `self` is borrowed: code in this program needs `&mut self`, peers lack the access right,
        // and the contract of `setup_sge` excludes local requests.
        Ok(unsafe { slice::from_raw_parts(self.first.as_ptr(), self.len) })
    }

    /// Returns all bytes, if no peer is permitted to read or write them.
    ///
    /// No outstanding local request can read or write them either, because the caller of `setup_sge` has ensured this.
    ///
    /// # Errors
    ///
    /// Returns [`RegionAccessError::PeersMayWrite`] or [`RegionAccessError::PeersMayRead`] if peers may access the
    /// bytes.
    pub fn as_mut_slice(&mut self) -> Result<&mut [u8], RegionAccessError> {
        if self.access.peers_may_write() {
            return Err(RegionAccessError::PeersMayWrite(self.access));
        }
        if self.access.peers_may_read() {
            return Err(RegionAccessError::PeersMayRead(self.access));
        }
        // SAFETY: as in `as_slice`; in addition, no peer or local request reads the bytes.
        Ok(unsafe { slice::from_raw_parts_mut(self.first.as_ptr(), self.len) })
    }

    /// Returns a pointer to the first byte. It is meant for unsafe code that shares the memory in other ways, such as
    /// with atomics, with rings, or with flags that a peer writes.
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

    /// Returns the registration. A clone of it keeps the memory registered and mapped after `self` was dropped.
    pub fn region(&self) -> &Arc<MemoryRegion> {
        &self.region
    }

    /// Creates a scatter/gather entry for `range`, for example with `region.sge(..)` or `region.sge(64..128)`.
    ///
    /// # Errors
    ///
    /// Returns [`RegionAccessError::OutOfRange`] or [`RegionAccessError::EntryTooLong`].
    #[inline]
    pub fn sge(&self, range: impl RangeBounds<usize>) -> Result<ScatterGatherEntry, RegionAccessError> {
        let (offset, length) = self.resolve(range)?;
        let entry = u32::try_from(length).map_err(|_| RegionAccessError::EntryTooLong { length })?;
        Ok(ScatterGatherEntry::new(self.lkey(), self.addr() + offset as u64, entry))
    }

    /// Ends the registration and frees the memory. This method returns an error, whereas drop only logs it.
    ///
    /// # Errors
    ///
    /// - `EBUSY`: the [`region`](Self::region) has another owner, which will end the registration.
    /// - Otherwise the errors of [`MemoryRegion::close`]. The registration and the memory are then leaked.
    pub fn close(self) -> Result<(), VerbError> {
        match Arc::into_inner(self.region) {
            Some(region) => region.close(),
            None => Err(VerbError::new("ibv_dereg_mr", Errno::EBUSY)
                .with_hint("another owner holds a clone of the region; drop all clones to end the registration")),
        }
    }

    /// Returns a pointer to the byte at `offset`, if `length` bytes starting there are within the region.
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

/// The error of an access to a range of an [`OwnedMemoryRegion`](super::OwnedMemoryRegion).
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
    /// A peer may change the bytes at any time, so no reference to them can exist. Copy them instead, with
    /// [`read_at`](super::OwnedMemoryRegion::read_at) and [`write_at`](super::OwnedMemoryRegion::write_at).
    #[error(
        "cannot return a reference: peers may change the memory, which was registered with {0:?}; use read_at and \
        write_at"
    )]
    PeersMayWrite(AccessFlags),
    /// A peer may read the bytes at any time, so no mutable reference to them can exist. Copy them instead, with
    /// [`write_at`](super::OwnedMemoryRegion::write_at).
    #[error(
        "cannot return a mutable reference: peers may read the memory, which was registered with {0:?}; use write_at"
    )]
    PeersMayRead(AccessFlags),
}

crate::error::debug_is_text!(RegionAccessError);
