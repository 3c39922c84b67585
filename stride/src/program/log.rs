//! What the libraries warn of, on standard error.

use ::log::{Level, LevelFilter, Log, Metadata, Record};

use super::say;

/// Warnings and errors; what a driver of this or another crate has to say besides is for those who debug it.
struct Warnings;

impl Log for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= Level::Warn
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let name = if record.level() == Level::Error { "error" } else { "warning" };
            say(&format!("{name}: {}", record.args()));
        }
    }

    fn flush(&self) {}
}

/// Has them printed from now on, unless somebody else does.
pub(super) fn print_warnings() {
    if ::log::set_logger(&Warnings).is_ok() {
        ::log::set_max_level(LevelFilter::Warn);
    }
}
