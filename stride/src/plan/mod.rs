//! The plan of a test, which is made from the checked command line and is the same on both sides.
//!
//! The client sends its plan to the server, which adds the options that its own user gave.

mod check;
pub mod cpus;
mod gpu;
mod operation;
mod queues;
mod run_length;
mod settings;
mod side_config;
pub mod size;
pub mod time;
pub(crate) mod values;
mod workload;

use serde::{Deserialize, Serialize};

pub use self::check::{Contradiction, LONGEST, MOST_DEPTH, MOST_QUEUE_PAIRS, MOST_SAMPLES, MOST_THREADS, PathLimits};
pub use self::gpu::{GpuName, GpuRegistration, NoGpuName, PciAddress};
pub use self::operation::{Measure, Operation, Semantics, Transport, family};
pub use self::queues::{QpAttributes, Queues};
pub use self::run_length::RunLength;
#[cfg(test)]
pub(crate) use self::settings::declared;
pub use self::settings::{Given, Setting};
pub use self::side_config::{Memory, Placement, PortSelector, SideConfig};
pub use self::workload::{Direction, Sampling, Workload};

/// The option that lists sizes.
pub const NAMED: &str = "--msg-size";

/// The option that names the largest size of a sweep.
pub const SWEPT: &str = "--max-msg-size";

/// The word that selects all counters of a port.
pub const ALL_COUNTERS: &str = "all";
/// The largest size whose messages do not each request a completion by default.
pub const LARGE: u64 = 8192;

/// Default number of messages of a latency test.
pub const LATENCY_MESSAGES: u64 = 1000;

/// Default number of messages of a bandwidth test per queue pair.
pub const BANDWIDTH_MESSAGES: u64 = 5000;

/// A plan: one operation, which is measured with one message size after another.
///
/// Each option is a field of one of these parts. If the options of a part do not depend on other options, clap fills in
/// the part directly. In JSON, the fields of all parts are at one level.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// What is sent, how much of it, in which direction, and how fast.
    #[serde(flatten)]
    pub workload: Workload,
    /// Queue pairs, their queues, and the threads that drive them.
    #[serde(flatten)]
    pub queues: Queues,
    /// Attributes of the queue pairs.
    #[serde(flatten)]
    pub attributes: QpAttributes,
    /// The observations to make while messages are sent.
    #[serde(flatten)]
    pub sampling: Sampling,
    /// Devices and memory of both sides.
    #[serde(flatten)]
    pub placement: Placement,
}

impl Plan {
    /// Returns the number of ports per side. Queue pairs and threads are distributed equally among the ports; the first
    /// queue pairs and threads belong to the first port.
    pub fn ports(&self) -> u32 {
        u32::try_from(self.placement.client.count()).unwrap_or(u32::MAX)
    }

    /// Returns how many requests of this size are posted for each completion.
    pub fn moderation(&self, size: u64) -> u32 {
        if self.queues.is_each_large_signaled && size > LARGE { 1 } else { self.queues.cq_moderation }
    }
}
