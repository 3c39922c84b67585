//! Counts the progress of a copy, for display.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// Counters that the threads of a copy share.
#[derive(Debug, Default)]
pub struct Progress {
    listed_bytes: AtomicU64,
    listed_files: AtomicU64,
    /// The number of bytes that are done, including bytes that need not be sent.
    bytes: AtomicU64,
    files: AtomicU64,
    is_listed: AtomicBool,
    /// Names of the files that are done, and other lines, if the display shows names.
    names: Option<Mutex<Vec<String>>>,
}

/// A snapshot of the progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// The number of bytes and of files that were found so far.
    pub listed: (u64, u64),
    /// The number of bytes and of files that are done.
    pub done: (u64, u64),
    /// Whether everything was found.
    pub is_listed: bool,
}

impl Progress {
    /// Creates the counters, which are zero. If `names` is set, the names of the completed files are recorded for the
    /// display.
    pub fn new(names: bool) -> Progress {
        Progress { names: names.then(Mutex::default), ..Progress::default() }
    }

    /// Resets the counters to zero.
    pub fn restart(&self) {
        self.set((0, 0), (0, 0), false);
    }

    /// Records that a file of this length was found.
    pub fn listed(&self, bytes: u64) {
        self.listed_bytes.fetch_add(bytes, Relaxed);
        self.listed_files.fetch_add(1, Relaxed);
    }

    /// Records that all files were found.
    pub fn all_listed(&self) {
        self.is_listed.store(true, Relaxed);
    }

    /// Counts bytes as done.
    pub fn bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Relaxed);
    }

    /// Counts a file as done.
    pub fn file(&self, name: impl FnOnce() -> String) {
        self.files.fetch_add(1, Relaxed);
        self.line(name);
    }

    /// Adds a line to the names, if these are recorded.
    pub fn line(&self, line: impl FnOnce() -> String) {
        if let Some(names) = &self.names {
            names.lock().unwrap_or_else(PoisonError::into_inner).push(line());
        }
    }

    /// Sets the counters to the values that another process has reported.
    pub fn set(&self, listed: (u64, u64), done: (u64, u64), is_listed: bool) {
        self.listed_bytes.store(listed.0, Relaxed);
        self.listed_files.store(listed.1, Relaxed);
        self.bytes.store(done.0, Relaxed);
        self.files.store(done.1, Relaxed);
        self.is_listed.store(is_listed, Relaxed);
    }

    /// Counts a file that need not be sent.
    pub fn skipped(&self) {
        self.files.fetch_add(1, Relaxed);
    }

    /// Takes the names of the files that were completed since the last call.
    pub fn take_names(&self) -> Vec<String> {
        let names = self.names.as_ref().map(|names| names.lock().unwrap_or_else(PoisonError::into_inner));
        names.map(|mut names| std::mem::take(&mut *names)).unwrap_or_default()
    }

    /// Returns the current counters.
    pub fn now(&self) -> Moment {
        Moment {
            listed: (self.listed_bytes.load(Relaxed), self.listed_files.load(Relaxed)),
            done: (self.bytes.load(Relaxed), self.files.load(Relaxed)),
            is_listed: self.is_listed.load(Relaxed),
        }
    }
}
