//! Runs test programs: copies their output, and kills a program that hangs.

use std::fmt;
use std::io::{ErrorKind, IsTerminal, PipeReader, Read, Write};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;
use std::{fs, thread};

use anyhow::{Context, Result};

use super::results::{Results, Scanner};

/// How long a test program may print nothing. libtest prints a line for each test; under Miri, the longest one takes a
/// few minutes on a busy machine.
const SILENCE: Duration = Duration::from_secs(30 * 60);
/// Time limit for the end of a killed program's output.
const GRACE: Duration = Duration::from_secs(5);
/// The variable that marks the processes of one run.
const MARK: &str = "XTASK_TEST_PROGRAM";

/// A value of [`MARK`] that no other run of this process has.
#[derive(Debug)]
pub(super) struct Mark(String);

impl Mark {
    /// Marks the process that `command` will start, and all its descendants.
    pub(super) fn put(command: &mut Command) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let mark = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        command.env(MARK, &mark);
        Self(mark)
    }

    /// Kills the marked processes, including those whose parent has exited.
    pub(super) fn kill(&self) -> Result<()> {
        let entry = format!("{MARK}={}", self.0);
        let has_mark = |environment: &[u8]| environment.split(|byte| *byte == 0).any(|one| one == entry.as_bytes());
        for process in fs::read_dir("/proc").context("cannot list the processes")?.flatten() {
            let name = process.file_name();
            let Some(id) = name.to_str().and_then(|name| name.parse::<libc::pid_t>().ok()) else { continue };
            // A process that has exited, or belongs to another user, has no readable environment.
            if fs::read(process.path().join("environ")).is_ok_and(|environment| has_mark(&environment)) {
                // SAFETY: `kill` takes only numbers; the process has this run's mark.
                unsafe { libc::kill(id, libc::SIGKILL) };
            }
        }
        Ok(())
    }
}

/// How a test program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It exited, or a signal killed it.
    Exited(ExitStatus),
    /// It was killed after it had printed nothing for this long.
    TimedOut(Duration),
}

impl End {
    pub(crate) fn is_success(self) -> bool {
        matches!(self, Self::Exited(status) if status.success())
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(status) => status.fmt(f),
            Self::TimedOut(silence) => write!(f, "timed out: printed nothing for {} s", silence.as_secs_f64()),
        }
    }
}

/// Runs a test program, or cargo; copies its output to standard output, with both streams in the order of printing.
pub(crate) fn stream(command: Command) -> Result<(End, Results)> {
    copy(command, &mut std::io::stdout())
}

/// Like [`stream`], with the output going to `out`.
pub(crate) fn copy(command: Command, out: &mut dyn Write) -> Result<(End, Results)> {
    copy_within(command, out, SILENCE)
}

fn copy_within(mut command: Command, out: &mut dyn Write, silence: Duration) -> Result<(End, Results)> {
    let mark = Mark::put(&mut command);
    let (reader, writer) = std::io::pipe().context("cannot create a pipe")?;
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    if std::io::stdout().is_terminal() && std::env::var_os("CARGO_TERM_COLOR").is_none() {
        command.env("CARGO_TERM_COLOR", "always");
    }
    let mut child = command.spawn().with_context(|| format!("cannot run {}", command.get_program().display()))?;
    // The command holds the write ends; without it the pipe ends with the child.
    drop(command);
    let chunks = read(reader);
    let mut scanner = Scanner::default();
    let mut is_killed = false;
    loop {
        match chunks.recv_timeout(if is_killed { GRACE } else { silence }) {
            Ok(chunk) => {
                let chunk = chunk.context("cannot read the output of the tests")?;
                scanner.write_all(&chunk)?;
                out.write_all(&chunk)?;
                out.flush()?;
            }
            Err(RecvTimeoutError::Timeout) if !is_killed => {
                mark.kill()?;
                is_killed = true;
            }
            Err(_) => break,
        }
    }
    let status = child.wait()?;
    if !is_killed {
        return Ok((End::Exited(status), scanner.finish()));
    }
    let end = End::TimedOut(silence);
    Ok((end, scanner.finish_killed(&end.to_string())))
}

/// The pipe's contents, until its end.
fn read(mut reader: PipeReader) -> Receiver<std::io::Result<Vec<u8>>> {
    let (sender, receiver) = sync_channel(16);
    thread::spawn(move || {
        loop {
            let mut chunk = vec![0; 16 * 1024];
            let chunk = match reader.read(&mut chunk) {
                Ok(0) => break,
                Ok(length) => {
                    chunk.truncate(length);
                    Ok(chunk)
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };
            let is_last = chunk.is_err();
            if sender.send(chunk).is_err() || is_last {
                break;
            }
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str, silence: Duration) -> (End, Results, String) {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let mut out = Vec::new();
        let (end, results) = copy_within(command, &mut out, silence).unwrap();
        (end, results, String::from_utf8(out).unwrap())
    }

    #[test]
    fn program_that_ends_has_its_status_and_results() {
        let (end, results, out) = run("echo 'test result: ok. 3 passed; 0 failed'; exit 3", SILENCE);
        assert!(matches!(end, End::Exited(status) if status.code() == Some(3)) && !end.is_success());
        assert_eq!((results.passed, out.lines().count()), (3, 1));
    }

    #[test]
    fn program_that_hangs_is_killed_with_its_children() {
        // The inner shell exits, so the last of these processes then has another parent.
        let script = "echo 'Running hangs'; sleep 1000 & echo $!; (sleep 1001 & echo $!); wait";
        let silence = Duration::from_secs(3);
        let (end, results, out) = run(script, silence);
        assert_eq!(end, End::TimedOut(silence));
        let [failure] = &results.failures[..] else { panic!("one failure") };
        assert!(failure.starts_with("Running hangs\n    timed out: printed nothing for 3 s; the last lines:\n"));
        assert_eq!((results.failed, out.lines().count()), (1, 3));
        for id in out.lines().skip(1) {
            assert!(failure.contains(id), "{failure}");
            // A process that has exited but is not yet reaped has no arguments.
            let arguments = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            assert!(!arguments.starts_with(b"sleep"), "{id} is still there");
        }
    }
}
