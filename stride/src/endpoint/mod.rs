//! One side of a test: device, memory and queue pairs. Implemented on sideway, and by a fake for tests of everything
//! else.

pub mod fake;

mod counters;
mod message;
mod numa;
mod port_info;
mod prefix;
mod processor;
mod verbs;

use std::iter;
use std::os::fd::BorrowedFd;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use sideway::error::VerbError;

pub use self::counters::{Changes, Counted};
pub use self::port_info::{GidInfo, GpuInfo, IWARP, Partition, PortInfo, Registration, SOFTRNIC};
pub use self::verbs::{Abilities, DevicePort, Found, Gpus, NearGpus, Nearness, Verbs, gpus, ports};
use crate::plan::{PathLimits, Plan, SideConfig, Transport};
use crate::stats::{Figures, Interval};

/// The role of a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Requests the tests, and measures.
    Client,
    /// Serves the client.
    Server,
}

impl Role {
    /// The opposite role.
    pub fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// Creates endpoints.
pub trait EndpointFactory: Send + Sync {
    /// Opens the device that `place` names, or a suitable one, with everything that the plan requires except the queue
    /// pairs.
    ///
    /// # Errors
    ///
    /// An error for the user with cause and remedy.
    fn open(&self, plan: &Plan, place: &SideConfig, role: Role) -> Result<Box<dyn Endpoint>>;

    /// Checks that what `place` names exists, before a client requests a test.
    ///
    /// # Errors
    ///
    /// An error for the user with cause and remedy.
    fn look(&self, _place: &SideConfig) -> Result<()> {
        Ok(())
    }
}

/// The path between the queue pairs of both sides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Path {
    /// Index of the client's GID; `None` if only the LID is used.
    pub client_gid: Option<u32>,
    /// Index of the server's GID.
    pub server_gid: Option<u32>,
    /// Path MTU in bytes.
    #[serde(rename = "mtu_bytes")]
    pub mtu: u32,
    /// The paths of further ports, in the order in which both sides name them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Self>,
}

impl Path {
    /// The path of each port.
    pub fn all(&self) -> impl Iterator<Item = &Self> {
        iter::once(self).chain(&self.others)
    }

    /// Limits that apply to messages on all paths between these sides.
    pub fn limits(&self, sides: &[&PortInfo]) -> PathLimits {
        let longest = sides.iter().flat_map(|side| side.all()).filter_map(|port| port.longest).min();
        PathLimits { mtu: self.all().map(|path| path.mtu).min().unwrap_or(self.mtu), longest }
    }
}

/// A side's queue pairs and memory, as sent to the peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerInfo {
    /// LID of the port.
    pub lid: u16,
    /// The GID in IPv6 notation; `None` if only the LID is used.
    pub gid: Option<String>,
    /// Reads and atomics that each queue pair can serve at a time.
    pub reads: u8,
    /// The queue pairs of the port, ordered by thread.
    pub queue_pairs: Vec<QpAddress>,
    /// Messages of up to this size are sent inline.
    #[serde(rename = "inline_bytes")]
    pub inline: u32,
    /// The address for connection requests, if librdmacm connects the queue pairs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listening: Option<Listening>,
    /// Information on further ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Self>,
}

impl PeerInfo {
    /// Returns the information of each port.
    pub fn all(&self) -> impl Iterator<Item = &Self> {
        iter::once(self).chain(&self.others)
    }
}

/// The librdmacm address at which the server listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listening {
    /// The port in the port space of librdmacm.
    pub port: u16,
    /// A token that each request must contain; others are rejected.
    pub token: u64,
}

/// A queue pair and the memory that the peer reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QpAddress {
    /// The queue pair number.
    pub number: u32,
    /// The initial packet sequence number.
    pub psn: u32,
    /// The start of the memory.
    pub address: u64,
    /// The remote key of the memory.
    pub rkey: u32,
    /// The object that receives the peer's messages, if this is not the queue pair itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intake: Option<Intake>,
}

/// An object that receives messages in place of the sending queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Intake {
    /// An XRC receiver.
    Xrc {
        /// Number of the XRC receive queue pair.
        number: u32,
        /// Number of the shared receive queue.
        srq: u32,
    },
    /// A DC target.
    Dc {
        /// The target's number.
        number: u32,
        /// The DC access key.
        key: u64,
    },
}

