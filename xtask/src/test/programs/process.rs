//! One program: keeps its output, and kills it at a deadline.

use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::test::running::Mark;

/// The polling interval.
pub(crate) const LOOK: Duration = Duration::from_millis(10);

/// A running program, killed with all its descendants when this is dropped.
#[derive(Debug)]
pub(crate) struct Process {
    words: String,
    child: Child,
    mark: Mark,
    output: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Process {
    /// Starts the program, with both its streams in one.
    pub(crate) fn start(mut command: Command) -> Result<Self> {
        let words: Vec<_> = std::iter::once(command.get_program()).chain(command.get_args()).collect();
        let words = words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
        let mark = Mark::put(&mut command);
        let (mut from, to) = std::io::pipe().context("cannot create a pipe")?;
        command.stdin(Stdio::null()).stdout(to.try_clone()?).stderr(to);
        let child = command.spawn().with_context(|| format!("cannot run {words}"))?;
        // The command holds the write ends; without it the pipe ends with the program.
        drop(command);
        let output = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&output);
        let reader = thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = from.read(&mut buffer) {
                sink.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&buffer[..length]);
            }
        });
        Ok(Self { words, child, mark, output, reader: Some(reader) })
    }

    /// The output so far.
    pub(crate) fn printed(&self) -> String {
        String::from_utf8_lossy(&self.output.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }

    /// The program's exit status, once it has exited.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        let status = self.child.try_wait().context("cannot wait for a program")?;
        if status.is_some() {
            self.read_all();
        }
        Ok(status)
    }

    /// Waits until the program exits or `deadline` passes. In the latter case, returns no status.
    pub(crate) fn wait(&mut self, deadline: Instant) -> Result<Option<ExitStatus>> {
        loop {
            let status = self.ended()?;
            if status.is_some() || Instant::now() >= deadline {
                return Ok(status);
            }
            thread::sleep(LOOK);
        }
    }

    /// The program's process ID.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The command and its output, for the report of a failure.
    pub(crate) fn story(&self) -> String {
        let printed = self.printed();
        let lines: Vec<&str> = printed.lines().collect();
        let last = lines[lines.len().saturating_sub(40)..].join("\n    ");
        format!("  {}\n    {last}", self.words)
    }

    /// Reads the output to its end. The program has ended, but its descendants also hold the pipe.
    fn read_all(&mut self) {
        if let Some(reader) = self.reader.take() {
            // If /proc cannot be listed, only the program itself ends.
            self.mark.kill().ok();
            // The reader does not panic; if it did, its output so far is kept.
            reader.join().ok();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // If the program has already exited, both calls return an error, which is ignored.
        self.child.kill().ok();
        self.child.wait().ok();
        self.read_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descendants_end_with_the_program() {
        let start = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            Process::start(command).unwrap()
        };
        let mut left_behind = start("sleep 1000 & echo started");
        assert!(left_behind.wait(Instant::now() + Duration::from_secs(60)).unwrap().is_some());
        assert_eq!(left_behind.printed(), "started\n");
        let mut killed = start("sleep 1000; echo ended");
        assert!(killed.wait(Instant::now()).unwrap().is_none());
        drop(killed);
    }
}
