//! One side of a test, with its device, memory and queue pairs. There are two implementations. One uses sideway. The
//! other has no device, and serves to test the rest of the program.

pub mod fake;

mod counters;
pub(crate) mod interval;
#[cfg(feature = "msg")]
mod message;
#[cfg(not(feature = "msg"))]
mod no_message;
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
#[cfg(not(feature = "msg"))]
use self::no_message as message;
pub use self::port_info::{GidInfo, GpuInfo, IWARP, Partition, PortInfo, Registration, SOFTRNIC};
pub use self::verbs::{Abilities, DevicePort, Found, Gpus, NearGpus, Nearness, Verbs, gpus, ports};
use crate::plan::{PathLimits, Plan, SideConfig, Transport};
use crate::stats::{Figures, Interval};

/// The role of a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// This side requests the tests, and measures.
    Client,
    /// This side serves the client.
    Server,
}

impl Role {
    /// Returns the opposite role.
    pub fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// Creates endpoints.
pub trait EndpointFactory: Send + Sync {
    /// Opens the device that `config` names, or a suitable device if it names none. Creates everything that the plan
    /// requires except for the queue pairs.
    ///
    /// # Errors
    ///
    /// Returns an error for the user that contains the cause and a remedy.
    fn open(&self, plan: &Plan, config: &SideConfig, role: Role) -> Result<Box<dyn Endpoint>>;

    /// Checks that the devices and other things that `config` names exist, before a client requests a test.
    ///
    /// # Errors
    ///
    /// Returns an error for the user that contains the cause and a remedy.
    fn look(&self, _place: &SideConfig) -> Result<()> {
        Ok(())
    }
}

/// The path between the queue pairs of both sides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Path {
    /// Index of the client's GID. `None` if only LIDs are used.
    pub client_gid: Option<u32>,
    /// Index of the server's GID.
    pub server_gid: Option<u32>,
    /// Path MTU in bytes.
    #[serde(rename = "mtu_bytes")]
    pub mtu: u32,
    /// The paths of further ports, in the order in which both sides list their ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Self>,
}

impl Path {
    /// Returns the path of each port.
    pub fn all(&self) -> impl Iterator<Item = &Self> {
        iter::once(self).chain(&self.others)
    }

    /// Returns the limits that apply to messages on all paths between these sides.
    pub fn limits(&self, sides: &[&PortInfo]) -> PathLimits {
        let longest = sides.iter().flat_map(|side| side.all()).filter_map(|port| port.longest).min();
        PathLimits { mtu: self.all().map(|path| path.mtu).min().unwrap_or(self.mtu), longest }
    }
}

/// The queue pairs and the memory of a side, in the form that is sent to the peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerInfo {
    /// LID of the port.
    pub lid: u16,
    /// The GID in IPv6 notation. `None` if only LIDs are used.
    pub gid: Option<String>,
    /// How many reads and atomics each queue pair can serve at the same time.
    pub reads: u8,
    /// The queue pairs of the port. The queue pairs of the first thread come first.
    pub queue_pairs: Vec<QpAddress>,
    /// Size of the largest message that is sent inline.
    #[serde(rename = "inline_bytes")]
    pub inline: u32,
    /// The address to which connections are requested, if librdmacm connects the queue pairs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listening: Option<Listening>,
    /// The queue pairs and the memory of further ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Self>,
}

impl PeerInfo {
    /// Returns the description of each port.
    pub fn all(&self) -> impl Iterator<Item = &Self> {
        iter::once(self).chain(&self.others)
    }
}

/// The address at which the server listens through librdmacm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listening {
    /// The port number, which is in the port space of librdmacm.
    pub port: u16,
    /// A token that each connection request must contain. Requests without it are rejected.
    pub token: u64,
}

/// A queue pair, and the memory that the peer reads and writes through it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QpAddress {
    /// The queue pair number.
    pub number: u32,
    /// The initial packet sequence number.
    pub psn: u32,
    /// The address at which the memory starts.
    pub address: u64,
    /// The remote key of the memory.
    pub rkey: u32,
    /// The object that receives the peer's messages, if it is not the queue pair itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intake: Option<Intake>,
}

