//! The options of the connections.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use trespass::{Handle, Transport};

use super::fault::Fault;
use crate::error::{Error, Kind, Result};

/// The amount of registered memory, if `RLIMIT_MEMLOCK` does not limit it to less.
const MEMORY: usize = 64 << 20;
/// The minimum amount of registered memory for using the device. It suffices for the receive buffers and a few blocks.
const LEAST_MEMORY: usize = 6 << 20;
/// The minimum number of descriptors. With fewer, a connection is established or not according to the number that other
/// threads have open at the moment, and the peer learns no reason.
const LEAST_FILES: u64 = 64;
/// The high-water mark of the send queue, in bytes. It admits enough blocks that the peer's READs can follow one
/// another without a gap.
const WAITING: usize = 3 << 20;

/// The longest time-out, in seconds: a day. Longer ones do not fit into the system's clocks.
pub const LONGEST_TIMEOUT: u64 = 86_400;

/// Maximum length of a message: a block, or a list of entries.
const MESSAGE: u32 = 4 << 20;

/// The options of the connections.
#[derive(Clone, Debug)]
pub struct Options {
    /// The transports that may be used.
    pub transport: Transport,
    /// Name of the RDMA device; `None` selects the device with a route to the peer.
    pub device: Option<String>,
    /// Whether the payload of blocks is encrypted: always, never, or, if `None`, only over TCP.
    pub encrypt: Option<bool>,
    /// The time after which the connection ends if the peer is silent.
    pub timeout: Duration,
    /// A fault to inject, for tests.
    pub fault: Option<Fault>,
    /// The worker of all connections that use these options or a clone of them. It is created with the first
    /// connection.
    pub worker: SharedWorker,
}

/// A worker that is started by its first connection.
#[derive(Clone, Debug, Default)]
pub struct SharedWorker(Arc<OnceLock<Handle>>);

/// Resolves `host:port`. Unlike std, it resolves the name of the interface of an IPv6 address: `[fe80::1%eth0]:1`.
///
/// # Errors
///
/// See getaddrinfo(3).
pub(super) fn resolve(address: &str) -> io::Result<Vec<SocketAddr>> {
    let parts = address.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
    let found = match parts {
        Some((host, port)) => (host.trim_matches(['[', ']']), port).to_socket_addrs(),
        None => address.to_socket_addrs(),
    };
    found.map(Iterator::collect)
}

/// Formats `host:port`, with an IPv6 address in brackets.
pub fn address(host: &str, port: u16) -> String {
    if host.contains(':') && !host.starts_with('[') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            transport: Transport::Any,
            device: None,
            encrypt: None,
            timeout: Duration::from_secs(60),
            fault: None,
            worker: SharedWorker::default(),
        }
    }
}

impl Options {
    /// Starts the worker and lists the devices, which the first connection would do otherwise.
    ///
    /// # Errors
    ///
    /// RDMA is required and unavailable, or the system refuses a thread.
    pub fn prepare(&self) -> Result<()> {
        self.worker().map(|handle| handle.prepare())
    }

    /// Returns the worker for these options.
    pub(super) fn worker(&self) -> Result<Handle> {
        if let Some(handle) = self.worker.0.get() {
            return Ok(handle.clone());
        }
        if let Some(limit) = getrlimit(Resource::Nofile).current.filter(|limit| *limit < LEAST_FILES) {
            let text =
                format!("the limit of open files is {limit}; raise it to {LEAST_FILES} with `ulimit -n {LEAST_FILES}`");
            return Err(Error::new(Kind::Unreachable, text));
        }
        let mut options = trespass::Options::default();
        options.transport = self.transport;
        options.device.clone_from(&self.device);
        options.send_high_water = WAITING;
        options.message = MESSAGE;
        options.linger = options.linger.min(self.timeout);
        match memory_limit() {
            Some(limit) if limit < LEAST_MEMORY => {
                let text = format!(
                    "RDMA is unavailable: the limit of locked memory is {} KiB; raise it to 8 MiB with `ulimit -l 8192`",
                    limit >> 10
                );
                if self.transport == Transport::Rdma {
                    return Err(Error::new(Kind::NoRdma, text));
                }
                log::warn!("{text}");
                options.transport = Transport::Tcp;
            }
            limit => options.memory = limit.unwrap_or(MEMORY).min(MEMORY),
        }
        let handle = Handle::new(&options)
            .map_err(|error| Error::new(Kind::Unreachable, format!("cannot start the transport: {error}")))?;
        Ok(self.worker.0.get_or_init(|| handle).clone())
    }
}

/// Returns the limit of locked memory, in bytes.
pub fn memory_limit() -> Option<usize> {
    getrlimit(Resource::Memlock).current.and_then(|limit| usize::try_from(limit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_of_addresses_have_names() {
        let SocketAddr::V6(found) = resolve(&address("fe80::1%lo", 7)).unwrap()[0] else { panic!("not IPv6") };
        assert!(found.scope_id() != 0 && found.port() == 7, "{found}");
        for (text, expected) in [("[::1]:7", "[::1]:7"), ("127.0.0.1:7", "127.0.0.1:7")] {
            assert_eq!(resolve(text).unwrap(), [expected.parse().unwrap()]);
        }
        assert!(resolve("no port").is_err() && resolve("127.0.0.1:70000").is_err());
    }
}
