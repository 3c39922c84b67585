//! The settings of a mesh.

use std::time::Duration;

use crate::mesh::Rank;
use crate::mesh::message::Test;
use crate::mesh::schedule::Round;
use crate::plan::Measure;

/// What a mesh consists of.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The number of ranks.
    pub ranks: Rank,
    /// The number of rails.
    pub rails: u32,
    /// The job that ranks must belong to.
    pub job: String,
    /// The schedule.
    pub rounds: Vec<Round>,
    /// The sizes of a test.
    pub sizes: Vec<u64>,
    /// What the tests measure.
    pub measure: Measure,
    /// Whether data flows from the server of a test to its client.
    pub is_from_server: bool,
    /// What all ranks must have in common with this one.
    pub test: Test,
    /// How long to wait for all ranks.
    pub join: Duration,
    /// How long a rank may be silent while it starts or measures a test.
    pub silence: Duration,
}

impl Settings {
    /// Returns the client and the server of a test between a sender and a receiver, or the reverse.
    pub(super) fn swapped(&self, (one, other): (Rank, Rank)) -> (Rank, Rank) {
        if self.is_from_server { (other, one) } else { (one, other) }
    }
}