impl Intake {
    /// Whether `intake` has the kind that queue pairs of this transport have.
    pub fn is_of(intake: Option<&Self>, transport: Transport) -> bool {
        match transport {
            Transport::Xrc => matches!(intake, Some(Self::Xrc { .. })),
            Transport::Dc => matches!(intake, Some(Self::Dc { .. })),
            Transport::Rc | Transport::Uc | Transport::Ud | Transport::Srd => intake.is_none(),
        }
    }
}

/// Progress of a running step.
#[derive(Clone, Copy, Debug)]
pub struct StepProgress<'a> {
    /// Fraction completed, 0.0 to 1.0.
    pub done: f64,
    /// The intervals that ended since the last report.
    pub intervals: &'a [Interval],
}

/// An open side.
pub trait Endpoint {
    /// Information on the device and its port.
    fn facts(&self) -> &PortInfo;

    /// Creates the queue pairs.
    ///
    /// # Errors
    ///
    /// An error for the user with cause and remedy.
    fn create_queue_pairs(&mut self, path: &Path) -> Result<PeerInfo>;

    /// Connects the queue pairs to those of the peer.
    ///
    /// # Errors
    ///
    /// An error for the user with cause and remedy.
    fn connect(&mut self, path: &Path, theirs: &PeerInfo) -> Result<()>;

    /// Prepares a step with messages of `size` bytes. Receives are posted when this returns.
    ///
    /// # Errors
    ///
    /// An error for the user with cause and remedy.
    fn prepare(&mut self, size: u64) -> Result<()>;

    /// Runs the prepared step. Calls `report` at least once a second, and soon after `readable_fd` becomes readable.
    /// The step ends when `report` returns `false`. A passive side always ends this way, after the peer has ended; then
    /// it counts the arrivals.
    ///
    /// # Errors
    ///
    /// An error for the user: the failed operation, its queue pair and the usual cause.
    fn run(
        &mut self,
        size: u64,
        readable_fd: Option<BorrowedFd<'_>>,
        report: &mut dyn FnMut(StepProgress<'_>) -> bool,
    ) -> Result<Option<Figures>>;

    /// Checks whether any plain write of an unreliable transport has arrived, after the peer has sent its last message.
    /// Returns the figures of the run with the result. Waits for late messages, less after a step that was cut short,
    /// and only while `report` returns `true`.
    ///
    /// # Errors
    ///
    /// An error for the user with cause and remedy.
    fn settle(
        &mut self,
        _size: u64,
        figures: Option<Figures>,
        _was_cut: bool,
        _report: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Figures>> {
        Ok(figures)
    }

    /// Disconnects, after both sides have finished.
    fn end(&mut self) {}

    /// Changes of the counters that the plan names since the step was prepared, after both sides have run it. `None` if
    /// the plan names none, or names all and the device has none.
    fn counted(&mut self) -> Option<Changes> {
        None
    }

    /// Validates what has arrived, if the plan requires it, after both sides have run.
    ///
    /// # Errors
    ///
    /// An error with the first wrong byte.
    fn check(&mut self, _size: u64) -> Result<()> {
        Ok(())
    }
}

/// The device lacks something that the test requires. The text is for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unsupported(pub String);

/// Whether an error reports that the device or its driver lacks a feature.
pub fn is_unsupported(error: &anyhow::Error) -> bool {
    let lacks = [libc::EOPNOTSUPP, libc::ENOSYS, libc::EPROTONOSUPPORT];
    error.chain().any(|cause| {
        cause.is::<Unsupported>()
            || cause.downcast_ref::<VerbError>().is_some_and(|verb| lacks.contains(&verb.errno().raw()))
    })
}

#[cfg(test)]
mod tests {
    use anyhow::{Context, anyhow};

    use super::*;

    #[test]
    fn missing_features_are_distinguished_from_failures() {
        let of = |code| VerbError::new("ibv_create_qp", sideway::error::Errno::from_raw(code));
        let within = |error: VerbError| Err::<(), _>(error).context("queue pairs").unwrap_err();
        for code in [libc::EOPNOTSUPP, libc::ENOSYS, libc::EPROTONOSUPPORT] {
            assert!(is_unsupported(&within(of(code))), "{code}");
        }
        assert!(!is_unsupported(&within(of(libc::ENOMEM))));
        assert!(is_unsupported(&anyhow!(Unsupported("no atomics".to_owned())).context("more")));
        assert!(!is_unsupported(&anyhow!("no atomics")));
    }
}
