//! A cache whose clients read the server's memory directly: a `get` takes no thread of the server. A `put` is a message.
//!
//! ```console
//! $ cargo run --example cache                          # in one terminal: the server
//! $ cargo run --example cache 127.0.0.1 put key value  # in another
//! $ cargo run --example cache 127.0.0.1 get key
//! ```
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for the command line")]

use std::io::{self, Error};
use std::sync::{Arc, OnceLock};

use trespass::tokio::{Acceptor, Connection, revoke};
use trespass::{Buf, Grant, Region, RegionKey};

const PORT: u16 = 7473;
const SLOTS: u32 = 4096;
const SLOT: usize = 4096;
/// The length of the checksum and of the lengths of key and value, little-endian: 4, 2 and 2 bytes.
const HEADER: usize = 8;
/// How often a client reads a slot that the server writes meanwhile.
const ATTEMPTS: usize = 1000;

/// The slot of a key. A key replaces another one that has the same slot, as in many caches.
fn offset(key: &str) -> usize {
    (crc32c::crc32c(key.as_bytes()) % SLOTS) as usize * SLOT
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
    let end = HEADER + number(4) + number(6);
    if slot[..HEADER] == [0; HEADER] {
        return Ok(None);
    }
    let rest = slot.get(4..end).filter(|rest| slot[..4] == crc32c::crc32c(rest).to_le_bytes()).ok_or(())?;
    let (found, value) = rest[4..].split_at(number(4));
    Ok((found == key.as_bytes()).then(|| String::from_utf8_lossy(value).into_owned()))
}

/// Serves one client: grants it the table, and stores what it puts. All connections of the worker can use its memory.
async fn attend(connection: &Connection, shared: &OnceLock<Region>) -> io::Result<()> {
    if shared.get().is_none() {
        // Another client may have set it meanwhile. Over TCP, this fails.
        _ = shared.set(connection.region(SLOTS as usize * SLOT)?);
    }
    let Some(table) = shared.get() else { return Ok(()) };
    let grant = Grant::readable(connection.as_blocking(), table, 0..table.len())?;
    connection.send(&grant.key().to_bytes()).await?;
    while let Some(message) = connection.recv().await? {
        let text = std::str::from_utf8(&message).map_err(Error::other)?;
        let entry = text.split_once('\0').and_then(|(key, value)| Some((offset(key), encode(key, value)?)));
        let answer = match entry {
            Some((offset, slot)) => table.write_at(offset, &slot).map(|()| "stored")?,
            None => "the message is no entry, or key and value are too long for a slot",
        };
        connection.send(answer.as_bytes()).await?;
    }
    revoke(grant).await
}

async fn serve() -> io::Result<()> {
    let acceptor = Acceptor::bind(("0.0.0.0", PORT)).await?;
    let table = Arc::new(OnceLock::new());
    loop {
        let (connection, table) = (acceptor.accept().await?, Arc::clone(&table));
        tokio::spawn(async move {
            if let Err(error) = attend(&connection, &table).await {
                eprintln!("cache: a client failed: {error}");
                // The client may have ended already.
                _ = connection.close(1, &error.to_string()).await;
            }
        });
    }
}

async fn get(connection: &Connection, table: &RegionKey, key: &str) -> io::Result<Option<String>> {
    let (mine, offset) = (connection.region(SLOT)?, offset(key));
    let mut slot = [0; SLOT];
    for _ in 0..ATTEMPTS {
        connection.batch().get((&mine, 0..SLOT), (table, offset as u64)).submit().await?;
        mine.read_at(0, &mut slot)?;
        if let Ok(value) = decode(&slot, key) {
            return Ok(value);
        }
    }
    Err(Error::other("the server wrote the slot during each read"))
}

/// Returns the next message of the server, or the reason why it has closed the connection.
async fn answer(connection: &Connection) -> io::Result<Buf> {
    connection.recv().await?.ok_or_else(|| {
        let reason = connection.peer_close().map_or_else(String::new, |(_, reason)| reason);
        Error::other(format!("the server has closed the connection: {reason}"))
    })
}

async fn ask(host: &str, key: &str, value: Option<&str>) -> io::Result<()> {
    let connection = Connection::connect((host, PORT)).await?;
    let table = RegionKey::from_bytes(&answer(&connection).await?).ok_or_else(|| Error::other("this is no cache"))?;
    match value {
        Some(value) => {
            connection.send(format!("{key}\0{value}").as_bytes()).await?;
            println!("{}", String::from_utf8_lossy(&answer(&connection).await?));
        }
        None => match get(&connection, &table, key).await? {
            Some(value) => println!("{value}"),
            None => return Err(Error::other(format!("no entry has the key {key}"))),
        },
    }
    connection.close(0, "").await
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match &*arguments.iter().map(String::as_str).collect::<Vec<_>>() {
        [] => serve().await,
        [host, "get", key] => ask(host, key, None).await,
        [host, "put", key, value] => ask(host, key, Some(value)).await,
        _ => Err(Error::other("usage: cache [HOST get KEY | HOST put KEY VALUE]; without HOST, serves")),
    };
    if let Err(error) = done {
        eprintln!("cache: {error}");
        std::process::exit(1);
    }
}
