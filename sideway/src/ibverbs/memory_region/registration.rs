//! The attributes of a registration that the C object does not store.

use std::sync::Arc;

use super::pages::Pages;
use crate::ibverbs::AccessFlags;
use crate::ibverbs::device_memory::DeviceMemory;
use crate::ibverbs::dma_handle::DmaHandle;
use crate::ibverbs::provider_buffer::ProviderBuffer;

/// The registered range, in the addresses that requests use, and the access flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Registration {
    /// The address of the first byte in requests, if C provides it.
    pub(crate) iova: Option<u64>,
    /// The length in bytes.
    pub(crate) len: usize,
    /// The access flags, or `None` if unknown.
    pub(crate) access: Option<AccessFlags>,
}

impl Registration {
    /// The registration of a region that other code registered.
    pub(crate) const UNKNOWN: Self = Self { iova: None, len: 0, access: None };

    /// Creates the record of a registration of `len` bytes that starts at `iova`. With
    /// [`ZeroBased`](AccessFlags::ZeroBased), addresses start at 0 instead.
    pub(crate) fn new(iova: u64, len: usize, access: AccessFlags) -> Self {
        Self { iova: (!access.contains(AccessFlags::ZeroBased)).then_some(iova), len, access: Some(access) }
    }

    /// Returns the registration after a change. `None` leaves an attribute unchanged.
    pub(crate) fn changed(self, range: Option<(u64, usize)>, access: Option<AccessFlags>) -> Self {
        // The addresses of a registration continue to start at 0 unless its access changes.
        let zero_based = access.map_or(self.iova.is_none(), |access| access.contains(AccessFlags::ZeroBased));
        let (iova, len) = range.map_or((self.iova, self.len), |(iova, len)| (Some(iova), len));
        Self { iova: iova.filter(|_| !zero_based), len, access: access.or(self.access) }
    }

    /// Returns the registration after a change that failed halfway. Its access flags are then unknown.
    pub(crate) fn broken(self) -> Self {
        Self { len: 0, access: None, ..self }
    }

    /// Returns the reason why no window with this access can be bound to `length` bytes at `addr`, if there is one. Not
    /// every driver checks this. On mlx5, a window would have the rights of the local key, regardless of the access
    /// flags with which the region was registered.
    #[inline]
    pub(crate) fn refuses_window(&self, addr: u64, length: u64, access: AccessFlags) -> Option<&'static str> {
        let Some(registered) = self.access else {
            return Some("the region's access flags are unknown, because other code registered it; bind windows there");
        };
        if !registered.contains(AccessFlags::MemoryWindowBind) {
            return Some(
                "the region was registered without MemoryWindowBind; add it to the access flags of the registration",
            );
        }
        if access.peers_may_write() && !registered.contains(AccessFlags::LocalWrite) {
            return Some(
                "a window with RemoteWrite or RemoteAtomic needs a region with LocalWrite; add it to the \
                access flags of the registration",
            );
        }
        let first = match self.iova {
            Some(iova) => Some(iova),
            None => registered.contains(AccessFlags::ZeroBased).then_some(0),
        };
        let offset = first.and_then(|first| addr.checked_sub(first));
        if offset.and_then(|offset| offset.checked_add(length)).is_none_or(|end| end > self.len as u64) {
            return Some("the range exceeds the region, whose first byte is at MemoryRegion::iova");
        }
        None
    }
}

/// Objects that the device accesses through a region, or that it needs to access the region. They are freed only after
/// the registration has ended.
#[derive(Debug)]
#[expect(dead_code, reason = "held until its drop")]
pub(crate) enum Backing {
    /// The null region has no memory.
    Null,
    /// Pages that the region owns.
    Pages(Pages),
    /// Device memory.
    DeviceMemory(Arc<DeviceMemory>),
    /// A buffer allocated by the driver.
    Buffer(Arc<ProviderBuffer>),
    /// The caller's memory, accessed through a DMA handle.
    DmaHandle(Arc<DmaHandle>),
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: AccessFlags = AccessFlags::RemoteRead;
    const BIND: AccessFlags = AccessFlags::MemoryWindowBind;
    const WRITE_AND_BIND: AccessFlags = AccessFlags::LocalWrite.union(BIND);

    #[test]
    fn window_range_must_be_inside_region() {
        for (iova, access, first) in [
            (0x1000, BIND, 0x1000),
            (0x1000, BIND | AccessFlags::ZeroBased, 0),
            (u64::MAX - 64, BIND, u64::MAX - 64),
            (0, BIND, 0),
        ] {
            let region = Registration::new(iova, 64, access);
            for (offset, length, fits) in [
                (0, 64, true),
                (0, 65, false),
                (1, 64, false),
                (63, 1, true),
                (64, 0, true),
                (64, 1, false),
                (0, u64::MAX, false),
                (u64::MAX, 1, false),
            ] {
                let refused = region.refuses_window(u64::wrapping_add(first, offset), length, READ);
                assert_eq!(refused.is_none(), fits, "{offset} {length} of {region:?}: {refused:?}");
            }
        }
        let all = Registration::new(0, usize::MAX, BIND);
        assert_eq!(all.refuses_window(usize::MAX as u64 - 1, 1, READ), None);
    }

    #[test]
    fn region_without_known_address_has_no_windows() {
        let region = Registration::new(0, 64, BIND | AccessFlags::ZeroBased).changed(None, Some(BIND));
        assert!(region.refuses_window(0, 1, READ).is_some());
        assert!(Registration::UNKNOWN.refuses_window(0, 0, READ).is_some());
    }

    #[test]
    fn window_needs_bind_flag_and_local_write_for_remote_writes() {
        for (region, window, refused) in [
            (AccessFlags::LocalWrite | AccessFlags::RemoteWrite, READ, Some("without MemoryWindowBind")),
            (BIND, READ, None),
            (BIND, AccessFlags::ZeroBased, None),
            (BIND, AccessFlags::RemoteWrite, Some("LocalWrite")),
            (BIND, AccessFlags::RemoteAtomic, Some("LocalWrite")),
            (BIND, AccessFlags::from_bits_retain(1 << 30), Some("LocalWrite")),
            (WRITE_AND_BIND, AccessFlags::RemoteWrite | AccessFlags::RemoteAtomic, None),
        ] {
            let text = Registration::new(0, 64, region).refuses_window(0, 64, window);
            assert_eq!(text.is_some(), refused.is_some(), "{region:?} {window:?}: {text:?}");
            assert!(text.unwrap_or_default().contains(refused.unwrap_or_default()), "{text:?}");
        }
    }
}
