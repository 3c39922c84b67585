//! The server of the honest client, and a client that floods it.

use std::io::Write;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use super::super::LONG;
use super::options;
use crate::worker::{Handle, Transport, Wait};
use crate::{Acceptor, Buf, Connection, Interest, poll};

pub(super) fn report(text: &str) {
    let mut out = std::io::stdout();
    writeln!(out, "\n{text}").unwrap();
    out.flush().unwrap();
}

/// A connection that is served without blocking, and the message that it could not yet send.
struct Served {
    connection: Connection,
    pending: Option<Buf>,
}

impl Served {
    /// Echoes what can be received and sent. Returns false if the connection has ended.
    fn serve(&mut self) -> bool {
        for _ in 0..16 {
            if self.pending.is_none() {
                match self.connection.try_recv() {
                    Ok(Some(message)) => self.pending = Some(message),
                    Ok(None) => return false,
                    Err(error) => return error.kind() == std::io::ErrorKind::WouldBlock,
                }
            }
            if let Some(message) = self.pending.take()
                && let Err(error) = self.connection.try_send(&message)
            {
                self.pending = Some(message);
                return error.kind() == std::io::ErrorKind::WouldBlock;
            }
        }
        true
    }

    fn interest(&self) -> Interest<'_> {
        if self.pending.is_some() { Interest::Room(&self.connection) } else { Interest::Message(&self.connection) }
    }
}

/// Echoes the messages of all peers. The first peer has a thread of its own, which blocks.
pub(super) fn serve(transport: Transport) {
    let handle = Handle::new(&options(transport)).unwrap();
    let acceptor = Acceptor::bind_on(&handle, "127.0.0.1:0").unwrap();
    let address = acceptor.local_addr().to_string();
    report(&format!("listens at {address}"));
    let first = acceptor.accept_until(Some(Instant::now() + LONG)).unwrap();
    thread::spawn(move || {
        while let Some(message) = first.recv().unwrap() {
            first.send(&message).unwrap();
        }
    });
    thread::spawn(move || {
        for order in std::io::stdin().lines().map_while(Result::ok) {
            match order.as_str() {
                "wakers" => wakers(&handle),
                "fork" => fork(&handle),
                "workers" => workers(transport, &address),
                _ => panic!("{order}"),
            }
            report("done: ");
        }
        report("ends");
        std::process::exit(0);
    });
    let mut served: Vec<Served> = Vec::new();
    loop {
        let interests: Vec<_> = served.iter().map(Served::interest).chain([Interest::Incoming(&acceptor)]).collect();
        poll(&interests, Some(Instant::now() + Duration::from_secs(1))).unwrap();
        // Without descriptors this fails, and a later call succeeds.
        while let Ok(connection) = acceptor.try_accept() {
            served.push(Served { connection, pending: None });
        }
        served.retain_mut(Served::serve);
    }
}

/// A waker that panics when it is called, when it is dropped, or both.
struct Broken(bool);

impl Wake for Broken {
    fn wake(self: Arc<Self>) {
        assert!(self.0, "the task of this waker is broken");
    }
}

impl Drop for Broken {
    fn drop(&mut self) {
        assert!(!self.0, "the task of this waker is broken");
    }
}

fn wakers(handle: &Handle) {
    let (near, far) = Connection::pair_on(handle).unwrap();
    for round in 0..8 {
        for what in [Wait::Read, Wait::Write] {
            let waker = Waker::from(Arc::new(Broken(round % 2 == 0)));
            handle.with(|worker| worker.register(far.id(), what, &waker)).unwrap();
            // The worker has the last reference.
            std::mem::forget(waker.clone());
            drop(waker);
        }
        near.send(&[round; 100]).unwrap();
        assert_eq!(far.recv_until(Some(Instant::now() + LONG)).unwrap().unwrap()[..], [round; 100]);
    }
}

fn fork(handle: &Handle) {
    let (near, far) = Connection::pair_on(handle).unwrap();
    near.send(b"of the parent").unwrap();
    // SAFETY: the child calls only functions of this crate, which take no lock that a thread of the parent may hold, and
    // the allocator, which is usable after a fork.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let is_refused = far.try_recv().is_err() && near.send(b"of the child").is_err();
        drop((near, far));
        // SAFETY: a plain system call, without the parent's exit handlers.
        unsafe { libc::_exit(i32::from(!is_refused)) };
    }
    let received = far.recv_until(Some(Instant::now() + LONG)).unwrap().unwrap();
    assert_eq!(&received[..], b"of the parent");
    let mut status = 0;
    // SAFETY: the child is this process's own, and the status is written to the integer.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
}

/// Workers of this process that connect to it, and are dropped with their connections, buffers and regions, in any order.
fn workers(transport: Transport, address: &str) {
    for round in 0..6 {
        let handle = Handle::new(&options(transport)).unwrap();
        let connection = Connection::connect_on(&handle, address, Some(LONG)).unwrap();
        let message = connection.alloc(1 << (4 * round));
        let region = connection.region(1 << 20).ok();
        connection.send(&vec![round as u8; 70_000]).unwrap();
        let echo = connection.recv_until(Some(Instant::now() + LONG)).unwrap();
        match round % 3 {
            0 => drop((connection, handle, region, message, echo)),
            1 => drop((handle, message, echo, region, connection)),
            _ => drop((region, echo, connection, message, handle)),
        }
    }
}

/// Sends without end, and receives nothing.
pub(super) fn flood(transport: Transport, address: &str) {
    let handle = Handle::new(&options(transport)).unwrap();
    let connections: Vec<_> = (0..3).map(|_| Connection::connect_on(&handle, address, Some(LONG)).unwrap()).collect();
    report("floods");
    for round in 0_usize.. {
        for (at, connection) in connections.iter().enumerate() {
            // A connection that is full does not block the others.
            match connection.try_send(&vec![at as u8; [1, 1_000, 60_000][(round + at) % 3]]) {
                Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => return,
                _ => {}
            }
        }
        if round % 64 == 63 {
            thread::sleep(Duration::from_millis(1));
        }
    }
}
