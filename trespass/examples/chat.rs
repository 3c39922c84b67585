//! A chat room in tokio: each line that a client sends reaches all other clients. Without an argument the program is
//! the server; with a host as its argument, it is a client of that host.
#![expect(clippy::print_stderr, reason = "it is a program")]

use std::io;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::sync::broadcast::{self, error::RecvError};
use trespass::tokio::{Listener, Stream};

const PORT: u16 = 7472;

/// Serves one client: passes lines from the client to the room, and from the room to the client.
async fn attend(stream: Stream, number: usize, room: broadcast::Sender<(usize, String)>) -> io::Result<()> {
    let mut writer = stream.clone();
    let mut lines = BufReader::new(stream).lines();
    let mut others = room.subscribe();
    loop {
        tokio::select! {
            line = lines.next_line() => match line? {
                // Sending fails only if no client is in the room.
                Some(line) => _ = room.send((number, format!("{number}: {line}\n"))),
                None => return writer.shutdown().await,
            },
            line = others.recv() => match line {
                Ok((from, line)) if from != number => writer.write_all(line.as_bytes()).await?,
                Ok(_) => {}
                Err(RecvError::Lagged(count)) => writer.write_all(format!("({count} lines lost)\n").as_bytes()).await?,
                Err(RecvError::Closed) => return Ok(()),
            },
        }
    }
}

async fn join(host: &str) -> io::Result<()> {
    let stream = Stream::connect((host, PORT)).await?;
    let (mut reader, mut writer) = (stream.clone(), stream);
    let printing = tokio::spawn(async move { tokio::io::copy(&mut reader, &mut tokio::io::stdout()).await });
    tokio::io::copy(&mut tokio::io::stdin(), &mut writer).await?;
    writer.shutdown().await?;
    printing.await?.map(drop)
}

async fn serve() -> io::Result<()> {
    let (listener, room) = (Listener::bind(("0.0.0.0", PORT)).await?, broadcast::Sender::new(100));
    for number in 0.. {
        let (stream, _) = listener.accept().await?;
        let room = room.clone();
        tokio::spawn(async move {
            // The failure of one client does not affect the others.
            _ = attend(stream, number, room).await;
        });
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let done = match std::env::args().nth(1) {
        None => serve().await,
        Some(option) if option.starts_with('-') => Err(io::Error::other("usage: chat [HOST]; without HOST, serves")),
        Some(host) => join(&host).await,
    };
    if let Err(error) = done {
        eprintln!("chat: {error}");
        std::process::exit(1);
    }
}
