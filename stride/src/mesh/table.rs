//! The results of a mesh as text for people, and as CSV.

use std::io::{Result, Write};

use super::Rank;
use super::cell::Cell;
use super::document::Document;
use super::polish::median;
use super::schedule::Mode;
use super::verdict::{Certainty, speed};
use crate::plan::Measure;
use crate::report::csv::{Figures, line};
use crate::report::{Row, Style, bytes_in_words, fixed};

/// Number of pairs in the list of the worst.
const WORST: usize = 5;

/// Number of errors that are printed.
const ERRORS: usize = 5;

/// Width of a column.
const WIDTH: usize = 13;

/// Returns the titles of a mode's columns: medians over the tests of a host, and for quiet tests also the worst.
fn titles(mode: Mode) -> &'static [&'static str] {
    match mode {
        Mode::Quiet => &["sends", "worst", "receives", "worst"],
        Mode::Busy => &["busy sends", "receives"],
        Mode::Incast => &["incast sends", "receives"],
        Mode::Outcast => &["outcast sends", "receives"],
    }
}

/// Writes the results as text.
///
/// # Errors
///
/// Returns any error of the writer `out`.
pub fn write(document: &Document, out: &mut dyn Write, style: Style) -> Result<()> {
    let view = View::new(document);
    let (head, bad, dim) = (style.head, style.bad, style.dim);
    let what = format!("{} {}", document.plan.workload.operation, view.unit());
    writeln!(
        out,
        "{what}, {}, {} ranks, {} rounds",
        bytes_in_words(view.size),
        document.ranks.len(),
        document.rounds.len()
    )?;
    for rail in 0..u32::try_from(document.rails.len()).unwrap_or(u32::MAX) {
        let modes = [Mode::Quiet, Mode::Busy, Mode::Incast, Mode::Outcast];
        let modes: Vec<_> =
            modes.into_iter().filter(|mode| document.cells.iter().any(|cell| cell.mode == *mode)).collect();
        if !document.rail(rail).is_empty() {
            writeln!(out, "\n{head}rail {}{head:#}", document.rail(rail))?;
        }
        let width = document.ranks.iter().map(|rank| rank.label.chars().count()).max().unwrap_or(4).max(4);
        write!(out, "{head}{:width$}", "host")?;
        for mode in &modes {
            for title in titles(*mode) {
                write!(out, "{title:>WIDTH$}")?;
            }
        }
        writeln!(out, "{:>8}{head:#}", "errors")?;
        for rank in &document.ranks {
            write!(out, "{:width$}", rank.label)?;
            for mode in &modes {
                for is_sender in [true, false] {
                    let values = view.values(*mode, rail, rank.rank, is_sender);
                    write!(out, "{:>WIDTH$}", view.show(median(values.iter().copied())))?;
                    if *mode == Mode::Quiet {
                        write!(out, "{:>WIDTH$}", view.show(view.worst(&values)))?;
                    }
                }
            }
            let of = document
                .cells
                .iter()
                .filter(|cell| cell.rail == rail && (cell.from == rank.rank || cell.to == rank.rank));
            let errors = of.filter(|cell| cell.error.is_some()).count();
            let mark = if errors > 0 { bad } else { dim };
            writeln!(out, "{mark}{errors:>8}{mark:#}")?;
        }
    }
    view.pairs(out)?;
    view.errors(out, style)?;
    let verdict = &document.verdict;
    writeln!(out)?;
    for finding in &verdict.findings {
        let z = finding.z.map_or_else(String::new, |z| format!(", z {z:.1}"));
        let mark = if finding.certainty == Certainty::Possible { dim } else { bad };
        writeln!(out, "{mark}{}: {}{mark:#}{z}", finding.certainty.word(), finding.text)?;
    }
    if let Some(noise) = verdict.noise_percent.filter(|_| verdict.findings.is_empty()) {
        writeln!(out, "no host, path or rail is slow; the noise is {noise:.1} %")?;
    }
    verdict.notes.iter().try_for_each(|note| writeln!(out, "{dim}{note}{dim:#}"))?;
    out.flush()
}

/// The results of one size.
struct View<'a> {
    document: &'a Document,
    is_latency: bool,
    size: u64,
}

