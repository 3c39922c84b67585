//! Progress lines on standard error for long steps.

use std::time::Instant;

/// One step in progress.
#[derive(Debug)]
pub(crate) struct Step(String, Instant);

impl Step {
    /// Starts a step, and prints a line.
    pub(crate) fn start(text: impl Into<String>) -> Self {
        let text = text.into();
        eprintln!("{text} ...");
        Self(text, Instant::now())
    }

    /// Ends the step, and prints a line with the duration.
    pub(crate) fn done(self) {
        let Self(text, started) = self;
        eprintln!("{text}: {:.1} s", started.elapsed().as_secs_f64());
    }
}
