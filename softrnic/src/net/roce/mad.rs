//! The header of a management datagram (MAD) of the communication management class, version 2.

use super::packet::Malformed;

/// The length of a MAD.
pub(super) const LENGTH: usize = HEADER + BODY;
/// The length of the message that follows the header.
pub(super) const BODY: usize = 232;
const HEADER: usize = 24;

/// The base version, the class, the class version and the method.
const START: [u8; 4] = [1, 7, 2, SEND];
/// The method `Send`, which all messages of the class use.
const SEND: u8 = 3;

/// A MAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mad {
    /// The transaction id. All messages of an exchange have one number.
    pub(super) transaction: u64,
    /// The kind of the message.
    pub(super) attribute: u16,
    /// The attribute modifier.
    pub(super) modifier: u32,
    pub(super) body: [u8; BODY],
}

impl Mad {
    /// Reads a MAD. The status is ignored, because the messages of the class have errors of their own.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let bytes: &[u8; LENGTH] = bytes.try_into().map_err(|_| Malformed("a MAD does not have 256 bytes"))?;
        if field(At::<0>, bytes) != START {
            return Err(Malformed("a MAD has another class, version or method"));
        }
        Ok(Self {
            transaction: u64::from_be_bytes(field(At::<8>, bytes)),
            attribute: u16::from_be_bytes(field(At::<16>, bytes)),
            modifier: u32::from_be_bytes(field(At::<20>, bytes)),
            body: field(At::<HEADER>, bytes),
        })
    }

    pub(super) fn bytes(&self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        bytes[..4].copy_from_slice(&START);
        bytes[8..16].copy_from_slice(&self.transaction.to_be_bytes());
        bytes[16..18].copy_from_slice(&self.attribute.to_be_bytes());
        bytes[20..24].copy_from_slice(&self.modifier.to_be_bytes());
        bytes[HEADER..].copy_from_slice(&self.body);
        bytes
    }
}

/// The offset of a field. The compiler checks it.
#[derive(Clone, Copy, Debug)]
pub(super) struct At<const AT: usize>;

/// Returns the field at the offset `AT`.
pub(super) fn field<const AT: usize, const N: usize, const ALL: usize>(_: At<AT>, bytes: &[u8; ALL]) -> [u8; N] {
    const { assert!(AT + N <= ALL, "a field is in its message") };
    std::array::from_fn(|index| bytes[AT + index])
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAD: Mad =
        Mad { transaction: 0x0102_0304_0506_0708, attribute: 0x090a, modifier: 0x0b0c_0d0e, body: [15; BODY] };

    #[test]
    fn header_has_the_layout_of_the_specification() {
        let bytes = MAD.bytes();
        assert_eq!(bytes[..8], [1, 7, 2, 3, 0, 0, 0, 0]);
        assert_eq!(bytes[8..24], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 0, 11, 12, 13, 14]);
        assert_eq!(bytes[24..], [15; 232]);
        assert_eq!(Mad::read(&bytes), Ok(MAD));
    }

    #[test]
    fn status_and_reserved_fields_are_ignored() {
        let mut bytes = MAD.bytes();
        for index in [4, 5, 6, 7, 18, 19] {
            bytes[index] = 0xff;
        }
        assert_eq!(Mad::read(&bytes), Ok(MAD));
    }

    #[test]
    fn other_lengths_are_refused() {
        let bytes = [&MAD.bytes()[..], &[0]].concat();
        for length in (0..bytes.len()).filter(|length| *length != LENGTH).chain([bytes.len()]) {
            assert_eq!(Mad::read(&bytes[..length]), Err(Malformed("a MAD does not have 256 bytes")), "{length}");
        }
    }

    #[test]
    fn other_classes_versions_and_methods_are_refused() {
        for index in 0..4 {
            for bit in 0..8 {
                let mut bytes = MAD.bytes();
                bytes[index] ^= 1 << bit;
                assert_eq!(Mad::read(&bytes), Err(Malformed("a MAD has another class, version or method")));
            }
        }
    }
}