impl View<'_> {
    /// Selects the size that the table shows: the largest of a bandwidth, the smallest of a latency.
    fn new(document: &Document) -> View<'_> {
        let is_latency = matches!(document.plan.workload.measure, Measure::Latency(_));
        let sizes = document.cells.iter().flat_map(|cell| &cell.rows).map(|row| row.size);
        let size = if is_latency { sizes.min() } else { sizes.max() };
        let size = size.or(document.plan.workload.sizes.first().copied()).unwrap_or_default();
        View { document, is_latency, size }
    }

    fn unit(&self) -> String {
        match self.document.semantics {
            Some(semantics) => format!("latency {semantics}, median in us"),
            None => "bandwidth in Gb/s".to_owned(),
        }
    }

    fn row<'c>(&self, cell: &'c Cell) -> Option<&'c Row> {
        cell.rows.iter().find(|row| row.size == self.size)
    }

    /// Returns the value of a cell in the unit of the table.
    fn value(&self, cell: &Cell) -> Option<f64> {
        let speed = speed(self.row(cell)?)?;
        Some(if self.is_latency { speed.recip() / 1e3 } else { speed })
    }

    fn values(&self, mode: Mode, rail: u32, rank: Rank, is_sender: bool) -> Vec<f64> {
        let of = |cell: &&Cell| {
            let own = if is_sender { cell.from } else { cell.to };
            cell.mode == mode && cell.rail == rail && own == rank
        };
        self.document.cells.iter().filter(of).filter_map(|cell| self.value(cell)).collect()
    }

    fn worst(&self, values: &[f64]) -> Option<f64> {
        values.iter().copied().reduce(if self.is_latency { f64::max } else { f64::min })
    }

    fn show(&self, value: Option<f64>) -> String {
        value.map_or_else(|| "-".to_owned(), |value| fixed(value, 9, 2))
    }

    fn name(&self, cell: &Cell) -> String {
        let rail = self.document.rail(cell.rail);
        let rail = if rail.is_empty() { String::new() } else { format!(" on {rail}") };
        format!("{} to {}{rail}", self.document.label(cell.from), self.document.label(cell.to))
    }

    /// Writes the worst quiet pairs.
    fn pairs(&self, out: &mut dyn Write) -> Result<()> {
        let quiet = self.document.cells.iter().filter(|cell| cell.mode == Mode::Quiet);
        let mut all: Vec<_> = quiet.filter_map(|cell| Some((self.value(cell)?, cell))).collect();
        all.sort_by(|(one, _), (other, _)| if self.is_latency { other.total_cmp(one) } else { one.total_cmp(other) });
        if let Some(middle) = median(all.iter().map(|(value, _)| *value)) {
            writeln!(out, "\nworst pairs (median of all: {}):", self.show(Some(middle)))?;
            for (value, cell) in all.iter().take(WORST) {
                let share = value / middle * 100.0;
                writeln!(out, "  {}: {} ({share:.0} %)", self.name(cell), self.show(Some(*value)))?;
            }
        }
        Ok(())
    }

    fn errors(&self, out: &mut dyn Write, style: Style) -> Result<()> {
        let all: Vec<_> = self.document.cells.iter().filter(|cell| cell.error.is_some()).collect();
        if all.is_empty() {
            return Ok(());
        }
        let bad = style.bad;
        writeln!(out, "\n{bad}{} of {} tests failed:{bad:#}", all.len(), self.document.cells.len())?;
        for cell in all.iter().take(ERRORS) {
            writeln!(
                out,
                "  {} ({}): {}",
                self.name(cell),
                cell.mode.name(),
                cell.error.as_deref().unwrap_or_default()
            )?;
        }
        if all.len() > ERRORS {
            writeln!(out, "  …; --json writes all of them")?;
        }
        Ok(())
    }
}

/// Returns a text of a rank as a field that a spreadsheet does not take for a formula.
fn inert(text: &str) -> String {
    let mark = if text.starts_with(['=', '+', '-', '@']) { "'" } else { "" };
    format!("{mark}{text}")
}

/// Writes the results as CSV, with one line per test and size. A test without results has one line.
///
/// # Errors
///
/// Returns any error of the writer `out`.
pub fn csv(document: &Document, out: &mut dyn Write) -> Result<()> {
    let figures = Figures::of(document.plan.workload.measure);
    let own = ["round", "mode", "rail", "from", "to", "from_host", "to_host", "seconds", "error"];
    line(out, own.into_iter().chain(figures.names().iter().copied()))?;
    for cell in &document.cells {
        let rail = document.rails.get(cell.rail as usize).cloned().unwrap_or_default();
        let mut fields = vec![cell.round.to_string(), cell.mode.name().to_owned(), rail];
        fields.extend([cell.from.to_string(), cell.to.to_string()]);
        fields.extend([cell.from, cell.to].map(|rank| inert(document.label(rank))));
        fields.push(cell.seconds.map_or_else(String::new, |seconds| seconds.to_string()));
        fields.push(inert(cell.error.as_deref().unwrap_or_default()));
        let blank = vec![String::new(); figures.names().len()];
        let rows: Vec<_> = cell.rows.iter().map(|row| figures.values(row)).collect();
        for values in if rows.is_empty() { vec![blank] } else { rows } {
            line(out, fields.iter().map(String::as_str).chain(values.iter().map(String::as_str)))?;
        }
    }
    out.flush()
}
