//! The ranks of a mesh, and the tests between them.

use serde::{Deserialize, Serialize};

use super::Rank;
use super::schedule::Mode;
use crate::report::Row;

/// A rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankInfo {
    /// The number of the rank.
    pub rank: Rank,
    /// Its name in tables.
    pub label: String,
    /// The name of its host, if it has joined.
    pub host: Option<String>,
    /// The address at which others reach it, if it has joined.
    pub address: Option<String>,
    /// Its RDMA port on each rail.
    pub ports: Vec<Option<String>>,
    /// The reason why it left early, or never joined.
    pub error: Option<String>,
}

/// A test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The number of the round.
    pub round: u64,
    /// What ran at the same time.
    pub mode: Mode,
    /// The index of the rail.
    pub rail: u32,
    /// The rank that sends.
    pub from: Rank,
    /// The rank that receives.
    pub to: Rank,
    /// The time to connect and to measure, if the test ran.
    pub seconds: Option<f64>,
    /// The results of each size.
    pub rows: Vec<Row>,
    /// The reason why the test failed.
    pub error: Option<String>,
}
