//! Runs the command `plot`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::files;
use crate::report::plot::{self, Format};
use crate::report::{Series, series};

/// Plots the runs that these files contain. The files are results of this program or output of perftest.
pub(super) fn paint(runs: &[PathBuf], output: &Path) -> Result<()> {
    files::is_no_input(output, runs)?;
    let mut all = Vec::new();
    for (run, name) in runs.iter().zip(names(runs)) {
        let text = files::read(run)?;
        all.extend(series(&text, &name).with_context(|| format!("{} is not a run", run.display()))?);
    }
    draw(&all, output)
}

/// Draws series into a file. The file name's extension selects the format.
pub(super) fn draw(series: &[Series], output: &Path) -> Result<()> {
    let picture = plot::draw(series, Format::of(output)?)?;
    files::replace(output, &picture)
}

/// Returns the names of the runs. A name is the file name without its extension if that is unique. Otherwise it is the
/// file name with its extension, after as many folders of the path as are needed.
pub(super) fn names(runs: &[PathBuf]) -> Vec<String> {
    let of = |run: &PathBuf, folders: usize| {
        let name = if folders == 0 { run.file_stem() } else { run.file_name() };
        let mut parts: Vec<_> = run.iter().rev().skip(1).take(folders.saturating_sub(1)).collect();
        parts.reverse();
        parts.extend(name);
        parts.into_iter().collect::<PathBuf>().display().to_string()
    };
    let deepest = runs.iter().map(|run| run.iter().count()).max().unwrap_or(0);
    let is_alone = |run: &PathBuf, folders| {
        runs.iter().filter(|other| *other != run).all(|other| of(other, folders) != of(run, folders))
    };
    let folders = |run: &PathBuf| (0..=deepest).find(|folders| is_alone(run, *folders)).unwrap_or(0);
    runs.iter().map(|run| of(run, folders(run))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_names_are_unique_and_short() {
        let of = |runs: &[&str]| names(&runs.iter().map(PathBuf::from).collect::<Vec<_>>());
        assert_eq!(of(&["a/run.json", "b/other.json"]), ["run", "other"]);
        assert_eq!(of(&["a/run.json", "b/run.json"]), ["a/run.json", "b/run.json"]);
        assert_eq!(of(&["run.json", "run.txt"]), ["run.json", "run.txt"]);
        assert_eq!(of(&["x/a/run.json", "y/a/run.json", "z/new.json"]), ["x/a/run.json", "y/a/run.json", "new"]);
        assert_eq!(of(&["run.json", "run.json"]), ["run", "run"]);
        assert_eq!(of(&["run.json", "a/run.json"]), ["run.json", "a/run.json"]);
    }
}
