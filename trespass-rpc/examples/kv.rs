//! A key-value service: server and client.
//!
//! ```console
//! $ cargo run --release -p trespass-rpc --example kv                       # in one terminal: the server
//! $ cargo run --release -p trespass-rpc --example kv 127.0.0.1:7175        # in another: the client
//! $ cargo run --release -p trespass-rpc --example kv 127.0.0.1:7175 load   # 64 callers for 3 s
//! ```

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use clap::Parser;
use serde::{Deserialize, Serialize};
use trespass_rpc::{Attachment, Channel, Context, Memory, Server, Stream, Target};

/// A service that stores values by key.
#[trespass_rpc::service(name = "example.Kv")]
pub trait Kv {
    /// Writes the value of a key to the target, and returns the length of the value.
    #[idempotent]
    async fn get(&self, cx: &Context, key: &str, into: Target) -> Result<u64, KvError>;
    /// Sets the value of a key, and returns how often this key has been set.
    async fn put(&self, cx: &Context, key: &str, value: Attachment) -> Result<u64, KvError>;
    /// Streams the keys that begin with a prefix, and the length of each key's value.
    fn list(&self, prefix: &str) -> impl Stream<Item = Result<(String, u64), KvError>>;
}

/// The reason why a call failed.
#[derive(Debug, Serialize, Deserialize)]
pub enum KvError {
    /// The key does not exist.
    NoKey,
    /// The value is longer than the target.
    Longer(u64),
    /// The value could not be transferred.
    Failed(String),
}

/// How many times the key was set, and its latest value.
type Entry = (u64, Memory);

#[derive(Debug, Default)]
struct Store {
    values: Mutex<BTreeMap<String, Entry>>,
}

impl Store {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kv for Store {
    async fn get(&self, _: &Context, key: &str, into: Target) -> Result<u64, KvError> {
        let (_, value) = self.lock().get(key).cloned().ok_or(KvError::NoKey)?;
        if value.len() as u64 > into.len() {
            return Err(KvError::Longer(value.len() as u64));
        }
        // Over RDMA, this is one WRITE from the store to the caller's memory.
        into.write_from(0, &value, 0..value.len()).await.map_err(|error| KvError::Failed(error.to_string()))?;
        Ok(value.len() as u64)
    }

    async fn put(&self, _: &Context, key: &str, value: Attachment) -> Result<u64, KvError> {
        // Over RDMA, this is one READ from the caller's memory to the store.
        let value = value.read().await.map_err(|error| KvError::Failed(error.to_string()))?;
        let mut values = self.lock();
        let times = values.get(key).map_or(1, |(times, _)| times + 1);
        values.insert(key.to_owned(), (times, value));
        Ok(times)
    }

    fn list(&self, prefix: &str) -> impl Stream<Item = Result<(String, u64), KvError>> {
        let values = self.lock();
        let found = values.range(prefix.to_owned()..).take_while(|(key, _)| key.starts_with(prefix));
        let found: Vec<_> = found.map(|(key, (_, value))| Ok((key.clone(), value.len() as u64))).collect();
        listed(found)
    }
}

/// Converts a list to a stream.
fn listed<T: Unpin>(items: Vec<T>) -> impl Stream<Item = T> {
    struct Listed<T>(std::vec::IntoIter<T>);

    impl<T: Unpin> Stream for Listed<T> {
        type Item = T;

        fn poll_next(mut self: std::pin::Pin<&mut Self>, _: &mut std::task::Context<'_>) -> std::task::Poll<Option<T>> {
            std::task::Poll::Ready(self.0.next())
        }
    }

    Listed(items.into_iter())
}

/// Key-value service: the server, or a client of it
#[derive(Debug, Parser)]
struct Arguments {
    /// The server, HOST:PORT; without it, this program is the server
    address: Option<String>,
    /// `load`: 64 callers make calls for 3 s
    #[arg(value_parser = ["load"])]
    load: Option<String>,
    /// Address at which the server listens
    #[arg(long, default_value = "0.0.0.0:7175", conflicts_with = "address")]
    listen: String,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let run = match (&arguments.address, &arguments.load) {
        (None, _) => serve(&arguments.listen).await,
        (Some(address), None) => talk(address).await,
        (Some(address), Some(_)) => load(address).await,
    };
    match run {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If standard error is closed, the exit status still reports the failure.
            _ = writeln!(io::stderr(), "kv: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(address: &str) -> Result<(), Box<dyn Error>> {
    let serving = Server::new(KvServer::new(Store::default())).bind(address).await;
    let serving = serving
        .map_err(|error| format!("cannot listen at {address}: {error}; choose another address with --listen"))?;
    writeln!(io::stdout(), "serving at {}", serving.local_addr())?;
    std::future::pending().await
}

async fn connect(address: &str) -> Result<KvClient<Channel>, Box<dyn Error>> {
    let connected = KvClient::connect(address).await;
    let kv = connected.map_err(|error| {
        let remedy = if error.kind() == io::ErrorKind::ConnectionRefused { "; start the server first" } else { "" };
        format!("cannot connect to {address}: {error}{remedy}")
    })?;
    writeln!(io::stdout(), "connected over {}", kv.transport())?;
    Ok(kv)
}

async fn talk(address: &str) -> Result<(), Box<dyn Error>> {
    let kv = connect(address).await?;
    let mut out = io::stdout();
    kv.put("fruit/apple", Attachment::from(&b"green"[..])).await.map_err(failed)?;
    let times = kv.put("fruit/orchard", Attachment::from(vec![b'x'; 10 << 20])).await.map_err(failed)?;
    writeln!(out, "number of times that fruit/orchard was set: {times}")?;
    let memory = kv.channel().alloc(16 << 20)?;
    let length = kv.get("fruit/apple", Target::of(&memory, 0..100)?).await.map_err(failed)?;
    let mut value = vec![0; length as usize];
    memory.read_at(0, &mut value)?;
    writeln!(out, "fruit/apple is {}", String::from_utf8_lossy(&value))?;
    let length = kv.get("fruit/orchard", Target::of(&memory, 0..16 << 20)?).await.map_err(failed)?;
    writeln!(out, "fruit/orchard has {length} bytes")?;
    let mut keys = kv.list("fruit/");
    while let Some(key) = keys.next().await {
        let (key, length) = key.map_err(failed)?;
        writeln!(out, "{key}: {length} bytes")?;
    }
    Ok(())
}

async fn load(address: &str) -> Result<(), Box<dyn Error>> {
    const CALLERS: u32 = 64;
    const TIME: Duration = Duration::from_secs(3);
    let kv = connect(address).await?;
    kv.put("load", Attachment::from(vec![7; 128])).await.map_err(failed)?;
    let begun = Instant::now();
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let kv = kv.clone();
            tokio::spawn(async move {
                let mut calls = 0_u64;
                while begun.elapsed() < TIME {
                    kv.put("load", Attachment::from(&[7; 128][..])).await.map_err(failed)?;
                    calls += 1;
                }
                Ok::<_, String>(calls)
            })
        })
        .collect();
    let mut calls = 0;
    for caller in callers {
        calls += caller.await??;
    }
    writeln!(io::stdout(), "{CALLERS} callers: {:.0} calls/s", calls as f64 / begun.elapsed().as_secs_f64())?;
    Ok(())
}

fn failed(error: trespass_rpc::Error<KvError>) -> String {
    match error {
        trespass_rpc::Error::Application(error) => format!("{error:?}"),
        trespass_rpc::Error::Rpc(error) => error.to_string(),
    }
}
