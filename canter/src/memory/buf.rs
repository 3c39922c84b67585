//! A buffer of a pool.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::slice;

use sideway::ibverbs::memory_region::LocalKey;

use super::pool::Memory;
use crate::Error;

/// A buffer of a [`Pool`](super::Pool). A request takes it, and returns it when it has completed. Dropping it returns it
/// to its pool.
///
/// It dereferences to the bytes of its length, which requests send and fill.
pub struct Buf {
    memory: Rc<Memory>,
    slot: u32,
    len: u32,
}

impl Buf {
    /// The caller ensures that no other buffer has the slot.
    #[inline]
    pub(super) fn new(memory: Rc<Memory>, slot: u32) -> Self {
        // A pool refuses larger sizes.
        let len = memory.size as u32;
        Self { memory, slot, len }
    }

    /// Copies `bytes` to the start, and sets the length to theirs.
    ///
    /// # Errors
    ///
    /// [`Error::TooLong`]: there are more bytes than the capacity. The buffer is unchanged.
    #[inline]
    pub fn fill(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.set_len(bytes.len())?;
        self.copy_from_slice(bytes);
        Ok(())
    }

    /// Sets the length. Bytes beyond the earlier length are those of an earlier use.
    ///
    /// # Errors
    ///
    /// [`Error::TooLong`]: the length exceeds the capacity. The buffer is unchanged.
    #[inline]
    pub fn set_len(&mut self, len: usize) -> Result<(), Error> {
        if len > self.memory.size {
            return Err(Error::TooLong { length: len, capacity: self.memory.size });
        }
        self.len = len as u32;
        Ok(())
    }

    /// Returns the largest length.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.memory.size
    }

    #[inline]
    pub(crate) fn slot(&self) -> u32 {
        self.slot
    }

    #[inline]
    pub(crate) fn core(&self) -> u64 {
        self.memory.core
    }

    #[inline]
    pub(crate) fn length(&self) -> u32 {
        self.len
    }

    #[inline]
    fn offset(&self) -> usize {
        self.slot as usize * self.memory.stride
    }

    /// The key and address for requests that read the bytes, and for receives.
    #[inline]
    pub(crate) fn own(&self) -> (LocalKey, u64) {
        let (key, first) = self.memory.own;
        (key, first + self.offset() as u64)
    }

    /// The key and address for requests whose answer is written to the buffer.
    #[inline]
    pub(crate) fn landing(&self) -> (LocalKey, u64) {
        let (key, first) = self.memory.landed;
        (key, first + self.offset() as u64)
    }

    /// Whether requests write to other memory than that of the buffer.
    #[inline]
    pub(crate) fn lands_elsewhere(&self) -> bool {
        self.memory.landing.is_some()
    }

    /// Takes over what a request wrote to [`landing`](Self::landing).
    #[inline]
    pub(crate) fn land(&mut self) {
        if self.lands_elsewhere() {
            let (memory, offset) = (Rc::clone(&self.memory), self.offset());
            // The landing has the size of the region, so the range is within it.
            let _ = memory.landing.as_ref().map(|landing| landing.read_at(offset, self));
        }
    }
}

impl Deref for Buf {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        let first = self.memory.region.as_ptr().wrapping_add(self.offset());
        // SAFETY: the bytes are a slot of the region, which `memory` keeps mapped, and they were zero at first. No other
        // buffer has the slot. Peers have no access to the region. No request writes or reads the bytes: a request owns
        // its buffer until it has completed or its queue has been destroyed, and no code dereferences it meanwhile.
        unsafe { slice::from_raw_parts(first, self.len as usize) }
    }
}

impl DerefMut for Buf {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        let first = self.memory.region.as_ptr().wrapping_add(self.offset());
        // SAFETY: as in `deref`; `&mut self` excludes other references.
        unsafe { slice::from_raw_parts_mut(first, self.len as usize) }
    }
}

impl AsRef<[u8]> for Buf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Buf {
    #[inline]
    fn drop(&mut self) {
        self.memory.put(self.slot);
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buf")
            .field("slot", &self.slot)
            .field("len", &self.len)
            .field("capacity", &self.memory.size)
            .finish()
    }
}
