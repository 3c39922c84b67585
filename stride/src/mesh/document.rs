//! The results of a mesh as JSON. `schema/stride-perf-mesh.schema.json` describes it.

use std::io::{self, Write};

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

use super::Rank;
use super::cell::{Cell, RankInfo};
use super::judgement::Judgement;
use super::schedule::Mode;
use super::verdict::Verdict;
use crate::plan::{Plan, Semantics};

/// The number of the schema, which changes if programs that read the previous schema would misinterpret the data.
pub const FORMAT: u32 = 1;

/// The value of `kind`.
const KIND: &str = "mesh";

/// The results of a mesh.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// The value of [`FORMAT`] in the program that wrote the document.
    pub format: u32,
    /// Always `mesh`.
    pub kind: String,
    /// The version of the program.
    pub version: String,
    /// The time at which the mesh started.
    pub time: String,
    /// The words of the command line of rank 0.
    pub command_line: Vec<String>,
    /// The name of the launcher.
    pub launcher: String,
    /// The plan of each test on the first rail.
    pub plan: Plan,
    /// The semantics of a latency. `None` for a bandwidth.
    pub semantics: Option<Semantics>,
    /// The ranks.
    pub ranks: Vec<RankInfo>,
    /// The names of the rails.
    pub rails: Vec<String>,
    /// The rounds.
    pub rounds: Vec<RoundInfo>,
    /// The tests.
    pub cells: Vec<Cell>,
    /// What the quiet cells show.
    pub verdict: Verdict,
    /// The limits and the baseline, if any.
    pub limits: Option<Judgement>,
    /// The reason why the mesh ended early.
    pub error: Option<String>,
}

/// A round that ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoundInfo {
    /// The number of the round.
    pub round: u64,
    /// What ran at the same time.
    pub mode: Mode,
    /// The index of the rail.
    pub rail: u32,
    /// The time from the start of the round to its last result.
    pub seconds: f64,
    /// The part of this time in which no rank connected or measured.
    pub overhead_seconds: f64,
}

/// Returns the name of a rank in tables: its host, and its number if several ranks run on the host.
pub fn label(hosts: &[Option<String>], rank: Rank) -> String {
    match hosts.get(rank as usize).and_then(Option::as_deref) {
        None => format!("rank {rank}"),
        Some(host) if hosts.iter().flatten().filter(|other| *other == host).count() > 1 => format!("{host}:{rank}"),
        Some(host) => host.to_owned(),
    }
}

impl Document {
    /// Creates the members that state what the file is.
    pub fn kind() -> (u32, String) {
        (FORMAT, KIND.to_owned())
    }

    /// Returns the name of a rank in tables.
    pub fn label(&self, rank: Rank) -> &str {
        self.ranks.get(rank as usize).map_or("?", |rank| rank.label.as_str())
    }

    /// Returns the name of a rail, or an empty text if there is only one.
    pub fn rail(&self, rail: u32) -> &str {
        if self.rails.len() < 2 { "" } else { self.rails.get(rail as usize).map_or("?", String::as_str) }
    }

    /// Writes the document with one rank, round and cell per line.
    ///
    /// # Errors
    ///
    /// Returns any error of the writer `out`.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let Self { format, kind, version, time, command_line, launcher, plan, semantics, .. } = self;
        let Self { ranks, rails, rounds, cells, verdict, limits, error, .. } = self;
        writeln!(out, "{{")?;
        member(out, "format", format)?;
        member(out, "kind", kind)?;
        member(out, "version", version)?;
        member(out, "time", time)?;
        member(out, "command_line", command_line)?;
        member(out, "launcher", launcher)?;
        member(out, "plan", plan)?;
        member(out, "semantics", semantics)?;
        lines(out, "ranks", ranks)?;
        member(out, "rails", rails)?;
        lines(out, "rounds", rounds)?;
        lines(out, "cells", cells)?;
        member(out, "verdict", verdict)?;
        member(out, "limits", limits)?;
        write!(out, "\"error\": ")?;
        serde_json::to_writer(&mut *out, error)?;
        writeln!(out, "\n}}")?;
        out.flush()
    }

    /// Reads the output of [`write`](Self::write).
    ///
    /// # Errors
    ///
    /// Returns an error for the user if the text is not such output or has another format number.
    pub fn read(text: &str) -> anyhow::Result<Self> {
        #[derive(Deserialize)]
        struct Head {
            format: u32,
            kind: Option<String>,
        }
        let head: Head =
            serde_json::from_str(text).context("it is not JSON of stride-perf mesh, or it is truncated")?;
        ensure!(
            head.kind.as_deref() == Some(KIND),
            "it is not the result of a mesh; name a file that `mesh … --json` wrote"
        );
        ensure!(
            head.format == FORMAT,
            "its format is {}; this version of stride-perf reads format {FORMAT}; run the mesh again",
            head.format
        );
        let document: Self = serde_json::from_str(text).context("it is not JSON of stride-perf mesh")?;
        let (ranks, rails) = (document.ranks.len(), document.rails.len());
        let is_known = |cell: &Cell| (cell.from.max(cell.to) as usize) < ranks && (cell.rail as usize) < rails;
        ensure!(document.cells.iter().all(is_known), "a cell names a rank or a rail that it does not have");
        Ok(document)
    }
}

