//! Keys to regions.

use std::io;

use crate::proto::Remote;

/// A key to bytes of a region. The peer of the connection on which the key was granted may read the bytes. If the key
/// is writable, the peer may also write them.
///
/// Send it to the peer as [bytes](Self::to_bytes), in a message or by any other means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionKey {
    pub(super) remote: Remote,
    pub(super) length: u64,
    pub(super) is_writable: bool,
}

impl RegionKey {
    /// Length of an encoded key, in bytes.
    pub const LENGTH: usize = 24;

    /// Returns the number of bytes to which the key gives access.
    #[expect(clippy::len_without_is_empty, reason = "the key's range is empty")]
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Whether the key allows writing.
    pub fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// Encodes the key. The result consists of the address (8 bytes), the length (8 bytes) and the key (4 bytes), all
    /// in little-endian order. A byte that is 1 if the key is writable follows, and then three zero bytes.
    pub fn to_bytes(&self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[..8].copy_from_slice(&self.remote.address.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.length.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.remote.key.to_le_bytes());
        bytes[20] = u8::from(self.is_writable);
        bytes
    }

    /// Builds a key from an address, a length and a number that were received in another format.
    pub fn from_parts(address: u64, length: u64, key: u32, is_writable: bool) -> Self {
        Self { remote: Remote { address, key }, length, is_writable }
    }

    /// Returns the address and the number of the key.
    pub fn parts(&self) -> (u64, u32) {
        (self.remote.address, self.remote.key)
    }

    /// Parses bytes that [`to_bytes`](Self::to_bytes) has returned. Returns `None` if they have another format.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (address, rest) = bytes.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let (key, rest) = rest.split_first_chunk()?;
        let &[is_writable @ (0 | 1), 0, 0, 0] = rest else { return None };
        let remote = Remote { address: u64::from_le_bytes(*address), key: u32::from_le_bytes(*key) };
        Some(Self { remote, length: u64::from_le_bytes(*length), is_writable: is_writable == 1 })
    }
}

pub(super) fn check_key(key: &RegionKey, offset: u64, length: usize, is_put: bool) -> io::Result<()> {
    let text = if is_put && !key.is_writable {
        "the key does not allow writing".to_owned()
    } else if offset.checked_add(length as u64).is_none_or(|end| end > key.length) {
        format!("{length} bytes at offset {offset} are not within the {} bytes of the key", key.length)
    } else {
        return Ok(());
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}
