//! The results of a mesh, and what rank 0 checks of those that ranks send.

use std::collections::BTreeSet;

use super::Settings;
use crate::mesh::cell::{Cell, RankInfo};
use crate::mesh::document::RoundInfo;
use crate::mesh::message::{Ended, Kind};
use crate::plan::Measure;

/// Maximum length of a text from a rank, in characters.
pub(super) const MAX_TEXT: usize = 1000;

/// Maximum number of different warnings that are kept.
pub(super) const MAX_WARNINGS: usize = 16;

/// The results of a mesh.
#[derive(Debug, Default)]
pub struct Results {
    /// The ranks.
    pub ranks: Vec<RankInfo>,
    /// The rounds that ran.
    pub rounds: Vec<RoundInfo>,
    /// The tests of these rounds.
    pub cells: Vec<Cell>,
    /// Why tests failed.
    pub troubles: BTreeSet<Kind>,
    /// Remarks of the ranks for the user.
    pub warnings: BTreeSet<String>,
    /// The reason why the mesh ended early.
    pub error: Option<String>,
}

/// Checks the results of a rank.
pub(super) fn check(ended: &Ended, settings: &Settings) -> Result<(), String> {
    if !(ended.seconds >= 0.0 && ended.seconds.is_finite()) {
        return Err("sent an invalid time".to_owned());
    }
    let mut sizes = BTreeSet::new();
    for row in &ended.rows {
        if !settings.sizes.contains(&row.size) || !sizes.insert(row.size) {
            return Err(format!("sent a result for {} bytes, which was not requested", row.size));
        }
        if row.latency().is_some() != matches!(settings.measure, Measure::Latency(_)) {
            return Err("sent a result of another kind than requested".to_owned());
        }
    }
    Ok(())
}

/// Limits the length of a text from a rank, and makes it one line in its own order.
pub(super) fn short(text: String) -> String {
    let text: String = text.chars().map(plain).collect();
    if text.len() <= MAX_TEXT { text } else { text.chars().take(MAX_TEXT).chain(['…']).collect() }
}

/// Replaces characters that control a terminal, begin a line, or change the order of others.
fn plain(letter: char) -> char {
    match letter {
        '\n' | '\t' => ' ',
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        _ if letter.is_control() => '\u{fffd}',
        _ => letter,
    }
}
