//! `cargo xtask ci`: the whole gate, step by step.

mod aarch64;
mod api;
mod deny;
mod features;
mod inventory;
mod minimal;
mod msrv;
mod package;
mod public;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};

use crate::bindings::{self, Bindings};
use crate::test::{self, Test};
use crate::toolchain::Missing;
use crate::{plain, repo};

/// Run everything that must be right before a change is merged; stops at the first fault
///
/// With names of steps, runs these only. The last step is `cargo xtask test`, whose closing line ends the output.
#[derive(Args, Debug)]
pub(crate) struct Ci {
    /// Steps to run instead of all
    #[arg(value_enum, value_name = "STEP")]
    steps: Vec<Step>,

    /// Write what the steps `unsafe` and `api` compare with, UNSAFE.md and api/, instead of comparing
    #[arg(long)]
    write: bool,
}

/// One step of the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Step {
    /// The formatting is rustfmt's
    Fmt,
    /// clippy has nothing to say
    Clippy,
    /// Unsafe code is where `UNSAFE.md` says, and as much
    Unsafe,
    /// The public crates build with every set of their features, and clippy has nothing to say
    Features,
    /// The fuzz targets build, and clippy has nothing to say
    Fuzz,
    /// rustdoc has nothing to say
    Doc,
    /// The two libraries build with rustc alone: no C compiler, cmake, libclang or rdma-core
    Plain,
    /// What programs are built from builds for AArch64, where its standard library can be had
    Aarch64,
    /// The committed bindings are what the generator makes
    Bindings,
    /// The public crates build with the Rust that they promise, where it can be had
    Msrv,
    /// The public crates build with the oldest dependencies that they allow
    Minimal,
    /// What programs see of the crates is what `api/` says
    Api,
    /// The public crates build from what would be uploaded
    Package,
    /// Licences, sources and versions of all dependencies are what `deny.toml` allows
    Deny,
    /// The tests of all rings that this machine can run
    Test,
}

/// Carries the task out.
pub(crate) fn main(task: &Ci) -> Result<ExitCode> {
    let asked: Vec<Step> = Step::value_variants()
        .iter()
        .copied()
        .filter(|step| task.steps.is_empty() || task.steps.contains(step))
        .collect();
    let mut times = Vec::new();
    for step in asked {
        let name = step.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
        println!("== {name} ==");
        if step == Step::Test {
            // The closing line of the tests ends the output, so the times of the other steps come before it.
            println!("so far: {}", times.join(", "));
            return test::main(&Test::all());
        }
        let started = Instant::now();
        match run(step, task.write) {
            // Who names a step means it.
            Err(error) if task.steps.is_empty() && error.is::<Missing>() => {
                println!("skipped: {error}");
                times.push(format!("{name} skipped"));
                continue;
            }
            done => done.with_context(|| format!("the step `{name}` failed; again: cargo xtask ci {name}"))?,
        }
        times.push(format!("{name} {:.1} s", started.elapsed().as_secs_f64()));
        println!("== {} ==\n", times[times.len() - 1]);
    }
    Ok(ExitCode::SUCCESS)
}

fn run(step: Step, write: bool) -> Result<()> {
    match step {
        Step::Fmt => cargo(&["fmt", "--all", "--check"], &[]),
        Step::Clippy => cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"], &[]),
        Step::Unsafe => inventory::check(&repo::root()?),
        Step::Features => features::check(&repo::root()?),
        Step::Fuzz => {
            let words = ["clippy", "--manifest-path", "fuzz/Cargo.toml", "--target-dir", "target/fuzz", "--locked"];
            // libFuzzer is C++ and is linked; what is only checked needs no compiler for it, and no library.
            let by = [("RUSTFLAGS", "--cfg fuzzing"), ("CUSTOM_LIBFUZZER_PATH", "/nonexistent/libfuzzer.a")];
            cargo(&[&words[..], &["--", "-D", "warnings"]].concat(), &by)
        }
        Step::Doc => {
            let strict = [("RUSTDOCFLAGS", "-D warnings")];
            cargo(&["doc", "--workspace", "--no-deps"], &strict)?;
            // Without the vendors, whose items the other documentation must not link to.
            cargo(&["doc", "--package", "sideway", "--no-deps"], &strict)
        }
        Step::Plain => {
            plain::check()?;
            cargo(&["build", "--package", "rdma-mummy-sys", "--package", "sideway"], &[])
        }
        Step::Aarch64 => aarch64::check(),
        Step::Bindings => bindings::main(&Bindings::CHECK),
        Step::Msrv => msrv::check(&repo::root()?),
        Step::Minimal => minimal::check(&repo::root()?),
        Step::Api => api::check(&repo::root()?, write),
        Step::Package => package::check(&repo::root()?),
        Step::Deny => deny::check(&repo::root()?),
        Step::Test => bail!("the tests are the last step"),
    }
}

fn cargo(words: &[&str], environment: &[(&str, &str)]) -> Result<()> {
    let mut command = repo::cargo(&repo::root()?);
    command.args(words).envs(environment.iter().copied());
    let status = command.status().context("cannot run cargo")?;
    ensure!(status.success(), "`cargo {}` ended with {status}", words.join(" "));
    Ok(())
}
