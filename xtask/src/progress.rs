//! Tells a person what takes long: a spinner on a terminal, plain lines elsewhere. Everything goes to standard error.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// One step under way. Dropping it without [`Step::done`] removes the spinner and says nothing.
#[derive(Debug)]
pub(crate) struct Step {
    text: String,
    started: Instant,
    spinner: Option<ProgressBar>,
}

impl Step {
    /// Begins a step that leaves a line with its time behind.
    pub(crate) fn start(text: impl Into<String>) -> Self {
        let step = Self::quiet(text);
        if step.spinner.is_none() {
            eprintln!("{} ...", step.text);
        }
        step
    }

    /// Begins a step that shows a spinner on a terminal and nothing anywhere else.
    pub(crate) fn quiet(text: impl Into<String>) -> Self {
        let text = text.into();
        let spinner = std::io::stderr().is_terminal().then(|| {
            let spinner = ProgressBar::new_spinner().with_message(text.clone());
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
                spinner.set_style(style);
            }
            spinner.enable_steady_tick(Duration::from_millis(100));
            spinner
        });
        Self { text, started: Instant::now(), spinner }
    }

    /// Ends the step and says how long it took.
    pub(crate) fn done(self) {
        if let Some(spinner) = &self.spinner {
            spinner.finish_and_clear();
        }
        eprintln!("{}: {:.1} s", self.text, self.started.elapsed().as_secs_f64());
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if let Some(spinner) = &self.spinner {
            spinner.finish_and_clear();
        }
    }
}
