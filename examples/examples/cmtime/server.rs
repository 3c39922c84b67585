//! The server: accepts what comes, and answers what goes.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};
use sideway::ibverbs::queue_pair::BasicQueuePair;
use sideway::rdmacm::communication_manager::{
    ConnectionParameter, Event, EventChannel, EventKind, Identifier, PortSpace,
};

use super::arguments::Arguments;
use super::queues::Queues;
use super::signals;

/// How often the server looks whether it is to end.
const LOOK: Duration = Duration::from_millis(100);

pub(crate) fn run(arguments: &Arguments, out: &mut dyn Write) -> Result<()> {
    signals::note()?;
    let channel = EventChannel::new()?;
    let listener = listen(&channel, arguments)?;
    if let Some(address) = listener.local_address() {
        writeln!(out, "listening on {address}")?;
        out.flush()?;
    }
    let server = Server::new(arguments);
    match arguments.threads {
        1 => server.serve(&channel, |event| server.handle(&event))?,
        threads => server.serve_with_threads(&channel, threads)?,
    }
    drop(listener);
    server.verdict(out)
}

/// Listens on the address, or on all of either family where the machine has IPv6.
fn listen(channel: &Arc<EventChannel>, arguments: &Arguments) -> Result<Arc<Identifier>> {
    let listen_on = |address: IpAddr| -> Result<Arc<Identifier>> {
        let id = channel.create_id(PortSpace::Tcp)?;
        id.bind_addr(SocketAddr::new(address, arguments.port))?;
        id.listen(0)?;
        Ok(id)
    };
    match arguments.bind {
        Some(address) => listen_on(address),
        None => listen_on(Ipv6Addr::UNSPECIFIED.into()).or_else(|_| listen_on(std::net::Ipv4Addr::UNSPECIFIED.into())),
    }
}

struct Server {
    queues: Queues,
    /// By the identifier, which each queue pair holds.
    connections: Mutex<HashMap<usize, BasicQueuePair>>,
    ends_after: Option<u64>,
    ended: AtomicU64,
    failed: AtomicU64,
    has_said_why: AtomicBool,
}

impl Server {
    fn new(arguments: &Arguments) -> Self {
        Self {
            queues: Queues::default(),
            connections: Mutex::default(),
            ends_after: arguments.connections.map(Into::into),
            ended: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            has_said_why: AtomicBool::new(false),
        }
    }

    /// Takes events until it is time to end.
    fn serve(&self, channel: &Arc<EventChannel>, mut handle: impl FnMut(Event)) -> Result<()> {
        while !signals::came() && !self.has_served_all() {
            match channel.get_cm_event(Some(LOOK)) {
                Ok(event) => handle(event),
                Err(error) if error.errno().raw() == libc::ETIMEDOUT => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Takes events, and has several threads handle them.
    fn serve_with_threads(&self, channel: &Arc<EventChannel>, threads: u16) -> Result<()> {
        let (sender, receiver) = mpsc::channel();
        let receiver = Mutex::new(receiver);
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while let Some(event) = next(&receiver) {
                        self.handle(&event);
                    }
                });
            }
            // It fails only where no thread is left to receive.
            let served = self.serve(channel, |event| drop(sender.send(event)));
            // By which the threads end.
            drop(sender);
            served
        })
    }

    fn has_served_all(&self) -> bool {
        let gone = self.ended.load(Ordering::Acquire) + self.failed.load(Ordering::Acquire);
        self.ends_after.is_some_and(|count| gone >= count)
    }

    fn handle(&self, event: &Event) {
        let id = event.cm_id();
        match event.kind() {
            EventKind::ConnectRequest(_) => {
                if let Err(error) = self.accept(id) {
                    // What was made goes, and with the event the request is rejected.
                    drop(self.take(id));
                    self.fail(id, error);
                }
            }
            EventKind::Disconnected(_) => {
                if let Some(qp) = self.take(id) {
                    // The client waits for this answer.
                    match id.disconnect() {
                        Ok(()) => self.ended.fetch_add(1, Ordering::Release),
                        Err(error) => self.fail(id, error),
                    };
                    drop(qp);
                }
            }
            EventKind::ConnectError(_)
            | EventKind::Unreachable(_)
            | EventKind::Rejected(_)
            | EventKind::DeviceRemoval => {
                let Some(qp) = self.take(id) else { return };
                drop(qp);
                self.fail(id, event);
            }
            _ => {}
        }
    }

    /// Answers with as much as the request offers and the device has.
    fn accept(&self, id: &Arc<Identifier>) -> Result<()> {
        let qp = self.queues.domain(id)?.create_qp(id)?;
        // Before it is accepted: its end may be handled by another thread then.
        self.lock().insert(key(id), qp);
        let mut parameter = ConnectionParameter::default();
        parameter.setup_responder_resources(ConnectionParameter::MAX_DEPTH);
        parameter.setup_initiator_depth(ConnectionParameter::MAX_DEPTH);
        Ok(id.accept(&parameter)?)
    }

    fn take(&self, id: &Arc<Identifier>) -> Option<BasicQueuePair> {
        self.lock().remove(&key(id))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<usize, BasicQueuePair>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says why the first one failed, and counts the others.
    fn fail(&self, id: &Identifier, why: impl fmt::Display) -> u64 {
        if !self.has_said_why.swap(true, Ordering::Relaxed) {
            let peer = id.peer_address().map_or_else(|| "a client".to_owned(), |address| address.to_string());
            // Nothing is left to do where even that fails.
            let _ = writeln!(io::stderr(), "the connection of {peer} failed, as others may: {why:#}");
        }
        self.failed.fetch_add(1, Ordering::Release)
    }

    fn verdict(self, out: &mut dyn Write) -> Result<()> {
        let (ended, failed) = (self.ended.into_inner(), self.failed.into_inner());
        writeln!(out, "{ended} connections were made and ended")?;
        match self.connections.into_inner().unwrap_or_else(PoisonError::into_inner).len() {
            0 => {}
            left => writeln!(out, "{left} are ended now")?,
        }
        if failed > 0 {
            bail!("{failed} connections failed");
        }
        Ok(())
    }
}

fn key(id: &Arc<Identifier>) -> usize {
    Arc::as_ptr(id).addr()
}

/// The next event, by one thread at a time.
fn next(receiver: &Mutex<Receiver<Event>>) -> Option<Event> {
    receiver.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}
