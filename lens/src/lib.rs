//! A lens between a program and its RDMA devices: it shows, counts and fails the calls that pass.
//!
//! ```
//! use rdma_lens::{Format, Lens};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let lens = Lens::builder()
//!     .trace(Format::Text, std::io::stderr()) // each call, request and completion
//!     .count() // and the sums of them
//!     .faults("after 2 calls of ibv_reg_mr: fail with ENOMEM".parse()?, 7)
//!     .install()?; // before devices are opened
//! // … the program
//! println!("{}", lens.summary());
//! lens.finish()?;
//! # Ok(())
//! # }
//! ```
//!
//! The lens works on the devices of the system and on those of providers in this process, such as softrnic. It replaces
//! function pointers in the objects of the driver; their addresses do not change. Calls that bypass libibverbs pass by it:
//! those of mlx5dv and efadv, except for the objects that they share with libibverbs.
//!
//! A child that was forked has no lens.

mod border;
mod count;
pub mod environment;
mod explain;
mod faults;
mod metrics;
mod moment;
mod names;
mod record;
mod sink;
mod state;
mod trace;

use std::fmt;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use rdma_mummy_sys::load::front;
use rdma_mummy_sys::process;

pub use count::{Operation, PairSummary, Summary, VerbSummary};
pub use explain::{Certainty, Finding, ReadError, Report, Trace, explain};
pub use faults::{DeviceError, Devices, Schedule, ScheduleError};
pub use record::{Record, Request, What};
pub use trace::Format;

/// Whether a schedule can make calls of this verb fail.
pub fn can_fail(verb: &str) -> bool {
    border::check_verb(verb).is_ok()
}

static IN_USE: AtomicBool = AtomicBool::new(false);

/// The lens of this process. Dropping it ends the trace and the faults.
#[derive(Debug)]
#[must_use = "dropping it ends the trace and the faults"]
pub struct Lens {
    is_finished: bool,
    /// The process, as [`process::generation`] counts.
    generation: u32,
}

/// What a lens does.
#[derive(Default)]
#[must_use = "`install` puts the lens into the process"]
pub struct Builder {
    trace: Option<(Format, Box<dyn Write + Send>)>,
    counts: bool,
    metrics: Option<SocketAddr>,
    faults: Option<(Schedule, u64)>,
    devices: Option<Box<dyn Devices>>,
}

/// Why a lens could not be installed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InstallError {
    /// The process has one.
    #[error("this process has a lens: finish or drop it first")]
    InUse,
    /// Another component stands in front of all providers.
    #[error("cannot see the calls of this process: {0}")]
    Front(#[from] front::InstallError),
    /// A command of the schedule cannot be carried out.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A schedule names a verb whose calls cannot fail here.
    #[error("line {line} of the schedule: {reason}")]
    Verb {
        /// The line.
        line: usize,
        /// What is wrong.
        reason: String,
    },
    /// The counts cannot be served.
    #[error("cannot serve the counts at {address}: {error}")]
    Metrics {
        /// The address.
        address: SocketAddr,
        /// The error.
        #[source]
        error: io::Error,
    },
    /// The thread that writes the trace cannot start.
    #[error("cannot start the thread that writes the trace: {0}")]
    Thread(#[source] io::Error),
}

impl Lens {
    /// A lens that does nothing yet.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// What was counted until now.
    pub fn summary(&self) -> Summary {
        Summary::with(border::pair_summaries())
    }

    /// Serves the counts as Prometheus text.
    fn serve(&self, address: SocketAddr) -> Result<(), InstallError> {
        let text = || metrics::Text(&Summary::with(border::pair_summaries())).to_string();
        metrics::start(address, text).map_err(|error| InstallError::Metrics { address, error })
    }

    /// The address at which the counts are served, with the port that the system has chosen for port 0.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        metrics::address()
    }

    /// Ends the faults and the trace.
    ///
    /// # Errors
    ///
    /// The first error of the trace's sink, after which it was not written.
    pub fn finish(mut self) -> io::Result<()> {
        self.end()
    }

    fn belongs_to_parent(&self) -> bool {
        self.generation != process::generation()
    }

    fn end(&mut self) -> io::Result<()> {
        // A child that was forked has none of the threads.
        if std::mem::replace(&mut self.is_finished, true) || self.belongs_to_parent() {
            return Ok(());
        }
        faults::stop(border::release);
        metrics::stop();
        state::switch_off(state::COUNT);
        let written = trace::stop();
        IN_USE.store(false, Ordering::Release);
        written
    }
}

impl Drop for Lens {
    fn drop(&mut self) {
        // `finish` returns the error.
        let _ = self.end();
    }
}

impl Builder {
    /// Writes each call, request and completion to `sink`, on a thread of its own.
    pub fn trace(mut self, format: Format, sink: impl Write + Send + 'static) -> Self {
        self.trace = Some((format, Box::new(sink)));
        self
    }

    /// Counts calls, requests, bytes and errors, and takes times from post to completion.
    pub fn count(mut self) -> Self {
        self.counts = true;
        self
    }

    /// Counts, and serves the counts as Prometheus text at `http://ADDRESS/metrics`.
    pub fn metrics(mut self, address: SocketAddr) -> Self {
        self.metrics = Some(address);
        self.count()
    }

    /// Puts the faults of a schedule into force. The same seed on the same sequence of calls gives the same faults.
    pub fn faults(mut self, schedule: Schedule, seed: u64) -> Self {
        self.faults = Some((schedule, seed));
        self
    }

    /// Lets a schedule give commands to these devices.
    pub fn devices(mut self, devices: impl Devices + 'static) -> Self {
        self.devices = Some(Box::new(devices));
        self
    }

    /// Puts the lens into the process. Devices that were opened before stay without it.
    ///
    /// # Errors
    ///
    /// See [`InstallError`].
    pub fn install(self) -> Result<Lens, InstallError> {
        for (line, verb) in self.faults.iter().flat_map(|(schedule, _)| schedule.verbs()) {
            border::check_verb(verb).map_err(|reason| InstallError::Verb { line, reason })?;
        }
        if IN_USE.swap(true, Ordering::AcqRel) {
            return Err(InstallError::InUse);
        }
        process::watch();
        let lens = Lens { is_finished: false, generation: process::generation() };
        border::install()?;
        border::start();
        state::watch_forks(trace::forked);
        if let Some((format, sink)) = self.trace {
            trace::start(format, sink).map_err(InstallError::Thread)?;
        }
        if self.counts {
            count::start();
            border::start_counts();
            state::switch_on(state::COUNT);
        }
        if let Some(address) = self.metrics {
            lens.serve(address)?;
        }
        if let Some((schedule, seed)) = self.faults {
            faults::start(schedule, seed, self.devices, border::wake)?;
        }
        Ok(lens)
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("counts", &self.counts).field("faults", &self.faults).finish_non_exhaustive()
    }
}

/// Compiles the example in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
