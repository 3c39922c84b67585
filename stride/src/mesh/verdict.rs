//! Names the hosts, paths and rails that are slow.
//!
//! A speed is a bandwidth, or the reciprocal of a latency. A test's score is its speed divided by the median of its rail
//! and size. The logarithms of the scores are separated into effects of senders, receivers and pairs ([`Polish`]), so
//! that a slow host does not make all its paths suspect. An effect is a finding if it is slow by [`LOSS`] at least, and
//! if its robust z, which is the effect divided by the spread of such effects, exceeds a limit that grows with their
//! number and is higher for pairs of small meshes.

mod sentence;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use self::sentence::Names;
use super::Rank;
use super::cell::{Cell, RankInfo};
use super::polish::{Polish, SIGMA, deviation, median};
use super::schedule::Mode;
use crate::report::Row;

/// The smallest loss that is a finding.
const LOSS: f64 = 0.1;

/// The smallest limit of a robust z (Iglewicz and Hoaglin).
const LEAST_Z: f64 = 3.5;

/// The smallest spread that is assumed, because hosts never differ less than this.
const LEAST_SPREAD: f64 = 0.01;

/// Fewer ranks than this make a sample small.
const SMALL: usize = 6;

/// With fewer ranks than this, a slow host is like a slow path.
const LEAST_RANKS: usize = 4;

/// What the quiet cells show.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// What is slow, the most certain first.
    pub findings: Vec<Finding>,
    /// The score of each quiet cell that has a result.
    pub scores: Vec<Score>,
    /// The spread of the scores that no host, path or rail explains.
    pub noise_percent: Option<f64>,
    /// Whether one slow host can hide or imitate another.
    pub is_small_sample: bool,
    /// The median of the busy results, in percent of the quiet ones.
    pub busy_percent: Option<f64>,
    /// Remarks for the user.
    pub notes: Vec<String>,
}

/// The score of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// The index of the rail.
    pub rail: u32,
    /// The rank that sends.
    pub from: Rank,
    /// The rank that receives.
    pub to: Rank,
    /// The speed, divided by the median of the rail.
    pub score: f64,
}

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// Tests of a rank failed.
    Failed,
    /// A whole rail.
    Rail,
    /// A host, as sender and receiver.
    Host,
    /// A host as sender only.
    Sender,
    /// A host as receiver only.
    Receiver,
    /// The path between some hosts and the others.
    Group,
    /// The path from one rank to another.
    Cable,
}

/// How certain a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Certainty {
    /// Far above the limit.
    Certain,
    /// Above the limit.
    Likely,
    /// Above the limit, but the sample is small.
    Possible,
}

impl Certainty {
    fn of(z: f64, limit: f64, is_small: bool) -> Self {
        match z.abs() / limit {
            ratio if ratio >= 2.0 && !is_small => Self::Certain,
            ratio if ratio < 3.0 && is_small => Self::Possible,
            _ => Self::Likely,
        }
    }

    /// Returns the word for the user.
    pub fn word(self) -> &'static str {
        match self {
            Self::Certain => "certain",
            Self::Likely => "likely",
            Self::Possible => "possible",
        }
    }
}

/// Something that is slow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// What it is.
    pub what: What,
    /// The rank, or both ranks of a path.
    pub ranks: Vec<Rank>,
    /// The index of the rail, or `None` if it applies to all rails.
    pub rail: Option<u32>,
    /// How much slower than the median it is.
    pub loss_percent: Option<f64>,
    /// The robust z.
    pub z: Option<f64>,
    /// How certain it is.
    pub certainty: Certainty,
    /// The finding as a sentence.
    pub text: String,
}

/// Returns the speed of a row, or `None` if it has none.
pub fn speed(row: &Row) -> Option<f64> {
    let bandwidth = row.average().map(|rates| rates.gigabits_per_second);
    let speed = bandwidth.or_else(|| row.latency().map(|latency| latency.p50.recip()))?;
    (speed > 0.0 && speed.is_finite()).then_some(speed)
}

/// A matrix by sender and receiver.
type Matrix = Vec<Vec<Option<f64>>>;

