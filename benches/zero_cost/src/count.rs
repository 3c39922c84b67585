//! Counting instructions. A loop runs twice in its own process under callgrind, with different numbers of rounds. The
//! difference of the counts is the cost of the additional rounds, without the start and the end of the process.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, bail, ensure};

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

/// Rounds of the two runs. The two numbers have the same number of digits, so parsing them costs the same.
const ROUNDS: [u64; 2] = [1000, 3000];

/// Part of the names of the device's functions.
const DEVICE: &str = "data_path::";

/// Runs `program` with `arguments` followed by the number of rounds, and returns the cost of each of the `requests`
/// requests of a round. `folder` is for the files of callgrind; the program searches `libraries` first for shared
/// objects.
///
/// # Errors
///
/// valgrind or the program failed.
pub fn count(
    program: &Path,
    arguments: &[String],
    requests: u32,
    folder: &Path,
    libraries: Option<&Path>,
) -> Result<Cost> {
    let run = |rounds| profile(program, arguments, rounds, folder, libraries);
    let [few, many] = [run(ROUNDS[0])?, run(ROUNDS[1])?];
    let counted = (ROUNDS[1] - ROUNDS[0]) as f64 * f64::from(requests);
    let each = |of: u64, before: u64| (of as f64 - before as f64) / counted;
    Ok(Cost { own: each(many.own, few.own), device: each(many.device, few.device) })
}

/// Instructions of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Profile {
    own: u64,
    device: u64,
}

fn profile(
    program: &Path,
    arguments: &[String],
    rounds: u64,
    folder: &Path,
    libraries: Option<&Path>,
) -> Result<Profile> {
    // Several processes run at the same time, so the name contains a number.
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let file = folder.join(format!("callgrind.out.{}", NEXT.fetch_add(1, Ordering::Relaxed)));
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--compress-strings=no", "--compress-pos=no"]);
    command.arg(format!("--callgrind-out-file={}", file.display()));
    command.arg(program).args(arguments).arg(rounds.to_string());
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

/// Adds up the exclusive cost of each function.
fn parse(text: &str) -> Result<Profile> {
    let mut costs: HashMap<&str, u64> = HashMap::new();
    let mut function = "";
    let mut of_a_call = false;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("fn=") {
            function = name;
        } else if line.starts_with("calls=") {
            // The next line is the cost of the called functions, which have their own lines.
            of_a_call = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit()) && !std::mem::take(&mut of_a_call) {
            let cost = line.split_ascii_whitespace().nth(1).and_then(|word| word.parse::<u64>().ok());
            *costs.entry(function).or_default() += cost.with_context(|| format!("no cost in {line:?}"))?;
        }
    }
    if costs.is_empty() {
        bail!("no function has a cost");
    }
    let mut profile = Profile::default();
    for (name, cost) in costs {
        *if name.contains(DEVICE) { &mut profile.device } else { &mut profile.own } += cost;
    }
    Ok(profile)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_of_a_call_is_counted_in_the_called_function() {
        let text = "version: 1\nevents: Ir\nfl=a.rs\nfn=main\n10 5\ncfn=x::data_path::post\ncalls=2 7\n11 40\n12 1\n\
                    fn=x::data_path::post\n7 40\ntotals: 46\n";
        assert_eq!(parse(text).unwrap(), Profile { own: 6, device: 40 });
        assert!(parse("version: 1\n").is_err());
    }
}
