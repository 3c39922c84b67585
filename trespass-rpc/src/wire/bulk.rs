//! Descriptors of attachments and targets.

use super::WireError;

/// Length of a descriptor, in bytes.
pub const BULK: usize = 32;

/// How the receiver transfers the bytes of an attachment or a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum BulkKind {
    /// An attachment whose bytes follow the arguments in the same frame.
    Inline = 1,
    /// An attachment that the receiver reads from the caller's memory by RDMA.
    Read,
    /// An attachment that the receiver requests in `Bulk` frames.
    Pull,
    /// A target in the caller's memory, to which the receiver writes by RDMA.
    Write,
    /// A target whose bytes the receiver sends in `Bulk` frames.
    Push,
}

/// A descriptor of an attachment or a target, which takes 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bulk {
    /// How the bytes are transferred.
    pub kind: BulkKind,
    /// Length in bytes.
    pub length: u64,
    /// Address in the memory of the peer, for RDMA.
    pub address: u64,
    /// Key of the memory, for RDMA.
    pub key: u32,
}

impl Bulk {
    /// Encodes the descriptor: address and length, 8 bytes each; key, 4 bytes; kind, 1 byte; 11 zeros.
    pub fn to_bytes(self) -> [u8; BULK] {
        let mut bytes = [0; BULK];
        bytes[..8].copy_from_slice(&self.address.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.length.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.key.to_le_bytes());
        bytes[20] = self.kind as u8;
        bytes
    }

    /// Decodes a descriptor.
    ///
    /// # Errors
    ///
    /// [`WireError::Field`]
    pub fn parse(bytes: &[u8; BULK]) -> Result<Self, WireError> {
        let kind = match bytes[20] {
            1 => BulkKind::Inline,
            2 => BulkKind::Read,
            3 => BulkKind::Pull,
            4 => BulkKind::Write,
            5 => BulkKind::Push,
            _ => return Err(WireError::Field("bulk descriptor")),
        };
        let [address, length, rest, _] = bytes.as_chunks::<8>().0 else {
            return Err(WireError::Field("bulk descriptor"));
        };
        Ok(Self {
            kind,
            length: u64::from_le_bytes(*length),
            address: u64::from_le_bytes(*address),
            key: u32::from_le_bytes([rest[0], rest[1], rest[2], rest[3]]),
        })
    }

    /// Whether the bytes of all descriptors at the start of a body follow in the same frame.
    pub fn are_inline(body: &[u8], count: usize) -> bool {
        let table = body.as_chunks::<BULK>().0;
        table.len() >= count && table[..count].iter().all(|bytes| bytes[20] == BulkKind::Inline as u8)
    }

    /// Splits the body of a request into descriptors, arguments and inline bytes.
    ///
    /// # Errors
    ///
    /// [`WireError`] if the parts are not within the body.
    pub fn split(body: &[u8], count: usize) -> Result<(impl Iterator<Item = Self> + '_, &[u8], &[u8]), WireError> {
        let short = WireError::Short(body.len(), count * BULK);
        let (table, rest) = body.split_at_checked(count * BULK).ok_or(short)?;
        let mut inline = 0_u64;
        for bytes in table.as_chunks::<BULK>().0 {
            let bulk = Self::parse(bytes)?;
            if bulk.kind == BulkKind::Inline {
                inline = inline.saturating_add(bulk.length);
            }
        }
        let inline = usize::try_from(inline).ok().filter(|inline| *inline <= rest.len());
        let inline = inline.ok_or(WireError::Field("length of inline bytes"))?;
        let (arguments, inline) = rest.split_at(rest.len() - inline);
        Ok((table.as_chunks::<BULK>().0.iter().filter_map(|bytes| Self::parse(bytes).ok()), arguments, inline))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn body_splits_into_descriptors_arguments_and_inline_bytes() {
        let inline = Bulk { kind: BulkKind::Inline, length: 3, address: 0, key: 0 };
        let read = Bulk { kind: BulkKind::Read, length: 5 << 30, address: 0xdead_beef_0000, key: 77 };
        let body = [&inline.to_bytes()[..], &read.to_bytes(), b"args", b"abc"].concat();
        let (bulks, arguments, bytes) = Bulk::split(&body, 2).unwrap();
        assert_eq!(bulks.collect::<Vec<_>>(), [inline, read]);
        assert_eq!((arguments, bytes), (&b"args"[..], &b"abc"[..]));
    }

    #[test]
    fn inline_length_beyond_the_body_is_an_error() {
        let body = Bulk { kind: BulkKind::Inline, length: u64::MAX, address: 0, key: 0 }.to_bytes();
        assert!(Bulk::split(&body, 1).is_err());
        assert!(Bulk::split(&body, 2).is_err());
        assert!(Bulk::split(&[0; BULK], 1).is_err());
    }
}
