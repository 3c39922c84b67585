//! The library's log messages, by thread.

use std::sync::{Mutex, Once, PoisonError};
use std::thread::{self, ThreadId};

use log::{LevelFilter, Log, Metadata, Record};

static LINES: Mutex<Vec<(ThreadId, String)>> = Mutex::new(Vec::new());

/// Collects the log messages of the calling thread from now on.
#[derive(Debug)]
pub struct Warnings(());

impl Warnings {
    /// Starts the collection.
    pub fn listen() -> Self {
        static LISTENING: Once = Once::new();
        LISTENING.call_once(|| {
            // If another logger is already set, that logger receives the messages.
            if log::set_logger(&Listener).is_ok() {
                log::set_max_level(LevelFilter::Trace);
            }
        });
        let warnings = Self(());
        warnings.take();
        warnings
    }

    /// The messages of this thread since the last call.
    pub fn take(&self) -> Vec<String> {
        let this = thread::current().id();
        let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
        let (mine, others) = lines.drain(..).partition(|(thread, _)| *thread == this);
        *lines = others;
        let mine: Vec<(ThreadId, String)> = mine;
        mine.into_iter().map(|(_, line)| line).collect()
    }
}

struct Listener;

impl Log for Listener {
    fn enabled(&self, _metadata: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let line = format!("{}: {}", record.level(), record.args());
        LINES.lock().unwrap_or_else(PoisonError::into_inner).push((thread::current().id(), line));
    }

    fn flush(&self) {}
}
