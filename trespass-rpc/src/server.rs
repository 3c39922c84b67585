//! Serving.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crate::channel::resolve;
use crate::endpoint::{Command, Endpoint, Listened, Reply};
use crate::service::{Handler, Pair, runner_of};

/// A server that does not listen yet.
#[derive(Debug)]
pub struct Server<H> {
    handler: H,
}

/// A listening server. Dropping it stops the listener and closes its connections.
#[derive(Debug)]
pub struct Serving {
    listened: Listened,
    endpoint: Endpoint,
}

impl<H: Handler> Server<H> {
    /// Creates a server of one service.
    pub fn new(handler: H) -> Self {
        Self { handler }
    }

    /// Adds a service.
    pub fn and<O: Handler>(self, other: O) -> Server<Pair<H, O>> {
        Server { handler: Pair::new(self.handler, other) }
    }

    /// Listens in the current tokio runtime, for both RDMA and TCP, at the same port.
    ///
    /// # Errors
    ///
    /// The address is in use or does not belong to this host, or two methods have the same hash.
    pub async fn bind(self, address: &str) -> io::Result<Serving> {
        self.bind_on(&Endpoint::current()?, address).await
    }

    /// Listens with the given endpoint.
    ///
    /// # Errors
    ///
    /// See [`Server::bind`].
    pub async fn bind_on(self, endpoint: &Endpoint, address: &str) -> io::Result<Serving> {
        let runner = runner_of(self.handler).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let listened = endpoint.listen(resolve(address).await?, runner).await?;
        Ok(Serving { listened, endpoint: endpoint.clone() })
    }

    /// Listens and serves until the future is dropped.
    ///
    /// # Errors
    ///
    /// See [`Server::bind`].
    pub async fn serve(self, address: &str) -> io::Result<()> {
        let _serving = self.bind(address).await?;
        std::future::pending().await
    }
}

impl Serving {
    /// Returns the address on which this server listens, with its port.
    pub fn local_addr(&self) -> SocketAddr {
        self.listened.address
    }

    /// Stops listening, and announces to the callers that the server accepts no more calls. Then waits until the
    /// running calls have ended, but at most for the given time. Returns how many connections still had calls after
    /// this time.
    pub async fn drain(self, time: Duration) -> usize {
        let (reply, left) = Reply::channel();
        let deadline = self.endpoint.shared().after(time);
        self.endpoint.shared().command(Command::Drain { listener: self.listened.number, deadline, reply });
        left.await.unwrap_or(0)
    }
}
