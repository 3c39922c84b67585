//! stride: measurements of both sides in one process. A benchmark does not connect again: it ends with a status.

use std::process::ExitCode;

use stride_perf::{cli, program};

use crate::harness::{Ended, Left};
use crate::schedules::{never, sweep};

fn measure(words: &[&str]) -> Ended {
    let common = ["-s", "64,4K", "-n", "200", "-d", "soft0", "--loopback"];
    let job = cli::parse(std::iter::once(&"stride-perf").chain(words).chain(&common)).unwrap();
    let code = format!("{:?}", program::run(job));
    // `ExitCode` can be compared only by its text.
    if code == format!("{:?}", ExitCode::SUCCESS) { Ok(()) } else { Err(code) }
}

#[test]
fn bandwidth_of_writes() {
    sweep("write bw", || measure(&["write", "bw", "--validate"]), Left::Threads, never);
}

#[test]
fn latency_of_sends() {
    sweep("send lat", || measure(&["send", "lat"]), Left::Threads, never);
}
