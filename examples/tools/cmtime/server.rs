//! The server: accepts every connection, and disconnects when its client does.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use libc::c_int;
use sideway::ibverbs::queue_pair::BasicQueuePair;
use sideway::rdmacm::communication_manager::{
    ConnectionParameter, Event, EventChannel, EventKind, Identifier, PortSpace,
};
use sideway_examples::connections::key;

use super::{Arguments, Domain, device};

/// Set by SIGINT and SIGTERM.
static SIGNALED: AtomicBool = AtomicBool::new(false);

/// The handler only stores to an atomic, which is safe at any point of a program.
extern "C" fn on_signal(_: c_int) {
    SIGNALED.store(true, Ordering::Relaxed);
}

/// Installs a handler that sets [`SIGNALED`] on the first SIGINT or SIGTERM; a second one ends the program.
fn catch_signals() -> Result<()> {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: all-zero is legal: an empty mask, no flags, and the handler that is set below.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_signal as extern "C" fn(c_int) as libc::sighandler_t;
        action.sa_flags = libc::SA_RESETHAND;
        // SAFETY: the action is complete, and its handler is async-signal-safe.
        if unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error()).context("cannot catch signals");
        }
    }
    Ok(())
}

/// The state that the threads share.
#[derive(Default)]
struct Server {
    domains: Mutex<Vec<Arc<Domain>>>,
    /// The queue pairs by identifier; each queue pair holds a reference to its identifier.
    connections: Mutex<HashMap<usize, BasicQueuePair>>,
    ends_after: Option<u64>,
    ended: AtomicU64,
    failed: AtomicU64,
    has_reported: AtomicBool,
}

pub(crate) fn run(arguments: &Arguments, out: &mut dyn Write) -> Result<()> {
    catch_signals()?;
    let channel = EventChannel::new()?;
    let listener = listen(&channel, arguments)?;
    if let Some(address) = listener.local_address() {
        writeln!(out, "listening on {address}")?;
        out.flush()?;
    }
    let server = Server { ends_after: arguments.connections.map(Into::into), ..Server::default() };
    match arguments.threads {
        1 => server.take_events(&channel, |event| server.handle(&event))?,
        threads => server.run_threads(&channel, threads)?,
    }
    drop(listener);
    let (ended, failed) = (server.ended.load(Ordering::Acquire), server.failed.load(Ordering::Acquire));
    writeln!(out, "{ended} connections were made and ended")?;
    match lock(&server.connections).len() {
        0 => {}
        left => writeln!(out, "{left} are ended now")?,
    }
    if failed > 0 {
        bail!("{failed} connections failed; see the client's error messages");
    }
    Ok(())
}

/// Listens on the address, or on all addresses of both families if the machine has IPv6.
fn listen(channel: &Arc<EventChannel>, arguments: &Arguments) -> Result<Arc<Identifier>> {
    let listen_on = |address: IpAddr| -> Result<Arc<Identifier>> {
        let id = channel.create_id(PortSpace::Tcp)?;
        id.bind_addr(SocketAddr::new(address, arguments.port))?;
        id.listen(0)?;
        Ok(id)
    };
    match arguments.bind {
        Some(address) => listen_on(address),
        None => listen_on(Ipv6Addr::UNSPECIFIED.into()).or_else(|_| listen_on(Ipv4Addr::UNSPECIFIED.into())),
    }
}

impl Server {
    /// Reads events until a signal, or until all connections were served.
    fn take_events(&self, channel: &Arc<EventChannel>, mut handle: impl FnMut(Event)) -> Result<()> {
        /// The time between two checks of these conditions.
        const PERIOD: Duration = Duration::from_millis(100);
        let is_done = || {
            let done = self.ended.load(Ordering::Acquire) + self.failed.load(Ordering::Acquire);
            self.ends_after.is_some_and(|count| done >= count)
        };
        while !SIGNALED.load(Ordering::Relaxed) && !is_done() {
            match channel.get_cm_event(Some(PERIOD)) {
                Ok(event) => handle(event),
                Err(error) if error.errno().raw() == libc::ETIMEDOUT => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Reads events, and has several threads handle them.
    fn run_threads(&self, channel: &Arc<EventChannel>, threads: u16) -> Result<()> {
        let (sender, receiver) = mpsc::channel();
        let receiver = Mutex::new(receiver);
        // One thread at a time waits for the next event.
        let next = || lock(&receiver).recv().ok();
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while let Some(event) = next() {
                        self.handle(&event);
                    }
                });
            }
            // Sending fails only if no thread is left to receive.
            let served = self.take_events(channel, |event| drop(sender.send(event)));
            // Ends the threads.
            drop(sender);
            served
        })
    }

    fn handle(&self, event: &Event) {
        let id = event.cm_id();
        match event.kind() {
            EventKind::ConnectRequest(_) => {
                if let Err(error) = self.accept(id) {
                    // Dropping the event rejects the request.
                    drop(self.remove(id));
                    self.fail(id, error);
                }
            }
            EventKind::Disconnected(_) => {
                if let Some(qp) = self.remove(id) {
                    // The client waits until this side disconnects.
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
                if let Some(qp) = self.remove(id) {
                    drop(qp);
                    self.fail(id, event);
                }
            }
            _ => {}
        }
    }

    /// Accepts with as many resources as the request offers and the device supports.
    fn accept(&self, id: &Arc<Identifier>) -> Result<()> {
        let qp = id.create_qp(&self.domain(id)?.builder)?;
        // Inserted before the accept: another thread may handle the disconnect right after.
        lock(&self.connections).insert(key(id), qp);
        let mut parameter = ConnectionParameter::default();
        parameter.setup_responder_resources(ConnectionParameter::MAX_DEPTH);
        parameter.setup_initiator_depth(ConnectionParameter::MAX_DEPTH);
        Ok(id.accept(&parameter)?)
    }

    /// The domain of the identifier's device.
    fn domain(&self, id: &Arc<Identifier>) -> Result<Arc<Domain>> {
        let context = device(id)?;
        let mut domains = lock(&self.domains);
        if let Some(domain) = domains.iter().find(|domain| Arc::ptr_eq(&domain.context, &context)) {
            return Ok(Arc::clone(domain));
        }
        let domain = Arc::new(Domain::new(context)?);
        domains.push(Arc::clone(&domain));
        Ok(domain)
    }

    fn remove(&self, id: &Arc<Identifier>) -> Option<BasicQueuePair> {
        lock(&self.connections).remove(&key(id))
    }

    /// Reports the cause of the first failure, and counts the others.
    fn fail(&self, id: &Identifier, why: impl fmt::Display) -> u64 {
        if !self.has_reported.swap(true, Ordering::Relaxed) {
            let peer = id.peer_address().map_or_else(|| "a client".to_owned(), |address| address.to_string());
            // If printing fails, there is no remedy.
            let _ = writeln!(io::stderr(), "the connection of {peer} failed (others may follow silently): {why:#}");
        }
        self.failed.fetch_add(1, Ordering::Release)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
