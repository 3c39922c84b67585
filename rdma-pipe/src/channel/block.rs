//! The header of a block, which follows its payload.

use twox_hash::XxHash3_128;

/// Maximum payload of a block, in bytes: a multiple of the page size that fits into a buffer of 512 KiB together with
/// the trailer.
pub const BLOCK: usize = (512 << 10) - 4096;
/// Number of bytes that follow the payload: the header with the hash, the authentication tag, and a byte that states
/// the form of the message.
pub const TRAILER: usize = HEADER + 16 + 1;
/// Length of the header, which includes the hash, in bytes.
pub(super) const HEADER: usize = 32;

/// The kind of a block's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// Bytes of a file or of the stream.
    Data,
    /// A pack, which contains small files, one after another.
    Pack,
}

/// The header of a block: the position of its payload in a file, and the hash of the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Kind of the payload.
    pub kind: BlockKind,
    /// Number of the file. For a pack, the number of its first file.
    pub file: u32,
    /// Offset of the payload in the file, in bytes.
    pub offset: u64,
    /// XXH3-128 of the payload.
    pub hash: u128,
}

impl Block {
    /// Creates the header for a payload, and computes its hash.
    pub fn of(kind: BlockKind, file: u32, offset: u64, payload: &[u8]) -> Block {
        Block { kind, file, offset, hash: XxHash3_128::oneshot(payload) }
    }

    /// Whether the payload matches the hash.
    pub fn matches(&self, payload: &[u8]) -> bool {
        XxHash3_128::oneshot(payload) == self.hash
    }

    pub(super) fn emit(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[0] = u8::from(self.kind == BlockKind::Pack);
        bytes[4..8].copy_from_slice(&self.file.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.offset.to_le_bytes());
        bytes[16..].copy_from_slice(&self.hash.to_le_bytes());
        bytes
    }

    pub(super) fn parse(bytes: &[u8; HEADER]) -> Option<Block> {
        let number = |at: usize, length: usize| {
            bytes[at..at + length].iter().rev().fold(0_u128, |number, &byte| number << 8 | u128::from(byte))
        };
        let kind = match bytes[0] {
            0 => BlockKind::Data,
            1 => BlockKind::Pack,
            _ => return None,
        };
        Some(Block { kind, file: number(4, 4) as u32, offset: number(8, 8) as u64, hash: number(16, 16) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_survives_the_wire() {
        let block =
            Block { kind: BlockKind::Pack, file: u32::MAX - 1, offset: 0x0123_4567_89ab_cdef, hash: u128::MAX / 3 };
        assert_eq!(Block::parse(&block.emit()), Some(block));
    }

    #[test]
    fn altered_payload_does_not_match() {
        let mut payload = vec![7; 10_000];
        let block = Block::of(BlockKind::Data, 0, 0, &payload);
        assert!(block.matches(&payload));
        for bit in (0..80_000).step_by(997) {
            payload[bit / 8] ^= 1 << (bit % 8);
            assert!(!block.matches(&payload));
            payload[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
