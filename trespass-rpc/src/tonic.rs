//! gRPC over streams of `trespass`: a connector, and a listener for incoming streams, for `tonic`.
//!
//! To move an existing service, change two lines:
//!
//! ```no_run
//! # use tonic::transport::{Channel, Endpoint, Server};
//! # async fn client() -> Result<Channel, Box<dyn std::error::Error>> {
//! let endpoint = Endpoint::from_static("http://host:50051");
//! let channel = endpoint.connect_with_connector(trespass_rpc::tonic::connector()).await?; // was: endpoint.connect()
//! # Ok(channel) }
//! # async fn server(routes: tonic::service::Routes) -> Result<(), Box<dyn std::error::Error>> {
//! let server = Server::builder().add_routes(routes);
//! server.serve_with_incoming(trespass_rpc::tonic::incoming("0.0.0.0:50051")?).await?; // was: server.serve(address)
//! # Ok(()) }
//! ```
//!
//! A task of the runtime drives the streams, so the runtime must have I/O enabled.
//!
//! A client that cancels more than 50 calls a second, while their servers send, may lose its connection with
//! `too_many_internal_resets`, as over TCP sockets: `h2` counts what arrives for cancelled calls that it has forgotten.
//! `Endpoint::http2_max_concurrent_reset_streams` sets how many it remembers.

use std::io::{self, IoSlice};
use std::net::{SocketAddr, ToSocketAddrs};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;
use tower_service::Service;
use trespass::Handle;
use trespass::tokio::{Acceptor, Listener, Stream as IoStream};

/// How many bytes of HTTP/2 may wait to be sent. A server cannot withdraw what waits when a call is cancelled, and
/// `h2` ends a connection on which too much arrives for cancelled calls.
const WAITING: usize = 256 << 10;

/// A stream of bytes that transports HTTP/2.
#[derive(Debug)]
pub struct Io(IoStream);

impl Io {
    fn new(stream: IoStream) -> Self {
        // Fails if the stream has ended, which its reader will find.
        _ = stream.set_send_buffer_size(WAITING);
        Self(stream)
    }
}

/// Information about the connection. The extensions of each request that a server receives contain it.
#[derive(Clone, Debug)]
pub struct ConnectInfo {
    /// The peer's address.
    pub peer: Option<SocketAddr>,
    /// Device, port and addresses as text, with the reason for TCP.
    pub transport: String,
}

/// Connects over RDMA if both sides support it, otherwise over TCP.
#[derive(Clone, Debug, Default)]
pub struct Connector(Option<Handle>);

/// A connector for `tonic::transport::Endpoint::connect_with_connector`. It uses the default worker of the process.
pub fn connector() -> Connector {
    Connector(None)
}

/// A connector that uses a worker of the program, whose [`Options`](trespass::Options) set the transports, the device,
/// the memory and the time-outs.
pub fn connector_on(handle: &Handle) -> Connector {
    Connector(Some(handle.clone()))
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Io>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<Io>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let handle = self.0.clone();
        Box::pin(async move {
            let none = || io::Error::new(io::ErrorKind::InvalidInput, "the URI has no host");
            let host = uri.host().ok_or_else(none)?.trim_matches(['[', ']']).to_owned();
            let port = uri.port_u16().unwrap_or(80);
            let stream = match handle {
                Some(handle) => IoStream::connect_on(&handle, (host, port)).await?,
                None => IoStream::connect((host, port)).await?,
            };
            Ok(TokioIo::new(Io::new(stream)))
        })
    }
}

/// The accepted streams, for `serve_with_incoming`.
#[derive(Debug)]
pub struct Incoming(Listener);

/// Listens for both RDMA and TCP, at the same port. The listener uses the default worker of the process.
///
/// # Errors
///
/// The address is in use, or does not belong to this host.
pub fn incoming(address: impl ToSocketAddrs) -> io::Result<Incoming> {
    Ok(Incoming(Acceptor::from(trespass::Acceptor::bind(address)?).into()))
}

/// Does the same as [`incoming`], but uses a worker of the program. See [`connector_on`].
///
/// # Errors
///
/// See [`incoming`].
pub fn incoming_on(handle: &Handle, address: impl ToSocketAddrs) -> io::Result<Incoming> {
    Ok(Incoming(Acceptor::from(trespass::Acceptor::bind_on(handle, address)?).into()))
}

impl Incoming {
    /// Returns the address on which this server listens, with its port.
    ///
    /// # Errors
    ///
    /// See [`Listener::local_addr`].
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

impl Stream for Incoming {
    type Item = io::Result<Io>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_accept(context).map(|stream| Some(stream.map(Io::new)))
    }
}

impl Connected for Io {
    type ConnectInfo = ConnectInfo;

    fn connect_info(&self) -> ConnectInfo {
        let transport = self.0.stats().map(|stats| stats.to_string()).unwrap_or_default();
        ConnectInfo { peer: self.0.peer_addr().ok(), transport }
    }
}

impl AsyncRead for Io {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, bytes)
    }
}

impl AsyncWrite for Io {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Does nothing, because written bytes are sent at once, as with sockets.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
