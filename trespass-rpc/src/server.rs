//! Serving.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::channel::resolve;
use crate::endpoint::{Command, Endpoint};
use crate::service::{Handler, Pair, runner_of};

/// A server that does not listen yet.
#[derive(Debug)]
pub struct Server<H> {
    handler: H,
}

/// A server that listens. Dropped, it stops to listen and closes its connections.
#[derive(Debug)]
pub struct Serving {
    endpoint: Endpoint,
    listener: u32,
    address: SocketAddr,
}

impl<H: Handler> Server<H> {
    /// A server of one service.
    pub fn new(handler: H) -> Self {
        Self { handler }
    }

    /// Adds a service.
    pub fn and<O: Handler>(self, other: O) -> Server<Pair<H, O>> {
        Server { handler: Pair(self.handler, other) }
    }

    /// Listens in the current tokio runtime: for RDMA, and for TCP at the same port.
    ///
    /// # Errors
    ///
    /// The address is in use, or is not this host's; two methods have one hash.
    pub async fn bind(self, address: &str) -> io::Result<Serving> {
        self.bind_on(&Endpoint::current()?, address).await
    }

    /// Listens on an endpoint.
    ///
    /// # Errors
    ///
    /// See [`Server::bind`].
    pub async fn bind_on(self, endpoint: &Endpoint, address: &str) -> io::Result<Serving> {
        let runner = runner_of(self.handler).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let (listener, address) = endpoint.listen(resolve(address).await?, runner).await?;
        Ok(Serving { endpoint: endpoint.clone(), listener, address })
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
    /// The address, with its port.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Stops listening, asks the callers to make no more calls, and waits until those that run have ended, for the time at most. Returns
    /// how many connections still had calls.
    pub async fn drain(self, time: Duration) -> usize {
        let (reply, left) = oneshot::channel();
        let deadline = Instant::now() + time;
        self.endpoint.shared().command(Command::Drain { listener: self.listener, deadline, reply });
        left.await.unwrap_or(0)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let (reply, _) = oneshot::channel();
        let command = Command::Drain { listener: self.listener, deadline: Instant::now(), reply };
        self.endpoint.shared().command(command);
    }
}
