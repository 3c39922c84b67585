//! The text of a ping: its number, then letters, of which the first advances with each ping, then a zero byte.

use anyhow::{Result, bail};

/// Bytes of the shortest text: the longest number with its prefix and separator, and the zero byte.
pub(crate) const SMALLEST: u32 = 23;
/// Bytes of the longest text.
pub(crate) const LARGEST: u32 = 65535;

/// The letters are `A` to `z`, including the ASCII characters between the upper and the lower case.
const FIRST: u8 = b'A';
const LETTERS: u8 = b'z' - FIRST + 1;
/// The C program counts pings in an `int`; its number wraps here.
const NUMBERS: u64 = 1 << 31;

/// The text of the ping with this number, from 0, in `size` bytes.
pub(crate) fn text(number: u64, size: usize) -> Vec<u8> {
    let mut text = format!("rdma-ping-{}: ", number % NUMBERS).into_bytes();
    let start = (number % u64::from(LETTERS)) as u8;
    let letters = (0..LETTERS).map(|at| FIRST + at).cycle().skip(start.into());
    let limit = size.saturating_sub(1);
    text.extend(letters.take(limit.saturating_sub(text.len())));
    text.truncate(limit);
    text.resize(size, 0);
    text
}

/// Checks that `found` is the text of the ping with this number.
pub(crate) fn check(found: &[u8], number: u64) -> Result<()> {
    let expected = text(number, found.len());
    let Some(at) = found.iter().zip(&expected).position(|(found, expected)| found != expected) else { return Ok(()) };
    let byte = |bytes: &[u8]| bytes.get(at).copied().unwrap_or_default();
    bail!(
        "the text of ping {number} is wrong: byte {at} of {} is {:#04x}, expected {:#04x}; the text is `{}`",
        found.len(),
        byte(found),
        byte(&expected),
        printable(found.get(..found.len().min(80)).unwrap_or(found))
    )
}

/// The length up to and including the first zero byte, or all bytes if there is none: the part that the server writes
/// back.
pub(crate) fn length(text: &[u8]) -> usize {
    text.iter().position(|&byte| byte == 0).map_or(text.len(), |end| end + 1)
}

/// The text for a terminal: without the zero byte, and with escapes for anything but printable ASCII.
pub(crate) fn printable(text: &[u8]) -> String {
    let mut shown = String::new();
    for &byte in text.iter().take_while(|&&byte| byte != 0) {
        match byte {
            b' '..=b'~' => shown.push(byte.into()),
            _ => shown.push_str(&format!("\\x{byte:02x}")),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_equal_to_those_of_the_c_program() {
        for (number, expected) in [
            (0, "rdma-ping-0: ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqr"),
            (1, "rdma-ping-1: BCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrs"),
            (57, "rdma-ping-57: zABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnop"),
            (58, "rdma-ping-58: ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopq"),
        ] {
            let text = text(number, 64);
            assert_eq!(text.len(), 64);
            assert_eq!(printable(&text), expected);
            assert_eq!(length(&text), 64);
            check(&text, number).unwrap();
        }
    }

    #[test]
    fn the_longest_number_fits_the_shortest_text() {
        let longest = text(NUMBERS - 1, SMALLEST as usize);
        assert_eq!(longest, *b"rdma-ping-2147483647: \0");
        assert_eq!(text(NUMBERS, 30), *b"rdma-ping-0: IJKLMNOPQRSTUVWX\0");
        assert_eq!(text(0, 0), *b"");
        assert_eq!(text(0, 1), *b"\0");
        assert_eq!(text(0, 5), *b"rdma\0");
    }

    #[test]
    fn a_difference_is_reported_and_a_text_without_zero_byte_has_full_length() {
        let mut wrong = text(3, 64);
        wrong[20] = 7;
        let error = check(&wrong, 3).unwrap_err().to_string();
        assert!(
            error.contains("the text of ping 3 ") && error.contains("byte 20 of 64 is 0x07, expected 0x4b"),
            "{error}"
        );
        assert!(error.contains("`rdma-ping-3: DEFGHIJ\\x07LMN"), "{error}");
        check(&text(4, 64), 3).unwrap_err();
        let mut unclosed = text(3, 64);
        unclosed[63] = b'x';
        check(&unclosed, 3).unwrap_err();
        assert_eq!(length(&unclosed), 64);
    }

    #[test]
    fn control_bytes_are_escaped() {
        assert_eq!(printable(b"a\x1b[2J\xff~\0hidden"), "a\\x1b[2J\\xff~");
        assert_eq!((length(b"ab\0cd"), length(b""), length(b"\0")), (3, 0, 1));
    }
}
