//! The bytes of a message, if the data is checked.
//!
//! The bytes of a message depend on its sender and its number. The C program sends back what it last received, and its
//! server expects a zero at the start of every page. Every page of a message from this program therefore starts with a
//! zero. The check accepts an echo as well as the peer's own message.

use anyhow::{Result, bail};

use crate::payload;

/// Minimum page size: the C program checks each page, and its page size depends on the machine.
const PAGE: usize = 4096;

/// The sender of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The server, which answers.
    Server,
    /// The client, which sends first.
    Client,
}

/// Fills `message` with the bytes that a message of this side and number has.
pub(super) fn fill(message: &mut [u8], side: Side, number: u32) {
    payload::fill(message, u64::from(number) << 1 | u64::from(side == Side::Client));
    for page in message.chunks_mut(PAGE) {
        if let Some(first) = page.first_mut() {
            *first = 0;
        }
    }
}

/// Checks every byte of a message that this side received; `number` counts from 0.
pub(super) fn check(side: Side, message: &[u8], number: u32) -> Result<()> {
    let differs = |from: Side, number: u32| {
        let mut expected = vec![0; message.len()];
        fill(&mut expected, from, number);
        message.iter().zip(&expected).position(|(byte, expected)| byte != expected)
    };
    let (other, echoed) = match side {
        Side::Client => (Side::Server, Some(number)),
        Side::Server => (Side::Client, number.checked_sub(1)),
    };
    let Some(own_bytes) = differs(other, number) else { return Ok(()) };
    // The C program echoes: it returns this message to the client, and the previous one to the server.
    let at = match echoed {
        Some(echoed) => match differs(side, echoed) {
            None => return Ok(()),
            // The message may be an echo or the peer's own; the one that matches more bytes is assumed.
            Some(echo) => own_bytes.max(echo),
        },
        None => match first_of_c_differs(message) {
            None => return Ok(()),
            Some(at) => at,
        },
    };
    bail!("message {number} has wrong data from byte {at} on; give -c on both sides")
}

/// Returns the position at which a message differs from the first message of the C program, which has a zero at the
/// start of every page, and the same value in all other bytes.
fn first_of_c_differs(message: &[u8]) -> Option<usize> {
    let rest = message.get(1).copied();
    message.iter().enumerate().position(|(at, &byte)| match at % PAGE {
        // The peer's pages may be larger.
        0 => byte != 0 && (at == 0 || Some(byte) != rest),
        _ => Some(byte) != rest,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(size: usize, side: Side, number: u32) -> Vec<u8> {
        let mut message = vec![0xff; size];
        fill(&mut message, side, number);
        message
    }

    #[test]
    fn a_message_of_the_peer_and_an_echo_are_valid() {
        for size in [1, 2, 7, 8, 4096, 5000] {
            check(Side::Client, &message(size, Side::Server, 5), 5).unwrap();
            check(Side::Client, &message(size, Side::Client, 5), 5).unwrap();
            check(Side::Server, &message(size, Side::Client, 5), 5).unwrap();
            check(Side::Server, &message(size, Side::Server, 4), 5).unwrap();
        }
    }

    #[test]
    fn one_wrong_byte_and_a_stale_message_are_found() {
        for at in [0, 1, 4095, 4096, 4999] {
            let mut wrong = message(5000, Side::Client, 3);
            wrong[at] ^= 1;
            let error = check(Side::Server, &wrong, 3).unwrap_err().to_string();
            assert!(error.contains(&format!("message 3 has wrong data from byte {at} on")), "{error}");
        }
        check(Side::Server, &message(5000, Side::Client, 2), 3).unwrap_err();
        check(Side::Server, &message(5000, Side::Server, 3), 3).unwrap_err();
    }

    #[test]
    fn the_first_message_of_the_c_program_is_valid() {
        let mut first = vec![0x7b; 9000];
        for at in [0, 4096, 8192] {
            first[at] = 0;
        }
        check(Side::Server, &first, 0).unwrap();
        // The first page has 64 KiB, so only its first byte is zero.
        first[4096] = 0x7b;
        check(Side::Server, &first, 0).unwrap();
        first[5000] = 0;
        assert!(check(Side::Server, &first, 0).unwrap_err().to_string().contains("byte 5000"));
        first[0] = 0x7b;
        assert!(check(Side::Server, &first, 0).unwrap_err().to_string().contains("byte 0 on"));
        check(Side::Server, &[0], 0).unwrap();
    }
}
