//! A queue pair before its connection by endpoints.

use sideway::ibverbs::queue_pair::{GenericQueuePair, QueuePair, QueuePairEndpoint, RcOptions};

use super::Connection;
use crate::Error;
use crate::core::Core;

/// A queue pair that waits for the endpoint of its peer. Both sides send their endpoints to each other by any means.
#[derive(Debug)]
pub struct Unconnected {
    qp: GenericQueuePair,
    options: RcOptions,
    endpoint: QueuePairEndpoint,
    core: Core,
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
        Unconnected::new(self, qp, options)
    }
}

impl Unconnected {
    fn new(core: &Core, qp: GenericQueuePair, options: RcOptions) -> Result<Self, Error> {
        let endpoint = qp.local_endpoint(&options)?;
        Ok(Self { qp, options, endpoint, core: core.clone() })
    }

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
        let Self { qp, options, core, .. } = self;
        let connection = Connection::new(&core, qp, None);
        if let Some(qp) = &*connection.shared.link.qp.borrow() {
            qp.connect_rc(peer, &options)?;
        }
        Ok(connection)
    }
}
