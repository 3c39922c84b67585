//! The step `weight`: README's two commands stay cheap to build from an empty target folder.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::repo;
use crate::weigh::{self, Weight};

/// The processor seconds that each command of README may take, the processor seconds of [`YARDSTICK`] on the machine for
/// which that limit is set, and the words that limit the command to its build. The limits are a third above what the
/// commands take, because the yardstick varies: on a machine of twice the speed, it took 15 % less than the rest.
const LIMITS: [(f64, f64, &[&str]); 2] = [(133.0, 14.0, &[]), (190.0, 17.6, &["--no-run"])];
/// Crates that both commands compile. On a slower or faster machine, the figures are scaled by their sum, because the time
/// of one crate varies by a fifth from run to run.
const YARDSTICK: [&str; 4] = ["clap_builder", "proc-macro2", "rustix", "syn"];
/// How many crates the step prints.
const PRINTED: usize = 10;

/// Runs both commands in a target folder of their own.
pub(super) fn check(root: &Path) -> Result<()> {
    let readme = fs::read_to_string(root.join("README.md")).context("cannot read README.md")?;
    let commands = commands(&readme)?;
    let target = repo::target_folder(root)?.join("weigh/readme");
    let mut faults = Vec::new();
    for (command, (limit, usual, more)) in commands.into_iter().zip(LIMITS) {
        let mut cargo = repo::cargo(root);
        cargo.args(command.split_whitespace()).args(more);
        let weight = weigh::of(cargo, &target)?;
        let total = weight.total.as_secs_f64();
        let scaled = total * usual / yardstick(&weight)?;
        println!(
            "cargo {command}: {total:.0} s of processor time, {scaled:.0} s after scaling; the limit is {limit} s"
        );
        for (name, time) in weight.crates.iter().take(PRINTED) {
            println!("{:>8.1} s  {name}", time.as_secs_f64());
        }
        if scaled > limit {
            faults.push(format!("`cargo {command}` takes {scaled:.0} s, more than {limit} s"));
        }
    }
    ensure!(faults.is_empty(), "{}; take weight out of the crates named above", faults.join("; "));
    Ok(())
}

/// The first two commands in README, without `$ cargo` and their comments.
fn commands(readme: &str) -> Result<[&str; 2]> {
    let mut lines = readme.lines().filter_map(|line| line.strip_prefix("$ cargo "));
    let mut next = || lines.next().map(|line| line.split('#').next().unwrap_or_default().trim());
    next().zip(next()).map(|(first, second)| [first, second]).context("README.md has fewer than two cargo commands")
}

/// The processor seconds of [`YARDSTICK`].
fn yardstick(weight: &Weight) -> Result<f64> {
    let time = |name| {
        let found = weight.crates.iter().find(|(package, _)| package == name).map(|(_, time)| time.as_secs_f64());
        found.filter(|time| *time > 0.0).with_context(|| format!("the build does not compile {name}"))
    };
    YARDSTICK.iter().map(|name| time(*name)).sum()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn commands_are_those_of_the_first_screen() {
        let readme = "text\n```console\n$ cargo stride write bw   # why\n$ cargo xtask test\n$ cargo other\n";
        assert_eq!(commands(readme).unwrap(), ["stride write bw", "xtask test"]);
        assert!(commands("$ cargo one\n").is_err());
    }

    #[test]
    fn build_without_the_yardstick_is_an_error() {
        let names = [["a"].as_slice(), &YARDSTICK].concat();
        let mut crates: Vec<_> = names.iter().map(|name| ((*name).to_owned(), Duration::from_secs(2))).collect();
        let weight = Weight { total: Duration::from_secs(60), crates: crates.clone() };
        assert!((yardstick(&weight).unwrap() - 8.0).abs() < 1e-9);
        crates.pop();
        assert!(yardstick(&Weight { total: Duration::from_secs(60), crates }).is_err());
        assert!(yardstick(&Weight::default()).is_err());
    }
}
