//! What a region was registered with: C does not keep it.

use std::sync::Arc;

use super::pages::Pages;
use crate::ibverbs::AccessFlags;
use crate::ibverbs::device_memory::DeviceMemory;
use crate::ibverbs::dma_handle::DmaHandle;
use crate::ibverbs::provider_buffer::ProviderBuffer;

/// What is registered, as requests name it, and what it allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Registration {
    /// The address by which requests name the first byte, where C tells.
    pub(crate) iova: Option<u64>,
    /// Bytes.
    pub(crate) len: usize,
    /// `None` where it is not known.
    pub(crate) access: Option<AccessFlags>,
}

impl Registration {
    /// That of a region which somebody else registered.
    pub(crate) const UNKNOWN: Self = Self { iova: None, len: 0, access: None };

    /// Of `len` bytes from `iova` on; with [`ZeroBased`](AccessFlags::ZeroBased) addresses count from the first byte instead.
    pub(crate) fn new(iova: u64, len: usize, access: AccessFlags) -> Self {
        Self { iova: (!access.contains(AccessFlags::ZeroBased)).then_some(iova), len, access: Some(access) }
    }

    /// What it is after a change; what is `None` stays.
    pub(crate) fn changed(self, range: Option<(u64, usize)>, access: Option<AccessFlags>) -> Self {
        // One whose addresses count from its start stays so unless its access changes.
        let zero_based = access.map_or(self.iova.is_none(), |access| access.contains(AccessFlags::ZeroBased));
        let (iova, len) = range.map_or((self.iova, self.len), |(iova, len)| (Some(iova), len));
        Self { iova: iova.filter(|_| !zero_based), len, access: access.or(self.access) }
    }

    /// What is left where a change failed halfway: nobody knows what the region allows.
    pub(crate) fn broken(self) -> Self {
        Self { len: 0, access: None, ..self }
    }

    /// Why no window with this access can be bound to `length` bytes at `addr`. Not every driver looks (mlx5): the rights of a
    /// window are then those of the local key, whatever the region was registered for.
    #[inline]
    pub(crate) fn refuses_window(&self, addr: u64, length: u64, access: AccessFlags) -> Option<&'static str> {
        let Some(registered) = self.access else {
            return Some("what the region allows is not known here: windows are bound by who registered it");
        };
        if !registered.contains(AccessFlags::MemoryWindowBind) {
            return Some(
                "the region was registered without MemoryWindowBind: add it to the access flags of the registration",
            );
        }
        if access.peers_may_write() && !registered.contains(AccessFlags::LocalWrite) {
            return Some("RemoteWrite and RemoteAtomic of a window need a region that was registered with LocalWrite");
        }
        let first = match self.iova {
            Some(iova) => Some(iova),
            None => registered.contains(AccessFlags::ZeroBased).then_some(0),
        };
        let offset = first.and_then(|first| addr.checked_sub(first));
        if offset.and_then(|offset| offset.checked_add(length)).is_none_or(|end| end > self.len as u64) {
            return Some("the range is not within the region, whose first byte is at MemoryRegion::iova");
        }
        None
    }
}

/// What the device reaches through a region, or needs for it; it goes only once the registration has ended.
#[derive(Debug)]
#[expect(dead_code, reason = "held for its drop")]
pub(crate) enum Backing {
    /// Nothing: the null region.
    Null,
    /// Pages of the region's own.
    Pages(Pages),
    /// Memory on the device.
    DeviceMemory(Arc<DeviceMemory>),
    /// Memory that the driver allocated.
    Buffer(Arc<ProviderBuffer>),
    /// The caller's memory, reached in a way of its own.
    DmaHandle(Arc<DmaHandle>),
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: AccessFlags = AccessFlags::RemoteRead;
    const BIND: AccessFlags = AccessFlags::MemoryWindowBind;
    const WRITE_AND_BIND: AccessFlags = AccessFlags::LocalWrite.union(BIND);

    #[test]
    fn a_window_is_within_its_region_to_the_last_byte() {
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
        assert_eq!(all.refuses_window(u64::MAX - 1, 1, READ), None);
    }

    #[test]
    fn one_whose_addresses_are_not_known_has_no_windows() {
        let region = Registration::new(0, 64, BIND | AccessFlags::ZeroBased).changed(None, Some(BIND));
        assert!(region.refuses_window(0, 1, READ).is_some());
        assert!(Registration::UNKNOWN.refuses_window(0, 0, READ).is_some());
    }

    #[test]
    fn a_window_takes_leave_to_bind_and_to_let_peers_write_leave_to_write() {
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
