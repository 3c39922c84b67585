//! Compares the results of a test with its limits and its baseline.

use std::io::stdout;
use std::path::Path;

use anyhow::{Context, Result, anyhow};

use super::console::{Console, shown};
use super::exit::Exit;
use super::{files, print_line};
use crate::cli::Output;
use crate::plan::Plan;
use crate::report::compare::{self, Comparison};
use crate::report::json::Document;
use crate::report::limits::{Limits, Miss};
use crate::report::verdict;
use crate::report::{Environment, Row, Series, Style, bytes, series};

/// Default of `--threshold` in percent.
pub(super) const THRESHOLD: f64 = 5.0;

/// The baseline of a comparison: a run of this program, or the output of perftest, which contains no environment.
pub(super) struct Baseline {
    series: Series,
    environment: Option<Environment>,
}

impl Baseline {
    /// Reads the first test of a file that can be compared with this plan. Called before anything is measured.
    pub(super) fn read(file: &Path, plan: &Plan) -> Result<Self> {
        let text = files::read(file)?;
        let all = series(&text, "the baseline").with_context(|| format!("{} is not a run", file.display()))?;
        let now = this_run(plan, Vec::new());
        let mut trouble = None;
        for series in all {
            match Comparison::of(&series, &now, THRESHOLD) {
                Ok(_) => {
                    let is_there = |row: &Row| row.is_whole && plan.workload.sizes.contains(&row.size);
                    if !series.rows.iter().any(is_there) {
                        let sizes = |all: Vec<u64>| all.into_iter().map(bytes).collect::<Vec<_>>().join(", ");
                        let old = series.rows.iter().filter(|row| row.is_whole).map(|row| row.size).collect();
                        trouble = trouble.or(Some(anyhow!(
                            "no size in common: it has {}, and this run has {}; give one of its sizes with --msg-size",
                            sizes(old),
                            sizes(plan.workload.sizes.clone())
                        )));
                        continue;
                    }
                    let environment = Document::read(&text).ok().map(|document| document.environment);
                    return Ok(Self { series, environment });
                }
                Err(error) => trouble = trouble.or(Some(error)),
            }
        }
        Err(trouble.unwrap_or_else(|| anyhow!("it has no results; name the output of a completed test")))
            .with_context(|| format!("cannot compare with {}", file.display()))
    }
}

/// Returns the results of this run as a series.
fn this_run(plan: &Plan, rows: Vec<Row>) -> Series {
    Series::of_plan("this run", plan, rows)
}

/// The results of comparing a test with its limits and its baseline.
#[derive(Default)]
pub(super) struct Verdict {
    /// Whether the user gave a limit or a baseline.
    is_asked: bool,
    misses: Vec<Miss>,
    /// The comparison with the baseline. If the baseline has an environment, also contains the differences from it.
    comparison: Option<(Comparison, Option<Vec<String>>)>,
}

impl Verdict {
    /// Compares the results with the limits and the baseline.
    pub(super) fn of(output: &Output, screen: &Console, baseline: Option<Baseline>) -> Result<Self> {
        let max_p99 = output.max_p99.map(|time| time.as_secs_f64() * 1e6);
        let limits = Limits { min_gbps: output.min_gbps, min_mpps: output.min_mpps, max_p99 };
        let silent: Vec<_> = screen.silent.iter().map(|(size, _)| *size).collect();
        let misses = limits.missed(&screen.rows, &screen.unmeasured, &silent);
        let mut comparison = None;
        if let (Some(baseline), Some(environment)) = (baseline, &screen.environment) {
            let now = this_run(&environment.plan, screen.rows.clone());
            let compared = Comparison::of(&baseline.series, &now, output.threshold.unwrap_or(THRESHOLD))?;
            let compared = compared.with_unmeasured(&screen.unmeasured);
            let before = baseline.environment.as_ref();
            comparison = Some((compared, before.map(|before| compare::differences(before, environment))));
        }
        Ok(Self { is_asked: !limits.are_none() || comparison.is_some(), misses, comparison })
    }

    /// Returns the verdict in the form for JSON, or `None` if the user gave no limit and no baseline.
    pub(super) fn verdict(&self) -> Option<verdict::Verdict> {
        let comparison = self.comparison.as_ref();
        let compared = comparison.map(|(comparison, differences)| (comparison, differences.clone()));
        self.is_asked.then(|| verdict::Verdict::new(&self.misses, compared))
    }

    /// Prints missed limits, differences and the comparison. With an event stream, the comparison is not printed,
    /// because the last event contains it.
    pub(super) fn report(&self, output: &Output) -> Result<()> {
        self.misses.iter().for_each(|miss| print_line(&format!("missed: {miss}")));
        let Some((comparison, differences)) = &self.comparison else { return Ok(()) };
        match differences {
            Some(differences) => {
                differences.iter().for_each(|difference| print_line(&format!("differs: {difference}")))
            }
            None => print_line(
                "the baseline is perftest's output, which does not list all of its options; compare them by hand",
            ),
        }
        if output.json_stream {
            return Ok(());
        }
        shown(output.has_other_outputs(), |out| {
            writeln!(out)?;
            Ok(comparison.write(out, Style::of(&stdout()))?)
        })
    }

    /// Returns the outcome of the program.
    pub(super) fn exit(&self) -> Exit {
        if self.verdict().is_none_or(|verdict| verdict.is_held) { Exit::Done } else { Exit::Missed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Measure;
    use crate::report::sample;

    #[test]
    fn unmeasured_size_is_worse_than_the_baseline() {
        let measure = Measure::Bandwidth;
        let rows = [64, 128].map(|size| sample::bandwidth_row(size, 1000)).to_vec();
        let series = this_run(&sample::plan(measure), rows.clone());
        let judged = |unmeasured: &[u64]| {
            let output = Output::default();
            let mut screen = Console::new(&sample::plan(measure), &output);
            screen.environment = Some(sample::environment(measure));
            (screen.rows, screen.unmeasured) = (rows[..1].to_vec(), unmeasured.to_vec());
            let baseline = Baseline { series: series.clone(), environment: None };
            Verdict::of(&output, &screen, Some(baseline)).unwrap().exit()
        };
        assert_eq!(judged(&[]), Exit::Done);
        assert_eq!(judged(&[128]), Exit::Missed);
    }
}
