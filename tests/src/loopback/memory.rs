//! Memory of a side, for tests: an access out of bounds fails the test.

use std::ops::Deref;
use std::sync::Arc;

use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::memory_region::OwnedMemoryRegion;
use sideway::ibverbs::protection_domain::ProtectionDomain;

/// Registered memory.
#[derive(Debug)]
pub struct Memory(OwnedMemoryRegion);

impl Memory {
    /// `len` bytes, all zero.
    ///
    /// # Panics
    ///
    /// If the memory cannot be registered.
    #[track_caller]
    pub fn new(pd: &Arc<ProtectionDomain>, len: usize, access: AccessFlags) -> Self {
        Self(pd.reg_owned_mr(len, access).unwrap_or_else(|error| panic!("{error}")))
    }

    /// Copies bytes to `offset`.
    ///
    /// # Panics
    ///
    /// If the range is out of bounds.
    #[track_caller]
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.0.write_at(offset, bytes).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Copies bytes from `offset`.
    ///
    /// # Panics
    ///
    /// If the range is out of bounds.
    #[track_caller]
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        self.0.read_at(offset, bytes).unwrap_or_else(|error| panic!("{error}"));
    }
}

impl Deref for Memory {
    type Target = OwnedMemoryRegion;

    fn deref(&self) -> &OwnedMemoryRegion {
        &self.0
    }
}
