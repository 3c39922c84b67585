//! A key-value store over several cores. A `get` reads the memory of the core that has the key, without its processor; a
//! `put` is a message to that core.
//!
//! ```console
//! $ cargo run --example shards serve 2                   # in one terminal: two cores
//! $ cargo run --example shards 127.0.0.1 put key value   # in another
//! $ cargo run --example shards 127.0.0.1 get key
//! ```
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for the command line")]

use std::cell::RefCell;
use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::rc::Rc;
use std::thread;

use canter::{Connection, Core, Exposed, Remote, Request, Rights};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

type Outcome<T> = Result<T, Box<dyn Error>>;

const PORT: u16 = 7476;
const SLOTS: usize = 4096;
const SLOT: usize = 512;
/// The checksum, and the lengths of key and value, little-endian.
const HEADER: usize = 8;
/// How often a client reads a slot that the server writes meanwhile.
const ATTEMPTS: usize = 1000;

fn core() -> Result<Core, canter::Error> {
    Core::builder(&std::env::var("CANTER_DEVICE").unwrap_or_else(|_| "soft0".to_owned())).build()
}

fn hash(key: &str) -> usize {
    crc32c::crc32c(key.as_bytes()) as usize
}

/// Returns a slot with the entry, if it is short enough.
fn encode(key: &str, value: &str) -> Option<Vec<u8>> {
    let lengths = [key, value].map(|text| u16::try_from(text.len()).map(u16::to_le_bytes));
    let [Ok(key_length), Ok(value_length)] = lengths else { return None };
    let rest = [&key_length, &value_length, key.as_bytes(), value.as_bytes()].concat();
    (HEADER - 4 + rest.len() <= SLOT).then(|| [&crc32c::crc32c(&rest).to_le_bytes(), &*rest].concat())
}

/// Returns the value in a slot if it is that of the key; `Err` if the slot is being written.
fn decode(slot: &[u8], key: &str) -> Result<Option<String>, ()> {
    let number = |at: usize| usize::from(u16::from_le_bytes([slot[at], slot[at + 1]]));
    if slot[..HEADER] == [0; HEADER] {
        return Ok(None);
    }
    let rest = slot.get(4..HEADER + number(4) + number(6)).ok_or(())?;
    if slot[..4] != crc32c::crc32c(rest).to_le_bytes() {
        return Err(());
    }
    let (found, value) = rest[4..].split_at(number(4));
    Ok((found == key.as_bytes()).then(|| String::from_utf8_lossy(value).into_owned()))
}

/// Serves one client: what the client needs to read the table is in the answer to its request.
async fn attend(core: Core, request: Request, table: Rc<RefCell<Exposed>>, shards: usize) -> Outcome<()> {
    let remote = table.borrow().remote().to_bytes();
    let connection = core.accept(request, &[&remote[..], &[shards as u8]].concat()).await?;
    let pool = core.pool(64, 1)?;
    while let Some(message) = connection.recv().await? {
        let text = std::str::from_utf8(&message)?;
        let entry = text.split_once('\0').and_then(|(key, value)| Some((key, encode(key, value)?)));
        let answer = match entry {
            Some((key, slot)) => {
                table.borrow_mut().write_at(hash(key) / shards % SLOTS * SLOT, &slot)?;
                "stored"
            }
            None => "the message is no entry, or too long for a slot",
        };
        let mut buf = pool.get().await;
        buf.fill(answer.as_bytes())?;
        connection.send(buf).await?;
    }
    Ok(())
}

/// A core with its part of the table.
fn work(mut requests: UnboundedReceiver<Request>, shards: usize) -> Outcome<()> {
    let core = core()?;
    core.run(async {
        let table = Rc::new(RefCell::new(core.expose(SLOTS * SLOT, Rights::Read)?));
        while let Some(request) = requests.recv().await {
            let served = attend(core.clone(), request, Rc::clone(&table), shards);
            drop(core.spawn(async {
                if let Err(error) = served.await {
                    eprintln!("shards: a client failed: {error}");
                }
            }));
        }
        Ok(())
    })
}

/// Listens, and gives each request to the core that it names in its first byte.
fn serve(shards: usize) -> Outcome<()> {
    let start = |_| {
        let (sender, requests) = unbounded_channel();
        thread::spawn(move || {
            if let Err(error) = work(requests, shards) {
                eprintln!("shards: a core ended: {error}");
            }
        });
        sender
    };
    let workers: Vec<_> = (0..shards).map(start).collect();
    let core = core()?;
    core.run(async {
        let mut listener = core.listen(SocketAddr::from(([0, 0, 0, 0], PORT)))?;
        println!("{shards} cores serve {}", listener.local_addr());
        loop {
            let request = listener.accept().await?;
            let shard = usize::from(request.private_data().first().copied().unwrap_or_default()) % shards;
            // The request to a core that has ended is dropped, which rejects it.
            _ = workers[shard].send(request);
        }
    })
}

/// Connects with the core that has the key.
async fn find(core: &Core, server: SocketAddr, key: &str) -> Outcome<(Connection, Remote)> {
    let mut shard = 0;
    loop {
        let connection = core.connect(server, &[shard]).await?;
        let [remote @ .., shards] =
            connection.private_data().first_chunk::<21>().ok_or("the server is another program")?;
        let (remote, shards) = (Remote::from_bytes(remote), usize::from(*shards).max(1));
        if hash(key) % shards == usize::from(shard) {
            return Ok((connection, remote.slice(hash(key) / shards % SLOTS * SLOT, SLOT)?));
        }
        shard = (hash(key) % shards) as u8;
    }
}

async fn get(core: &Core, server: SocketAddr, key: &str) -> Outcome<String> {
    let (connection, slot) = find(core, server, key).await?;
    let mut buf = core.pool(SLOT, 1)?.get().await;
    for _ in 0..ATTEMPTS {
        buf = connection.read(buf, slot).await?;
        if let Ok(value) = decode(&buf, key) {
            return value.ok_or_else(|| format!("{key}: no value").into());
        }
    }
    Err("the server writes the entry all the time".into())
}

async fn put(core: &Core, server: SocketAddr, key: &str, value: &str) -> Outcome<String> {
    let (connection, _) = find(core, server, key).await?;
    let mut buf = core.pool(SLOT, 1)?.get().await;
    buf.fill(format!("{key}\0{value}").as_bytes())?;
    connection.send(buf).await?;
    let answer = connection.recv().await?.ok_or("the server has ended")?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

fn run(arguments: &[&str]) -> Outcome<String> {
    let server = |text: &str| -> Outcome<SocketAddr> {
        let address: IpAddr = text.parse().map_err(|_| format!("{text} is no IP address"))?;
        Ok((address, PORT).into())
    };
    match *arguments {
        ["serve"] => serve(1).map(|()| String::new()),
        ["serve", cores] => match cores.parse::<u8>() {
            Ok(cores @ 1..) => serve(cores.into()).map(|()| String::new()),
            _ => Err(format!("{cores} is no number of cores from 1 to 255").into()),
        },
        [host, "get", key] => {
            let (core, server) = (core()?, server(host)?);
            core.run(get(&core, server, key))
        }
        [host, "put", key, value] => {
            let (core, server) = (core()?, server(host)?);
            core.run(put(&core, server, key, value))
        }
        _ => Err("usage: shards serve [CORES] | shards HOST get KEY | shards HOST put KEY VALUE".into()),
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(answer) => {
            println!("{answer}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("shards: {error}");
            ExitCode::FAILURE
        }
    }
}
