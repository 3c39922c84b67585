//! Runs the command `report`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::{files, plot_cmd};
use crate::report::page::{self, Run};

/// Makes a page of the runs that these files contain. The files are results of this program or output of perftest.
pub(super) fn write(runs: &[PathBuf], output: &Path) -> Result<()> {
    ensure!(runs.len() <= page::RUNS, "{} runs: a page shows at most {}; name fewer", runs.len(), page::RUNS);
    files::is_no_input(output, runs)?;
    let read = |(run, name): (&PathBuf, String)| {
        Run::read(&files::read(run)?, &name).with_context(|| format!("{} is not a run", run.display()))
    };
    let read = runs.iter().zip(plot_cmd::names(runs)).map(read).collect::<Result<Vec<_>>>()?;
    files::replace(output, page::page(&read).as_bytes())
}
