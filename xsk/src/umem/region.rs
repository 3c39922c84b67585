//! The memory of a UMEM; determines when it is unmapped.
//!
//! Frames contain a pointer to the region, and have no reference count. Instead, holders (handles, pools, rings) are
//! counted. Each holder counts the frames that it has handed out minus those it has taken over, and adds this number to
//! `outside` once, when it is dropped. When no holder is left, `outside` is exactly the number of frames that the
//! program still has, and the last of these frames unmaps the region.
//!
//! Frames in the kernel do not keep the memory mapped, because the kernel has pinned the pages and does not use the
//! mapping.

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use crate::sys::Mapping;

/// The lower 48 bits of an address in unaligned mode; the upper 16 are the offset of the data.
const BASE_BITS: u64 = (1 << 48) - 1;
/// End of the list of dropped frames.
const EMPTY: u32 = u32::MAX;
/// The value that replaces the list after the last holder was dropped.
const CLOSED: u32 = u32::MAX - 1;

/// Number and layout of the frames.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    pub(crate) count: u32,
    pub(crate) frame_size: u32,
    pub(crate) headroom: u32,
    pub(crate) is_unaligned: bool,
    pub(crate) has_metadata: bool,
    pub(crate) software_checksum: bool,
}

impl Geometry {
    /// Clears the offset of the data from an address.
    #[inline]
    pub(crate) fn start_mask(&self) -> u64 {
        if self.is_unaligned { BASE_BITS } else { !u64::from(self.frame_size - 1) }
    }

    /// The mask of the bits in an address that contain the offset of the data.
    #[inline]
    pub(crate) fn offset_shift(&self) -> u32 {
        if self.is_unaligned { 48 } else { 0 }
    }

    /// The highest start of a frame.
    #[inline]
    pub(crate) fn last_start(&self) -> u64 {
        u64::from(self.count - 1) * u64::from(self.frame_size)
    }
}

#[derive(Debug)]
pub(crate) struct Region {
    base: NonNull<u8>,
    geometry: Geometry,
    /// Clears the offset of the data from an address.
    start_mask: u64,
    mapping: Mapping,
    holders: AtomicU32,
    /// How many frames the program has, including those in pools, once all holders have added their numbers; until
    /// then, a partial sum modulo 2³².
    outside: AtomicU32,
    /// The first frame of the list of dropped frames. The first bytes of each frame in the list contain the start of
    /// the next one.
    dropped: AtomicU32,
    /// For each frame, whether the kernel has it.
    #[cfg(debug_assertions)]
    in_kernel: Box<[std::sync::atomic::AtomicBool]>,
}

// SAFETY: fields that are not atomic do not change after construction. The bytes of a frame are accessed only through
// its one `Frame`.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(crate) fn len(&self) -> usize {
        self.mapping.len()
    }

    #[inline]
    pub(crate) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    #[inline]
    pub(crate) fn start_mask(&self) -> u64 {
        self.start_mask
    }

    /// Records that a frame passes from the kernel to the program, or back. Debug builds detect a frame that the kernel
    /// returns twice.
    #[inline]
    pub(crate) fn pass(&self, addr: u64, to_kernel: bool) {
        #[cfg(debug_assertions)]
        {
            let start = addr & self.start_mask;
            let was_in_kernel = self.in_kernel[(start / u64::from(self.geometry.frame_size)) as usize]
                .swap(to_kernel, Ordering::Relaxed);
            assert!(was_in_kernel != to_kernel, "the frame at {start:#x} has two owners");
        }
        #[cfg(not(debug_assertions))]
        let _ = (addr, to_kernel);
    }

    /// Removes the list of dropped frames and passes each frame of it to `take`.
    pub(crate) fn drain(&self, take: impl FnMut(u64)) {
        if self.dropped.load(Ordering::Relaxed) != EMPTY {
            self.walk(self.dropped.swap(EMPTY, Ordering::Acquire), take);
        }
    }

    fn walk(&self, mut first: u32, mut take: impl FnMut(u64)) {
        while first != EMPTY && first != CLOSED {
            // SAFETY: the frame was in the list, which this thread has taken.
            let next = unsafe { self.link(first) }.load(Ordering::Relaxed);
            take(u64::from(first));
            first = next;
        }
    }

    /// The link to the next frame, in the first bytes of a dropped frame.
    ///
    /// # Safety
    ///
    /// `start` is the start of a frame that is being dropped, or in a list that the caller has taken.
    unsafe fn link(&self, start: u32) -> &AtomicU32 {
        // SAFETY: the frame lies within the mapping, starts at a multiple of 8, and no slice of its bytes exists.
        unsafe { self.base.add(start as usize).cast().as_ref() }
    }
}

