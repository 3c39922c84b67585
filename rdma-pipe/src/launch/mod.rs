//! The far side of a transfer: this program again, started by ssh.
//!
//! The starter writes a [`Request`], one line of JSON, to the far side's standard input: the one-use key never stands on a command line.
//! The far side answers with [`Reply`] lines. When its standard input ends, it ends, so that nothing is left when the starter is killed.

mod far;
mod server;

pub use far::{Far, Shell};
pub use server::{Line, serve};

use std::time::Duration;

use serde::{Deserialize, Serialize};
use trespass::Transport;

use crate::copy::CopyOptions;
use crate::error::{Error, Kind, Result};
use crate::link::{Options, Peer};
use crate::pipeline::Segment;
use crate::proto::{Failure, Totals};

/// What the far side is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Request {
    /// Key of the connection that it accepts.
    pub key: Vec<u8>,
    /// What it does.
    pub role: Role,
    /// Options of connections.
    pub link: LinkRequest,
}

/// What the far side does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Role {
    /// It sends files, to the peer if one is given, and otherwise to the peer that connects.
    Source {
        /// What it sends.
        paths: Vec<Vec<u8>>,
        /// How.
        options: CopyOptions,
        /// Where to.
        to: Option<Peer>,
    },
    /// It receives files from the peer that connects.
    Sink {
        /// Where they go.
        path: Vec<u8>,
        /// How many sources there are, and whether their contents alone are copied.
        sources: (usize, bool),
        /// How.
        options: CopyOptions,
    },
    /// It runs a segment of a pipeline.
    Segment(Segment),
}

/// Options of connections, for the far side.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LinkRequest {
    tcp: bool,
    rdma: bool,
    device: Option<String>,
    encrypt: Option<bool>,
    timeout: u64,
    port: u16,
}

/// What the far side answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// It listens.
    Listening {
        /// At this port.
        port: u16,
        /// Of these addresses, as far as it can tell.
        addresses: Vec<String>,
    },
    /// Bytes and files that were listed, then those that are done.
    Progress((u64, u64), (u64, u64), bool),
    /// It has finished.
    Finished {
        /// Its exit status.
        status: u8,
        /// What was transferred.
        totals: Totals,
        /// Entries that failed.
        failures: Vec<Failure>,
    },
    /// It cannot go on.
    Failed(Failure),
}

impl LinkRequest {
    /// From the options of this side; the far side listens at `port`, 0 for any.
    pub fn new(options: &Options, port: u16) -> LinkRequest {
        LinkRequest {
            tcp: options.transport == Transport::Tcp,
            rdma: options.transport == Transport::Rdma,
            device: options.device.clone(),
            encrypt: options.encrypt,
            timeout: options.timeout.as_secs(),
            port,
        }
    }

    /// The options.
    pub fn options(&self) -> Options {
        let transport = match (self.rdma, self.tcp) {
            (true, _) => Transport::Rdma,
            (_, true) => Transport::Tcp,
            _ => Transport::Any,
        };
        let timeout = Duration::from_secs(self.timeout.max(1));
        Options { transport, device: self.device.clone(), encrypt: self.encrypt, timeout, fault: None }
    }
}

/// A key for one connection.
///
/// # Errors
///
/// The system has no random numbers.
pub fn random_key() -> Result<Vec<u8>> {
    let mut key = [0; 32];
    let filled = rustix::rand::getrandom(&mut key, rustix::rand::GetRandomFlags::empty());
    match filled {
        Ok(32) => Ok(key.to_vec()),
        _ => Err(Error::new(Kind::Protocol, "the system has no random numbers for a key")),
    }
}
