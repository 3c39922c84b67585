//! trespass-rpc.

use std::time::Duration;

use anyhow::{Result, anyhow};
use trespass::Transport;
use trespass_rpc::{Attachment, Channel, Context, Endpoint, Options, Server};

use crate::measure::{Job, Row, closed_loop};

#[trespass_rpc::service(name = "bench.Echo")]
trait Echo {
    async fn take(&self, cx: &Context, data: Attachment) -> Result<[u8; 13], ()>;
}

struct Bench;

impl Echo for Bench {
    async fn take(&self, _: &Context, data: Attachment) -> Result<[u8; 13], ()> {
        if data.len() > 8 << 10 {
            data.read().await.map_err(|_| ())?;
        }
        Ok(*b"hello, caller")
    }
}

pub fn options(name: &str) -> Result<Options> {
    let mut options = Options::default();
    options.worker.transport = if name.contains("tcp") { Transport::Tcp } else { Transport::Rdma };
    // The limit of registered memory, without attachments.
    options.worker.memory = 16 << 20;
    if name.contains("polling") {
        options.spin = Duration::from_millis(50);
    }
    Ok(options)
}

pub async fn serve(name: &str) -> Result<()> {
    let serving =
        Server::new(EchoServer::new(Bench)).bind_on(&Endpoint::spawn(&options(name)?)?, "127.0.0.1:0").await?;
    println!("{}", serving.local_addr());
    std::future::pending().await
}

pub async fn call(name: &str, address: &str, job: &Job) -> Result<Row> {
    let endpoint = Endpoint::spawn(&options(name)?)?;
    let client = EchoClient::over(Channel::connect_on(&endpoint, address).await?)?;
    let memory = client.channel().alloc(job.size.max(1))?;
    let size = job.size;
    closed_loop(job, || {
        let (client, memory) = (client.clone(), memory.clone());
        move || {
            let (client, memory) = (client.clone(), memory.clone());
            async move {
                client.take(Attachment::of(&memory, 0..size)?).await.map_err(|error| anyhow!("{error:?}"))?;
                Ok(())
            }
        }
    })
    .await
}
