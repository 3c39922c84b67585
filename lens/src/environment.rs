//! A lens by environment variables, which `lens run` sets for the library that it preloads.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::{env, fmt, fs};

use crate::{Builder, Devices, Format, InstallError, Lens, Schedule, ScheduleError};

/// Where the trace goes: a path, in which `%p` stands for the number of the process, or `-` for the standard error.
pub const TRACE: &str = "LENS_TRACE";
/// `json` or `text`, which is the default.
pub const FORMAT: &str = "LENS_FORMAT";
/// Where the counts go when the process exits: as for [`TRACE`].
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
    counts: Option<PathBuf>,
}

/// Why the environment gives no lens.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnvironmentError {
    /// A file cannot be opened.
    #[error("{variable}: cannot open {}: {error}", .path.display())]
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

fn value(name: &str) -> Option<std::ffi::OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
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
        if let Some(path) = value(TRACE).map(PathBuf::from) {
            builder = builder.trace(format()?, Sink::open(TRACE, &path)?);
        }
        let counts = value(COUNT).map(PathBuf::from);
        if counts.is_some() {
            builder = builder.count();
        }
        if let Some(text) = value(METRICS) {
            let value = text.to_string_lossy().into_owned();
            let expected = "an address and a port, such as 127.0.0.1:9400";
            let address = value.parse().map_err(|_| EnvironmentError::Value { variable: METRICS, value, expected })?;
            builder = builder.metrics(address);
        }
        if let Some(path) = value(FAULTS).map(PathBuf::from) {
            builder = builder.faults(read_schedule(&path)?, seed()?);
        }
        Ok(Some(Self { lens: builder.install()?, counts }))
    }

    /// Ends the lens, and writes the counts.
    ///
    /// # Errors
    ///
    /// The first error of a write.
    pub fn finish(self) -> io::Result<()> {
        if self.lens.belongs_to_parent() {
            return Ok(());
        }
        let summary = self.lens.summary();
        let written = self.lens.finish();
        if let Some(path) = self.counts {
            let mut sink = Sink::open(COUNT, &path).map_err(io::Error::other)?;
            write!(sink, "{summary}")?;
        }
        written
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
    let text = fs::read_to_string(path).map_err(|error| file_error(FAULTS, path, error))?;
    text.parse().map_err(|error| EnvironmentError::Schedule { path: path.to_owned(), error })
}

fn file_error(variable: &'static str, path: &Path, error: io::Error) -> EnvironmentError {
    EnvironmentError::File { variable, path: path.to_owned(), error }
}

/// A file to which several processes may append whole lines, or the standard error.
struct Sink(Option<File>);

impl Sink {
    fn open(variable: &'static str, path: &Path) -> Result<Self, EnvironmentError> {
        if path == Path::new("-") {
            return Ok(Self(None));
        }
        let name = path.to_string_lossy().replace("%p", &std::process::id().to_string());
        let path = if path.to_string_lossy().contains("%p") { PathBuf::from(name) } else { path.to_owned() };
        let file = OpenOptions::new().create(true).append(true).open(&path);
        file.map(|file| Self(Some(file))).map_err(|error| file_error(variable, &path, error))
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            Some(file) => file.write(bytes),
            None => io::stderr().write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sink").finish_non_exhaustive()
    }
}
