//! tarpc, over TCP and over streams of trespass, with bincode.

use anyhow::Result;
use futures_util::StreamExt;
use serde_bytes::ByteBuf;
use tarpc::serde_transport::{Transport, new};
use tarpc::server::{BaseChannel, Channel};
use tarpc::{client, context};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_serde::formats::Bincode;
use tokio_util::codec::LengthDelimitedCodec;
use trespass::tokio::{Listener, Stream};

use crate::measure::{Job, Row, closed_loop};

#[tarpc::service]
trait Echo {
    async fn take(data: ByteBuf) -> [u8; 13];
}

#[derive(Clone)]
struct Bench;

impl Echo for Bench {
    async fn take(self, _: context::Context, _: ByteBuf) -> [u8; 13] {
        *b"hello, caller"
    }
}

/// A transport over any stream.
fn transport<S, I, O>(stream: S) -> Transport<S, I, O, Bincode<I, O>>
where
    S: AsyncRead + AsyncWrite,
    I: for<'de> serde::Deserialize<'de>,
    O: serde::Serialize,
{
    new(LengthDelimitedCodec::builder().max_frame_length(16 << 20).new_framed(stream), Bincode::default())
}

async fn serve_one(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
    let requests = BaseChannel::with_defaults(transport(stream)).execute(Bench.serve());
    requests.for_each(|request| async { drop(tokio::spawn(request)) }).await;
}

pub async fn serve(is_rdma: bool) -> Result<()> {
    if is_rdma {
        softrnic::register()?;
        let listener = Listener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?);
        loop {
            let (stream, _) = listener.accept().await?;
            tokio::spawn(serve_one(stream));
        }
    }
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(serve_one(stream));
    }
}

pub async fn call(address: &str, is_rdma: bool, job: &Job) -> Result<Row> {
    let config = client::Config::default();
    let client = if is_rdma {
        softrnic::register()?;
        EchoClient::new(config, transport(Stream::connect(address).await?)).spawn()
    } else {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        EchoClient::new(config, transport(stream)).spawn()
    };
    let size = job.size;
    closed_loop(job, || {
        let client = client.clone();
        move || {
            let client = client.clone();
            async move {
                client.take(context::current(), ByteBuf::from(vec![0; size])).await?;
                Ok(())
            }
        }
    })
    .await
}
