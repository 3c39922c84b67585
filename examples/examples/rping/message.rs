//! What the two sides tell each other: 16 bytes, sent and received.
//!
//! ```text
//! client                                          server
//!   where the text is                   ───────►
//!                                       ◄═══════    reads it from there
//!                                       ◄───────    "go ahead": a message of which nothing matters
//!   where the text is to come back to   ───────►
//!                                       ═══════►    writes it there
//!                                       ◄───────    "go ahead"
//! ```

use std::fmt;

use anyhow::{Result, bail};
use sideway::ibverbs::memory_region::RemoteKey;

/// Bytes of a message.
pub(crate) const LENGTH: usize = 16;

/// A message, as it travels.
pub(crate) type Bytes = [u8; LENGTH];

/// A place in the client's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Of the first byte.
    pub(crate) addr: u64,
    /// By which it is reached.
    pub(crate) rkey: RemoteKey,
    /// Bytes.
    pub(crate) size: u32,
}

impl Place {
    /// Three numbers, each with its highest byte first.
    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = [0; LENGTH];
        let (addr, rest) = bytes.split_at_mut(8);
        let (rkey, size) = rest.split_at_mut(4);
        addr.copy_from_slice(&self.addr.to_be_bytes());
        rkey.copy_from_slice(&self.rkey.raw().to_be_bytes());
        size.copy_from_slice(&self.size.to_be_bytes());
        bytes
    }

    /// From a message of that form; any 16 bytes are one.
    pub(crate) fn decode(bytes: &Bytes) -> Self {
        let number = |range: std::ops::Range<usize>| {
            let bytes = bytes.get(range).unwrap_or_default();
            bytes.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
        };
        // The ranges of four bytes fit 32 bits.
        Self { addr: number(0..8), rkey: RemoteKey::from_raw(number(8..12) as u32), size: number(12..16) as u32 }
    }

    /// The bytes of the text that a client offers, which has to fit a server whose own texts have `most`.
    ///
    /// # Errors
    ///
    /// It does not, or is shorter than a text of this program is.
    pub(crate) fn text_size(&self, least: u32, most: u32) -> Result<u32> {
        match self.size {
            size if size > most => bail!(
                "the client's texts have {size} bytes, and this server takes {most} at most: give both sides the same -S"
            ),
            size if size < least => {
                bail!("the client offers {size} bytes, and the texts of an rping have {least} at least: is it one?")
            }
            size => Ok(size),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {:#x}, key {:#010x}", self.size, self.addr, self.rkey.raw())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place = Place { addr: 0x5582_28fc_a520, rkey: RemoteKey::from_raw(0xfedc_1300), size: 64 };

    #[test]
    fn what_is_told_is_understood() {
        let bytes = PLACE.encode();
        assert_eq!(bytes, *b"\0\0\x55\x82\x28\xfc\xa5\x20\xfe\xdc\x13\0\0\0\0\x40");
        assert_eq!(Place::decode(&bytes), PLACE);
        assert_eq!(PLACE.to_string(), "64 bytes at 0x558228fca520, key 0xfedc1300");
        let all = Place::decode(&[0xff; LENGTH]);
        assert_eq!(all, Place { addr: u64::MAX, rkey: RemoteKey::from_raw(u32::MAX), size: u32::MAX });
        assert_eq!(all.encode(), [0xff; LENGTH]);
    }

    #[test]
    fn a_text_that_does_not_fit_is_refused() {
        let of = |size| Place { size, ..PLACE }.text_size(23, 64);
        assert_eq!(of(23).unwrap(), 23);
        assert_eq!(of(64).unwrap(), 64);
        for (size, words) in
            [(65, "65 bytes, and this server takes 64"), (u32::MAX, "4294967295"), (22, "is it one?"), (0, "0 bytes")]
        {
            let error = of(size).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
