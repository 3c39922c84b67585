//! The programs ring: C programs, the distribution's as they are and some of our own, on softrnic.
//!
//! `table` says what is run, `process` runs one program with a time limit, `play` a line of the table. `capi` has the programs that link
//! `librdma_mummy`.

mod capi;
mod play;
mod process;
mod table;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::Finished;
use super::report::State;
use super::summary::{Failure, Results};
use crate::packages::{self, Install};
use crate::preload::{self, Built};
use crate::repo;

/// Our own programs, each with the libraries that it is linked to.
const OWN: &[(&str, &[&str])] =
    &[("one_process", &["-libverbs", "-lpthread"]), ("by_version", &["-ldl"]), ("cancel", &["-libverbs", "-lpthread"])];

/// Runs all lines whose name has `only` in it.
pub(crate) fn run(root: &Path, only: &str) -> Result<Finished> {
    if let Err(error) = packages::require("the programs ring", &[packages::PROGRAMS], Install::InCiOrAsRoot) {
        return Ok(Finished::did_not_run(error.to_string()));
    }
    let rows: Vec<_> = table::ROWS.iter().filter(|row| row.name.contains(only)).collect();
    let checks: Vec<_> = capi::CHECKS.iter().filter(|check| check.name.contains(only)).collect();
    let mut results = Results::default();
    let mut faults = Vec::new();
    let mut judge = |name: &'static str, run: &dyn Fn() -> Result<()>| {
        let started = Instant::now();
        let result = run();
        let time = started.elapsed().as_secs_f64();
        match result {
            Ok(()) => {
                results.passed += 1;
                println!("test programs::{name} ... ok ({time:.1} s)");
            }
            Err(error) => {
                results.failed += 1;
                println!("test programs::{name} ... FAILED ({time:.1} s)\n{error:#}\n");
                faults.push(name);
                let story = format!("{error:#}").lines().map(str::to_owned).collect();
                let program = "the programs".to_owned();
                results.failures.push(Failure { program, test: name.to_owned(), story, ..Failure::default() });
            }
        }
    };
    if !rows.is_empty() {
        let built = preload::build(root)?;
        let place = Place { own: compile(root, &built)?, built, stride: repo::stride(root)? };
        for row in rows {
            judge(row.name, &|| play::play(row, &place));
        }
    }
    if !checks.is_empty() {
        let door = capi::build(root)?;
        for check in checks {
            judge(check.name, &|| check.run(&door));
        }
    }
    let state = match faults.as_slice() {
        [] if results.passed == 0 => State::Failed("no program ran".to_owned()),
        [] => State::Passed,
        faults => State::Failed(faults.join(" ")),
    };
    Ok(Finished { results, state, note: None })
}

/// Where things are.
#[derive(Debug)]
struct Place {
    built: Built,
    own: PathBuf,
    /// stride-perf.
    stride: PathBuf,
}

/// Compiles our own programs against the distribution's headers.
fn compile(root: &Path, built: &Built) -> Result<PathBuf> {
    let folder = built.libraries.with_file_name("programs");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    for (name, libraries) in OWN {
        let source = root.join("softrnic/preload/tests").join(name).with_extension("c");
        let mut command = Command::new("cc");
        command.args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE"]).arg(&source);
        command.arg("-o").arg(folder.join(name)).args(*libraries);
        let status = command.status().context("cannot run cc")?;
        ensure!(status.success(), "compiling {}: {status}", source.display());
    }
    Ok(folder)
}
