//! Tests that need processes of their own: because they check something that happens once in a process or is read from
//! its environment, or because a process of theirs is stopped or killed.

use std::env;
use std::io::{BufRead, BufReader};
use std::process::{ChildStdout, Command};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Signal, set_parent_process_death_signal};

/// A time limit that only a hung process reaches.
const LONG: Duration = Duration::from_secs(120);

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

/// Makes the kernel kill this process when the thread that has started it ends. A test that is killed cannot kill its
/// processes, and one that is stopped by a signal would remain.
///
/// # Panics
///
/// If the kernel refuses it.
pub fn end_with_parent() {
    set_parent_process_death_signal(Some(Signal::KILL)).unwrap_or_else(|error| panic!("prctl: {error}"));
}

/// The lines that a process prints. A thread reads them, so that a process that hangs does not hang its test, and that
/// the test harness of the process can write to its output.
#[derive(Debug)]
pub struct Lines(Receiver<String>);

impl Lines {
    /// Begins to read the output of a process.
    pub fn of(output: ChildStdout) -> Self {
        let (lines, received) = mpsc::channel();
        thread::spawn(move || {
            let all = BufReader::new(output).lines().map_while(Result::ok);
            // After the test no longer receives, the rest is read and dropped.
            all.for_each(|line| drop(lines.send(line)));
        });
        Self(received)
    }

    /// Waits for a line with `key`, and returns the text after it.
    ///
    /// # Panics
    ///
    /// If the process ends before that, or hangs.
    #[track_caller]
    pub fn after(&self, key: &str) -> String {
        let deadline = Instant::now() + LONG;
        loop {
            match self.0.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    if let Some((_, text)) = line.split_once(key) {
                        return text.to_owned();
                    }
                }
                Err(error) => panic!("the process did not print `{key}`: {error}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "starts a process")]
    fn line_is_found_among_others() {
        let mut shell = Command::new("sh");
        let mut child =
            shell.args(["-c", "echo first; echo key: 7; echo last"]).stdout(Stdio::piped()).spawn().unwrap();
        let lines = Lines::of(child.stdout.take().unwrap());
        assert_eq!(lines.after("key: "), "7");
        assert_eq!(lines.after("la"), "st");
        assert!(child.wait().unwrap().success());
    }
}
