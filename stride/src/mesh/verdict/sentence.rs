//! Findings as sentences.

use super::{Finding, What};
use crate::mesh::cell::RankInfo;

/// Number of hosts of a group that a sentence names.
const MOST_NAMES: usize = 16;

/// The names in sentences.
pub(super) struct Names<'a> {
    pub(super) ranks: &'a [RankInfo],
    pub(super) rails: &'a [String],
    pub(super) is_latency: bool,
}

impl Names<'_> {
    /// Returns a finding as a sentence.
    pub(super) fn sentence(&self, finding: &Finding) -> String {
        let name = |at: usize| {
            finding.ranks.get(at).and_then(|rank| self.ranks.get(*rank as usize)).map_or("?", |rank| &rank.label)
        };
        let loss = finding.loss_percent.unwrap_or_default();
        let beside = |what: &str| match self.is_latency {
            true => format!("latency is {:.0} % above {what}", 100.0 * loss / (100.0 - loss).max(0.01)),
            false => format!("{loss:.0} % below {what}"),
        };
        let of_median = beside("the median");
        let rail = finding.rail.and_then(|rail| self.rails.get(rail as usize)).filter(|_| self.rails.len() > 1);
        let on = rail.map_or_else(String::new, |rail| format!(" on rail {rail}"));
        match finding.what {
            What::Host => format!("host {} is slow{on}: {of_median}, sending and receiving", name(0)),
            What::Sender => format!("host {} is slow as a sender{on}: {of_median}", name(0)),
            What::Receiver => format!("host {} is slow as a receiver{on}: {of_median}", name(0)),
            What::Group => {
                let mut hosts: Vec<_> = (0..finding.ranks.len().min(MOST_NAMES)).map(&name).collect();
                if finding.ranks.len() > MOST_NAMES {
                    hosts.push("…");
                }
                let hosts = hosts.join(", ");
                format!(
                    "hosts {hosts} are slow to and from the others{on}, but fast among themselves: the path between \
                     them is slow: {of_median}"
                )
            }
            What::Cable => {
                let loss = beside("what both hosts reach otherwise");
                format!("the path from {} to {} is slow{on}: {loss}", name(0), name(1))
            }
            What::Rail => format!("rail {} is slow: {}", rail.map_or("?", String::as_str), beside("the others")),
            What::Failed => finding.text.clone(),
        }
    }
}
