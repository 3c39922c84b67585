//! Instructions of a loop, divided into those of the NIC in software and the others.

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;

/// A loop of a program, which the program runs if its name and a number of rounds are the arguments.
pub trait Loop: ValueEnum {
    /// How many messages or requests a round has.
    fn count(self) -> u64;

    /// The limit of instructions for each of them, without the device.
    fn limit(self) -> f64;
}

/// Measures all loops, and prints a table; `false` if a limit is exceeded.
///
/// # Errors
///
/// valgrind is missing, or a run failed.
pub fn measure<L: Loop + Copy>(what: &str, folder: &Path, out: &mut impl Write) -> Result<bool> {
    let mut is_within = true;
    writeln!(out, "{what:20}      own  softrnic  limit  system calls")?;
    for each in L::value_variants() {
        let name = each.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
        let [few, many] = [profile(&name, 1000, folder)?, profile(&name, 3000, folder)?];
        let per = |many: u64, few: u64| (many as f64 - few as f64) / (2000 * each.count()) as f64;
        let (own, device, calls) = (per(many.own, few.own), per(many.device, few.device), per(many.calls, few.calls));
        writeln!(out, "{name:20} {own:8.1} {device:9.1} {:6.0} {calls:13.3}", each.limit())?;
        is_within &= own <= each.limit();
    }
    Ok(is_within)
}

/// The exit status of a measurement.
pub fn exit(result: Result<bool>) -> ExitCode {
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            // If printing fails too, no way to report remains.
            let _ = writeln!(io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Counts of a run.
#[derive(Clone, Copy, Debug, Default)]
struct Profile {
    /// Instructions outside of the device.
    own: u64,
    /// Instructions of the device, and of all that it calls.
    device: u64,
    /// System calls.
    calls: u64,
}

/// Counts what a function with `Ends` and `run` in its path does, in a run of this program with the arguments `task` and
/// `rounds`.
///
/// # Errors
///
/// valgrind is missing, or the run failed.
fn profile(task: &str, rounds: u64, folder: &Path) -> Result<Profile> {
    let file = folder.join(format!("callgrind-{task}-{rounds}"));
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--collect-systime=yes", "--compress-strings=no", "--compress-pos=no"]);
    valgrind.arg("--toggle-collect=*Ends*run*").arg(format!("--callgrind-out-file={}", file.display()));
    valgrind.arg(std::env::current_exe()?).arg(task).arg(rounds.to_string());
    let output = valgrind.output().context("cannot run valgrind (the package valgrind)")?;
    ensure!(output.status.success(), "valgrind: {}", String::from_utf8_lossy(&output.stderr));
    parse(&std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?)
}

/// Splits the instructions into those of the device, with all functions that it calls, and the others.
fn parse(text: &str) -> Result<Profile> {
    let is_device = |name: &str| name.contains("softrnic");
    let (mut function, mut called) = ("", "");
    let mut of_a_call = false;
    let (mut profile, mut other) = (Profile::default(), 0);
    let mut by_name: HashMap<&str, u64> = HashMap::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("fn=") {
            function = name;
        } else if let Some(name) = line.strip_prefix("cfn=") {
            called = name;
        } else if line.starts_with("calls=") {
            of_a_call = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit()) {
            let mut words = line.split_ascii_whitespace().skip(1).map_while(|word| word.parse::<u64>().ok());
            let (cost, calls) = (words.next().with_context(|| format!("no cost in {line:?}"))?, words.next());
            if !std::mem::take(&mut of_a_call) {
                other += cost;
                profile.calls += calls.unwrap_or_default();
                *by_name.entry(function).or_default() += cost;
            } else if is_device(called) && !is_device(function) {
                profile.device += cost;
            }
        }
    }
    if profile.device == 0 || other < profile.device {
        bail!("callgrind counted {other} instructions, {} of the device", profile.device);
    }
    if std::env::var_os("COST_FUNCTIONS").is_some() {
        let mut list: Vec<_> = by_name.into_iter().collect();
        list.sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
        for (name, cost) in list.into_iter().take(40) {
            writeln!(io::stderr(), "{cost:10} {name}")?;
        }
    }
    profile.own = other - profile.device;
    Ok(profile)
}
