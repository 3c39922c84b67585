//! The contents of messages in tests with `--validate`.

use std::fmt;

/// Returns the byte at `index` of a message, which also depends on the size of the message and on the queue pair.
pub fn byte(size: u64, qp: usize, index: usize) -> u8 {
    let mixed = (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ^ size.wrapping_mul(31)
        ^ (qp as u64 + 1).wrapping_mul(0x85eb);
    (mixed >> 32) as u8 ^ mixed as u8
}

/// Returns the byte at `index` of an unused receive buffer, which differs from the same byte of the message.
pub fn blank(size: u64, qp: usize, index: usize) -> u8 {
    !byte(size, qp, index)
}

/// Checks the messages in the slots, which were used in turn. The first `least` slots must contain messages. Later
/// slots are checked if they were used.
///
/// # Errors
///
/// Returns the first wrong byte. If a message is missing although a later one has arrived, its slot counts as wrong.
pub fn check_all(places: &[Vec<u8>], least: u64, qp: usize, spare: usize) -> Result<(), Wrong> {
    let least = usize::try_from(least).unwrap_or(usize::MAX);
    let used = places.iter().rposition(|message| !is_blank(message, qp)).map_or(0, |last| last + 1);
    places.iter().take(used.max(least)).try_for_each(|message| check(message, qp, spare))
}

/// Whether the slot still has its initial contents.
fn is_blank(message: &[u8], qp: usize) -> bool {
    let size = message.len() as u64;
    message.iter().enumerate().all(|(index, &found)| found == blank(size, qp, index))
}

/// A byte of a message that differs from the byte that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wrong {
    size: u64,
    qp: usize,
    index: usize,
    found: u8,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { size, qp, index, found } = *self;
        let expected = byte(size, qp, index);
        write!(
            f,
            "a message of {size} bytes on queue pair {qp} of its thread is corrupt: byte {index} is {found:#04x}, \
             expected {expected:#04x} (the first wrong byte)"
        )?;
        if found == blank(size, qp, index) {
            write!(f, "; the slot is unchanged: nothing was written")?;
        }
        Ok(())
    }
}

/// Checks the contents of a message, except for its last `spare` bytes.
///
/// # Errors
///
/// Returns the first wrong byte.
pub(crate) fn check(message: &[u8], qp: usize, spare: usize) -> Result<(), Wrong> {
    let size = message.len() as u64;
    let bytes = message.iter().take(message.len().saturating_sub(spare)).enumerate();
    match bytes.into_iter().find(|&(index, &found)| found != byte(size, qp, index)) {
        None => Ok(()),
        Some((index, &found)) => Err(Wrong { size, qp, index, found }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_wrong_byte_is_reported() {
        let mut message: Vec<u8> = (0..1000).map(|index| byte(1000, 3, index)).collect();
        assert_eq!(check(&message, 3, 0), Ok(()));
        assert!(check(&message, 2, 0).is_err());
        message[999] ^= 1;
        assert_eq!(check(&message, 3, 1), Ok(()));
        message[700] = blank(1000, 3, 700);
        let text = check(&message, 3, 0).expect_err("it is wrong").to_string();
        assert!(text.contains("byte 700") && text.contains("nothing was written"), "{text}");
    }

    #[test]
    fn missing_message_before_an_arrived_one_is_found() {
        let (right, none): (Vec<u8>, Vec<u8>) = (0..64).map(|index| (byte(64, 1, index), blank(64, 1, index))).unzip();
        let of = |which: [bool; 4], least| {
            let places = which.map(|is_there| if is_there { right.clone() } else { none.clone() });
            check_all(&places, least, 1, 0).is_ok()
        };
        for (which, least, is_right) in [
            ([true, false, false, false], 1, true),
            ([true, true, true, true], 1, true),
            ([true, false, true, false], 1, false),
            ([false, true, true, true], 1, false),
            ([false, false, false, false], 1, false),
            ([true, true, false, false], 2, true),
            ([true, true, false, false], 3, false),
            ([true, true, true, true], u64::MAX, true),
        ] {
            assert_eq!(of(which, least), is_right, "{which:?} {least}");
        }
        let mut places = vec![right.clone(), right, none];
        places[1][5] ^= 1;
        assert!(check_all(&places, 1, 1, 0).is_err());
    }

    #[test]
    fn bytes_differ_between_slots_sizes_and_queue_pairs() {
        let of = |size, qp| (0..64).map(|index| byte(size, qp, index)).collect::<Vec<_>>();
        assert_ne!(of(64, 0), of(64, 1));
        assert_ne!(of(64, 0), of(65, 0));
        assert!(of(64, 0).windows(2).any(|pair| pair[0] != pair[1]));
    }
}
