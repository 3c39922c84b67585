//! Text in arrays that C fills.

use std::borrow::Cow;
use std::ffi::{CStr, c_char};

/// The text of an array up to its first zero byte, or all of it where there is none. What is not UTF-8 is replaced.
pub(in crate::ibverbs) fn c_text(array: &[c_char]) -> Cow<'_, str> {
    // SAFETY: `c_char` has the size and alignment of `u8`, and each of its values is one of `u8`.
    let bytes = unsafe { std::slice::from_raw_parts(array.as_ptr().cast::<u8>(), array.len()) };
    CStr::from_bytes_until_nul(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), CStr::to_string_lossy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_ends_at_zero_or_at_the_end() {
        let text = |bytes: &[u8]| c_text(&bytes.iter().map(|&byte| byte as c_char).collect::<Vec<_>>()).into_owned();
        assert_eq!(text(b"rxe_0\0junk"), "rxe_0");
        assert_eq!(text(b"rxe_0"), "rxe_0");
        assert_eq!(text(b"\0"), "");
        assert_eq!(text(b""), "");
        assert_eq!(text(b"a\xffb\0"), "a\u{fffd}b");
    }
}
