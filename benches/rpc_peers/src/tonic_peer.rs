//! tonic, over TCP and over streams of trespass. The messages are bytes.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use anyhow::Result;
use bytes::{Buf, BufMut, Bytes};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::body::Body;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::Service;
use tonic::server::{NamedService, UnaryService};
use tonic::transport::{Endpoint, Server};
use tonic::{Request, Response, Status};

use crate::measure::{Job, Row, closed_loop};

/// The HTTP/2 window and the frame size, in bytes.
const WINDOW: u32 = 16 << 20;
const FRAME: u32 = 256 << 10;

pub async fn serve(is_rdma: bool) -> Result<()> {
    let server = Server::builder()
        .initial_connection_window_size(WINDOW)
        .initial_stream_window_size(WINDOW)
        .max_frame_size(FRAME)
        .tcp_nodelay(true)
        .add_service(Echo);
    if is_rdma {
        softrnic::register()?;
        let incoming = trespass_rpc::tonic::incoming("127.0.0.1:0")?;
        println!("{}", incoming.local_addr()?);
        server.serve_with_incoming(incoming).await?;
    } else {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?);
        server.serve_with_incoming(TcpListenerStream::new(listener)).await?;
    }
    Ok(())
}

pub async fn call(address: &str, is_rdma: bool, job: &Job) -> Result<Row> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))?
        .initial_connection_window_size(WINDOW)
        .initial_stream_window_size(WINDOW)
        .tcp_nodelay(true);
    let channel = if is_rdma {
        softrnic::register()?;
        endpoint.connect_with_connector(trespass_rpc::tonic::connector()).await?
    } else {
        endpoint.connect().await?
    };
    let client = tonic::client::Grpc::new(channel).max_decoding_message_size(64 << 20);
    let data = Bytes::from(vec![0; job.size]);
    closed_loop(job, || {
        let (client, data) = (client.clone(), data.clone());
        move || {
            let (mut client, data) = (client.clone(), data.clone());
            async move {
                client.ready().await?;
                let path = http::uri::PathAndQuery::from_static("/bench.Echo/take");
                client.unary(Request::new(data), path, Raw).await?;
                Ok(())
            }
        }
    })
    .await
}

#[derive(Clone)]
struct Echo;

impl NamedService for Echo {
    const NAME: &'static str = "bench.Echo";
}

type Answer<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

impl UnaryService<Bytes> for Echo {
    type Response = Bytes;
    type Future = Answer<Response<Bytes>, Status>;

    fn call(&mut self, _: Request<Bytes>) -> Self::Future {
        Box::pin(async { Ok(Response::new(Bytes::from_static(b"hello, caller"))) })
    }
}

impl Service<http::Request<Body>> for Echo {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answer<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            let mut server = tonic::server::Grpc::new(Raw).max_decoding_message_size(64 << 20);
            Ok(server.unary(Echo, request).await)
        })
    }
}

/// A codec that passes messages unchanged.
#[derive(Clone, Copy, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(64 << 10, 1 << 20)
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        let length = buffer.remaining();
        Ok(Some(buffer.copy_to_bytes(length)))
    }
}
