//! Checks compare-and-swaps for `--validate`. Each swap expects the value that the previous swap at the same slot has
//! stored. If a swap is lost or finds another value, the later swaps at its slot fail.

use std::cell::Cell;
use std::fmt;

/// The factor by which the number of swaps is multiplied. Because the factor is odd, each number of swaps results in a
/// different value, and multiplying by the inverse of the factor recovers the number.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
const INVERSE: u64 = inverse(FACTOR);

/// Returns the inverse modulo 2^64 by Newton's iteration. Three bits are correct at first, and each step doubles their
/// number.
const fn inverse(odd: u64) -> u64 {
    let (mut found, mut steps) = (odd, 0);
    while steps < 5 {
        found = found.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(found)));
        steps += 1;
    }
    found
}

/// Returns a number that makes the values of different slots differ.
fn salt(qp: usize, place: usize) -> u64 {
    ((qp as u64 + 1) << 32 | (place as u64 + 1)).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

/// Returns the value that a slot contains after `swaps` swaps.
pub fn value(qp: usize, place: usize, swaps: u64) -> u64 {
    swaps.wrapping_add(1).wrapping_mul(FACTOR) ^ salt(qp, place)
}

/// Returns the number of swaps after which a slot contains `value`.
fn swaps(qp: usize, place: usize, value: u64) -> u64 {
    (value ^ salt(qp, place)).wrapping_mul(INVERSE).wrapping_sub(1)
}

/// Returns the initial contents of the buffer for returned values. This value differs from all values that the slot can
/// have in a test of realistic length.
pub fn blank(qp: usize, place: usize) -> u64 {
    value(qp, place, u64::MAX / 2)
}

/// Generates the swaps of one queue pair. The swaps use the slots of the queue pair in turn.
#[derive(Clone, Debug)]
pub(crate) struct CasCheck {
    qp: usize,
    places: usize,
    next: Cell<usize>,
    /// Number of swaps that the next slot has had.
    swaps: Cell<u64>,
}

impl CasCheck {
    pub(crate) fn new(qp: usize, places: usize) -> Self {
        Self { qp, places, next: Cell::new(0), swaps: Cell::new(0) }
    }

    /// Returns the value that the next swap expects and the value that it stores.
    #[inline]
    pub(crate) fn next(&self) -> (u64, u64) {
        let (place, swaps) = (self.next.get(), self.swaps.get());
        let is_last = place + 1 >= self.places;
        self.next.set(if is_last { 0 } else { place + 1 });
        self.swaps.set(swaps.wrapping_add(u64::from(is_last)));
        (value(self.qp, place, swaps), value(self.qp, place, swaps.wrapping_add(1)))
    }
}

/// The number of swaps that each slot has had. The number is `each` plus one for the first `more` slots, and `each` for
/// the others.
#[derive(Clone, Copy, Debug)]
struct Turns {
    each: u64,
    more: u64,
}

impl Turns {
    fn of(total: u64, places: usize) -> Self {
        let places = places.max(1) as u64;
        Self { each: total / places, more: total % places }
    }

    /// Derives the number of swaps from the values of most slots, for use if the total is unknown. All slots have had
    /// the same number of swaps, or some of the first slots have had one more.
    fn found(words: &[u64], qp: usize) -> Self {
        let mut all: Vec<u64> = words.iter().enumerate().map(|(place, &word)| swaps(qp, place, word)).collect();
        all.sort_unstable();
        let each = all.get(all.len() / 2).copied().unwrap_or(0);
        let count = |swaps| all.iter().filter(|found| **found == swaps).count() as u64;
        let (more, less) = (count(each.wrapping_add(1)), count(each.wrapping_sub(1)));
        if less > more {
            Self { each: each.wrapping_sub(1), more: all.len() as u64 - (less - more) }
        } else {
            Self { each, more: more - less }
        }
    }

    fn at(self, place: usize) -> u64 {
        self.each.wrapping_add(u64::from((place as u64) < self.more))
    }
}

/// Checks the values of the slots of a queue pair after `total` swaps. If `total` is unknown, the values must be
/// consistent with each other. If the values of all slots are the initial ones, the check expects `least` swaps.
///
/// # Errors
///
/// Returns the first slot that has a wrong value.
pub fn check_left(words: &[u64], total: Option<u64>, least: u64, qp: usize) -> Result<(), Wrong> {
    let turns = match total {
        Some(total) => Turns::of(total, words.len()),
        None => match Turns::found(words, qp) {
            Turns { each: 0, more: 0 } => Turns::of(least, words.len()),
            turns => turns,
        },
    };
    for (place, &found) in words.iter().enumerate() {
        if found != value(qp, place, turns.at(place)) {
            return Err(Wrong { qp, place, swaps: turns.at(place), found, is_returned: false });
        }
    }
    Ok(())
}

/// Checks the value that the last swap at each slot returned, after `total` swaps that used the slots in turn.
///
/// # Errors
///
/// Returns the first slot whose last swap did not return the value that the slot had before.
pub fn check_returned(words: &[u64], total: u64, qp: usize) -> Result<(), Wrong> {
    let turns = Turns::of(total, words.len());
    for (place, &found) in words.iter().enumerate() {
        let swaps = turns.at(place);
        if swaps > 0 && found != value(qp, place, swaps - 1) {
            return Err(Wrong { qp, place, swaps, found, is_returned: true });
        }
    }
    Ok(())
}

/// A value that the swaps cannot have produced. `Display` describes it for the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wrong {
    qp: usize,
    place: usize,
    /// Number of swaps that the slot has had.
    swaps: u64,
    found: u64,
    is_returned: bool,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { qp, place, swaps: count, found, is_returned } = *self;
        let number = swaps(qp, place, found);
        if is_returned {
            let expected = value(qp, place, count.wrapping_sub(1));
            write!(
                f,
                "compare-and-swap {count} in slot {place} of queue pair {qp} of its thread returned {found:#018x}, \
                 expected {expected:#018x} (the first wrong value)"
            )?;
            if found == blank(qp, place) {
                write!(f, "; the buffer is unchanged: nothing was written")?;
            } else if number < count {
                write!(f, "; that is the value before swap {}", number + 1)?;
            } else if number == count {
                write!(f, "; that is the value to store: it ran twice, or its response came too late")?;
            }
            return Ok(());
        }
        let expected = value(qp, place, count);
        write!(
            f,
            "slot {place} of queue pair {qp} of its thread holds {found:#018x} after {count} compare-and-swaps, \
             expected {expected:#018x} (the first wrong value)"
        )?;
        if number == 0 {
            write!(f, "; the slot is unchanged: nothing was written")
        } else if number < count {
            write!(f, "; that is the result of swap {number}: the next swap was lost, or found another value")
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the contents of the slots after `total` swaps, computed as a device would, and the value that the last
    /// swap at each slot returned.
    fn swapped(total: usize, places: usize, qp: usize) -> (Vec<u64>, Vec<u64>) {
        let mut left: Vec<u64> = (0..places).map(|place| value(qp, place, 0)).collect();
        let mut returned: Vec<u64> = (0..places).map(|place| blank(qp, place)).collect();
        let chain = CasCheck::new(qp, places);
        for at in 0..total {
            let (compare, swap) = chain.next();
            let word = &mut left[at % places];
            returned[at % places] = *word;
            if *word == compare {
                *word = swap;
            }
        }
        (left, returned)
    }

    #[test]
    fn correct_swaps_pass_both_checks() {
        for (total, places) in [(0, 1), (1, 4), (4, 4), (7, 4), (1000, 64), (130, 1)] {
            let (left, returned) = swapped(total, places, 3);
            assert_eq!(check_left(&left, Some(total as u64), 1, 3), Ok(()), "{total} {places}");
            assert_eq!(check_returned(&returned, total as u64, 3), Ok(()), "{total} {places}");
            assert_eq!(check_left(&left, None, 0, 3), Ok(()), "{total} {places}");
            assert_eq!(check_left(&left, None, 1, 3).is_ok(), total > 0, "{total} {places}");
            assert!(check_left(&left, Some(total as u64 + 1), 1, 3).is_err());
            assert!(check_left(&left, Some(total as u64), 1, 2).is_err(), "values differ between queue pairs");
        }
    }

    #[test]
    fn swaps_inverts_value() {
        for count in [0, 1, 5000, u64::MAX] {
            assert_eq!(swaps(7, 63, value(7, 63, count)), count);
        }
        assert_eq!(FACTOR.wrapping_mul(INVERSE), 1);
    }

    #[test]
    fn lost_swap_is_reported_with_its_number() {
        // A lost swap is found at any slot, no matter whether the number of swaps is known.
        for (total, place) in [(64 * 9 + 5, 0), (64 * 9 + 5, 4), (64 * 9 + 5, 5), (64 * 9, 63), (64 * 9 + 63, 1)] {
            let (mut left, mut returned) = swapped(total, 64, 0);
            (left[place], returned[place]) = (value(0, place, 2), value(0, place, 2));
            for known in [Some(total as u64), None] {
                let wrong = check_left(&left, known, 1, 0).unwrap_err();
                assert_eq!(wrong.place, place);
                // If the number of swaps is unknown, the number at the last slot that was used determines it.
                let made = (total / 64 + usize::from(place < total % 64)) as u64;
                assert!(wrong.swaps == made || known.is_none() && place + 1 == total % 64, "{wrong:?}");
                let text = wrong.to_string();
                assert!(text.starts_with(&format!("slot {place} of queue pair 0 of its thread holds 0x")), "{text}");
                assert!(
                    text.ends_with("that is the result of swap 2: the next swap was lost, or found another value"),
                    "{text}"
                );
            }
            let text = check_returned(&returned, total as u64, 0).unwrap_err().to_string();
            assert!(text.ends_with("; that is the value before swap 3"), "{text}");
        }
    }

    #[test]
    fn wrong_value_error_names_the_likely_cause() {
        let (left, mut returned) = swapped(10, 4, 1);
        let reported = |returned: &[u64]| check_returned(returned, 10, 1).unwrap_err().to_string();
        returned[1] = value(1, 1, 3);
        assert!(
            reported(&returned).ends_with("it ran twice, or its response came too late"),
            "{}",
            reported(&returned)
        );
        returned[0] = blank(1, 0);
        assert!(
            reported(&returned).starts_with("compare-and-swap 3 in slot 0 of queue pair 1"),
            "{}",
            reported(&returned)
        );
        assert!(
            reported(&returned).ends_with("the buffer is unchanged: nothing was written"),
            "{}",
            reported(&returned)
        );
        let text = check_left(&[value(1, 0, 0), left[1]], Some(4), 1, 1).unwrap_err().to_string();
        assert!(text.ends_with("the slot is unchanged: nothing was written"), "{text}");
        // If the value is unrelated to any swap, the error names no cause.
        let text = check_left(&[7], Some(4), 1, 1).unwrap_err().to_string();
        assert!(
            text.contains("after 4 compare-and-swaps, expected") && text.ends_with("(the first wrong value)"),
            "{text}"
        );
    }

    #[test]
    fn arbitrary_contents_do_not_panic() {
        for word in [0, u64::MAX, value(0, 0, u64::MAX), value(0, 1, u64::MAX - 1)] {
            for words in [vec![], vec![word], vec![word; 64]] {
                let _ = check_left(&words, None, 1, 0).map_err(|wrong| wrong.to_string());
                let _ = check_left(&words, Some(u64::MAX), 1, 0).map_err(|wrong| wrong.to_string());
                let _ = check_returned(&words, u64::MAX, 0).map_err(|wrong| wrong.to_string());
            }
        }
    }
}
