//! What the two sides tell each other beside the connection.

use std::fmt;
use std::ops::Deref;

/// The bytes that came with an event. InfiniBand and RoCE have a field of fixed length for them, which arrives whole: what the
/// peer sent, and zeros.
///
/// | with | bytes for TCP's port space | for UDP's |
/// |---|---|---|
/// | `connect` | 56 | 180 |
/// | `accept` | 196 | 136 |
/// | `reject` | 148 | 136 |
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct PrivateData(Box<[u8]>);

impl PrivateData {
    /// What C points to.
    ///
    /// # Safety
    ///
    /// `data` is null, or so many bytes can be read there.
    pub(super) unsafe fn copy(data: *const libc::c_void, length: u8) -> Self {
        if data.is_null() || length == 0 {
            return Self::default();
        }
        // SAFETY: the caller's promise.
        Self(unsafe { std::slice::from_raw_parts(data.cast::<u8>(), length.into()) }.into())
    }

    /// The bytes without the zeros at their end: what was sent, if that did not end with zeros.
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
    fn zeros_at_the_end_are_left_out_and_others_stay() {
        let data = PrivateData::from(&b"a\0b\0\0"[..]);
        assert_eq!(data.trimmed(), b"a\0b");
        assert_eq!(data.len(), 5);
        assert_eq!(format!("{data:?}"), r#"5 bytes: "a\x00b""#);
        assert_eq!(PrivateData::from(&[0; 4][..]).trimmed(), b"");
    }

    #[test]
    fn nothing_is_read_at_a_null_pointer() {
        // SAFETY: the pointer is null.
        assert!(unsafe { PrivateData::copy(std::ptr::null(), 56) }.is_empty());
    }
}