/// Logarithms of the speeds of pairs, and what they consist of.
struct Grid {
    /// The ranks that have values, in order.
    ranks: Vec<Rank>,
    matrix: Matrix,
    polish: Polish,
    noise: f64,
    is_small: bool,
}

impl Grid {
    /// Returns `None` if there are too few values to tell a slow host from a slow path.
    fn of(values: &[(Rank, Rank, f64)]) -> Option<Self> {
        let ranks: BTreeSet<_> = values.iter().flat_map(|&(from, to, _)| [from, to]).collect();
        let ranks: Vec<_> = ranks.into_iter().collect();
        let count = ranks.len();
        if count < LEAST_RANKS {
            return None;
        }
        let mut matrix: Matrix = vec![vec![None; count]; count];
        for (from, to, value) in values {
            let (from, to) = (ranks.binary_search(from).ok()?, ranks.binary_search(to).ok()?);
            matrix[from][to] = Some(*value);
        }
        let polish = Polish::of(&matrix);
        let noise = polish.noise()?;
        Some(Self { ranks, matrix, polish, noise, is_small: count < SMALL })
    }
}

impl Verdict {
    /// Judges the cells of a mesh with these ranks and rails. `is_both` states whether a test has both directions.
    pub fn of(cells: &[Cell], ranks: &[RankInfo], rails: &[String], is_both: bool) -> Self {
        let quiet: Vec<_> = cells.iter().filter(|cell| cell.mode == Mode::Quiet).collect();
        let measured: BTreeSet<_> =
            quiet.iter().filter(|cell| !cell.rows.is_empty()).flat_map(|cell| [cell.from, cell.to]).collect();
        let (count, is_small) = (measured.len(), measured.len() < SMALL);
        let is_latency = quiet.iter().flat_map(|cell| &cell.rows).any(|row| row.latency().is_some());
        let names = Names { ranks, rails, is_latency };
        let (mut found, mut scores, mut noises, mut of_rails) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for rail in 0..u32::try_from(rails.len()).unwrap_or(u32::MAX) {
            let of_rail: Vec<_> = quiet.iter().copied().filter(|cell| cell.rail == rail).collect();
            let own = scores_of(&of_rail);
            let values: Vec<_> = own.iter().map(|score| (score.from, score.to, score.score.ln())).collect();
            scores.extend(own);
            if let Some(grid) = Grid::of(&values) {
                noises.push(grid.noise);
                found.extend(groups(&grid, hosts(&grid, rail, is_both), rail));
                found.extend(paths(&grid, rail));
            }
            of_rails.push(of_rail);
        }
        let noise = median(noises.iter().copied());
        found = merged(found, rails.len());
        found.extend(slow_rails(&of_rails, noise.unwrap_or_default()));
        found.extend(failed(&quiet, ranks));
        found.sort_by_key(|finding| (finding.certainty, finding.what));
        for finding in &mut found {
            finding.text = names.sentence(finding);
        }
        let busy_percent = busy(cells, &quiet);
        let mut notes = Vec::new();
        if count < LEAST_RANKS {
            notes.push(format!(
                "no verdict: {count} ranks with results are too few to tell a slow host from a slow path; {LEAST_RANKS} \
                 or more are required"
            ));
        } else if noise.is_none() {
            notes.push("no verdict: too few tests have results".to_owned());
        } else if is_small {
            notes.push(format!("the sample is small: with {count} ranks, one slow host can hide or imitate another"));
        }
        notes.extend(busy_percent.map(|percent| format!("busy rounds reach {percent:.0} % of the quiet results")));
        let noise_percent = noise.map(|noise| round(noise.exp_m1() * 100.0));
        Self { findings: found, scores, noise_percent, is_small_sample: is_small, busy_percent, notes }
    }
}

