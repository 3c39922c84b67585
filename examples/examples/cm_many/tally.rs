//! How many connections are where.

use std::collections::BTreeMap;
use std::fmt;

/// Which end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Side {
    Connecting,
    Listening,
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum State {
    ResolvingAddress,
    ResolvingRoute,
    /// Asked for, and not answered.
    Asking,
    /// Answered, and waiting to hear that the peer knows.
    Accepting,
    /// The message is on its way to or fro.
    Exchanging,
    /// The message came back; one side has hung up, and waits for the other.
    HangingUp,
    Done,
    Failed,
}

impl State {
    /// For the user.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::ResolvingAddress => "resolving the address",
            Self::ResolvingRoute => "resolving the route",
            Self::Asking => "asking",
            Self::Accepting => "accepting",
            Self::Exchanging => "exchanging",
            Self::HangingUp => "hanging up",
            Self::Done => "done",
            Self::Failed => "failed",
        }
    }

    /// Whether nothing comes after it.
    pub(crate) fn is_end(self) -> bool {
        matches!(self, Self::Done | Self::Failed)
    }
}

/// Counts, by side and state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    counts: BTreeMap<(Side, State), Count>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    now: u32,
    ever: u32,
}

impl Tally {
    /// A connection comes to a state, from another unless it is new.
    pub(crate) fn moved(&mut self, side: Side, from: Option<State>, to: State) {
        if let Some(count) = from.and_then(|from| self.counts.get_mut(&(side, from))) {
            count.now = count.now.saturating_sub(1);
        }
        let count = self.counts.entry((side, to)).or_default();
        count.now += 1;
        count.ever += 1;
    }

    /// Connections of a side that have come to their end, well or not.
    pub(crate) fn ended(&self, side: Side) -> u32 {
        self.sum(side, State::is_end)
    }

    /// Connections of a side that are on their way.
    pub(crate) fn under_way(&self, side: Side) -> u32 {
        self.sum(side, |state| !state.is_end())
    }

    fn sum(&self, side: Side, which: impl Fn(State) -> bool) -> u32 {
        self.counts.iter().filter(|((of, state), _)| *of == side && which(*state)).map(|(_, count)| count.now).sum()
    }

    /// `400 ends of connections`.
    pub(crate) fn total(&self) -> String {
        match self.sum(Side::Connecting, |_| true) + self.sum(Side::Listening, |_| true) {
            1 => "1 end of a connection".to_owned(),
            ends => format!("{ends} ends of connections"),
        }
    }

    /// `3 asking, 12 exchanging`: where those are that have not ended.
    pub(crate) fn unfinished(&self) -> String {
        let all = self.counts.iter().filter(|((_, state), count)| !state.is_end() && count.now > 0);
        let all: Vec<_> = all.map(|((_, state), count)| format!("{} {}", count.now, state.name())).collect();
        match all.as_slice() {
            [] => "none".to_owned(),
            all => all.join(", "),
        }
    }
}

/// A line for each side: how many ever came to each state, and how many are there now if others than all have left it.
impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (side, name) in [(Side::Connecting, "connecting side"), (Side::Listening, "listening side")] {
            let mut separator = ": ";
            for ((_, state), count) in self.counts.iter().filter(|((of, _), _)| *of == side) {
                let Count { now, ever } = *count;
                write!(f, "{}{separator}{ever} {}", if separator == ": " { name } else { "" }, state.name())?;
                if now > 0 && !state.is_end() {
                    write!(f, " ({now} still)")?;
                }
                separator = ", ";
            }
            if separator == ", " {
                writeln!(f)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_moved_on_is_counted_where_he_was_and_where_he_is() {
        let mut tally = Tally::default();
        for _ in 0..3 {
            tally.moved(Side::Connecting, None, State::Asking);
        }
        tally.moved(Side::Connecting, Some(State::Asking), State::Exchanging);
        tally.moved(Side::Connecting, Some(State::Exchanging), State::Done);
        tally.moved(Side::Connecting, Some(State::Asking), State::Failed);
        tally.moved(Side::Listening, None, State::Accepting);
        assert_eq!((tally.ended(Side::Connecting), tally.under_way(Side::Connecting)), (2, 1));
        assert_eq!(tally.unfinished(), "1 asking, 1 accepting");
        assert_eq!(tally.total(), "4 ends of connections");
        assert_eq!(
            tally.to_string(),
            "connecting side: 3 asking (1 still), 1 exchanging, 1 done, 1 failed\nlistening side: 1 accepting (1 still)\n"
        );
        assert_eq!(Tally::default().unfinished(), "none");
    }
}
