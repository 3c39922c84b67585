//! Memory that peers read and write.

use std::sync::Arc;

use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::memory_region::{OwnedMemoryRegion, RegionAccessError};
use sideway::ibverbs::protection_domain::ProtectionDomain;

use super::Remote;
use crate::Error;

/// What peers may do with [`Exposed`] memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Read.
    Read,
    /// Read, write, and, if the device supports them, atomic operations.
    ReadWrite,
}

/// Memory that peers read and write with the key in [`remote`](Self::remote), while this program copies bytes out of it
/// and into it. Dropping it ends the access of peers, and their later requests end their connections.
#[derive(Debug)]
pub struct Exposed {
    region: OwnedMemoryRegion,
}

impl Exposed {
    pub(crate) fn new(pd: &Arc<ProtectionDomain>, len: usize, rights: Rights, atomics: bool) -> Result<Self, Error> {
        let access = match rights {
            Rights::Read => AccessFlags::LocalWrite | AccessFlags::RemoteRead,
            Rights::ReadWrite if atomics => {
                AccessFlags::LocalWrite | AccessFlags::RemoteRead | AccessFlags::RemoteWrite | AccessFlags::RemoteAtomic
            }
            Rights::ReadWrite => AccessFlags::LocalWrite | AccessFlags::RemoteRead | AccessFlags::RemoteWrite,
        };
        Ok(Self { region: pd.reg_owned_mr(len, access)? })
    }

    /// Returns what a peer needs to access all of the memory.
    pub fn remote(&self) -> Remote {
        Remote::new(self.region.addr(), self.region.len() as u64, self.region.rkey())
    }

    /// Copies the bytes at `offset` to `bytes`. Of what a peer writes at the same time, a part may be visible.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`]: the range exceeds the memory.
    pub fn read_at(&self, offset: usize, bytes: &mut [u8]) -> Result<(), Error> {
        self.region.read_at(offset, bytes).map_err(|error| self.out_of_range(&error, offset, bytes.len()))
    }

    /// Copies `bytes` to `offset`. A peer that reads at the same time may see a mixture of old and new bytes.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`]: the range exceeds the memory.
    pub fn write_at(&mut self, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        let written = self.region.write_at(offset, bytes);
        written.map_err(|error| self.out_of_range(&error, offset, bytes.len()))
    }

    /// Returns the number of bytes, which is at least one.
    #[expect(clippy::len_without_is_empty, reason = "the length is at least one byte")]
    pub fn len(&self) -> usize {
        self.region.len()
    }

    fn out_of_range(&self, _: &RegionAccessError, offset: usize, length: usize) -> Error {
        Error::OutOfRange { offset, length, size: self.region.len() }
    }
}
