//! Tests both sides with fake endpoints, in memory and over sockets, and tests each side against malicious peers.

mod hostile;
mod neighbours;
mod sockets;
mod whole;

use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::*;
use crate::endpoint::fake::Fake;
use crate::plan::{Given, Plan};

/// A time-out that is long enough for a busy machine.
const LONG: Duration = Duration::from_secs(60);

fn request(change: impl FnOnce(&mut Plan)) -> Request {
    let mut plan = Plan::default();
    change(&mut plan);
    Request { plan, given: Given::default() }
}

/// A server that runs on a thread, and is stopped on drop.
struct Running {
    address: SocketAddr,
    events: Receiver<Event>,
    stop: Stop,
    thread: Option<JoinHandle<Result<(), Failure>>>,
}

impl Running {
    fn start(factory: Fake, host: Host, timeout: Duration, is_one_off: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), Stop::new(&listener).unwrap());
        let (sender, events) = channel();
        let thread = thread::spawn(move || {
            serve(&listener, &factory, &host, timeout, is_one_off, &mut |event| {
                let _ = sender.send(event);
            })
        });
        Self { address, events, stop, thread: Some(thread) }
    }

    fn usual() -> Self {
        Self::start(Fake::default(), Host::default(), LONG, false)
    }

    fn contact(&self) -> ControlOptions {
        ControlOptions { port: self.address.port(), family: None, timeout: LONG }
    }

    fn measure(&self, request: &Request, watch: &mut dyn Watch) -> Result<Outcome, Failure> {
        // Waits, because the server may still be busy with a rejected client of another test.
        let met = connect("127.0.0.1", &self.contact(), Some(LONG))?;
        measure(met.connection, met.near, &Fake::default(), request, watch)
    }

    /// Waits for the next failure that the server reports, and returns its text.
    fn failure(&self) -> String {
        loop {
            if let Event::Failed(text) = self.events.recv_timeout(LONG).unwrap() {
                return text;
            }
        }
    }

    fn end(mut self) -> Result<(), Failure> {
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
