//! The channel: a caller's handle to a connection.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use trespass::{Kind, Registrar};

use crate::endpoint::{Command, Endpoint, Link, Linked, Linking, Runner, TransportInfo};
use crate::error::{Certainty, RpcError, Status};
use crate::memory::Memory;
use crate::wire::MethodInfo;

/// A connection for any number of concurrent calls. Clones refer to the same connection, which closes when the last
/// clone and call have ended.
#[derive(Clone, Debug)]
pub struct Channel {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    link: Arc<Link>,
    /// `None` if the peer initiated the connection: the server then owns it.
    endpoint: Option<Endpoint>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(endpoint) = &self.endpoint {
            let (link, reason) = (Arc::clone(&self.link), String::new());
            endpoint.shared().command(Command::Close { link, code: 0, reason });
        }
    }
}

impl Channel {
    /// Connects in the current tokio runtime: over RDMA if both sides support it, otherwise over TCP.
    /// [`Channel::transport`] returns the transport and the reason for it.
    ///
    /// # Errors
    ///
    /// The name cannot be resolved, no server listens at the address, or the server does not use this protocol.
    pub async fn connect(address: &str) -> io::Result<Self> {
        Self::connect_on(&Endpoint::current()?, address).await
    }

    /// Connects with the given endpoint.
    ///
    /// # Errors
    ///
    /// See [`Channel::connect`].
    pub async fn connect_on(endpoint: &Endpoint, address: &str) -> io::Result<Self> {
        Self::connect_with(endpoint, address, None).await
    }

    /// Connects with the given endpoint. `runner` serves the calls that the peer makes.
    pub(crate) async fn connect_with(
        endpoint: &Endpoint,
        address: &str,
        runner: Option<Box<dyn Runner>>,
    ) -> io::Result<Self> {
        let link = endpoint.link(host(address), resolve(address).await?, runner).await?;
        Ok(Self { inner: Arc::new(Inner { link, endpoint: Some(endpoint.clone()) }) })
    }

    pub(crate) fn of_link(link: Arc<Link>) -> Self {
        Self { inner: Arc::new(Inner { link, endpoint: None }) }
    }

    /// Begins to connect to the peer of this channel, over RDMA only. `address` names the peer.
    pub(crate) fn begin_rdma(&self, endpoint: &Endpoint, address: &str) -> Linking {
        endpoint.begin_link(host(address), vec![self.transport().addresses.1], &[Kind::Rdma], None)
    }

    pub(crate) fn of_linked(endpoint: &Endpoint, linked: Linked) -> io::Result<Self> {
        Ok(Self { inner: Arc::new(Inner { link: linked.into_link()?, endpoint: Some(endpoint.clone()) }) })
    }

    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.inner.link
    }

    /// Returns the connection's transport, and the reason for it.
    pub fn transport(&self) -> &TransportInfo {
        &self.inner.link.info
    }

    /// Returns the server's certificate, followed by the other certificates of its chain. Without TLS, the slice is
    /// empty.
    #[cfg(feature = "tls")]
    pub fn peer_certificates(&self) -> &[rustls::pki_types::CertificateDer<'static>] {
        self.inner.link.certificates()
    }

    /// Whether the connection accepts calls. If not, calls return [`Certainty::NotSent`].
    pub fn is_open(&self) -> bool {
        !self.inner.link.shared.is_inherited() && self.inner.link.with(|state| state.core.is_open())
    }

    /// Allocates memory for attachments and targets of this connection. The memory may still contain bytes from an
    /// earlier use by this program.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` if the system has no memory, or all such memory would exceed
    /// [`Options::memory`](crate::Options::memory).
    pub fn alloc(&self, length: usize) -> io::Result<Memory> {
        self.inner.link.memory.alloc(length)
    }

    /// Returns the registrar, which registers memory of the program or of a GPU for [`Memory::of_region`]. Returns
    /// `None` over TCP.
    pub fn registrar(&self) -> Option<&Registrar> {
        self.inner.link.memory.registrar()
    }

    /// Whether no call is in flight, in either direction.
    pub fn is_idle(&self) -> bool {
        self.inner.link.shared.is_inherited() || self.inner.link.with(|state| state.core.is_idle())
    }

    /// Compares the given methods with those of the peer.
    ///
    /// # Errors
    ///
    /// [`Status::MISMATCH`] with the name of a method that the peer declares with different types. A method that the
    /// peer does not serve at all is not an error here.
    pub fn check(&self, methods: &[MethodInfo]) -> Result<(), RpcError> {
        let peers = self.inner.link.methods();
        let differs =
            |method: &&MethodInfo| peers.iter().any(|peer| peer.id == method.id && peer.shape != method.shape);
        match methods.iter().find(differs) {
            Some(method) => {
                let text = format!("{}; build both sides from the same trait", method.name);
                Err(RpcError::new(Status::MISMATCH, Certainty::NotSent, text))
            }
            None => Ok(()),
        }
    }
}

/// Returns the host part of an address that has the form `host:port`.
fn host(address: &str) -> String {
    address.rsplit_once(':').map_or(address, |(host, _)| host).trim_matches(['[', ']']).to_owned()
}

/// Resolves an address of the form `host:port`.
pub(crate) async fn resolve(address: &str) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = address.parse() {
        return Ok(vec![address]);
    }
    // Without the brackets, the system resolves the name of an interface, as in `[fe80::1%eth0]:1`.
    let parts =
        address.rsplit_once(':').and_then(|(host, port)| Some((host.trim_matches(['[', ']']), port.parse().ok()?)));
    let parts: Option<(&str, u16)> = parts;
    let invalid = || io::Error::new(io::ErrorKind::InvalidInput, "the port is missing");
    let found = match parts {
        None => Err(invalid()),
        Some(parts) if tokio::runtime::Handle::try_current().is_ok() => {
            tokio::net::lookup_host(parts).await.map(Iterator::collect)
        }
        Some(parts) => parts.to_socket_addrs().map(Iterator::collect),
    };
    let text = |error: &io::Error| {
        let remedy = if error.kind() == io::ErrorKind::InvalidInput { "give HOST:PORT" } else { "check the host name" };
        format!("cannot resolve {address}: {error}; {remedy}")
    };
    found.map_err(|error| io::Error::new(error.kind(), text(&error)))
}
