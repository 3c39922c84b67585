//! Memory that may be used now.

use arrayvec::ArrayVec;

use crate::sys::guard::Guard;
use crate::wire::limits::MAX_SGE;

/// Where bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Memory of the process. It may be changed by others at any time, and so no reference to it is ever made.
    Host(*mut u8),
    /// Memory of a GPU, which the CUDA driver copies: an address of its, in the allocation of this number, by the way to it of
    /// that number.
    Device { address: u64, buffer: u32, card: u16 },
    /// Reads give zeros, and writes vanish.
    Null,
}

impl Place {
    /// The byte so many further.
    #[inline]
    pub(crate) fn offset(self, bytes: usize) -> Self {
        match self {
            Self::Host(start) => Self::Host(start.wrapping_add(bytes)),
            Self::Device { address, buffer, card } => {
                Self::Device { address: address.wrapping_add(bytes as u64), buffer, card }
            }
            Self::Null => Self::Null,
        }
    }
}

const _: () = assert!(size_of::<Place>() == 16, "each segment that is moved has one");

/// Memory that may be used now: checked, and held until this is dropped.
#[derive(Debug)]
pub(crate) struct Segment {
    place: Place,
    length: usize,
    /// None of memory of the NIC's own, and of no bytes at all.
    _guard: Option<Guard>,
}

// SAFETY: the memory is registered for any thread to use, and stays as long as this holds it; of what has no `Guard` the maker
// has promised the same.
unsafe impl Send for Segment {}
// SAFETY: as above; through a shared reference nothing of the segment itself changes.
unsafe impl Sync for Segment {}

/// The memory of a request, on the stack of who moves it.
pub(crate) type Segments = ArrayVec<Segment, { MAX_SGE as usize }>;

impl Segment {
    /// No bytes.
    pub(crate) const EMPTY: Self = Self { place: Place::Null, length: 0, _guard: None };

    /// Memory that is not registered, such as a buffer of the NIC's own.
    ///
    /// # Safety
    ///
    /// Until this is dropped, these bytes can be read and, where it is copied to, written by any thread; no reference to them
    /// is used that does not allow for it.
    pub(crate) unsafe fn of_raw(start: *mut u8, length: usize) -> Self {
        Self { place: Place::Host(start), length, _guard: None }
    }

    /// Memory that `guard` keeps in use.
    ///
    /// # Safety
    ///
    /// As [`of_raw`](Self::of_raw), for as long as `guard` is there.
    #[inline]
    pub(crate) unsafe fn guarded(place: Place, length: usize, guard: Guard) -> Self {
        Self { place, length, _guard: Some(guard) }
    }

    /// In bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Whether it begins at a multiple of eight, as atomics must.
    #[inline]
    pub(crate) fn is_aligned(&self) -> bool {
        match self.place {
            Place::Host(start) => start.addr().is_multiple_of(8),
            Place::Device { address, .. } => address.is_multiple_of(8),
            Place::Null => true,
        }
    }

    #[inline]
    pub(crate) fn place(&self) -> Place {
        self.place
    }
}

/// What tests make of memory.
#[cfg(test)]
impl Segment {
    /// Nothing: reads give zeros, and writes vanish.
    pub(crate) fn null(length: usize) -> Self {
        Self { place: Place::Null, length, _guard: None }
    }

    /// Keeps the first bytes, at most so many.
    pub(crate) fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }

    /// Leaves out the first bytes, at most so many.
    pub(crate) fn skip(&mut self, bytes: usize) {
        let bytes = self.length.min(bytes);
        self.place = self.place.offset(bytes);
        self.length -= bytes;
    }

    /// Splits off the first bytes: this keeps the rest. The memory is held until both are dropped.
    pub(crate) fn split_to(&mut self, bytes: usize) -> Self {
        let mut first = Self { place: self.place, length: self.length, _guard: self._guard.clone() };
        first.truncate(bytes);
        self.skip(bytes);
        first
    }
}
