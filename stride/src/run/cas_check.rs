//! What compare-and-swaps exchange where they are checked: each compares with what the one before it at the same place has put there, so that
//! one that is lost, or finds another value, ends the chain of its place for all to see.

use std::cell::Cell;
use std::fmt;

/// Odd, so that each number of swaps has a value of its own; and what undoes it.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
const INVERSE: u64 = inverse(FACTOR);

/// By Newton's iteration, each step of which doubles the bits that are right, three of them at first.
const fn inverse(odd: u64) -> u64 {
    let (mut found, mut steps) = (odd, 0);
    while steps < 5 {
        found = found.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(found)));
        steps += 1;
    }
    found
}

/// What differs by the place.
fn salt(lane: usize, place: usize) -> u64 {
    ((lane as u64 + 1) << 32 | (place as u64 + 1)).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

/// What a place holds after so many swaps.
pub(crate) fn value(lane: usize, place: usize, swaps: u64) -> u64 {
    swaps.wrapping_add(1).wrapping_mul(FACTOR) ^ salt(lane, place)
}

/// After how many swaps a place holds this.
fn swaps(lane: usize, place: usize, value: u64) -> u64 {
    (value ^ salt(lane, place)).wrapping_mul(INVERSE).wrapping_sub(1)
}

/// What stands where a returned value is to come: none of the first values of the place.
pub(crate) fn blank(lane: usize, place: usize) -> u64 {
    value(lane, place, u64::MAX / 2)
}

/// The swaps of a lane, which go to its places in turn.
#[derive(Clone, Debug)]
pub(crate) struct CasCheck {
    lane: usize,
    places: usize,
    next: Cell<usize>,
    /// Of the next place.
    swaps: Cell<u64>,
}

impl CasCheck {
    pub(crate) fn new(lane: usize, places: usize) -> Self {
        Self { lane, places, next: Cell::new(0), swaps: Cell::new(0) }
    }

    /// What the next swap compares with, and what it puts there.
    #[inline]
    pub(crate) fn next(&self) -> (u64, u64) {
        let (place, swaps) = (self.next.get(), self.swaps.get());
        let is_last = place + 1 >= self.places;
        self.next.set(if is_last { 0 } else { place + 1 });
        self.swaps.set(swaps.wrapping_add(u64::from(is_last)));
        (value(self.lane, place, swaps), value(self.lane, place, swaps.wrapping_add(1)))
    }
}

/// How many swaps each place has had: so many, and of the first ones one more.
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

    /// As most of the places say, where nobody knows how many swaps there were: all have had as many, or the first of them one more.
    fn found(words: &[u64], lane: usize) -> Self {
        let mut all: Vec<u64> = words.iter().enumerate().map(|(place, &word)| swaps(lane, place, word)).collect();
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

/// Looks at the places of a lane after so many swaps; where their number is not known they are to fit together, and to be `least` or more.
///
/// # Errors
///
/// The first place that is wrong.
pub(crate) fn check_left(words: &[u64], total: Option<u64>, least: u64, lane: usize) -> Result<(), Wrong> {
    let turns = match total {
        Some(total) => Turns::of(total, words.len()),
        None => match Turns::found(words, lane) {
            Turns { each: 0, more: 0 } => Turns::of(least, words.len()),
            turns => turns,
        },
    };
    for (place, &found) in words.iter().enumerate() {
        if found != value(lane, place, turns.at(place)) {
            return Err(Wrong { lane, place, swaps: turns.at(place), found, is_returned: false });
        }
    }
    Ok(())
}

/// Looks at what the last swap at each place has returned, of so many in turn.
///
/// # Errors
///
/// The first place with another value than stood there before.
pub(crate) fn check_returned(words: &[u64], total: u64, lane: usize) -> Result<(), Wrong> {
    let turns = Turns::of(total, words.len());
    for (place, &found) in words.iter().enumerate() {
        let swaps = turns.at(place);
        if swaps > 0 && found != value(lane, place, swaps - 1) {
            return Err(Wrong { lane, place, swaps, found, is_returned: true });
        }
    }
    Ok(())
}

/// A value that is not what the swaps must give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    lane: usize,
    place: usize,
    /// How many there were at the place.
    swaps: u64,
    found: u64,
    is_returned: bool,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lane, place, swaps: count, found, is_returned } = *self;
        let number = swaps(lane, place, found);
        if is_returned {
            let expected = value(lane, place, count.wrapping_sub(1));
            write!(
                f,
                "compare-and-swap {count} in slot {place} of queue pair {lane} of its thread returned {found:#018x}, \
                 expected {expected:#018x} (the first wrong value)"
            )?;
            if found == blank(lane, place) {
                write!(f, "; the buffer is unchanged: nothing was written")?;
            } else if number < count {
                write!(f, "; that is the value before swap {}", number + 1)?;
            } else if number == count {
                write!(f, "; that is the value it was to store: it ran twice, or its response came too late")?;
            }
            return Ok(());
        }
        let expected = value(lane, place, count);
        write!(
            f,
            "slot {place} of queue pair {lane} of its thread holds {found:#018x} after {count} compare-and-swaps, \
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

    /// Places after so many swaps, made as a device makes them, and what each of these has returned last.
    fn swapped(total: usize, places: usize, lane: usize) -> (Vec<u64>, Vec<u64>) {
        let mut left: Vec<u64> = (0..places).map(|place| value(lane, place, 0)).collect();
        let mut returned: Vec<u64> = (0..places).map(|place| blank(lane, place)).collect();
        let chain = CasCheck::new(lane, places);
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
    fn each_swap_finds_what_the_last_one_left() {
        for (total, places) in [(0, 1), (1, 4), (4, 4), (7, 4), (1000, 64), (130, 1)] {
            let (left, returned) = swapped(total, places, 3);
            assert_eq!(check_left(&left, Some(total as u64), 1, 3), Ok(()), "{total} {places}");
            assert_eq!(check_returned(&returned, total as u64, 3), Ok(()), "{total} {places}");
            assert_eq!(check_left(&left, None, 0, 3), Ok(()), "{total} {places}");
            assert_eq!(check_left(&left, None, 1, 3).is_ok(), total > 0, "{total} {places}");
            assert!(check_left(&left, Some(total as u64 + 1), 1, 3).is_err());
            assert!(check_left(&left, Some(total as u64), 1, 2).is_err(), "values are of their queue pair");
        }
    }

    #[test]
    fn a_number_of_swaps_is_found_from_its_value() {
        for count in [0, 1, 5000, u64::MAX] {
            assert_eq!(swaps(7, 63, value(7, 63, count)), count);
        }
        assert_eq!(FACTOR.wrapping_mul(INVERSE), 1);
    }

    #[test]
    fn a_swap_that_is_lost_ends_its_chain() {
        // Whichever place it is, and whether or not the number of swaps is known.
        for (total, place) in [(64 * 9 + 5, 0), (64 * 9 + 5, 4), (64 * 9 + 5, 5), (64 * 9, 63), (64 * 9 + 63, 1)] {
            let (mut left, mut returned) = swapped(total, 64, 0);
            (left[place], returned[place]) = (value(0, place, 2), value(0, place, 2));
            for known in [Some(total as u64), None] {
                let wrong = check_left(&left, known, 1, 0).unwrap_err();
                assert_eq!(wrong.place, place);
                // The last place that had its turn says how many there were.
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
    fn wrong_values_are_told_with_what_they_are() {
        let (left, mut returned) = swapped(10, 4, 1);
        let told = |returned: &[u64]| check_returned(returned, 10, 1).unwrap_err().to_string();
        returned[1] = value(1, 1, 3);
        assert!(told(&returned).ends_with("it ran twice, or its response came too late"), "{}", told(&returned));
        returned[0] = blank(1, 0);
        assert!(told(&returned).starts_with("compare-and-swap 3 in slot 0 of queue pair 1"), "{}", told(&returned));
        assert!(told(&returned).ends_with("the buffer is unchanged: nothing was written"), "{}", told(&returned));
        let text = check_left(&[value(1, 0, 0), left[1]], Some(4), 1, 1).unwrap_err().to_string();
        assert!(text.ends_with("the slot is unchanged: nothing was written"), "{text}");
        // What nobody has put there says no more.
        let text = check_left(&[7], Some(4), 1, 1).unwrap_err().to_string();
        assert!(
            text.contains("after 4 compare-and-swaps, expected") && text.ends_with("(the first wrong value)"),
            "{text}"
        );
    }

    #[test]
    fn any_contents_are_looked_at_without_a_panic() {
        for word in [0, u64::MAX, value(0, 0, u64::MAX), value(0, 1, u64::MAX - 1)] {
            for words in [vec![], vec![word], vec![word; 64]] {
                let _ = check_left(&words, None, 1, 0).map_err(|wrong| wrong.to_string());
                let _ = check_left(&words, Some(u64::MAX), 1, 0).map_err(|wrong| wrong.to_string());
                let _ = check_returned(&words, u64::MAX, 0).map_err(|wrong| wrong.to_string());
            }
        }
    }
}
