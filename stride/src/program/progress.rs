//! How far a step is, on a terminal.

use std::io::{IsTerminal, stderr};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::report;

/// So many steps has the bar.
const STEPS: u64 = 1000;

/// A bar below the table, which goes when a row comes; nothing where standard error is no terminal.
#[derive(Debug)]
pub(super) struct Progress(Option<ProgressBar>);

impl Progress {
    pub(super) fn new(is_wanted: bool) -> Self {
        let style = ProgressStyle::with_template("{msg} [{bar:30}] {percent} %").ok();
        let Some(style) = style.filter(|_| is_wanted && stderr().is_terminal()) else { return Self(None) };
        let bar = ProgressBar::new(STEPS).with_style(style);
        bar.enable_steady_tick(Duration::from_millis(200));
        Self(Some(bar))
    }

    /// So much of a size is done, of one.
    pub(super) fn show(&self, size: u64, done: f64) {
        if let Some(bar) = &self.0 {
            bar.set_message(report::bytes(size));
            bar.set_position((done * STEPS as f64) as u64);
        }
    }

    /// Has something printed without the bar in between.
    pub(super) fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        match &self.0 {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    /// It goes.
    pub(super) fn end(&self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
