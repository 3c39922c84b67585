//! What the owner tells the peer.

use sideway::ibverbs::memory_region::RemoteKey;

/// A part of the owner's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Of the first byte.
    pub(crate) addr: u64,
    /// Bytes.
    pub(crate) length: u32,
    /// By which it is reached.
    pub(crate) rkey: RemoteKey,
}

impl Part {
    /// Three numbers, each with its highest byte first.
    pub(crate) fn encode(&self) -> Vec<u8> {
        [&self.addr.to_be_bytes()[..], &self.length.to_be_bytes(), &self.rkey.raw().to_be_bytes()].concat()
    }

    /// From a message of that form.
    pub(crate) fn decode(message: &[u8]) -> Option<Self> {
        let (addr, rest) = message.split_first_chunk()?;
        let (length, rkey) = rest.split_first_chunk()?;
        Some(Self {
            addr: u64::from_be_bytes(*addr),
            length: u32::from_be_bytes(*length),
            rkey: RemoteKey::from_raw(u32::from_be_bytes(rkey.try_into().ok()?)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_understood() {
        let part = Part { addr: 0x7f12_3456_7400, length: 64, rkey: RemoteKey::from_raw(0xfedc_ba98) };
        let message = part.encode();
        assert_eq!(message, *b"\0\0\x7f\x12\x34\x56\x74\0\0\0\0\x40\xfe\xdc\xba\x98");
        assert_eq!(Part::decode(&message), Some(part));
        for length in [0, 8, 12, 15] {
            assert_eq!(Part::decode(&message[..length]), None);
        }
        assert_eq!(Part::decode(&[0; 17]), None);
    }
}
