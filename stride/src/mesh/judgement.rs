//! Whether a mesh meets its limits and its baseline.

use serde::{Deserialize, Serialize};

use super::Rank;
use crate::report::verdict;

/// Whether the quiet cells meet the limits and the baseline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// Whether no cell misses a limit or is worse than the baseline.
    pub is_held: bool,
    /// The limits that a cell misses.
    pub misses: Vec<Missed>,
    /// The loss that is accepted, if there is a baseline.
    pub threshold_percent: Option<f64>,
    /// The comparison with the baseline.
    pub changes: Vec<Changed>,
    /// Number of cells with a result in the baseline only.
    pub missing: u64,
}

/// A limit that a cell misses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Missed {
    /// The index of the rail.
    pub rail: u32,
    /// The rank that sends.
    pub from: Rank,
    /// The rank that receives.
    pub to: Rank,
    /// The limit, and what was found.
    #[serde(flatten)]
    pub miss: verdict::Missed,
}

/// A size of a cell that the baseline has too.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Changed {
    /// The index of the rail.
    pub rail: u32,
    /// The rank that sends.
    pub from: Rank,
    /// The rank that receives.
    pub to: Rank,
    /// The results.
    #[serde(flatten)]
    pub change: verdict::Size,
}
