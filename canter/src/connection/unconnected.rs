//! A queue pair before its connection by endpoints.

use sideway::ibverbs::queue_pair::{QueuePair, QueuePairEndpoint, RcOptions};

use super::Connection;
use crate::Error;
use crate::core::Core;

/// A queue pair that waits for the endpoint of its peer. Both sides send their endpoints to each other by any means.
#[derive(Debug)]
pub struct Unconnected {
    connection: Connection,
    options: RcOptions,
    endpoint: QueuePairEndpoint,
}

impl Core {
    /// Creates a queue pair that is connected without the connection manager: by exchange of
    /// [endpoints](sideway::ibverbs::queue_pair::QueuePairEndpoint).
    ///
    /// # Errors
    ///
    /// - [`Error::Connections`]: the core has as many connections as it can serve.
    /// - [`Error::Verb`]: the device refused.
    pub fn unconnected(&self, options: RcOptions) -> Result<Unconnected, Error> {
        let qp = self.inner.queue_pair(|builder| builder.build_generic())?;
        let endpoint = qp.local_endpoint(&options)?;
        Ok(Unconnected { connection: Connection::new(self, qp, None), options, endpoint })
    }
}

impl Unconnected {
    /// Returns what the peer needs to connect.
    pub fn endpoint(&self) -> QueuePairEndpoint {
        self.endpoint
    }

    /// Connects with the peer. Such a connection does not notice the end of the peer before a request fails.
    ///
    /// # Errors
    ///
    /// [`Error::QueuePair`]: the endpoint does not fit, or the device refused it.
    pub fn connect(self, peer: &QueuePairEndpoint) -> Result<Connection, Error> {
        let Self { connection, options, .. } = self;
        if let Some(qp) = &*connection.shared.link.qp.borrow() {
            qp.connect_rc(peer, &options)?;
        }
        Ok(connection)
    }
}
