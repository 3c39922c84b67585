//! `cargo xtask demo`: the shortest way to see data move over RDMA.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::repo;
use crate::softroce::{self, Guest, Request, Sinks};

/// The script in the guest: the server, then the client, and the output of both. $1 is the folder of the programs, $2
/// the port.
const SCRIPT: &str = include_str!("demo.sh");

/// Move checked data over a soft-RoCE device with the rc_pingpong example: no RDMA hardware and no root needed
///
/// Builds the examples, boots the guest of `cargo xtask softroce`, and runs in it a server and a client of rc_pingpong,
/// and each of them against the C program ibv_rc_pingpong.
#[derive(Args, Debug)]
pub(crate) struct Demo {
    /// Give up after this many seconds, boot included
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,

    // The help heading of `guest` also covers later options, so this field is last.
    #[command(flatten)]
    guest: Guest,
}

/// Runs the task; the exit code is that of the programs.
pub(crate) fn main(task: &Demo) -> Result<ExitCode> {
    let root = repo::root()?;
    // Missing packages are reported at once, before the build.
    let ready = softroce::ready(&task.guest)?;
    let status = repo::cargo(&root)
        .args(["build", "--release", "--package", "sideway-examples", "--examples"])
        .status()
        .context("cannot run cargo")?;
    ensure!(status.success(), "building the examples ended with {status}");

    let examples = repo::target_folder(&root)?.join("release/examples");
    let words: [OsString; 5] = ["/bin/sh".into(), "-c".into(), SCRIPT.into(), "demo".into(), examples.into()];
    let outcome = ready.run(&Request::new(words.into())?, Sinks::inherit, Duration::from_secs(task.timeout))?;
    Ok(ExitCode::from(outcome.exit_status()))
}
