//! `cargo xtask weigh`: the processor time that a build of the crates takes.
//!
//! Processor time hardly depends on what else runs, but it depends on the processor. So the table of the step `weight`
//! also names the time for `syn`, which each machine compiles from the same source.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;
use std::{env, str};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::repo;

/// Print what a program costs to build that uses the crates: packages, and processor seconds
///
/// Each program is built in the release profile, from an empty target folder.
#[derive(Args, Debug)]
pub(crate) struct Weigh {}

/// A crate and its features.
type Dependency = (&'static str, &'static [&'static str]);

/// The programs, by the crates that they use.
const USERS: [(&str, &[Dependency]); 7] = [
    ("sideway", &[("sideway", &[])]),
    ("sideway, softrnic", &[("sideway", &[]), ("softrnic", &[])]),
    ("trespass", &[("trespass", &[])]),
    ("trespass with softrnic, tokio", &[("trespass", &["softrnic", "tokio"])]),
    ("trespass-rpc", &[("trespass-rpc", &[])]),
    ("trespass-rpc with tonic, tls", &[("trespass-rpc", &["tonic", "tls"])]),
    ("xsk", &[("xsk", &[])]),
];

/// The variable that makes this program a wrapper of rustc, and names the file for its figures.
const LOG: &str = "XTASK_WEIGH_LOG";

/// The processor time of a build.
#[derive(Debug, Default)]
pub(crate) struct Weight {
    /// All processes, with build scripts and linkers.
    pub(crate) total: Duration,
    /// Each crate, with its tests and its build script; the heaviest first.
    pub(crate) crates: Vec<(String, Duration)>,
}

/// Runs the task.
pub(crate) fn main(_: &Weigh) -> Result<ExitCode> {
    let root = repo::root()?;
    println!("| the program uses | crates | processor seconds |\n|---|---:|---:|");
    for (title, uses) in USERS {
        let folder = repo::target_folder(&root)?.join("weigh/program");
        make(&root, &folder, uses)?;
        let mut cargo = repo::cargo(&folder);
        cargo.args(["build", "--release", "--quiet"]);
        let weight = of(cargo, &folder.join("target"))?;
        // The program itself is not one of its dependencies.
        println!("| {title} | {} | {:.0} |", weight.crates.len() - 1, weight.total.as_secs_f64());
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes a package that uses these crates.
fn make(root: &Path, folder: &Path, uses: &[Dependency]) -> Result<()> {
    let mut manifest =
        "[package]\nname = \"program\"\nedition = \"2024\"\n\n[workspace]\n\n[dependencies]\n".to_owned();
    let mut program = String::new();
    for (name, features) in uses {
        manifest += &format!("{name} = {{ path = {:?}, features = {features:?} }}\n", root.join(name));
        program += &format!("use {} as _;\n", name.replace('-', "_"));
    }
    fs::create_dir_all(folder.join("src")).with_context(|| format!("cannot create {}", folder.display()))?;
    fs::write(folder.join("Cargo.toml"), manifest).context("cannot write the program's manifest")?;
    fs::write(folder.join("src/main.rs"), program + "\nfn main() {}\n").context("cannot write the program")?;
    // The same versions as in the workspace; cargo removes those that the program does not use.
    fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock")).context("cannot copy Cargo.lock")?;
    Ok(())
}

/// Runs a build in this target folder, which is removed before and after, and returns its weight.
pub(crate) fn of(mut cargo: Command, target: &Path) -> Result<Weight> {
    remove(target)?;
    fs::create_dir_all(target).with_context(|| format!("cannot create {}", target.display()))?;
    let log = target.join("weights");
    // The wrapper is a copy, because cargo may replace this program.
    let wrapper = target.join("wrapper");
    fs::copy(env::current_exe()?, &wrapper).context("cannot copy xtask")?;
    cargo.env("CARGO_TARGET_DIR", target).env("CARGO_INCREMENTAL", "0").env("RUSTC_WRAPPER", wrapper).env(LOG, &log);
    let before = repo::processor_time();
    repo::build(cargo)?;
    let total = repo::processor_time().saturating_sub(before);
    let text = fs::read_to_string(&log).context("the build compiled nothing")?;
    remove(target)?;
    Ok(Weight { total, crates: heaviest(&text) })
}

fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if folder.exists() => Err(error).with_context(|| format!("cannot remove {}", folder.display())),
        _ => Ok(()),
    }
}

/// The sums of the lines `CRATE MICROSECONDS`, the heaviest crate first.
fn heaviest(log: &str) -> Vec<(String, Duration)> {
    let mut sums: BTreeMap<&str, Duration> = BTreeMap::new();
    for (name, time) in log.lines().filter_map(|line| line.split_once(' ')) {
        *sums.entry(name).or_default() += Duration::from_micros(time.parse().unwrap_or(0));
    }
    let mut sums: Vec<_> = sums.into_iter().map(|(name, time)| (name.to_owned(), time)).collect();
    sums.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
    sums
}

/// Whether cargo has started this program as a wrapper of rustc.
pub(crate) fn is_wrapper() -> bool {
    env::var_os(LOG).is_some() && env::args_os().nth(1).is_some_and(|word| PathBuf::from(word).ends_with("rustc"))
}

/// Runs rustc with the arguments of this program, and logs its processor time under the name of the package.
pub(crate) fn wrap() -> Result<ExitCode> {
    let mut words = env::args_os().skip(1);
    let rustc = words.next().context("the wrapper runs without a compiler")?;
    let words: Vec<_> = words.collect();
    let status = Command::new(&rustc).args(&words).status().with_context(|| format!("cannot run {rustc:?}"))?;
    // cargo also asks the compiler for its version and targets, without a package.
    let package =
        env::var("CARGO_PKG_NAME").ok().filter(|_| words.iter().any(|word| word == OsStr::new("--crate-name")));
    if let (Some(log), Some(package)) = (env::var_os(LOG), package) {
        let mut file = OpenOptions::new().create(true).append(true).open(log).context("cannot open the log")?;
        // One write, because several compilers append at once.
        file.write_all(format!("{package} {}\n", repo::processor_time().as_micros()).as_bytes())?;
    }
    ensure!(status.code().is_some(), "rustc ended with {status}");
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_are_summed_and_sorted() {
        let seconds = |name: &str, seconds| (name.to_owned(), Duration::from_secs(seconds));
        let log = "a 1000000\nsyn 4000000\na 2000000\nbroken\n";
        assert_eq!(heaviest(log), [seconds("syn", 4), seconds("a", 3)]);
    }
}
