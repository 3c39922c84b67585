//! The memory that a request uses.

use arrayvec::ArrayVec;

use crate::sys::guard::Guard;
use crate::wire::limits::MAX_SGE;

/// Where the bytes of a segment are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Memory of the process. Other threads and processes may change this memory at any time, so no reference to it is
    /// created.
    Host(*mut u8),
    /// GPU memory, which the CUDA driver copies. It has a device address, the ID of its allocation, and the number of
    /// its card.
    Device { address: u64, buffer: u32, card: u16 },
    /// Reads return zeros, writes are discarded.
    Null,
}

impl Place {
    /// Returns the location that is `bytes` bytes after this one.
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

const _: () = assert!(size_of::<Place>() == 16, "each segment contains a `Place`");

/// Memory that has passed all checks. It stays in use until the segment is dropped.
#[derive(Debug)]
pub(crate) struct Segment {
    place: Place,
    length: usize,
    /// The guard that keeps the memory in use. It is `None` for the device's own memory and for empty segments.
    _guard: Option<Guard>,
}

// SAFETY: the memory is registered for use by any thread, and the guard keeps it registered. Without a guard, the
// creator guarantees the same.
unsafe impl Send for Segment {}
// SAFETY: as above; a shared reference does not change the segment.
unsafe impl Sync for Segment {}

/// The memory of a request. This list is on the stack of the thread that copies the memory.
pub(crate) type Segments = ArrayVec<Segment, { MAX_SGE as usize }>;

impl Segment {
    /// An empty segment.
    pub(crate) const EMPTY: Self = Self { place: Place::Null, length: 0, _guard: None };

    /// Creates a segment of unregistered memory, such as a buffer of the device.
    ///
    /// # Safety
    ///
    /// Until the segment is dropped, any thread can read these bytes and, if they are a target, write them. No
    /// reference is in use that excludes such accesses.
    pub(crate) unsafe fn of_raw(start: *mut u8, length: usize) -> Self {
        Self { place: Place::Host(start), length, _guard: None }
    }

    /// Creates a segment of memory that `guard` keeps in use.
    ///
    /// # Safety
    ///
    /// As for [`of_raw`](Self::of_raw), for the lifetime of `guard`.
    #[inline]
    pub(crate) unsafe fn guarded(place: Place, length: usize, guard: Guard) -> Self {
        Self { place, length, _guard: Some(guard) }
    }

    /// The length in bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Whether the segment starts at a multiple of eight, as atomics require.
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

/// Functions for tests.
#[cfg(test)]
impl Segment {
    /// Reads return zeros, writes are discarded.
    pub(crate) fn null(length: usize) -> Self {
        Self { place: Place::Null, length, _guard: None }
    }

    /// Keeps at most the first `length` bytes.
    pub(crate) fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }

    /// Skips at most the first `bytes` bytes.
    pub(crate) fn skip(&mut self, bytes: usize) {
        let bytes = self.length.min(bytes);
        self.place = self.place.offset(bytes);
        self.length -= bytes;
    }

    /// Splits off and returns the first `bytes` bytes, so that `self` contains the rest. The memory stays in use until
    /// both segments are dropped.
    pub(crate) fn split_to(&mut self, bytes: usize) -> Self {
        let mut first = Self { place: self.place, length: self.length, _guard: self._guard.clone() };
        first.truncate(bytes);
        self.skip(bytes);
        first
    }
}

/// Calls `call` with a segment that contains the bytes of `payload`, or with no segment if there are no bytes.
pub(crate) fn with_segment<T>(payload: &[u8], call: impl FnOnce(&[Segment]) -> T) -> T {
    with_segments(&ArrayVec::<_, 1>::from_iter(Some(payload).filter(|payload| !payload.is_empty())), call)
}

/// Calls `call` with a segment for each payload.
pub(crate) fn with_segments<const N: usize, T>(payloads: &ArrayVec<&[u8], N>, call: impl FnOnce(&[Segment]) -> T) -> T {
    // SAFETY: the slices are alive during the call, and the receivers only read them.
    let segment = |payload: &&[u8]| unsafe { Segment::of_raw(payload.as_ptr().cast_mut(), payload.len()) };
    call(&payloads.iter().map(segment).collect::<ArrayVec<_, N>>())
}
