//! What stands in a message when the data is checked.
//!
//! Every message has bytes of its own, which depend on the side that made them and on their number. The C program sends what
//! it last received, and as a server expects a zero at the beginning of every page: so every page of ours begins with one,
//! and a message that is ours come back is as good as one of the peer's own.

use anyhow::{Result, bail};

use crate::noise;

/// The C program looks at every page of its machine; those have at least so many bytes.
const PAGE: usize = 4096;

/// Which program a message is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The one that answers.
    Server,
    /// The one that sends first.
    Client,
}

/// Fills `message` with what this side puts into its message of this number.
pub(super) fn fill(message: &mut [u8], side: Side, number: u32) {
    noise::fill(message, u64::from(number) << 1 | u64::from(side == Side::Client));
    for page in message.chunks_mut(PAGE) {
        if let Some(first) = page.first_mut() {
            *first = 0;
        }
    }
}

/// Checks what the other side sent.
#[derive(Debug)]
pub(super) struct Checker {
    side: Side,
    expected: Vec<u8>,
}

impl Checker {
    /// A checker for this side and messages of so many bytes.
    pub(super) fn new(side: Side, size: usize) -> Self {
        Self { side, expected: vec![0; size] }
    }

    /// Checks every byte of the message of this number.
    ///
    /// # Errors
    ///
    /// What differs, and where.
    pub(super) fn check(&mut self, message: &[u8], number: u32) -> Result<()> {
        let other = if self.side == Side::Server { Side::Client } else { Side::Server };
        fill(&mut self.expected, other, number);
        let Some(at) = difference(message, &self.expected) else { return Ok(()) };
        // The C program sends back what it got: the client this message, the server the one before.
        let own = match self.side {
            Side::Client => Some(number),
            Side::Server => number.checked_sub(1),
        };
        match own {
            Some(own) => {
                fill(&mut self.expected, self.side, own);
                if difference(message, &self.expected).is_none() {
                    return Ok(());
                }
                // Which of the two it was to be is where more of it is right.
                let at = at.max(difference(message, &self.expected).unwrap_or(0));
                bail!("message {number} has wrong data from byte {at} on: is the peer started with -c?")
            }
            None => check_first_of_c(message),
        }
    }
}

/// The first message of the C program has a zero at the beginning of every page, and one value elsewhere.
fn check_first_of_c(message: &[u8]) -> Result<()> {
    let rest = message.get(1).copied();
    for (at, &byte) in message.iter().enumerate() {
        let is_right = if at % PAGE == 0 { byte == 0 || at > 0 && Some(byte) == rest } else { Some(byte) == rest };
        if !is_right {
            bail!("message 0 has wrong data from byte {at} on: is the peer started with -c?")
        }
    }
    Ok(())
}

fn difference(message: &[u8], expected: &[u8]) -> Option<usize> {
    if message == expected {
        return None;
    }
    Some(
        message
            .iter()
            .zip(expected)
            .position(|(left, right)| left != right)
            .unwrap_or(message.len().min(expected.len())),
    )
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
    fn messages_differ_and_pages_begin_with_zero() {
        let one = message(10_000, Side::Client, 1);
        assert_ne!(one, message(10_000, Side::Client, 2));
        assert_ne!(one, message(10_000, Side::Server, 1));
        assert_eq!((one[0], one[4096], one[8192]), (0, 0, 0));
        let distinct: std::collections::HashSet<&[u8]> = one.chunks_exact(8).collect();
        assert_eq!(distinct.len(), 1250);
    }

    #[test]
    fn the_peers_own_message_and_an_echo_are_right() {
        for size in [1, 2, 7, 8, 4096, 5000] {
            let mut client = Checker::new(Side::Client, size);
            client.check(&message(size, Side::Server, 5), 5).unwrap();
            client.check(&message(size, Side::Client, 5), 5).unwrap();
            let mut server = Checker::new(Side::Server, size);
            server.check(&message(size, Side::Client, 5), 5).unwrap();
            server.check(&message(size, Side::Server, 4), 5).unwrap();
        }
    }

    #[test]
    fn one_wrong_byte_and_a_stale_message_are_found() {
        let mut server = Checker::new(Side::Server, 5000);
        for at in [0, 1, 4095, 4096, 4999] {
            let mut wrong = message(5000, Side::Client, 3);
            wrong[at] ^= 1;
            let error = server.check(&wrong, 3).unwrap_err().to_string();
            assert!(error.contains(&format!("message 3 has wrong data from byte {at} on")), "{error}");
        }
        server.check(&message(5000, Side::Client, 2), 3).unwrap_err();
        server.check(&message(5000, Side::Server, 3), 3).unwrap_err();
    }

    #[test]
    fn the_first_message_of_the_c_program_is_known() {
        let mut first = vec![0x7b; 9000];
        for at in [0, 4096, 8192] {
            first[at] = 0;
        }
        let mut server = Checker::new(Side::Server, 9000);
        server.check(&first, 0).unwrap();
        // Pages of 64 KiB.
        first[4096] = 0x7b;
        server.check(&first, 0).unwrap();
        first[5000] = 0;
        assert!(server.check(&first, 0).unwrap_err().to_string().contains("byte 5000"));
        first[0] = 0x7b;
        assert!(server.check(&first, 0).unwrap_err().to_string().contains("byte 0 on"));
        Checker::new(Side::Server, 1).check(&[0], 0).unwrap();
    }
}
