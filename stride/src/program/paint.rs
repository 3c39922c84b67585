//! Plots of runs.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::report::plot::{self, Format};
use crate::report::{Series, series};

/// Draws the runs of these files, ours or perftest's, into one plot.
pub(super) fn paint(runs: &[PathBuf], output: &Path) -> Result<()> {
    let mut all = Vec::new();
    for run in runs {
        let text = fs::read_to_string(run).with_context(|| format!("cannot read {}", run.display()))?;
        let name =
            run.file_stem().map_or_else(|| run.display().to_string(), |stem| stem.to_string_lossy().into_owned());
        all.extend(series(&text, &name).with_context(|| format!("{} is no run", run.display()))?);
    }
    draw(&all, output)
}

/// Draws series into a file, whose ending says how.
pub(super) fn draw(series: &[Series], output: &Path) -> Result<()> {
    let picture = plot::draw(series, Format::of(output)?)?;
    fs::write(output, picture).with_context(|| format!("cannot write {}", output.display()))
}
