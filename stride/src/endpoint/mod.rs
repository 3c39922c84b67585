//! A side of a test: device, memory and queue pairs. One of sideway, and a fake one that needs none, for tests of all the rest.

pub mod fake;

mod counters;
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
pub use self::port_info::{GidInfo, GpuInfo, Partition, PortInfo, Registration, SOFTRNIC};
pub use self::verbs::{Abilities, DevicePort, Found, Gpus, NearGpus, Nearness, Verbs, gpus, ports};
use crate::plan::{Plan, Room, SideConfig, Transport};
use crate::stats::{Figures, Interval};

/// Which of the two a side is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// It measures, and asks for everything.
    Client,
    /// It serves.
    Server,
}

impl Role {
    /// The other one.
    pub fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// Where sides come from.
pub trait EndpointFactory: Send + Sync {
    /// Opens the device that a place names or leaves open, with all that the plan needs of it but the queue pairs.
    ///
    /// # Errors
    ///
    /// A sentence for the user: what is missing, and what can be done.
    fn open(&self, plan: &Plan, place: &SideConfig, role: Role) -> Result<Box<dyn Endpoint>>;

    /// Whether what a place names is there, before anybody asks for a test.
    ///
    /// # Errors
    ///
    /// The same.
    fn look(&self, _place: &SideConfig) -> Result<()> {
        Ok(())
    }
}

/// How the queue pairs of both sides are to be connected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Path {
    /// The GID of the client's side by its index; none where only the LID counts.
    pub client_gid: Option<u32>,
    /// The server's.
    pub server_gid: Option<u32>,
    /// Bytes of payload in a packet.
    #[serde(rename = "mtu_bytes")]
    pub mtu: u32,
    /// Those of further ports, in the order in which both sides name them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Self>,
}

impl Path {
    /// That of each port.
    pub fn all(&self) -> impl Iterator<Item = &Self> {
        iter::once(self).chain(&self.others)
    }

    /// What each of them has room for, with these sides at its ends.
    pub fn room(&self, sides: &[&PortInfo]) -> Room {
        let longest = sides.iter().flat_map(|side| side.all()).filter_map(|port| port.longest).min();
        Room { mtu: self.all().map(|path| path.mtu).min().unwrap_or(self.mtu), longest }
    }
}

/// Where a side's queue pairs are, and its memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerInfo {
    /// Local identifier of the port.
    pub lid: u16,
    /// The GID, as an address of IPv6; none where only the LID counts.
    pub gid: Option<String>,
    /// Reads and atomics that each of the queue pairs answers at a time.
    pub reads: u8,
    /// The queue pairs of the port, in the order of the threads.
    pub queue_pairs: Vec<QpAddress>,
    /// Messages of up to so many bytes are handed over in the request itself, as the queue pairs take them.
    #[serde(rename = "inline_bytes")]
    pub inline: u32,
    /// Where the server waits for the queue pairs of the client, where the connection manager connects them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listening: Option<Listening>,
    /// Those of further ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Self>,
}

impl PeerInfo {
    /// Those of each port.
    pub fn all(&self) -> impl Iterator<Item = &Self> {
        iter::once(self).chain(&self.others)
    }
}

/// Where a server listens with the connection manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listening {
    /// The port, of the connection manager's.
    pub port: u16,
    /// What each request is to say, so that no other is taken for one.
    pub token: u64,
}

/// A queue pair, and the memory that the other side's reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QpAddress {
    /// Its number.
    pub number: u32,
    /// The number of its first packet.
    pub psn: u32,
    /// The first byte of its memory.
    pub address: u64,
    /// The key of it.
    pub rkey: u32,
    /// What takes the other side's messages in, where that is not the queue pair itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intake: Option<Intake>,
}

/// What takes messages in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Intake {
    /// The receiving end of an extended reliable connection.
    Xrc {
        /// The number of the queue pair that the other side's is connected with.
        number: u32,
        /// The number of the shared receive queue that messages are to name.
        srq: u32,
    },
    /// A target of dynamic connections.
    Dc {
        /// Its number.
        number: u32,
        /// Its access key.
        key: u64,
    },
}

impl Intake {
    /// Whether it is what a queue pair of a service has.
    pub fn is_of(intake: Option<&Self>, transport: Transport) -> bool {
        match transport {
            Transport::Xrc => matches!(intake, Some(Self::Xrc { .. })),
            Transport::Dc => matches!(intake, Some(Self::Dc { .. })),
            Transport::Rc | Transport::Uc | Transport::Ud | Transport::Srd => intake.is_none(),
        }
    }
}

/// What is seen of a step while it runs.
#[derive(Clone, Copy, Debug)]
pub struct Glimpse<'a> {
    /// How much of it is done, of one (0.0 to 1.0).
    pub done: f64,
    /// The intervals that are over since the last one.
    pub intervals: &'a [Interval],
}

/// A side that is open.
pub trait Endpoint {
    /// What it is.
    fn facts(&self) -> &PortInfo;

    /// Makes the queue pairs.
    ///
    /// # Errors
    ///
    /// A sentence for the user.
    fn create_queue_pairs(&mut self, path: &Path) -> Result<PeerInfo>;

    /// Connects them with the other side's.
    ///
    /// # Errors
    ///
    /// A sentence for the user.
    fn connect(&mut self, path: &Path, theirs: &PeerInfo) -> Result<()>;

    /// Makes ready for messages of so many bytes: what is to be received is posted when this returns.
    ///
    /// # Errors
    ///
    /// A sentence for the user.
    fn prepare(&mut self, size: u64) -> Result<()>;

    /// Does the step that it was prepared for. `tell` is called now and then, at least once a second and soon after the file `readable_fd` can be read,
    /// with what is done so far; where it says `false` the step ends. At a side that only answers that is how it ends in any case: the other
    /// side is done, and what has arrived is still to be counted.
    ///
    /// # Errors
    ///
    /// A sentence for the user: what failed, on which queue pair, and what that usually means.
    fn run(
        &mut self,
        size: u64,
        readable_fd: Option<BorrowedFd<'_>>,
        tell: &mut dyn FnMut(Glimpse<'_>) -> bool,
    ) -> Result<Option<Figures>>;

    /// Looks whether anything has come of messages that nobody counts, once the other side has sent its last: brings back the figures of the
    /// run, with what was found. What has not come may be waited for, less where the step was cut short, and no longer than `tell`, which is
    /// called meanwhile, says `true`.
    ///
    /// # Errors
    ///
    /// A sentence for the user.
    fn settle(
        &mut self,
        _size: u64,
        figures: Option<Figures>,
        _was_cut: bool,
        _tell: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Figures>> {
        Ok(figures)
    }

    /// Ends the connections, once both sides are done.
    fn end(&mut self) {}

    /// By how much the counters that the plan names have changed since the side was made ready for the step, once both sides have run it;
    /// none where it names none, or all and the device has none.
    fn counted(&mut self) -> Option<Changes> {
        None
    }

    /// Looks at what has come, where the plan says so, once both sides have run.
    ///
    /// # Errors
    ///
    /// A sentence for the user: the first byte that is wrong.
    fn check(&mut self, _size: u64) -> Result<()> {
        Ok(())
    }
}

/// A device lacks what a test needs: a sentence for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unsupported(pub String);

/// Whether an error reports that a device or its driver lacks what was asked for.
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
    fn who_has_not_is_told_from_who_fails() {
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
