//! The schedule: a round-robin tournament of all ranks, and rounds in which more than disjoint pairs run at once.

use serde::{Deserialize, Serialize};

use super::Rank;

/// What runs at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Disjoint pairs, one direction of each at a time.
    Quiet,
    /// All pairs of a round of the tournament, in both directions.
    Busy,
    /// All other ranks to one.
    Incast,
    /// One rank to all others.
    Outcast,
}

impl Mode {
    /// Returns the name of the mode, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Quiet => "quiet",
            Self::Busy => "busy",
            Self::Incast => "incast",
            Self::Outcast => "outcast",
        }
    }
}

/// A set of tests that start together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round {
    /// What runs at the same time.
    pub mode: Mode,
    /// The index of the rail.
    pub rail: u32,
    /// The tests: the sender and the receiver of each.
    pub pairs: Vec<(Rank, Rank)>,
}

/// Returns all rounds: mode by mode, and within a mode rail by rail. With `at_once`, a quiet round has at most this
/// number of pairs.
pub fn rounds(ranks: Rank, rails: u32, modes: &[Mode], at_once: Option<usize>) -> Vec<Round> {
    let mut all = Vec::new();
    for &mode in modes {
        for rail in 0..rails {
            let round = |pairs| Round { mode, rail, pairs };
            match mode {
                Mode::Quiet => {
                    for pairs in tournament(ranks) {
                        for direction in [pairs.clone(), reversed(&pairs)] {
                            let parts = direction.chunks(at_once.unwrap_or(usize::MAX).max(1));
                            all.extend(parts.map(|part| round(part.to_vec())));
                        }
                    }
                }
                Mode::Busy => all.extend(tournament(ranks).map(|pairs| round([reversed(&pairs), pairs].concat()))),
                Mode::Incast => {
                    all.extend((0..ranks).map(|to| round(others(ranks, to).map(|from| (from, to)).collect())))
                }
                Mode::Outcast => {
                    all.extend((0..ranks).map(|from| round(others(ranks, from).map(|to| (from, to)).collect())));
                }
            }
        }
    }
    all
}

/// Returns the rounds of a round-robin tournament (the circle method). In each round, each rank has one opponent. If
/// the number of ranks is odd, one rank rests.
fn tournament(ranks: Rank) -> impl Iterator<Item = Vec<(Rank, Rank)>> {
    let seats = ranks + ranks % 2;
    (0..seats.saturating_sub(1)).map(move |turn| {
        // Seat 0 does not move; the others move by one seat per round.
        let at = |seat: Rank| if seat == 0 { 0 } else { 1 + (seat - 1 + turn) % (seats - 1) };
        let pairs = (0..seats / 2).map(|seat| (at(seat), at(seats - 1 - seat)));
        pairs.filter(|&(one, other)| one < ranks && other < ranks).collect()
    })
}

fn reversed(pairs: &[(Rank, Rank)]) -> Vec<(Rank, Rank)> {
    pairs.iter().map(|&(from, to)| (to, from)).collect()
}

fn others(ranks: Rank, than: Rank) -> impl Iterator<Item = Rank> {
    (0..ranks).filter(move |&rank| rank != than)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Whether the rounds contain each ordered pair once per rail.
    #[track_caller]
    fn assert_complete(rounds: &[Round], ranks: Rank, rails: u32) {
        let mut seen = BTreeSet::new();
        for round in rounds {
            for &(from, to) in &round.pairs {
                assert!(from != to && from < ranks && to < ranks);
                assert!(seen.insert((round.rail, from, to)), "{from} to {to} twice");
            }
        }
        assert_eq!(seen.len(), (rails * ranks * (ranks - 1)) as usize);
    }

    #[test]
    fn quiet_rounds_have_disjoint_pairs_and_cover_each_pair_once() {
        for ranks in (2..=17).chain([64, 255, 256]) {
            let all = rounds(ranks, 2, &[Mode::Quiet], None);
            assert_complete(&all, ranks, 2);
            let turns = ranks + ranks % 2 - 1;
            assert_eq!(all.len(), (2 * 2 * turns) as usize);
            for round in &all {
                let members: BTreeSet<_> = round.pairs.iter().flat_map(|&(from, to)| [from, to]).collect();
                assert_eq!(members.len(), 2 * round.pairs.len());
                assert_eq!(round.pairs.len(), (ranks / 2) as usize);
            }
        }
    }

    #[test]
    fn at_once_limits_the_pairs_of_a_quiet_round() {
        let all = rounds(7, 1, &[Mode::Quiet], Some(2));
        assert_complete(&all, 7, 1);
        assert_eq!(all.iter().map(|round| round.pairs.len()).max(), Some(2));
        assert!(rounds(7, 1, &[Mode::Quiet], Some(1)).iter().all(|round| round.pairs.len() == 1));
    }

    #[test]
    fn other_modes_cover_each_pair_once() {
        for ranks in 2..=9 {
            let busy = rounds(ranks, 1, &[Mode::Busy], None);
            assert_complete(&busy, ranks, 1);
            assert!(busy.iter().all(|round| round.pairs.len() == (ranks - ranks % 2) as usize));
            for mode in [Mode::Incast, Mode::Outcast] {
                let all = rounds(ranks, 1, &[mode], None);
                assert_complete(&all, ranks, 1);
                for round in all {
                    let ends = round.pairs.iter().map(|&(from, to)| if mode == Mode::Incast { to } else { from });
                    assert_eq!(ends.collect::<BTreeSet<_>>().len(), 1);
                }
            }
        }
    }

    #[test]
    fn rails_run_one_after_another_within_a_mode() {
        let all = rounds(4, 2, &[Mode::Quiet, Mode::Busy], None);
        let order: Vec<_> = all.iter().map(|round| (round.mode, round.rail)).collect();
        assert!(order.is_sorted());
    }
}
