//! What is to be measured, and where: what the command line says, checked, and the same for both sides.
//!
//! The client decides and sends its plan to the server, which adds what only it can know.

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

pub use self::check::{Contradiction, LONGEST, MOST_DEPTH, MOST_QUEUE_PAIRS, MOST_SAMPLES, MOST_THREADS, Room};
pub use self::gpu::{GpuName, GpuRegistration, NoGpuName, PciAddress};
pub use self::operation::{Measure, Operation, Semantics, Transport};
pub use self::queues::{QpAttributes, Queues};
pub use self::run_length::RunLength;
#[cfg(test)]
pub(crate) use self::settings::declared;
pub use self::settings::{Given, Setting};
pub use self::side_config::{Memory, Placement, PortSelector, SideConfig};
pub use self::workload::{Direction, Sampling, Workload};

/// The option that names sizes.
pub const NAMED: &str = "--msg-size";

/// The option that names the largest size of a sweep.
pub const SWEPT: &str = "--max-msg-size";

/// The word for every counter of a port.
pub const ALL_COUNTERS: &str = "all";
/// Where nobody says otherwise, a message of more bytes has a completion of its own.
pub const LARGE: u64 = 8192;

/// Messages of a latency, where nobody says how many.
pub const LATENCY_MESSAGES: u64 = 1000;

/// Messages of a bandwidth on each queue pair, likewise.
pub const BANDWIDTH_MESSAGES: u64 = 5000;

/// A test: the same operation at one size after another.
///
/// Each option is a field of a part. The parts whose options do not depend on others are read by clap as they are; JSON has all fields at one
/// level.
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
    /// What is observed while messages are sent.
    #[serde(flatten)]
    pub sampling: Sampling,
    /// Where the sides are, and how their memory is registered.
    #[serde(flatten)]
    pub placement: Placement,
}

impl Plan {
    /// Ports of each side. The first of the queue pairs, and of the threads, are at the first; all have as many.
    pub fn ports(&self) -> u32 {
        u32::try_from(self.placement.client.count()).unwrap_or(u32::MAX)
    }

    /// Of this many requests of a size the last is signaled.
    pub fn moderation(&self, size: u64) -> u32 {
        if self.queues.is_each_large_signaled && size > LARGE { 1 } else { self.queues.cq_moderation }
    }
}
