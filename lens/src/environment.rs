//! A lens by environment variables, which `lens run` sets for the library that it preloads.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};
use std::{env, fs, io};

use rdma_mummy_sys::process;

use crate::border;
use crate::sink::Sink;
use crate::{Builder, Devices, Format, InstallError, Lens, Schedule, ScheduleError, Summary};

/// Where the trace goes: a path, in which `%p` stands for the number of the process, or `-` for the standard error.
pub const TRACE: &str = "LENS_TRACE";
/// `json` or `text`, which is the default.
pub const FORMAT: &str = "LENS_FORMAT";
/// The file of the counts, which is written often and when the process exits: a path with `%p`.
pub const COUNT: &str = "LENS_COUNT";
/// The address at which the counts are served, such as `127.0.0.1:9400`.
pub const METRICS: &str = "LENS_METRICS";
/// The path of a schedule of faults.
pub const FAULTS: &str = "LENS_FAULTS";
/// The seed of the faults, zero by default.
pub const SEED: &str = "LENS_SEED";
/// All variables.
pub const VARIABLES: [&str; 6] = [TRACE, FORMAT, COUNT, METRICS, FAULTS, SEED];

/// A lens from the environment, and where its counts go.
#[derive(Debug)]
pub struct Environment {
    lens: Lens,
    counts: Option<Counter>,
    warnings: Vec<String>,
}

/// A thread that writes the counts often, because a process may be killed.
#[derive(Debug)]
struct Counter {
    end: Sender<()>,
    thread: JoinHandle<io::Result<()>>,
}

/// How often the counts are written.
const PAUSE: Duration = Duration::from_millis(100);

impl Counter {
    fn start(path: PathBuf) -> io::Result<Self> {
        let name = path.to_string_lossy().replace("%p", &unique_name());
        let path = PathBuf::from(name);
        write(&path)?;
        let (end, ended) = mpsc::channel();
        let builder = thread::Builder::new().name("lens-counts".to_owned());
        let run = move || {
            while ended.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
                // A later attempt may succeed, as when a disk has space again.
                let _ = write(&path);
            }
            write(&path)
        };
        let thread = process::without_signals(|| builder.spawn(run))?;
        Ok(Self { end, thread })
    }

    fn finish(self) -> io::Result<()> {
        drop(self.end);
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread that writes the counts has panicked")))
    }
}

/// The number of the process, and when this program started in it: one process may execute several.
fn unique_name() -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!("{}-{}", std::process::id(), since.as_nanos())
}

/// Replaces the file, of which a reader sees either contents whole.
fn write(path: &Path) -> io::Result<()> {
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(".new");
    fs::write(&fresh, summary().to_string())?;
    fs::rename(&fresh, path)
}

fn summary() -> Summary {
    Summary::with(border::pair_summaries())
}

/// Why the environment gives no lens.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnvironmentError {
    /// A file cannot be opened.
    #[error("cannot open {} ({variable}): {error}", .path.display())]
    File {
        /// The variable.
        variable: &'static str,
        /// Its value.
        path: PathBuf,
        /// The error.
        #[source]
        error: io::Error,
    },
    /// A line of the schedule is wrong.
    #[error("{}: {error}", .path.display())]
    Schedule {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        error: ScheduleError,
    },
    /// A value is not one of those allowed.
    #[error("{variable}={value}: expected {expected}")]
    Value {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// What could stand there.
        expected: &'static str,
    },
    /// The lens cannot be installed.
    #[error(transparent)]
    Install(#[from] InstallError),
}

/// Whether the environment has a variable of the lens.
pub fn is_set() -> bool {
    [TRACE, COUNT, METRICS, FAULTS].iter().any(|name| value(name).is_some())
}

/// Whether the environment has a schedule of faults.
pub fn has_faults() -> bool {
    value(FAULTS).is_some()
}

fn value(name: &str) -> Option<std::ffi::OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

/// Keeps the standard error of this moment for the trace and for [`write_error`], if the environment describes a lens: the
/// program may close it before its first verb, and another file may get the number. Does nothing if it is closed already.
pub fn keep_standard_error() {
    if is_set() {
        let _ = Sink::standard_error();
    }
}