/// Writes a member.
fn member(out: &mut dyn Write, name: &str, value: &impl Serialize) -> io::Result<()> {
    write!(out, "\"{name}\": ")?;
    serde_json::to_writer(&mut *out, value)?;
    writeln!(out, ",")
}

/// Writes a member with one element per line.
fn lines(out: &mut dyn Write, name: &str, values: &[impl Serialize]) -> io::Result<()> {
    write!(out, "\"{name}\": [")?;
    for (value, separator) in values.iter().zip(std::iter::once("\n").chain(std::iter::repeat(",\n"))) {
        write!(out, "{separator}")?;
        serde_json::to_writer(&mut *out, value)?;
    }
    writeln!(out, "\n],")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mesh::{limits, table};
    use crate::report::limits::Limits;
    use crate::report::{Style, sample};

    /// The example in the folder of the schema.
    fn example() -> Document {
        Document::read(include_str!("../../schema/mesh-example.json")).unwrap()
    }

    #[test]
    fn documents_round_trip() {
        let document = example();
        let text = sample::written(|out| document.write(out));
        assert_eq!(Document::read(&text).unwrap(), document);
        assert!(text.lines().count() > document.cells.len());
    }

    #[test]
    fn other_files_are_errors() {
        let text = sample::written(|out| example().write(out));
        let other = |from: &str, to: &str| format!("{:#}", Document::read(&text.replacen(from, to, 1)).unwrap_err());
        assert!(other("\"mesh\"", "\"tree\"").contains("not the result of a mesh"));
        assert!(other("\"format\": 1", "\"format\": 7").contains("its format is 7"));
        assert!(other("\"from\":0", "\"from\":99").contains("names a rank"));
        assert!(format!("{:#}", Document::read("{}").unwrap_err()).contains("not JSON of stride-perf mesh"));
    }

    #[test]
    fn verdict_finds_what_the_example_contains() {
        let document = example();
        let verdict = Verdict::of(&document.cells, &document.ranks, &document.rails, false);
        let found: Vec<_> = verdict.findings.iter().map(|finding| (finding.what, finding.ranks.clone())).collect();
        let expected: Vec<_> =
            document.verdict.findings.iter().map(|finding| (finding.what, finding.ranks.clone())).collect();
        for one in &expected {
            assert!(found.contains(one), "{one:?}: {:?}", verdict.findings);
        }
        assert_eq!(found.len(), expected.len(), "{:?}", verdict.findings);
    }

    #[test]
    fn table_has_hosts_worst_pairs_and_findings() {
        let text = sample::written(|out| table::write(&example(), out, Style::plain()));
        for part in [
            "write bandwidth in Gb/s, 1 MiB, 5 ranks",
            "rail mlx5_1",
            "incast sends",
            "worst pairs",
            "tests failed:",
            "likely: host node4 is slow",
            "the sample is small",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let mut document = example();
        document.ranks[0].label = "=cmd()".to_owned();
        let csv = sample::written(|out| table::csv(&document, out));
        assert!(csv.contains(",'=cmd(),") && !csv.contains(",=cmd"), "a spreadsheet runs no text of a rank");
        assert_eq!(csv.lines().count(), 1 + example().cells.len());
    }

    #[test]
    fn mesh_is_compared_with_an_earlier_one_by_host() {
        let (old, mut new) = (example(), example());
        assert!(limits::compared(&old, &new, 5.0).unwrap().0.iter().all(|it| !it.change.is_worse));
        let slow = new.cells[0].clone();
        new.cells[0].rows = vec![sample::bandwidth_row(1 << 20, 10)];
        new.cells[1].rows.clear();
        let (changes, missing) = limits::compared(&old, &new, 5.0).unwrap();
        let worse: Vec<_> = changes.iter().filter(|it| it.change.is_worse).map(|it| (it.from, it.to)).collect();
        assert_eq!((worse, missing), (vec![(slow.from, slow.to)], 1));
        new.ranks.iter_mut().for_each(|rank| rank.label.push('x'));
        assert!(limits::compared(&old, &new, 5.0).unwrap_err().to_string().contains("no pair of hosts"));
    }

    #[test]
    fn cell_without_results_misses_all_limits() {
        let mut document = example();
        document.cells.truncate(2);
        document.cells[1].rows.clear();
        let limits = Limits { min_gbps: Some(0.001), ..Limits::default() };
        let misses = limits::missed(&document.cells, &limits, &[1 << 20]);
        assert_eq!(
            misses.iter().map(|miss| (miss.to, miss.miss.found)).collect::<Vec<_>>(),
            [(document.cells[1].to, None)]
        );
    }
}
