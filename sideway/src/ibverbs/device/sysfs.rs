//! Properties of a device that the kernel exports as text: a file of sysfs, and arrays of characters.

use std::borrow::Cow;
use std::ffi::{CStr, c_char};
use std::fs;
use std::path::Path;

/// Returns the nearest NUMA node, or `None` if the file is missing or contains -1.
pub(super) fn numa_node(device: &Path) -> Option<u32> {
    parse_numa_node(&fs::read_to_string(device.join("device/numa_node")).ok()?)
}

fn parse_numa_node(text: &str) -> Option<u32> {
    text.trim().parse().ok()
}

/// Returns the text of an array up to its first zero byte, or all of it. Invalid UTF-8 is replaced with U+FFFD.
pub(in crate::ibverbs) fn c_text(array: &[c_char]) -> Cow<'_, str> {
    // SAFETY: `c_char` has the size and alignment of `u8`, and all of its bit patterns are valid for `u8`.
    let bytes = unsafe { std::slice::from_raw_parts(array.as_ptr().cast::<u8>(), array.len()) };
    CStr::from_bytes_until_nul(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), CStr::to_string_lossy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_text_ends_at_zero_or_array_end() {
        let text = |bytes: &[u8]| c_text(&bytes.iter().map(|&byte| byte as c_char).collect::<Vec<_>>()).into_owned();
        assert_eq!(text(b"rxe_0\0junk"), "rxe_0");
        assert_eq!(text(b"rxe_0"), "rxe_0");
        assert_eq!(text(b"\0"), "");
        assert_eq!(text(b""), "");
        assert_eq!(text(b"a\xffb\0"), "a\u{fffd}b");
    }

    #[test]
    fn numa_node_minus_one_is_none() {
        assert_eq!(parse_numa_node("0\n"), Some(0));
        assert_eq!(parse_numa_node("1"), Some(1));
        assert_eq!(parse_numa_node("-1\n"), None);
        assert_eq!(parse_numa_node(""), None);
    }
}
