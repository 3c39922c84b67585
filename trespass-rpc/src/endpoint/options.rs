//! The options of an endpoint.

use std::time::Duration;

#[cfg(feature = "tls")]
use super::Tls;
use crate::core::Limits;

/// The options of an endpoint.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The options of the worker, such as its transports, device and memory.
    pub worker: trespass::Options,
    /// The credit that each connection grants its peer, and its time-outs.
    pub limits: Limits,
    /// How long the driver polls RDMA before it sleeps. Polling avoids wake-ups, but it occupies a processor for that
    /// time. If polling finds no events, the driver polls less often. Zero disables polling. Defaults to 500 us.
    pub spin: Duration,
    /// Time limit for connecting. Defaults to 10 s.
    pub connect: Duration,
    /// The watermark of the memory pools: how many bytes of released memory a pool keeps for the attachments and
    /// targets of later calls. It also limits how much registered memory peers occupy with the attachments that they
    /// announce: see [`Attachment::read`](crate::Attachment::read). Defaults to 64 MiB.
    pub watermark: usize,
    /// Maximum number of bytes that [`Channel::alloc`](crate::Channel::alloc), [`Context::alloc`](crate::Context::alloc)
    /// and copied attachments occupy at a time; by default 4 GiB. It applies to all connections over RDMA together, and
    /// to all over TCP. Lengths are rounded up to powers of two. Beyond it, these calls return `OutOfMemory`.
    pub memory: usize,
    /// The TLS configuration of the connections. Defaults to none. To require encryption, also set `worker.transport` to
    /// [`trespass::Transport::Tcp`].
    #[cfg(feature = "tls")]
    pub tls: Tls,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            worker: trespass::Options::default(),
            limits: Limits::default(),
            spin: Duration::from_micros(500),
            connect: Duration::from_secs(10),
            watermark: 64 << 20,
            memory: usize::try_from(4_u64 << 30).unwrap_or(usize::MAX),
            #[cfg(feature = "tls")]
            tls: Tls::default(),
        }
    }
}
