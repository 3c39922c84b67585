//! Memory of a peer, as requests name it.

use sideway::ibverbs::memory_region::RemoteKey;

use crate::Error;

/// Memory of a peer: the first byte, the number of bytes, and the key. The peer gets it from
/// [`Exposed::remote`](super::Exposed::remote), and sends it by any means, for example as private data of the
/// connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    address: u64,
    length: u64,
    key: u32,
}

/// The first byte at the peer, and the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) address: u64,
    pub(crate) key: RemoteKey,
}

impl Remote {
    /// The number of bytes of [`to_bytes`](Self::to_bytes).
    pub const BYTES: usize = 20;

    /// Names `length` bytes at `address` of the peer's memory, with the key of its registration.
    pub fn new(address: u64, length: u64, key: RemoteKey) -> Self {
        Self { address, length, key: key.raw() }
    }

    /// Returns `length` bytes of this memory from `offset` on.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`]: the memory is smaller.
    pub fn slice(self, offset: usize, length: usize) -> Result<Self, Error> {
        let end = (offset as u64).checked_add(length as u64);
        if end.is_none_or(|end| end > self.length) {
            return Err(Error::OutOfRange { offset, length, size: self.len() });
        }
        Ok(Self { address: self.address.wrapping_add(offset as u64), length: length as u64, key: self.key })
    }

    /// Returns the number of bytes.
    pub fn len(self) -> usize {
        usize::try_from(self.length).unwrap_or(usize::MAX)
    }

    /// Whether the memory has no bytes.
    pub fn is_empty(self) -> bool {
        self.length == 0
    }

    /// Returns the address, the length and the key, in network byte order, for a message to the side that will use the
    /// memory.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.address.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.length.to_be_bytes());
        bytes[16..].copy_from_slice(&self.key.to_be_bytes());
        bytes
    }

    /// Reads what [`to_bytes`](Self::to_bytes) wrote. Every value is possible; the peer's device checks each request.
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, key @ ..] = *bytes;
        Self {
            address: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            length: u64::from_be_bytes([i, j, k, l, m, n, o, p]),
            key: u32::from_be_bytes(key),
        }
    }

    #[inline]
    pub(crate) fn target(self) -> Target {
        Target { address: self.address, key: RemoteKey::from_raw(self.key) }
    }

    /// Checks that a request of `length` bytes stays within the memory.
    #[inline]
    pub(crate) fn holds(self, length: usize) -> Result<Target, Error> {
        if length as u64 <= self.length {
            return Ok(self.target());
        }
        Err(Error::OutOfRange { offset: 0, length, size: self.len() })
    }

    /// Checks that an atomic operation is possible.
    #[inline]
    pub(crate) fn word(self) -> Result<Target, Error> {
        if self.length >= 8 && self.address.is_multiple_of(8) {
            return Ok(self.target());
        }
        Err(Error::Unaligned { address: self.address, length: self.len() })
    }
}

#[cfg(test)]
mod tests {
    use sideway::ibverbs::memory_region::RemoteKey;

    use super::Remote;
    use crate::Error;

    #[test]
    fn bytes_and_slices_name_the_same_memory() {
        let remote = Remote::new(u64::MAX - 99, 100, RemoteKey::from_raw(7));
        assert_eq!(Remote::from_bytes(&remote.to_bytes()), remote);
        let part = remote.slice(92, 8).expect("within the memory");
        assert_eq!((part.target().address, part.len()), (u64::MAX - 7, 8));
        assert!(part.word().is_ok());
        assert!(matches!(remote.slice(93, 8), Err(Error::OutOfRange { offset: 93, length: 8, size: 100 })));
        assert!(matches!(remote.slice(usize::MAX, 2), Err(Error::OutOfRange { .. })));
        assert!(matches!(remote.slice(1, 8).expect("within").word(), Err(Error::Unaligned { .. })));
    }
}
