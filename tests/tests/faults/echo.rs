//! A client and a server of trespass that echo messages and streams, on two workers. The client connects again.

use std::io::{self, Read as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use trespass::net::{Shutdown, Stream};
use trespass::{Acceptor, Connection, Handle, Options, Transport};

use crate::harness::Ended;

/// How long each call may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Attempts of the client until it gives up.
pub(crate) const ATTEMPTS: usize = 8;

fn soon() -> Option<Instant> {
    Some(Instant::now() + PATIENCE)
}

pub(crate) fn handle(transport: Transport) -> io::Result<Handle> {
    let mut options = Options::default();
    options.transport = transport;
    options.memory = 64 << 20;
    options.keepalive = Duration::from_secs(1);
    options.linger = Duration::from_secs(1);
    Handle::new(&options)
}

/// A message: its number, and bytes that follow from it.
fn message(number: u32, length: usize) -> Vec<u8> {
    let number = number.to_le_bytes();
    number.iter().copied().cycle().zip(0..length.max(4)).map(|(byte, at)| byte ^ (at / 4 % 251) as u8).collect()
}

/// The lengths of the messages: short ones, one of a segment, and long ones, which the peer reads.
fn length(number: u32) -> usize {
    [16, 300, 16_000, 40, 100_000][number as usize % 5]
}

/// Echoes the messages of a connection. They arrive once, in order and unchanged.
fn answer(connection: &Connection) {
    let mut expected = None;
    while let Ok(Some(received)) = connection.recv_until(soon()) {
        let number = u32::from_le_bytes(received[..4].try_into().unwrap());
        assert_eq!(number, *expected.get_or_insert(number), "lost or twice");
        assert!(*received == *message(number, length(number)), "message {number} has changed");
        expected = Some(number + 1);
        if connection.send_buf_until(received, soon()).is_err() {
            return;
        }
    }
}

/// Echoes the bytes of a stream.
fn answer_bytes(mut stream: Stream) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut bytes = vec![0; 20_000];
    loop {
        match stream.read(&mut bytes)? {
            0 => return stream.shutdown(Shutdown::Write),
            count => stream.write_all(&bytes[..count])?,
        }
    }
}

/// Serves until it is stopped, each connection on a thread.
pub(crate) fn serve(acceptor: &Acceptor, is_stopped: &AtomicBool, serve_one: impl Fn(Connection) + Sync) -> Ended {
    let serve_one = &serve_one;
    thread::scope(|scope| {
        let mut failures = 0;
        while !is_stopped.load(Ordering::Acquire) {
            match acceptor.accept_until(Some(Instant::now() + Duration::from_millis(5))) {
                Ok(connection) => drop(scope.spawn(move || serve_one(connection))),
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {}
                // A server goes on.
                Err(error) if failures == 100 => return Err(format!("accept: {error}")),
                Err(_) => failures += 1,
            }
        }
        Ok(())
    })
}

/// Runs a client against a server of its own.
pub(crate) fn with_server(
    transport: Transport,
    serve_one: impl Fn(Connection) + Sync,
    client: impl FnOnce(&Handle, std::net::SocketAddr) -> Ended,
) -> Ended {
    let server = handle(transport).map_err(|error| format!("server: {error}"))?;
    let acceptor = Acceptor::bind_on(&server, "127.0.0.1:0").map_err(|error| format!("bind: {error}"))?;
    let is_stopped = AtomicBool::new(false);
    thread::scope(|scope| {
        let serving = scope.spawn(|| serve(&acceptor, &is_stopped, &serve_one));
        let own = handle(transport).map_err(|error| format!("worker: {error}"));
        let ended = own.and_then(|own| client(&own, acceptor.local_addr()));
        is_stopped.store(true, Ordering::Release);
        let served = serving.join().unwrap();
        ended.and(served)
    })
}

/// Sends numbered messages and compares the echoes; connects again after an error. A few messages are in flight.
pub(crate) fn messages(handle: &Handle, address: std::net::SocketAddr, count: u32, attempts: usize) -> Ended {
    const IN_FLIGHT: u32 = 4;
    let (mut done, mut last) = (0, String::new());
    for _ in 0..attempts {
        // A number below `done` was echoed; the connection begins with the first one that was not.
        let mut round = || -> Result<(), String> {
            let connection = Connection::connect_on(handle, address, Some(Duration::from_secs(3)))
                .map_err(|error| format!("connect: {error}"))?;
            let mut sent = done;
            while done < count {
                while sent < count && sent < done + IN_FLIGHT {
                    let mut buf = connection.alloc(length(sent).max(4));
                    buf.copy_from_slice(&message(sent, length(sent)));
                    connection.send_buf_until(buf, soon()).map_err(|error| format!("send: {error}"))?;
                    sent += 1;
                }
                let echo = connection.recv_until(soon()).map_err(|error| format!("receive: {error}"))?;
                let echo = echo.ok_or("receive: the peer has ended")?;
                assert!(*echo == *message(done, length(done)), "echo {done} has changed");
                done += 1;
            }
            // The server has received everything.
            connection.close(0, "done").map_err(|error| format!("close: {error}"))
        };
        match round() {
            Ok(()) => return Ok(()),
            // All messages were echoed.
            Err(_) if done == count => return Ok(()),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Sends bytes as a stream and compares the echo.
pub(crate) fn bytes(handle: &Handle, address: std::net::SocketAddr, attempts: usize) -> Ended {
    let bytes = message(7, 300_000);
    let mut last = String::new();
    for _ in 0..attempts {
        let round = || -> io::Result<()> {
            let mut stream = Stream::connect_on(handle, address)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            let mut writer = stream.try_clone()?;
            let mut echo = Vec::new();
            thread::scope(|scope| {
                let writing = scope.spawn(|| {
                    writer.write_all(&bytes)?;
                    writer.shutdown(Shutdown::Write)
                });
                let read = stream.read_to_end(&mut echo);
                assert!(bytes.starts_with(&echo), "the echo has changed");
                writing.join().unwrap().and(read)
            })?;
            assert_eq!(echo.len(), bytes.len(), "the stream ended early without an error");
            Ok(())
        };
        match round() {
            Ok(()) => return Ok(()),
            Err(error) => last = format!("stream: {error}"),
        }
    }
    Err(last)
}

pub(crate) fn echo_messages(transport: Transport, count: u32, attempts: usize) -> Ended {
    with_server(transport, |connection| answer(&connection), |own, address| messages(own, address, count, attempts))
}

pub(crate) fn echo_bytes(transport: Transport, attempts: usize) -> Ended {
    let serve_one = |connection| drop(answer_bytes(Stream::from(connection)));
    with_server(transport, serve_one, |own, address| bytes(own, address, attempts))
}
