//! A gRPC service of `tonic`, over TCP sockets or over streams of `trespass`; only two lines differ.
//!
//! ```console
//! $ cargo run --release -p trespass-rpc-ecosystem --example tonic             # the server
//! $ cargo run --release -p trespass-rpc-ecosystem --example tonic 127.0.0.1   # the client, in another terminal
//! ```
//!
//! The messages are plain bytes, so that the example needs no `protoc`. Generated services work in the same way.

use std::convert::Infallible;
use std::error::Error;
use std::io::{self, Write};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::{Buf, BufMut};
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::{Service, http};
use tonic::server::{NamedService, UnaryService};
use tonic::transport::{Endpoint, Server};
use tonic::{Request, Response, Status};
use trespass_rpc::tonic::ConnectInfo;

const PORT: u16 = 50051;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    match std::env::args().nth(1) {
        None => serve().await,
        Some(host) => call(&host).await,
    }
}

async fn serve() -> Result<(), Box<dyn Error>> {
    let server = Server::builder().add_service(Hello);
    // Before: server.serve(([0, 0, 0, 0], PORT).into()).await?;
    server.serve_with_incoming(trespass_rpc::tonic::incoming(("0.0.0.0", PORT))?).await?;
    Ok(())
}

async fn call(host: &str) -> Result<(), Box<dyn Error>> {
    let endpoint = Endpoint::from_shared(format!("http://{host}:{PORT}"))?;
    // Before: let channel = endpoint.connect().await?;
    let channel = endpoint.connect_with_connector(trespass_rpc::tonic::connector()).await?;
    let mut client = tonic::client::Grpc::new(channel);
    const CALLS: u32 = 1_000;
    let begun = Instant::now();
    for number in 0..CALLS {
        client.ready().await?;
        let path = http::uri::PathAndQuery::from_static("/example.Hello/hello");
        let reply = client.unary(Request::new(b"caller".to_vec()), path, Bytes).await?;
        if number == 0 {
            writeln!(io::stdout(), "{}", String::from_utf8_lossy(reply.get_ref()))?;
        }
    }
    writeln!(io::stdout(), "{:.1} us a call", begun.elapsed().as_secs_f64() * 1e6 / f64::from(CALLS))?;
    Ok(())
}

/// The service, as `tonic-build` would write it.
#[derive(Clone)]
struct Hello;

impl NamedService for Hello {
    const NAME: &'static str = "example.Hello";
}

type Answer<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

impl UnaryService<Vec<u8>> for Hello {
    type Response = Vec<u8>;
    type Future = Answer<Response<Vec<u8>>, Status>;

    fn call(&mut self, request: Request<Vec<u8>>) -> Self::Future {
        Box::pin(async move {
            let info = request.extensions().get::<ConnectInfo>().map(|info| info.transport.clone());
            let name = String::from_utf8_lossy(request.get_ref());
            Ok(Response::new(format!("hello {name}, over {}", info.unwrap_or_default()).into_bytes()))
        })
    }
}

impl Service<http::Request<Body>> for Hello {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answer<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move { Ok(tonic::server::Grpc::new(Bytes).unary(Hello, request).await) })
    }
}

/// A codec that leaves messages unchanged.
#[derive(Clone, Copy, Default)]
struct Bytes;

impl Codec for Bytes {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Bytes {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(&item);
        Ok(())
    }
}

impl Decoder for Bytes {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        let mut item = vec![0; buffer.remaining()];
        buffer.copy_to_slice(&mut item);
        Ok(Some(item))
    }
}
