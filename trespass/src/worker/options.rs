//! Options of a worker and its connections.

use std::time::Duration;

use crate::backend::verbs;
use crate::proto::Settings;

/// The transports that a worker uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transport {
    /// RDMA if both sides support it, otherwise TCP. `stats()` and the log then contain the reason.
    #[default]
    Any,
    /// Only RDMA.
    Rdma,
    /// Only TCP.
    Tcp,
}

/// Options of a worker, and of its connections.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The transports to use. Defaults to [`Transport::Any`].
    pub transport: Transport,
    /// Name of the only RDMA device to use. Defaults to `None`: for each address, the device with a route to it.
    pub device: Option<String>,
    /// Maximum number of bytes registered with each device. Defaults to 1 GiB; memory is registered when it is needed.
    /// The system's limit (`ulimit -l`) may be lower.
    pub memory: usize,
    /// How many bytes may wait to be sent on a connection before `send` blocks. Defaults to 1 MiB.
    pub send_high_water: usize,
    /// Maximum length of a received message, in bytes. Defaults to 1 GiB.
    pub message: u32,
    /// If the peer is inactive for this time, its NIC is probed. Zero disables the probe. Defaults to 5 s.
    pub keepalive: Duration,
    /// The linger time: how long a closed connection waits at most until the peer has received everything.
    /// Defaults to 10 s.
    pub linger: Duration,
    /// How long a call polls before it sleeps. Defaults to 20 us. More takes processor time and lets more answers arrive
    /// without a sleep; zero never polls.
    pub spin: Duration,
    /// Maximum number of established connections of a listener that wait for `accept`. Further requests to connect wait
    /// until the program accepts: over RDMA as many, and the rest is refused; over TCP in the system's queue.
    /// Defaults to 128.
    pub backlog: u32,
}

impl Default for Options {
    fn default() -> Options {
        let settings = Settings::default();
        Options {
            transport: Transport::default(),
            device: None,
            memory: verbs::Options::default().memory,
            send_high_water: settings.send_high_water,
            message: settings.message,
            keepalive: Duration::from_millis(settings.keepalive),
            linger: Duration::from_millis(settings.linger),
            spin: Duration::from_micros(20),
            backlog: 128,
        }
    }
}

impl Options {
    pub(super) fn settings(&self) -> Settings {
        // A sum with the clock does not overflow.
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX).min(u64::MAX / 2);
        Settings {
            send_high_water: self.send_high_water.max(1),
            message: self.message,
            keepalive: millis(self.keepalive),
            linger: millis(self.linger),
            ..Settings::default()
        }
    }

    pub(super) fn verbs(&self) -> verbs::Options {
        verbs::Options { device: self.device.clone(), memory: self.memory, ..verbs::Options::default() }
    }
}
