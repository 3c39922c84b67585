//! Tests that need a process of their own, because they check something that happens once in a process or is read from
//! its environment.

use std::env;
use std::process::Command;

/// The variable with the name of the test, in a process that runs it alone.
pub(crate) const ALONE: &str = "SIDEWAY_TEST_ALONE";

/// Whether this is the process in which the test `name` must run its body. In other processes, starts that process with
/// `environment` added, and waits for it; the caller returns.
///
/// `name` is the path of the test in its program, e.g. `loading::nothing_is_loaded`.
///
/// # Panics
///
/// If the test fails there, or does not run there because `name` is not its name.
#[track_caller]
pub fn alone(name: &str, environment: &[(&str, &str)]) -> bool {
    if env::var_os(ALONE).is_some_and(|test| test == name) {
        return true;
    }
    let program = env::current_exe().unwrap_or_else(|error| panic!("the path of this program: {error}"));
    let output = Command::new(program)
        .args(["--exact", name, "--include-ignored", "--nocapture", "--test-threads=1"])
        .env(ALONE, name)
        .envs(environment.iter().copied())
        .output()
        .unwrap_or_else(|error| panic!("starting {name} in a process of its own: {error}"));
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} failed in a process of its own:\n{stdout}\n{stderr}");
    assert!(stdout.contains("1 passed"), "{name} did not run in a process of its own:\n{stdout}\n{stderr}");
    // The test's messages about parts that did not run are passed on.
    for line in stderr.lines().filter(|line| line.starts_with("DID NOT RUN")) {
        let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{line}\n"));
    }
    false
}
