//! Counting instructions. A program runs each loop twice under callgrind, with different numbers of rounds. The
//! difference of the counts is the cost of the additional rounds, without the start and the end of the loop.

use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};

/// The cost of one request or completion, in instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// The caller: the loop, and the functions that it calls, without the device's.
    pub own: f64,
    /// The device.
    pub device: f64,
}

impl Cost {
    /// The cost of the caller and the device.
    pub fn whole(self) -> f64 {
        self.own + self.device
    }
}

/// Rounds of the runs of a loop. The first run loads libraries and allocates what later runs use again; it is not
/// counted.
const ROUNDS: [u64; 3] = [10, 1000, 9000];

/// Part of the names of the device's functions.
const DEVICE: &str = "data_path::";

/// Runs a loop as often as [`count`] expects; returns the result of the last run. `run` has the number of rounds.
///
/// # Errors
///
/// The loop failed.
pub fn counted(mut run: impl FnMut(u64) -> Result<u64>) -> Result<u64> {
    let mut result = 0;
    for rounds in ROUNDS {
        result = run(rounds)?;
        run_has_ended();
    }
    Ok(result)
}

/// callgrind writes what it has counted when this function returns.
#[inline(never)]
fn run_has_ended() {
    black_box(());
}

/// Runs `program` with `arguments`, and returns the cost of each of the `requests` requests of a round, for each of the
/// `loops` loops that the program runs by [`counted`]. `folder` is for the files of callgrind; the program searches
/// `libraries` first for shared objects.
///
/// # Errors
///
/// valgrind or the program failed, or the program ran another number of loops.
pub fn count(
    program: &Path,
    arguments: &[String],
    (loops, requests): (usize, u32),
    folder: &Path,
    libraries: Option<&Path>,
) -> Result<Vec<Cost>> {
    let profiles = profiles(program, arguments, folder, libraries)?;
    let runs = loops * ROUNDS.len();
    // The last profile is that of the end of the process.
    ensure!(profiles.len() == runs + 1, "{} profiles instead of {}", profiles.len(), runs + 1);
    let counted = (ROUNDS[2] - ROUNDS[1]) as f64 * f64::from(requests);
    let each = |of: u64, before: u64| (of as f64 - before as f64) / counted;
    let cost =
        |runs: &[Profile]| Cost { own: each(runs[2].own, runs[1].own), device: each(runs[2].device, runs[1].device) };
    Ok(profiles[..runs].chunks_exact(ROUNDS.len()).map(cost).collect())
}

/// Instructions of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Profile {
    own: u64,
    device: u64,
}

fn profiles(program: &Path, arguments: &[String], folder: &Path, libraries: Option<&Path>) -> Result<Vec<Profile>> {
    // Several processes run at the same time, so the name contains a number.
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let file = folder.join(format!("callgrind.out.{}", NEXT.fetch_add(1, Ordering::Relaxed)));
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--compress-strings=no", "--compress-pos=no", "--combine-dumps=yes"]);
    command.arg("--dump-after=*::count::run_has_ended*").arg(format!("--callgrind-out-file={}", file.display()));
    command.arg(program).args(arguments);
    if let Some(libraries) = libraries {
        command.env("LD_LIBRARY_PATH", libraries);
    }
    let output = command.stdin(Stdio::null()).output().context("cannot run valgrind (the package valgrind)")?;
    ensure!(
        output.status.success(),
        "{} {}: {}\n{}",
        program.display(),
        arguments.join(" "),
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    parse(&text).with_context(|| format!("{} has an unexpected format", file.display()))
}

/// Adds up the exclusive cost of each function, for each part of the file.
fn parse(text: &str) -> Result<Vec<Profile>> {
    let mut profiles: Vec<Profile> = Vec::new();
    let mut is_device = false;
    let mut of_a_call = false;
    for line in text.lines() {
        if line.starts_with("part: ") {
            profiles.push(Profile::default());
        } else if let Some(name) = line.strip_prefix("fn=") {
            is_device = name.contains(DEVICE);
        } else if line.starts_with("calls=") {
            // The next line is the cost of the called functions, which have their own lines.
            of_a_call = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit()) && !std::mem::take(&mut of_a_call) {
            let cost = line.split_ascii_whitespace().nth(1).and_then(|word| word.parse::<u64>().ok());
            let profile = profiles.last_mut().context("a cost before the first part")?;
            *if is_device { &mut profile.device } else { &mut profile.own } +=
                cost.with_context(|| format!("no cost in {line:?}"))?;
        }
    }
    ensure!(!profiles.is_empty(), "no part has a cost");
    Ok(profiles)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_of_a_call_is_counted_in_the_called_function() {
        let part = "part: 1\n\nevents: Ir\nfl=a.rs\nfn=main\n10 5\ncfn=x::data_path::post\ncalls=2 7\n11 40\n12 1\n\
                    fn=x::data_path::post\n7 40\ntotals: 46\n";
        let profile = Profile { own: 6, device: 40 };
        assert_eq!(parse(&format!("version: 1\n{part}{part}")).unwrap(), [profile; 2]);
        assert!(parse("version: 1\n").is_err());
    }
}
