//! The four rings in memory.

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use crate::ring::Ring;
use crate::sys::sync::{AtomicU32, Slots};
use crate::sys::{self, Errno, Mapping};

/// Mappings of a socket's rings.
#[derive(Debug, Default)]
pub(crate) struct Rings(Vec<Mapping>);

/// The offsets of a ring's parts within its mapping.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) producer: usize,
    pub(crate) consumer: usize,
    pub(crate) flags: usize,
    pub(crate) slots: usize,
}

impl Layout {
    fn from_kernel(offset: &libc::xdp_ring_offset) -> Self {
        let at = |offset: u64| offset as usize;
        let libc::xdp_ring_offset { producer, consumer, desc, flags } = *offset;
        Self { producer: at(producer), consumer: at(consumer), flags: at(flags), slots: at(desc) }
    }

    /// Reads the layouts of the RX, TX, fill and completion ring (`XDP_MMAP_OFFSETS`).
    pub(crate) fn read(fd: BorrowedFd<'_>) -> Result<[Self; 4], Errno> {
        // SAFETY: the struct has the kernel's layout, and its fields are integers, so any bytes are valid.
        let read = unsafe { sys::get_option::<libc::xdp_mmap_offsets>(fd, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS) };
        let (offsets, len) = read?;
        // A kernel before 5.4 returns a shorter struct, without flags.
        if len < size_of::<libc::xdp_mmap_offsets>() {
            return Err(libc::ENOSYS);
        }
        Ok([&offsets.rx, &offsets.tx, &offsets.fr, &offsets.cr].map(Self::from_kernel))
    }

    /// Bytes of a ring with this many entries.
    pub(crate) fn len<T>(&self, size: u32) -> usize {
        self.slots + size as usize * size_of::<T>()
    }
}

impl Rings {
    /// Keeps a mapping, and creates a ring in it.
    ///
    /// # Safety
    ///
    /// - The mapping has a ring of this layout with `size` entries of type `T`.
    /// - The ring is not used after `self` is dropped, and only once for its side.
    pub(crate) unsafe fn add<T: Copy>(&mut self, mapping: Mapping, layout: Layout, size: u32) -> Ring<T> {
        // SAFETY: the caller's duties are the same.
        unsafe { self.add_pair(mapping, layout, size) }.0
    }

    /// Keeps a mapping, and creates a ring for each of its sides.
    ///
    /// # Safety
    ///
    /// As for `add`, on both sides.
    pub(crate) unsafe fn add_pair<T: Copy>(
        &mut self,
        mapping: Mapping,
        layout: Layout,
        size: u32,
    ) -> (Ring<T>, Ring<T>) {
        debug_assert!(mapping.len() >= layout.len::<T>(size));
        let base = mapping.base();
        self.0.push(mapping);
        let side = || {
            // SAFETY: the caller ensures that the layout lies within the mapping and describes its contents.
            unsafe {
                let word = |offset: usize| -> NonNull<AtomicU32> { base.add(offset).cast() };
                let slots = Slots::new(base.add(layout.slots).cast().as_ptr());
                Ring::new(word(layout.producer), word(layout.consumer), word(layout.flags), slots, size)
            }
        };
        (side(), side())
    }
}