/// Adds a dropped frame to the list; or, if no holder is left to take it, subtracts it from the count.
///
/// # Safety
///
/// The region exists, and the caller owns the frame and gives it up.
#[cold]
#[inline(never)]
pub(crate) unsafe fn put_back(region: NonNull<Region>, addr: u64) {
    // SAFETY: a frame keeps the region alive.
    let this = unsafe { region.as_ref() };
    let start = (addr & this.start_mask) as u32;
    // SAFETY: the frame is being dropped.
    let link = unsafe { this.link(start) };
    let mut first = this.dropped.load(Ordering::Relaxed);
    while first != CLOSED {
        link.store(first, Ordering::Relaxed);
        match this.dropped.compare_exchange_weak(first, start, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => first = now,
        }
    }
    // SAFETY: the frame is one of those that `outside` counts.
    unsafe { leave(region, 1) };
}

/// Subtracts frames from the final count; the last frame removes the region.
///
/// # Safety
///
/// No holder is left, and the caller no longer uses the frames or guards that it subtracts.
unsafe fn leave(region: NonNull<Region>, count: u32) {
    // SAFETY: the frames or guards that the caller gives up have kept the region alive until here.
    if unsafe { region.as_ref() }.outside.fetch_sub(count, Ordering::Release) == count {
        fence(Ordering::Acquire);
        // SAFETY: `Holder::new` has made the box; no holder and no frame is left.
        drop(unsafe { Box::from_raw(region.as_ptr()) });
    }
}

/// One counted user of a region: a handle, a pool or one side of a ring.
#[derive(Debug)]
pub(crate) struct Holder {
    region: NonNull<Region>,
    /// The number that the holder adds to `outside` when it is dropped: frames handed out minus frames taken over,
    /// modulo 2³².
    balance: u32,
}

// SAFETY: the region may be used from any thread.
unsafe impl Send for Holder {}
// SAFETY: as above; a shared reference gives no access to the balance.
unsafe impl Sync for Holder {}

impl Holder {
    /// The first holder. All frames count as outside; the first pool takes them over.
    pub(crate) fn new(mapping: Mapping, geometry: Geometry) -> Self {
        let region = Region {
            base: mapping.base(),
            geometry,
            start_mask: geometry.start_mask(),
            mapping,
            holders: AtomicU32::new(1),
            outside: AtomicU32::new(geometry.count),
            dropped: AtomicU32::new(EMPTY),
            #[cfg(debug_assertions)]
            in_kernel: (0..geometry.count).map(|_| false.into()).collect(),
        };
        Self { region: NonNull::from(Box::leak(Box::new(region))), balance: 0 }
    }

    #[inline]
    pub(crate) fn pointer(&self) -> NonNull<Region> {
        self.region
    }

    /// Adds the balance of a holder that is being dropped.
    pub(crate) fn settle(&mut self, balance: u32) {
        self.balance = balance;
    }
}

impl Deref for Holder {
    type Target = Region;

    #[inline]
    fn deref(&self) -> &Region {
        // SAFETY: a holder keeps the region.
        unsafe { self.region.as_ref() }
    }
}

impl Clone for Holder {
    fn clone(&self) -> Self {
        self.holders.fetch_add(1, Ordering::Relaxed);
        Self { region: self.region, balance: 0 }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.outside.fetch_add(self.balance, Ordering::Relaxed);
        if self.holders.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        // Counts one extra frame as a guard, so that a frame which another thread drops in the meantime is not the
        // last.
        self.outside.fetch_add(1, Ordering::Relaxed);
        let mut count = 1;
        self.walk(self.dropped.swap(CLOSED, Ordering::AcqRel), |_| count += 1);
        // SAFETY: this was the last holder, and it counts the dropped frames and the guard, which nothing uses any
        // more.
        unsafe { leave(self.region, count) };
    }
}
