//! Instructions of a loop, divided into those of the NIC in software and the others.

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// Counts of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Profile {
    /// Instructions outside of the device.
    pub own: u64,
    /// Instructions of the device, and of all that it calls.
    pub device: u64,
    /// System calls.
    pub calls: u64,
}

/// Counts what a function with `Ends` and `run` in its path does, in a run of this program with the arguments `task` and
/// `rounds`.
///
/// # Errors
///
/// valgrind is missing, or the run failed.
pub fn profile(task: &str, rounds: u64, folder: &Path) -> Result<Profile> {
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