/// Writes to the standard error that was kept.
///
/// # Errors
///
/// That of the write, or the program has closed it.
pub fn write_error(text: &str) -> io::Result<()> {
    Sink::standard_error()?.write_all(text.as_bytes())
}

impl Environment {
    /// Installs the lens that the environment describes, if it describes one. Its schedule may give commands to `devices`.
    ///
    /// # Errors
    ///
    /// See [`EnvironmentError`].
    pub fn install(devices: Option<impl Devices + 'static>) -> Result<Option<Self>, EnvironmentError> {
        if !is_set() {
            return Ok(None);
        }
        let mut builder = Builder::default();
        if let Some(devices) = devices {
            builder = builder.devices(devices);
        }
        let mut warnings = Vec::new();
        if let Some(path) = value(TRACE).map(PathBuf::from) {
            let format = format()?;
            let sink: io::Result<Box<dyn Write + Send>> = if path == Path::new("-") {
                Sink::standard_error().map(|sink| Box::new(sink) as _)
            } else {
                Sink::open(&path).map(|sink| Box::new(sink) as _)
            };
            match sink {
                Ok(sink) => builder = builder.trace(format, sink),
                Err(error) => warnings.push(file_error(TRACE, path, error).to_string()),
            }
        }
        let mut counts = None;
        if let Some(path) = value(COUNT).map(PathBuf::from) {
            builder = builder.count();
            counts = Some(path);
        }
        let mut address = None;
        if let Some(text) = value(METRICS) {
            let value = text.to_string_lossy().into_owned();
            let expected = "an address and a port, such as 127.0.0.1:9400";
            address =
                Some(value.parse().map_err(|_| EnvironmentError::Value { variable: METRICS, value, expected })?);
            builder = builder.count();
        }
        if let Some(path) = value(FAULTS).map(PathBuf::from) {
            builder = builder.faults(read_schedule(&path)?, seed()?);
        }
        let lens = builder.install()?;
        // Without these, the program runs: another process of it may have the address, or the right to write the file.
        if let Some(Err(error)) = address.map(|address| lens.serve(address)) {
            warnings.push(error.to_string());
        }
        let counts = counts.and_then(|path| match Counter::start(path.clone()) {
            Ok(counter) => Some(counter),
            Err(error) => {
                warnings.push(file_error(COUNT, path, error).to_string());
                None
            }
        });
        Ok(Some(Self { lens, counts, warnings }))
    }

    /// What the lens lacks, for the user.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Ends the lens, and writes the counts.
    ///
    /// # Errors
    ///
    /// The first error of a write.
    pub fn finish(self) -> io::Result<()> {
        if self.lens.belongs_to_parent() {
            // Its threads are those of the parent, which may have held a lock at the fork.
            std::mem::forget(self);
            return Ok(());
        }
        let counted = self.counts.map_or(Ok(()), Counter::finish);
        self.lens.finish().and(counted)
    }
}

fn format() -> Result<Format, EnvironmentError> {
    match value(FORMAT) {
        None => Ok(Format::Text),
        Some(text) if text == "text" => Ok(Format::Text),
        Some(text) if text == "json" => Ok(Format::Json),
        Some(text) => {
            let value = text.to_string_lossy().into_owned();
            Err(EnvironmentError::Value { variable: FORMAT, value, expected: "text or json" })
        }
    }
}

fn seed() -> Result<u64, EnvironmentError> {
    let Some(text) = value(SEED) else { return Ok(0) };
    let text = text.to_string_lossy().into_owned();
    text.parse().map_err(|_| EnvironmentError::Value { variable: SEED, value: text, expected: "a number" })
}

/// Reads a schedule.
///
/// # Errors
///
/// The file cannot be read, or a line is wrong.
pub fn read_schedule(path: &Path) -> Result<Schedule, EnvironmentError> {
    let text = fs::read_to_string(path).map_err(|error| file_error(FAULTS, path.to_owned(), error))?;
    text.parse().map_err(|error| EnvironmentError::Schedule { path: path.to_owned(), error })
}

fn file_error(variable: &'static str, path: PathBuf, error: io::Error) -> EnvironmentError {
    EnvironmentError::File { variable, path, error }
}
