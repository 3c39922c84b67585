//! Prints the log messages of libraries to standard error.

use ::log::{Level, LevelFilter, Log, Metadata, Record};

use super::print_line;

/// Prints warnings and errors. Messages of lower levels are meant for developers.
struct Warnings;

impl Log for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= Level::Warn
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let name = if record.level() == Level::Error { "error" } else { "warning" };
            print_line(&format!("{name}: {}", record.args()));
        }
    }

    fn flush(&self) {}
}

/// Installs this logger, unless another one has been installed.
pub(super) fn print_warnings() {
    if ::log::set_logger(&Warnings).is_ok() {
        ::log::set_max_level(LevelFilter::Warn);
    }
}