/// Returns the scores of the cells of one rail.
fn scores_of(cells: &[&Cell]) -> Vec<Score> {
    let speeds = |size| cells.iter().flat_map(|cell| &cell.rows).filter(move |row| row.size == size).filter_map(speed);
    let mut sizes: Vec<_> = cells.iter().flat_map(|cell| &cell.rows).map(|row| row.size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let medians: Vec<_> = sizes.into_iter().filter_map(|size| Some((size, median(speeds(size))?))).collect();
    let ratio = |row: &Row| Some(speed(row)? / medians.iter().find(|(size, _)| *size == row.size)?.1);
    let score = |cell: &&Cell| {
        let score = round(median(cell.rows.iter().filter_map(ratio))?);
        Some(Score { rail: cell.rail, from: cell.from, to: cell.to, score: score.max(1e-4) })
    };
    cells.iter().filter_map(score).collect()
}

/// Returns the limit of a robust z among this number of values, most of which are noise.
fn limit(count: usize) -> f64 {
    // The expected maximum of normally distributed values, and one standard deviation.
    LEAST_Z.max((2.0 * number(count).ln()).sqrt() + 1.0)
}

fn number(count: usize) -> f64 {
    f64::from(u32::try_from(count.max(1)).unwrap_or(u32::MAX))
}

fn loss(effect: f64) -> f64 {
    -effect.exp_m1()
}

fn finding(what: What, ranks: Vec<Rank>, rail: u32, effect: f64, z: f64, certainty: Certainty) -> Finding {
    let (loss_percent, z) = (Some(round(loss(effect) * 100.0)), Some(round(z)));
    Finding { what, ranks, rail: Some(rail), loss_percent, z, certainty, text: String::new() }
}

/// Finds slow hosts. If a test has both directions, it does not show which of them is slow.
fn hosts(grid: &Grid, rail: u32, is_both: bool) -> Vec<Finding> {
    let Grid { ranks, matrix, polish, .. } = grid;
    let count = ranks.len();
    // The spread of a median of the tests of a host.
    let of_noise = grid.noise * 1.2533 / number(count - 1).sqrt();
    let spread = |effects: &[f64]| (deviation(effects).unwrap_or_default() * SIGMA).max(of_noise).max(LEAST_SPREAD);
    let spreads = [spread(&polish.rows), spread(&polish.columns)];
    // With few hosts, their spread is uncertain.
    let limit = limit(2 * count) * (1.0 + 2.0 / number(count));
    let mut found = Vec::new();
    for (at, rank) in ranks.iter().enumerate() {
        let effects = [polish.rows[at], polish.columns[at]];
        let z = [effects[0] / spreads[0], effects[1] / spreads[1]];
        let together = f64::midpoint(effects[0], effects[1]) / of_noise.max(LEAST_SPREAD);
        // The median of fewer values is no better than each of them.
        let counts = [matrix[at].iter().flatten().count(), matrix.iter().filter(|row| row[at].is_some()).count()];
        let is_slow = |side: usize, share: f64| {
            z[side] <= -limit * share && loss(effects[side]) >= LOSS && counts[side] + 1 >= LEAST_RANKS
        };
        let (what, effect, z) = match (is_slow(0, 1.0), is_slow(1, 1.0)) {
            (true, _) if is_slow(1, 0.5) => (What::Host, f64::midpoint(effects[0], effects[1]), z[0].min(z[1])),
            (_, true) if is_slow(0, 0.5) => (What::Host, f64::midpoint(effects[0], effects[1]), z[0].min(z[1])),
            // The spread between the hosts of a small mesh is uncertain, but the order of the results is not.
            _ if grid.is_small
                && together <= -limit
                && effects.iter().all(|side| loss(*side) >= LOSS)
                && is_apart(matrix, at) =>
            {
                (What::Host, f64::midpoint(effects[0], effects[1]), together)
            }
            (true, _) if !is_both => (What::Sender, effects[0], z[0]),
            (_, true) if !is_both => (What::Receiver, effects[1], z[1]),
            _ => continue,
        };
        found.push(finding(what, vec![*rank], rail, effect, z, Certainty::of(z, limit, grid.is_small)));
    }
    found
}

/// Whether each result of a host is slower than each result between others.
fn is_apart(matrix: &Matrix, host: usize) -> bool {
    let (mut fastest, mut slowest) = (f64::NEG_INFINITY, f64::INFINITY);
    for (row, from) in matrix.iter().zip(0..) {
        for (score, to) in row.iter().zip(0..) {
            match score {
                Some(score) if from == host || to == host => fastest = fastest.max(*score),
                Some(score) => slowest = slowest.min(*score),
                None => {}
            }
        }
    }
    fastest < slowest && slowest.is_finite()
}

/// Joins slow hosts that are fast among themselves: the path between them and the others is slow.
fn groups(grid: &Grid, mut hosts: Vec<Finding>, rail: u32) -> Vec<Finding> {
    let at = |host: &Finding| grid.ranks.binary_search(&host.ranks[0]).unwrap_or_default();
    let effect = |host: &Finding| (-host.loss_percent.unwrap_or_default() / 100.0).ln_1p();
    // Half of the loss of one of them, because two hosts that are slow themselves are at least as slow together.
    let is_fast = |one: &Finding, other: &Finding| {
        let least = effect(one).max(effect(other)) / 2.0;
        [(at(one), at(other)), (at(other), at(one))]
            .into_iter()
            .all(|(from, to)| grid.matrix[from][to].is_some_and(|score| score > least))
    };
    let mut all = Vec::new();
    while let Some(first) = hosts.pop() {
        let (mut group, others): (Vec<_>, Vec<_>) = hosts.into_iter().partition(|host| is_fast(&first, host));
        hosts = others;
        group.push(first);
        let middle = |of: &dyn Fn(&Finding) -> Option<f64>| median(group.iter().filter_map(of)).unwrap_or_default();
        let (effect, z) = (middle(&|host| Some(effect(host))), middle(&|host| host.z));
        let certainty = group.iter().map(|host| host.certainty).max().unwrap_or(Certainty::Possible);
        if group.len() > 1 {
            let mut ranks: Vec<_> = group.iter().flat_map(|host| host.ranks.clone()).collect();
            ranks.sort_unstable();
            all.push(finding(What::Group, ranks, rail, effect, z, certainty));
        } else {
            all.extend(group);
        }
    }
    all.reverse();
    all
}

/// Finds slow paths: pairs that are slower than both hosts are otherwise.
fn paths(grid: &Grid, rail: u32) -> Vec<Finding> {
    let Grid { ranks, matrix, polish, .. } = grid;
    let spread = grid.noise.max(LEAST_SPREAD);
    // With few values in excess of the effects, the spread is uncertain.
    let limit = limit(matrix.iter().flatten().flatten().count()) * (1.0 + 6.0 / number(polish.freedom()));
    let mut found = Vec::new();
    for ((row, scores), from) in polish.residuals.iter().zip(matrix).zip(ranks) {
        for ((residual, score), to) in row.iter().zip(scores).zip(ranks) {
            let (Some(residual), Some(score)) = (*residual, *score) else { continue };
            let z = residual / spread;
            if z <= -limit && loss(residual) >= LOSS && loss(score) >= LOSS {
                let certainty = Certainty::of(z, limit, grid.is_small);
                found.push(finding(What::Cable, vec![*from, *to], rail, residual, z, certainty));
            }
        }
    }
    found
}

/// Joins the findings that apply to each of several rails.
fn merged(found: Vec<Finding>, rails: usize) -> Vec<Finding> {
    let mut all: Vec<Finding> = Vec::new();
    for new in &found {
        let same: Vec<_> = found.iter().filter(|other| (other.what, &other.ranks) == (new.what, &new.ranks)).collect();
        if same.len() < rails {
            all.push(new.clone());
        } else if new.rail == Some(0) {
            let mean = |of: fn(&Finding) -> Option<f64>| median(same.iter().filter_map(|finding| of(finding)));
            let (loss_percent, z) = (mean(|finding| finding.loss_percent), mean(|finding| finding.z));
            all.push(Finding { rail: None, loss_percent, z, ..new.clone() });
        }
    }
    all
}

/// Finds slow rails. `rails` are the quiet cells of each rail, and `noise` is the standard deviation within a rail.
fn slow_rails(rails: &[Vec<&Cell>], noise: f64) -> Vec<Finding> {
    let sizes = rails.iter().flatten().flat_map(|cell| &cell.rows).map(|row| row.size);
    let Some(size) = sizes.max().filter(|_| rails.len() > 1) else { return Vec::new() };
    let value = |cell: &&Cell| {
        let row = cell.rows.iter().find(|row| row.size == size)?;
        Some(((cell.from, cell.to), speed(row)?.ln()))
    };
    let all: Vec<BTreeMap<_, _>> = rails.iter().map(|cells| cells.iter().filter_map(value).collect()).collect();
    let mut found = Vec::new();
    for (own, rail) in all.iter().zip(0..) {
        // Compares each pair with the same pair on the other rails, so that a slow host does not make a rail suspect.
        let ratio = |(pair, value): (&(Rank, Rank), &f64)| {
            let others = all.iter().zip(0..).filter(|(_, other)| *other != rail);
            let others = median(others.filter_map(|(other, _)| other.get(pair).copied()))?;
            Some((pair.0, pair.1, value - others))
        };
        let ratios: Vec<_> = own.iter().filter_map(ratio).collect();
        let Some(Grid { ranks, polish, noise: of_ratios, is_small, .. }) = Grid::of(&ratios) else { continue };
        let of_pairs = of_ratios.max(noise * std::f64::consts::SQRT_2);
        let spread = of_pairs * 1.2533 / number(polish.freedom()).sqrt();
        let limit = limit(rails.len()) * (1.0 + 1.0 / number(ranks.len()));
        let z = polish.common / spread.max(LEAST_SPREAD);
        if z <= -limit && loss(polish.common) >= LOSS {
            let certainty = Certainty::of(z, limit, is_small);
            found.push(finding(What::Rail, Vec::new(), rail, polish.common, z, certainty));
        }
    }
    found
}

/// Finds ranks most of whose tests failed. Tests with a rank that has an error itself show nothing about the other.
fn failed(quiet: &[&Cell], ranks: &[RankInfo]) -> Vec<Finding> {
    let is_lost = |rank: Rank| ranks.get(rank as usize).is_some_and(|rank| rank.error.is_some());
    let of = |rank: Rank| {
        let other = move |cell: &Cell| if cell.from == rank { cell.to } else { cell.from };
        let own = quiet.iter().filter(move |cell| cell.from == rank || cell.to == rank);
        own.filter(move |cell| is_lost(rank) || !is_lost(other(cell)))
    };
    let has_failed = |rank: &&RankInfo| {
        let failures = of(rank.rank).filter(|cell| cell.error.is_some()).count();
        rank.error.is_some() || failures > 0 && 2 * failures >= of(rank.rank).count() && ranks.len() > 2
    };
    let new = |rank: &RankInfo| Finding {
        what: What::Failed,
        ranks: vec![rank.rank],
        rail: None,
        loss_percent: None,
        z: None,
        certainty: Certainty::Certain,
        text: {
            let failures: Vec<_> = of(rank.rank).filter_map(|cell| cell.error.as_deref()).collect();
            let why = rank.error.as_deref().or(failures.first().copied()).unwrap_or_default();
            format!("{} of {} quiet tests of {} failed: {why}", failures.len(), of(rank.rank).count(), rank.label)
        },
    };
    ranks.iter().filter(has_failed).map(new).collect()
}

/// Returns the median of the busy results in percent of the quiet results of the same pairs.
fn busy(cells: &[Cell], quiet: &[&Cell]) -> Option<f64> {
    let key = |cell: &Cell| (cell.rail, cell.from, cell.to);
    let alone: std::collections::HashMap<_, _> = quiet.iter().map(|cell| (key(cell), &cell.rows)).collect();
    let ratios = cells.iter().filter(|cell| cell.mode == Mode::Busy).flat_map(|cell| {
        let alone = alone.get(&key(cell)).copied();
        let of = move |row: &Row| Some(speed(row)? / speed(alone?.iter().find(|other| other.size == row.size)?)?);
        cell.rows.iter().filter_map(of)
    });
    median(ratios).map(|ratio| round(ratio * 100.0))
}

/// Rounds to four digits after the point, so that files stay readable.
fn round(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

#[cfg(test)]
mod tests;
