//! Page sizes of memory.

use std::fmt;

/// The pages of an [`OwnedMemoryRegion`](super::OwnedMemoryRegion). With larger pages, the CPU and the device need
/// fewer entries in their translation tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum HugePages {
    /// Pages as the system provides them by default.
    #[default]
    System,
    /// Aligns the memory to 2 MiB and requests transparent huge pages (`madvise(MADV_HUGEPAGE)`). This is only a hint:
    /// if the system has no huge pages, it uses ordinary pages.
    #[doc(alias = "MADV_HUGEPAGE")]
    Transparent,
    /// Reserved huge pages of this size (`mmap(MAP_HUGETLB)`). If too few are free, allocation fails with `ENOMEM`.
    #[doc(alias = "MAP_HUGETLB")]
    Reserved(HugePageSize),
}

/// The size of a huge page: a power of two that the machine supports (`/sys/kernel/mm/hugepages`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HugePageSize {
    log2: u8,
}

impl HugePageSize {
    /// 64 KiB, on arm64.
    pub const KIB_64: Self = Self { log2: 16 };
    /// 2 MiB.
    pub const MIB_2: Self = Self { log2: 21 };
    /// 1 GiB.
    pub const GIB_1: Self = Self { log2: 30 };

    /// Creates a size of `bytes` bytes. Returns `None` if `bytes` is not a power of two from 4096 to 2^47.
    pub const fn from_bytes(bytes: usize) -> Option<Self> {
        if bytes.is_power_of_two() && bytes >= 4096 && bytes.ilog2() < 48 {
            Some(Self { log2: bytes.ilog2() as u8 })
        } else {
            None
        }
    }

    /// Returns the size in bytes.
    pub const fn bytes(self) -> usize {
        1 << self.log2
    }

    /// Returns the size as a flag of mmap(2).
    pub(super) fn map_flag(self) -> libc::c_int {
        libc::c_int::from(self.log2) << libc::MAP_HUGE_SHIFT
    }
}

impl fmt::Debug for HugePageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HugePageSize({self})")
    }
}

impl fmt::Display for HugePageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.log2 {
            30.. => write!(f, "{} GiB", self.bytes() >> 30),
            20.. => write!(f, "{} MiB", self.bytes() >> 20),
            _ => write!(f, "{} KiB", self.bytes() >> 10),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_two_and_print_with_unit() {
        for (bytes, text) in [(64 << 10, "64 KiB"), (2 << 20, "2 MiB"), (1 << 30, "1 GiB")] {
            let size = HugePageSize::from_bytes(bytes).unwrap();
            assert_eq!((size.bytes(), size.to_string().as_str()), (bytes, text));
        }
        assert_eq!(HugePageSize::from_bytes(2 << 20), Some(HugePageSize::MIB_2));
        for bytes in [0, 1, 2048, 3 << 20, usize::MAX] {
            assert_eq!(HugePageSize::from_bytes(bytes), None, "{bytes}");
        }
        #[cfg(target_pointer_width = "64")]
        assert_eq!(HugePageSize::from_bytes(1 << 48), None);
        assert_eq!(HugePageSize::MIB_2.map_flag(), libc::MAP_HUGE_2MB);
        assert_eq!(HugePageSize::GIB_1.map_flag(), libc::MAP_HUGE_1GB);
    }
}
