//! Private data of a connection request or reply.

use std::fmt;
use std::ops::Deref;

/// The private data of an event. InfiniBand and RoCE use a field of fixed length, which always arrives completely. It
/// contains the peer's data, padded with zeros.
///
/// | call | maximum length in bytes for the port space TCP | for the port space UDP |
/// |---|---|---|
/// | `connect` | 56 | 180 |
/// | `accept` | 196 | 136 |
/// | `reject` | 148 | 136 |
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct PrivateData(Box<[u8]>);

impl PrivateData {
    /// Copies the data of an event.
    ///
    /// # Safety
    ///
    /// `data` is null, or `length` bytes can be read at `data`.
    pub(super) unsafe fn copy(data: *const libc::c_void, length: u8) -> Self {
        if data.is_null() || length == 0 {
            return Self::default();
        }
        // SAFETY: the caller upholds the contract of this function.
        Self(unsafe { std::slice::from_raw_parts(data.cast::<u8>(), length.into()) }.into())
    }

    /// Returns the bytes without trailing zeros. This is the original data, unless that ended with zeros.
    pub fn trimmed(&self) -> &[u8] {
        let length = self.0.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        &self.0[..length]
    }
}

impl Deref for PrivateData {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl From<&[u8]> for PrivateData {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }
}

impl fmt::Debug for PrivateData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes: \"{}\"", self.0.len(), self.trimmed().escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailing_zeros_are_trimmed_and_others_kept() {
        let data = PrivateData::from(&b"a\0b\0\0"[..]);
        assert_eq!(data.trimmed(), b"a\0b");
        assert_eq!(data.len(), 5);
        assert_eq!(format!("{data:?}"), r#"5 bytes: "a\x00b""#);
        assert_eq!(PrivateData::from(&[0; 4][..]).trimmed(), b"");
    }

    #[test]
    fn null_pointer_is_empty_private_data() {
        // SAFETY: the pointer is null.
        assert!(unsafe { PrivateData::copy(std::ptr::null(), 56) }.is_empty());
    }
}
