//! Handles SIGINT (Ctrl-C) and SIGTERM.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use crate::thread::start;

/// The signals that end a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    /// SIGINT, which Ctrl-C sends.
    Interrupt,
    /// SIGTERM.
    Terminate,
}

impl Signal {
    pub(super) const ALL: [Self; 2] = [Self::Interrupt, Self::Terminate];

    pub(super) fn number(self) -> i32 {
        match self {
            Self::Interrupt => SIGINT,
            Self::Terminate => SIGTERM,
        }
    }

    /// Returns the exit status after this signal, as shells define it.
    pub(super) fn status(self) -> u8 {
        match self {
            Self::Interrupt => 130,
            Self::Terminate => 143,
        }
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
        })
    }
}

/// Signals that repeat within this time count as one signal, because a sender may signal both the process and its
/// process group.
const REPEAT_WINDOW: Duration = Duration::from_millis(300);

/// Starts a thread that causes the second signal to end the program.
pub(super) fn end_at_second() -> Result<()> {
    let has_one = Arc::new(AtomicBool::new(false));
    for signal in Signal::ALL {
        flag::register_conditional_shutdown(signal.number(), signal.status().into(), Arc::clone(&has_one))?;
    }
    let mut signals = Signals::new(Signal::ALL.map(Signal::number))?;
    let first = Arc::clone(&has_one);
    // This thread sleeps until the first signal, sets the flag a moment later, and exits.
    let started = start(move || {
        if signals.forever().next().is_some() {
            thread::sleep(REPEAT_WINDOW);
            first.store(true, Ordering::Relaxed);
        }
    });
    // Without the thread, the first signal ends the program.
    has_one.store(started.is_err(), Ordering::Relaxed);
    started.map(drop)
}

/// Records the first signal. The second one ends the program at once, unless it follows within [`REPEAT_WINDOW`].
#[derive(Debug, Default)]
pub(super) struct Interrupt(Arc<AtomicUsize>);

impl Interrupt {
    pub(super) fn watch() -> Result<Self> {
        let new = Self::default();
        for (index, signal) in Signal::ALL.into_iter().enumerate() {
            flag::register_usize(signal.number(), Arc::clone(&new.0), index + 1)?;
        }
        end_at_second()?;
        Ok(new)
    }

    /// Returns the signal that was received, if any.
    pub(super) fn signal(&self) -> Option<Signal> {
        let index = self.0.load(Ordering::Relaxed).checked_sub(1)?;
        Signal::ALL.get(index).copied()
    }
}