/// An object that receives messages instead of the queue pair that sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Intake {
    /// An XRC receiver.
    Xrc {
        /// Number of the XRC queue pair that receives.
        number: u32,
        /// Number of the shared receive queue.
        srq: u32,
    },
    /// A DC target.
    Dc {
        /// Number of the DC target.
        number: u32,
        /// The DC access key of the target.
        key: u64,
    },
}

impl Intake {
    /// Whether `intake` has the kind that queue pairs of this transport require.
    pub fn is_of(intake: Option<&Self>, transport: Transport) -> bool {
        match transport {
            Transport::Xrc => matches!(intake, Some(Self::Xrc { .. })),
            Transport::Dc => matches!(intake, Some(Self::Dc { .. })),
            Transport::Rc | Transport::Uc | Transport::Ud | Transport::Srd => intake.is_none(),
        }
    }
}

/// The progress of a step that is running.
#[derive(Clone, Copy, Debug)]
pub struct StepProgress<'a> {
    /// The fraction of the step that has completed, from 0.0 to 1.0.
    pub done: f64,
    /// The intervals that have ended since the last report.
    pub intervals: &'a [Interval],
}

/// One side of a test, whose device is open.
pub trait Endpoint {
    /// Returns the description of the device and its port.
    fn port_info(&self) -> &PortInfo;

    /// Creates the queue pairs.
    ///
    /// # Errors
    ///
    /// Returns an error for the user that contains the cause and a remedy.
    fn create_queue_pairs(&mut self, path: &Path) -> Result<PeerInfo>;

    /// Connects the queue pairs to those of the peer.
    ///
    /// # Errors
    ///
    /// Returns an error for the user that contains the cause and a remedy.
    fn connect(&mut self, path: &Path, theirs: &PeerInfo) -> Result<()>;

    /// Prepares a step with messages of `size` bytes. When this method returns, the receives have been posted.
    ///
    /// # Errors
    ///
    /// Returns an error for the user that contains the cause and a remedy.
    fn prepare(&mut self, size: u64) -> Result<()>;

    /// Runs the prepared step. Calls `report` at least once a second, and also soon after `readable_fd` has become
    /// readable. If `report` returns `false`, the step ends. A passive side always ends in this way, after the peer has
    /// ended. If messages may be lost, it then also counts those that still arrive.
    ///
    /// # Errors
    ///
    /// Returns an error for the user that contains the failed operation, its queue pair and the usual cause.
    fn run(
        &mut self,
        size: u64,
        readable_fd: Option<BorrowedFd<'_>>,
        report: &mut dyn FnMut(StepProgress<'_>) -> bool,
    ) -> Result<Option<Figures>>;

    /// Checks whether any plain write over an unreliable transport has arrived. Called after the peer has sent its last
    /// message. Returns the figures of the run, to which the result is added. Waits for late messages while `report`
    /// returns `true`, but for a limited time, which is shorter after a step that was cut short.
    ///
    /// # Errors
    ///
    /// Returns an error for the user that contains the cause and a remedy.
    fn settle(
        &mut self,
        _size: u64,
        figures: Option<Figures>,
        _was_cut: bool,
        _report: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Figures>> {
        Ok(figures)
    }

    /// Disconnects from the peer, after both sides have finished.
    fn end(&mut self) {}

    /// Returns how much the counters of the plan have changed since the step was prepared. Called after both sides have
    /// run the step. Returns `None` if the plan names no counter, or if it names all counters and the device has none.
    fn counted(&mut self) -> Option<Changes> {
        None
    }

    /// Checks the data that has arrived, if the plan requires it. Called after both sides have run the step.
    ///
    /// # Errors
    ///
    /// Returns an error that contains the first wrong byte.
    fn check(&mut self, _size: u64) -> Result<()> {
        Ok(())
    }
}

/// The error that the device does not support something that the test requires. The text is for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unsupported(pub String);

/// Whether this error means that the device or its driver does not support a feature.
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
