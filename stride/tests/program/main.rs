//! Tests that run the program as a process, on softrnic's device.

#![expect(clippy::unwrap_used, reason = "a failed helper fails its test")]

mod browser;
mod cuda;
mod exit;
mod files;
mod libcuda;
mod measurements;
mod mesh;
mod ports;
mod signals;
mod threads;

use std::process::{Command, Output, Stdio};

use sideway_test_names::Port;

/// Returns a command that runs the program with these words as arguments, and with softrnic's librdmacm.
fn program(words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stride-perf"));
    command
        .args(words.split_whitespace())
        .env("NO_COLOR", "1")
        .env("RDMA_MUMMY_RDMACM", "softrnic")
        .stdin(Stdio::null());
    command
}

fn run(words: &str) -> Output {
    program(words).output().unwrap()
}

/// Returns a TCP port that is reserved until the tests end.
fn port() -> u16 {
    Port::reserve().keep()
}

/// Checks the exit status of a run, and returns its standard output and standard error.
#[track_caller]
fn ends(output: &Output, status: i32) -> (String, String) {
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8(bytes.clone()).unwrap());
    assert_eq!(output.status.code(), Some(status), "{out}\n{err}");
    assert!(!err.contains("panicked"), "{err}");
    (out, err)
}
