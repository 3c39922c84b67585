//! What a mesh missed: limits, and results of its baseline.

use serde::Deserialize;

use super::html::Html;
use crate::report::limits::unit;
use crate::report::units::apart;
use crate::report::{bytes_in_words, fixed};

#[derive(Debug, Deserialize)]
pub(super) struct Limits {
    is_held: bool,
    misses: Vec<Miss>,
    changes: Vec<Change>,
    missing: u64,
}

#[derive(Debug, Deserialize)]
struct Miss {
    rail: usize,
    from: usize,
    to: usize,
    size_bytes: u64,
    option: String,
    limit: f64,
    found: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Change {
    rail: usize,
    from: usize,
    to: usize,
    size_bytes: u64,
    gain_percent: Option<f64>,
    is_worse: bool,
}

impl Limits {
    /// Returns what the mesh missed, as a text that is empty if it missed nothing.
    pub(super) fn misses(&self) -> &'static str {
        match (self.misses.is_empty(), self.changes.iter().any(|change| change.is_worse)) {
            _ if self.is_held => "",
            (true, true) => "worse than the baseline",
            (false, true) => "limits missed, worse than the baseline",
            _ => "limits missed",
        }
    }

    /// Returns the sender, receiver and rail of everything that is missed or worse.
    pub(super) fn pairs(&self) -> impl Iterator<Item = [usize; 3]> {
        let changes = self.changes.iter().map(|change| [change.from, change.to, change.rail]);
        self.misses.iter().map(|miss| [miss.from, miss.to, miss.rail]).chain(changes)
    }

    /// Appends the limits that the mesh misses, and what is worse than in the baseline.
    pub(super) fn write(&self, html: &mut Html, pair: &dyn Fn(usize, usize, usize) -> String) {
        if self.is_held {
            html.raw("<p class=\"good\">✔ All limits are met.</p>\n");
            return;
        }
        let worse: Vec<_> = self.changes.iter().filter(|change| change.is_worse).collect();
        html.raw("<details><summary class=\"bad\">✘ ");
        let counts = [("limits missed", self.misses.len()), ("results worse than the baseline", worse.len())];
        let counts = counts.into_iter().filter(|(_, count)| *count > 0).map(|(name, count)| format!("{name}: {count}"));
        html.add("{}", &[&counts.collect::<Vec<_>>().join("; ")]);
        if self.missing > 0 {
            html.add("; results that only the baseline has: {}", &[&self.missing]);
        }
        html.raw("</summary>\n<ul>\n");
        for miss in &self.misses {
            let (pair, size) = (pair(miss.from, miss.to, miss.rail), bytes_in_words(miss.size_bytes));
            let ([limit, found], unit) = (apart([miss.limit, miss.found.unwrap_or(f64::NAN)]), unit(&miss.option));
            let found = miss.found.map_or_else(|| "no result".to_owned(), |_| format!("{found} {unit}"));
            html.add("<li>{}, {}: {} ({}: {} {})</li>\n", &[&pair, &size, &found, &miss.option, &limit, &unit]);
        }
        for change in worse {
            let (pair, size) = (pair(change.from, change.to, change.rail), bytes_in_words(change.size_bytes));
            let gain = fixed(change.gain_percent.unwrap_or(f64::NAN), 8, 1);
            html.add("<li>{}, {}: {} % against the baseline</li>\n", &[&pair, &size, &gain]);
        }
        html.raw("</ul></details>\n");
    }
}
