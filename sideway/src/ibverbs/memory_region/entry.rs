//! Ranges of registered memory.

use rdma_mummy_sys::ibv_sge;

use super::LocalKey;

/// `struct ibv_sge`: a range of registered memory.
#[doc(alias = "ibv_sge")]
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct ScatterGatherEntry(ibv_sge);

impl ScatterGatherEntry {
    /// Creates an entry of `length` bytes at `addr`, in the region of `lkey`.
    #[inline]
    pub const fn new(lkey: LocalKey, addr: u64, length: u32) -> Self {
        Self(ibv_sge { addr, length, lkey: lkey.raw() })
    }

    /// Returns the region's key.
    pub const fn lkey(&self) -> LocalKey {
        LocalKey::from_raw(self.0.lkey)
    }

    /// Returns the address of the first byte.
    pub const fn addr(&self) -> u64 {
        self.0.addr
    }

    /// Returns the length in bytes.
    pub const fn length(&self) -> u32 {
        self.0.length
    }

    #[inline]
    pub(crate) fn raw(self) -> ibv_sge {
        self.0
    }
}
