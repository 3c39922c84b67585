//! A key-value service: server, client and load.
//!
//! ```console
//! $ cargo run --release -p trespass-rpc --example kv                       # in one terminal: the server
//! $ cargo run --release -p trespass-rpc --example kv 127.0.0.1:7175        # in another: the client
//! $ cargo run --release -p trespass-rpc --example kv 127.0.0.1:7175 load   # 64 callers for 3 s
//! ```

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use trespass_rpc::{Context, Server, Stream};

/// Keys and values.
#[trespass_rpc::service(name = "example.Kv")]
pub trait Kv {
    /// The value of a key.
    #[idempotent]
    async fn get(&self, cx: &Context, key: &str) -> Result<Vec<u8>, KvError>;
    /// Sets a value, and returns how often the key was set.
    async fn put(&self, cx: &Context, key: &str, value: &[u8]) -> Result<u64, KvError>;
    /// Keys with a prefix, and the lengths of their values.
    fn list(&self, prefix: &str) -> impl Stream<Item = Result<(String, u64), KvError>>;
}

/// Why a call failed.
#[derive(Debug, Serialize, Deserialize)]
pub enum KvError {
    /// There is no such key.
    NoKey,
}

/// How often it was set, and the value.
type Entry = (u64, Arc<[u8]>);

#[derive(Debug, Default)]
struct Store {
    values: Mutex<BTreeMap<String, Entry>>,
}

impl Kv for Store {
    async fn get(&self, _: &Context, key: &str) -> Result<Vec<u8>, KvError> {
        let values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        values.get(key).map(|(_, value)| value.to_vec()).ok_or(KvError::NoKey)
    }

    async fn put(&self, _: &Context, key: &str, value: &[u8]) -> Result<u64, KvError> {
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = values.entry(key.to_owned()).or_insert_with(|| (0, Arc::default()));
        *entry = (entry.0 + 1, value.into());
        Ok(entry.0)
    }

    fn list(&self, prefix: &str) -> impl Stream<Item = Result<(String, u64), KvError>> {
        let values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        let found = values.range(prefix.to_owned()..).take_while(|(key, _)| key.starts_with(prefix));
        let found: Vec<_> = found.map(|(key, (_, value))| Ok((key.clone(), value.len() as u64))).collect();
        listed(found)
    }
}

/// Items as a stream.
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

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next(), arguments.next()) {
        (None, _) => serve().await?,
        (Some(address), None) => talk(&address).await?,
        (Some(address), Some(_)) => load(&address).await?,
    }
    Ok(())
}

async fn serve() -> io::Result<()> {
    let serving = Server::new(KvServer::new(Store::default())).bind("0.0.0.0:7175").await?;
    writeln!(io::stdout(), "serving at {}", serving.local_addr())?;
    std::future::pending().await
}

async fn talk(address: &str) -> Result<(), Box<dyn Error>> {
    let kv = KvClient::connect(address).await?;
    let mut out = io::stdout();
    writeln!(out, "connected over {}", kv.transport())?;
    kv.put("fruit/apple", b"green").await.map_err(failed)?;
    let times = kv.put("fruit/pear", b"yellow").await.map_err(failed)?;
    writeln!(out, "fruit/pear was set {times} times")?;
    let value = kv.get("fruit/apple").await.map_err(failed)?;
    writeln!(out, "fruit/apple is {}", String::from_utf8_lossy(&value))?;
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
    let kv = KvClient::connect(address).await?;
    writeln!(io::stdout(), "connected over {}", kv.transport())?;
    kv.put("load", &[7; 128]).await.map_err(failed)?;
    let begun = Instant::now();
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let kv = kv.clone();
            tokio::spawn(async move {
                let mut calls = 0_u64;
                while begun.elapsed() < TIME && kv.get("load").await.is_ok() {
                    calls += 1;
                }
                calls
            })
        })
        .collect();
    let mut calls = 0;
    for caller in callers {
        calls += caller.await?;
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
