//! The far side of a transfer: another process of this program, started through ssh.
//!
//! The starting process writes a [`Request`], one line of JSON, to the far side's standard input, so the one-use key
//! does not appear on a command line. The far side answers with [`Reply`] lines. It exits when its standard input ends,
//! so it does not survive if the starter is killed.

mod far;
mod server;

pub use far::{Far, Input, Shell};
pub use server::{Line, serve};

use std::time::Duration;

use serde::{Deserialize, Serialize};
use trespass::Transport;

use crate::copy::CopyOptions;
use crate::error::{Error, Kind, Result};
use crate::link::{LONGEST_TIMEOUT, Options};
use crate::pipeline::Segment;
use crate::proto::{Failure, Peer, Totals};
use crate::tree::Ancestry;

/// A request to the far side.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Request {
    /// Key of the connection that the far side accepts.
    pub key: Vec<u8>,
    /// The task.
    pub role: Role,
    /// The options of the connections.
    pub link: LinkRequest,
}

/// The task of the far side.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Role {
    /// Send files to the given peers, or, if the list is empty, to the peer that connects.
    Source {
        /// Paths to send.
        paths: Vec<Vec<u8>>,
        /// Options of the copy.
        options: CopyOptions,
        /// The peers. The far side sends the data to the first one, which forwards it to the next.
        to: Vec<Peer>,
        /// The destinations, as far as they are known.
        into: Vec<Ancestry>,
    },
    /// Receive files from the peer that connects.
    Sink {
        /// The destination.
        path: Vec<u8>,
        /// Number of sources, and whether only their contents are copied.
        sources: (usize, bool),
        /// Options of the copy.
        options: CopyOptions,
    },
    /// Run a segment of a pipeline.
    Segment(Segment),
}

/// The options of connections that the far side must use.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LinkRequest {
    tcp: bool,
    rdma: bool,
    device: Option<String>,
    encrypt: Option<bool>,
    timeout: u64,
    port: u16,
}

/// A reply of the far side.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// The far side is listening.
    Listening {
        /// The port.
        port: u16,
        /// The addresses at which the far side may be reachable, as far as it can determine them.
        addresses: Vec<String>,
        /// The destination, if the far side receives a copy.
        into: Option<Ancestry>,
    },
    /// The progress: the number of bytes and of files that were listed, the number of bytes and of files that are done,
    /// and whether the list is complete.
    Progress((u64, u64), (u64, u64), bool),
    /// The far side has completed its task.
    Finished {
        /// Its exit status.
        status: u8,
        /// Totals of the transfer.
        totals: Totals,
        /// Entries that failed.
        failures: Vec<Failure>,
    },
    /// The far side failed.
    Failed(Failure),
}

impl LinkRequest {
    /// Converts the options of this side to options for the far side, which listens at `port` (0 selects any free
    /// port).
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
        let timeout = Duration::from_secs(self.timeout.clamp(1, LONGEST_TIMEOUT));
        Options { transport, device: self.device.clone(), encrypt: self.encrypt, timeout, ..Options::default() }
    }
}

/// Creates a key for one connection.
///
/// # Errors
///
/// The system cannot provide random numbers.
pub fn random_key() -> Result<Vec<u8>> {
    let mut key = [0; 32];
    let filled = rustix::rand::getrandom(&mut key, rustix::rand::GetRandomFlags::empty());
    match filled {
        Ok(32) => Ok(key.to_vec()),
        _ => Err(Error::new(Kind::Protocol, "the system cannot provide random numbers for a key")),
    }
}
