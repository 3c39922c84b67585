//! Shows the progress on a terminal, and prints the lines of `-v` and the report of `--json`.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::copy::{Outcome, Progress};
use crate::error::{Error, Kind, Result};
use crate::standard::Standard;

/// Interval between two updates.
const PAUSE: Duration = Duration::from_millis(100);

/// Shows the progress of a copy until this value is dropped.
#[derive(Debug)]
pub struct Show {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Show {
    /// Starts the display: a bar if requested, and the names of files if the progress records them.
    pub fn start(progress: Arc<Progress>, bar: bool) -> Show {
        let over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&over);
        // Without a thread, nothing is shown, but the copy continues.
        let thread = thread::Builder::new().spawn(move || run(&progress, bar, &ended)).ok();
        Show { over, thread }
    }

    /// Whether a bar is shown by default.
    pub fn on_terminal() -> bool {
        std::io::stderr().is_terminal()
    }
}

impl Drop for Show {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // The thread only displays, so its failure is ignored.
            _ = thread.join();
        }
    }
}

fn run(progress: &Progress, bar: bool, over: &AtomicBool) {
    let target = if bar { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let shown = ProgressBar::with_draw_target(Some(0), target);
    let form =
        "{bar:30} {decimal_bytes:>10} of {decimal_total_bytes:<10} {decimal_bytes_per_sec:>12}  {eta:>4} left  {msg}";
    if let Ok(style) = ProgressStyle::with_template(form) {
        shown.set_style(style);
    }
    loop {
        let is_over = over.load(Relaxed);
        let now = progress.now();
        let names = progress.take_names().join("\n");
        if !names.is_empty() {
            // A hidden bar prints nothing.
            if shown.is_hidden() { print_error(&names) } else { shown.println(names) }
        }
        shown.set_length(now.listed.0);
        shown.set_position(now.done.0);
        let more = if now.is_listed { "" } else { "+" };
        shown.set_message(format!("{} of {}{more} files", now.done.1, now.listed.1));
        if is_over {
            shown.finish_and_clear();
            return;
        }
        thread::park_timeout(PAUSE);
    }
}

/// Whether a message could not be printed.
static LOST: AtomicBool = AtomicBool::new(false);

/// Prints a line to the standard error with a single write, because other programs may print to the same terminal. If
/// that fails, [`has_lost_messages`] reports it.
pub fn print_error(line: &str) {
    if Standard::Error.write(format!("{line}\n").as_bytes()).is_err() {
        LOST.store(true, Relaxed);
    }
}

/// Prints a log record to the standard error. The command does not request it, and an error is printed on its own, so its
/// loss is no failure.
pub fn print_record(line: &str) {
    _ = Standard::Error.write(format!("{line}\n").as_bytes());
}

/// Whether a message could not be printed. There is no stream on which to report it, so only the exit status can.
pub fn has_lost_messages() -> bool {
    LOST.load(Relaxed)
}

/// Prints a text to the standard output.
///
/// # Errors
///
/// The standard output cannot be written.
pub fn print(text: &str) -> Result<()> {
    Standard::Output.write(text.as_bytes()).map_err(|error| Standard::Output.error(&error))
}

/// The report of `--json`.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// Exit status.
    pub status: u8,
    /// Regular files that were listed.
    pub files: u64,
    /// Entries of all kinds.
    pub entries: u64,
    /// Bytes that were sent.
    pub bytes: u64,
    /// Duration of the copy in seconds.
    pub seconds: f64,
    /// Transport of the connection.
    pub transport: String,
    /// The error texts of the entries that failed.
    pub errors: Vec<String>,
    /// The texts of the entries that were skipped because of their type.
    pub skipped: Vec<String>,
}

impl Report {
    /// Creates the report of an outcome.
    pub fn new(outcome: &Outcome, started: Instant, transport: &str) -> Report {
        let texts = |is_skipped: bool| {
            let of_kind = outcome.failures.iter().filter(|error| (error.kind() == Kind::Skipped) == is_skipped);
            of_kind.map(ToString::to_string).collect()
        };
        Report {
            status: outcome.status(),
            files: outcome.totals.files,
            entries: outcome.totals.entries,
            bytes: outcome.carried,
            seconds: started.elapsed().as_secs_f64(),
            transport: transport.to_owned(),
            errors: texts(false),
            skipped: texts(true),
        }
    }

    /// Creates the report of a copy that failed as a whole.
    pub fn failed(error: &Error, started: Instant) -> Report {
        Report {
            status: error.copy_status(),
            seconds: started.elapsed().as_secs_f64(),
            errors: vec![error.to_string()],
            ..Report::default()
        }
    }

    /// Prints one line of JSON to the standard output.
    ///
    /// # Errors
    ///
    /// The standard output cannot be written.
    pub fn print(&self) -> Result<()> {
        let line = serde_json::to_string(self).map_err(std::io::Error::from);
        let line = line.map_err(|error| Standard::Output.error(&error))?;
        print(&format!("{line}\n"))
    }

    /// Returns the lines that `-v` prints.
    pub fn lines(&self) -> String {
        let rate = self.bytes as f64 / 1e9 / self.seconds.max(1e-9);
        let (files, bytes, seconds) = (self.files, self.bytes, self.seconds);
        let noun = if files == 1 { "file" } else { "files" };
        format!("{files} {noun}, {bytes} bytes in {seconds:.2} s over {}\nBandwidth {rate:.3} GB/s", self.transport)
    }
}
