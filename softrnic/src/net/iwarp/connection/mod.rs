//! A connection, which is the carrier of one QP on a TCP socket.
//!
//! [`Carrier::put`] encodes messages into a buffer. The buffer is passed to TCP when it is full or when
//! [`Carrier::flush`] is called. A send or write completes when TCP has accepted its last byte. The thread of
//! softrnic, or a program that polls, [serves](Connection::serve) the connection. To serve it means to read the socket,
//! to deliver segments to the QP, and to continue deliveries and writes that were blocked.
//!
//! Lock order: `incoming`, then the locks of the QP, then `outgoing`. `incoming` is held while segments are delivered.
//! `outgoing` is held only briefly, and never while calling the QP.

mod incoming;
mod messages;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError, Weak};
use std::time::{Duration, Instant};

use rdma_mummy_sys::program::Held;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown};

use self::incoming::Incoming;
use super::connect::Agreed;
use super::engine::{Engine, PEER_TIMEOUT};
use super::fpdu;
use super::outgoing::{BUFFER_LIMIT, Outgoing};
use super::stream::Stream;
use crate::sys::descriptor::Descriptor;
use crate::sys::socket_set::SocketSet;
use crate::sys::{tcp, unpoisoned};
use crate::wire::condition::Condition;
use crate::wire::message::{Reply, Request};
use crate::wire::packet::{Packet, Payload, Response, ResponseKind};
use crate::wire::transport::{Carrier, Dedicated, MAX_UNSETTLED, Stuck, Wake};

/// If the buffer has at least this length, it is passed to TCP immediately.
const WRITE_LENGTH: usize = 64 << 10;
/// How long this end waits until the peer closes its direction, after this end has closed its own.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(super) id: u64,
    pub(super) socket: Arc<Descriptor>,
    engine: &'static Engine,
    this: Weak<Self>,
    /// The QP.
    number: u32,
    /// The requests with which messages are delivered are copies of this one, in which further fields are set.
    template: Request,
    /// The condition of the device.
    pub(super) condition: &'static Condition,
    incoming: Mutex<Incoming>,
    outgoing: Mutex<Outgoing>,
    /// Whether a thread is delivering segments. This thread flushes the buffer afterwards.
    is_receiving: AtomicBool,
    /// Whether no receive was posted for the part that was just delivered.
    is_unready: AtomicBool,
    /// Whether a part waits until a receive is posted. While it waits, the socket is not read.
    is_waiting: AtomicBool,
    /// Whether the QP may not have handled all completions that were delivered.
    is_unsettled: AtomicBool,
}

impl Connection {
    /// Creates the connection of the QP `number`, which is served when the engine watches its socket. The bytes of
    /// `first` are sent before all others.
    pub(super) fn new(
        engine: &'static Engine,
        (id, socket): (u64, Arc<Descriptor>),
        agreed: &Agreed,
        stream: Stream,
        first: Vec<u8>,
        (number, template, condition): (u32, Request, &'static Condition),
    ) -> Arc<Self> {
        let mss = tcp::max_segment(&*socket);
        Arc::new_cyclic(|this| Self {
            id,
            socket,
            engine,
            this: this.clone(),
            number,
            template,
            condition,
            incoming: Mutex::new(Incoming::new(agreed.has_crc)),
            outgoing: Mutex::new(Outgoing::new(stream, first, mss)),
            is_receiving: AtomicBool::new(false),
            is_unready: AtomicBool::new(false),
            is_waiting: AtomicBool::new(false),
            is_unsettled: AtomicBool::new(false),
        })
    }

    fn out(&self) -> MutexGuard<'_, Outgoing> {
        unpoisoned(self.outgoing.lock())
    }

    /// Reads the socket, and continues deliveries and writes that were blocked. Returns whether anything has arrived.
    /// If another thread serves the connection, this function waits for it if `waits` is set, and otherwise returns
    /// `false`. The caller must hold no lock of a QP.
    pub(super) fn serve(&self, waits: bool) -> bool {
        let Some(this) = self.this.upgrade() else { return false };
        let _held = Held::new();
        let has_found;
        {
            let mut incoming = match self.incoming.try_lock() {
                Ok(incoming) => incoming,
                Err(TryLockError::Poisoned(error)) => error.into_inner(),
                Err(TryLockError::WouldBlock) if waits => unpoisoned(self.incoming.lock()),
                Err(TryLockError::WouldBlock) => return false,
            };
            self.is_receiving.store(true, Ordering::SeqCst);
            self.out().given = 0;
            let carrier: Arc<dyn Carrier> = this;
            has_found = self.receive(&mut incoming, &carrier);
            self.is_receiving.store(false, Ordering::SeqCst);
            let (has_completed, is_ending) = {
                let mut out = self.out();
                // This writes even if TCP accepted no bytes before, because it may have space now.
                self.write(&mut out);
                (out.has_completed(), out.end.is_ending)
            };
            if has_completed {
                self.complete();
            }
            if is_ending {
                self.check_end(&carrier);
            }
        }
        let waiter = {
            let mut out = self.out();
            let has_space = out.pending() < BUFFER_LIMIT / 2 && out.stream.may_send() || out.end.is_ending;
            out.waiter.take_if(|_| has_space)
        };
        if let Some(waiter) = waiter.and_then(|waiter| waiter.upgrade()) {
            waiter.wake();
            self.flush();
        }
        has_found
    }

    /// Whether all that the peer has sent before it closed its direction has been delivered, or waits until the program
    /// posts a receive. If not, the thread serves the connection soon. The caller may hold any lock.
    pub(crate) fn is_read_to_end(&self) -> bool {
        // The lock is held while segments, and then the end, are delivered.
        let is_served = matches!(self.incoming.try_lock(), Err(TryLockError::WouldBlock));
        let is_read = !is_served && self.out().end.is_reported || self.is_waiting();
        if !is_read {
            self.engine.notify(self.id);
        }
        is_read
    }

    pub(super) fn is_initiator(&self) -> bool {
        self.out().stream.is_initiator()
    }

    /// Sends an empty write if the peer has sent nothing yet and nothing waits to be sent. Returns whether the peer has
    /// still sent nothing.
    pub(super) fn nudge(&self) -> bool {
        let mut out = self.out();
        if out.stream.has_heard() || out.end.is_ending {
            return false;
        }
        if out.pending() == 0 && out.open.is_none() {
            let Outgoing { stream, buffer, .. } = &mut *out;
            stream.nudge(buffer);
            self.write(&mut out);
        }
        true
    }

    /// Stops or resumes reading the socket. While the socket is not read, the flow control of TCP stops the peer.
    fn set_waiting(&self, is_waiting: bool) {
        if self.is_waiting.swap(is_waiting, Ordering::Relaxed) != is_waiting {
            self.engine.waiting(is_waiting);
            self.watch(&self.out());
        }
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.is_waiting.load(Ordering::Relaxed)
    }

    /// Handles a failure of TCP.
    fn lose(&self, out: &mut Outgoing, error: Errno) {
        rdma_mummy_sys::log!(debug, "QP {:#x}: the connection is lost: {error}", self.number);
        out.stop_sending();
    }

    /// Passes the bytes of the buffer to TCP.
    fn write(&self, out: &mut Outgoing) {
        while out.pending() > 0 && !out.end.is_broken && out.cut.is_none() {
            let (bytes, is_end) = out.next_bytes();
            let mut flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            flags.set(SendFlags::EOR, is_end);
            match rustix::net::send(&*self.socket, bytes, flags) {
                Ok(length) => out.accepted(length),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    if !out.is_blocked {
                        out.is_blocked = true;
                        self.watch(out);
                    }
                    break;
                }
                Err(error) => {
                    // Data that arrived before the failure is still delivered.
                    self.lose(out, error);
                    self.engine.notify(self.id);
                }
            }
        }
        if out.pending() == 0 {
            out.position += out.buffer.len() as u64;
            out.buffer.clear();
            out.taken = 0;
            if out.is_blocked {
                out.is_blocked = false;
                self.watch(out);
            }
        } else if out.taken >= WRITE_LENGTH {
            out.position += out.taken as u64;
            out.buffer.drain(..out.taken);
            out.taken = 0;
        }
    }

    /// Stops or resumes sending and receiving. The kernel still acknowledges what arrives.
    pub(super) fn cut(&self, is_cut: bool) {
        let mut out = self.out();
        out.cut = is_cut.then(|| out.cut.unwrap_or_else(Instant::now));
        self.watch(&out);
    }

    /// How long the connection stays cut, if it is. A cut whose time is over ends. If the connection has been cut for
    /// [`PEER_TIMEOUT`], it is lost instead.
    pub(super) fn cut_left(&self, now: Instant) -> Option<Duration> {
        let left = self.condition.cut_left();
        let mut out = self.out();
        let since = out.cut?;
        if now.saturating_duration_since(since) >= PEER_TIMEOUT {
            out.cut = None;
            self.lose(&mut out, Errno::TIMEDOUT);
            (out.end.is_ending, out.end.is_closed) = (true, true);
            self.engine.notify(self.id);
        } else if left.is_none() {
            out.cut = None;
            self.watch(&out);
            self.engine.notify(self.id);
        }
        left.filter(|_| out.cut.is_some())
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.out().buffer.capacity()
    }

    /// Adds the socket to the sockets of the engine. If a request was posted before, the send buffer of TCP may already
    /// be full.
    pub(super) fn add_to(&self, sockets: &SocketSet) -> Result<(), Errno> {
        let out = self.out();
        sockets.add(&self.socket, self.id, self.flags(&out))
    }

    /// Returns the events of the socket for which the engine waits.
    fn flags(&self, out: &Outgoing) -> epoll::EventFlags {
        let is_cut = out.cut.is_some();
        let (reads, writes) = (!out.end.is_closed && !self.is_waiting() && !is_cut, out.is_blocked && !is_cut);
        let mut flags = epoll::EventFlags::empty();
        flags.set(epoll::EventFlags::IN, reads);
        flags.set(epoll::EventFlags::OUT, writes);
        // epoll always reports the end of a connection. With ONESHOT, it reports this only once.
        flags.set(epoll::EventFlags::ONESHOT, !reads && !writes);
        flags
    }

    /// Updates the events of the socket for which the engine waits.
    fn watch(&self, out: &Outgoing) {
        self.engine.watch(self, self.flags(out));
    }

    /// Delivers the completions in order. Only one thread at a time does this. Returns `false` if another thread does
    /// it.
    fn complete(&self) -> bool {
        let mut out = self.out();
        if std::mem::replace(&mut out.is_completing, true) {
            return false;
        }
        while let Some((psn, attempt, original)) = out.completed() {
            drop(out);
            if !self.respond(psn, attempt, ResponseKind::Reply(Reply::Done { original }), &[]) {
                self.is_unsettled.store(true, Ordering::Relaxed);
            }
            out = self.out();
        }
        out.is_completing = false;
        true
    }

    /// Whether the QP has handled the completions of all messages that TCP has accepted so far. Completions that another
    /// thread has not delivered yet, or that wait for the thread that holds the send queue, are handled soon.
    fn is_settled(&self) -> bool {
        let (has_completed, is_completing) = {
            let out = self.out();
            (out.has_completed(), out.is_completing)
        };
        if is_completing || has_completed && !self.complete() {
            return false;
        }
        // The flag is cleared before the check, because another thread may deliver a completion during the check.
        if !self.is_unsettled.load(Ordering::Relaxed) || !self.is_unsettled.swap(false, Ordering::Relaxed) {
            return true;
        }
        let is_settled = self.engine.deliver.is_settled(self.number);
        if !is_settled {
            self.is_unsettled.store(true, Ordering::Relaxed);
        }
        is_settled
    }

    /// Continues to close the connection, if closing has begun.
    fn check_end(&self, carrier: &Arc<dyn Carrier>) {
        let (is_new, refusal, is_over) = {
            let mut out = self.out();
            if !out.end.is_ending {
                return;
            }
            let is_empty = out.end.is_broken || out.pending() == 0 && out.cut.is_none();
            let end = &mut out.end;
            let is_new = !std::mem::replace(&mut end.is_reported, true);
            let now = Instant::now();
            let began = *end.began.get_or_insert(now);
            let is_late = has_ended(now - began, now - end.heard.unwrap_or(began));
            if is_empty && !end.is_shut {
                end.is_shut = true;
                let _ = rustix::net::shutdown(&*self.socket, Shutdown::Write);
            }
            (is_new, end.refusal, end.is_shut && end.is_closed || is_late)
        };
        if is_new {
            self.engine.ending();
            self.engine.deliver.ended(self.number, carrier, refusal);
        }
        if is_over {
            self.set_waiting(false);
            self.engine.forget(self);
            let _ = rustix::net::shutdown(&*self.socket, Shutdown::Both);
        }
    }
}

impl Carrier for Connection {
    fn put(&self, packet: &Packet, payload: Payload<'_>) -> Result<(), Stuck> {
        if let Packet::Response(Response { kind: ResponseKind::Reply(Reply::NotReady { .. }), .. }) = packet {
            self.is_unready.store(true, Ordering::Relaxed);
            return Ok(());
        }
        let mut out = self.out();
        let is_response = matches!(packet, Packet::Response(_));
        let before = out.buffer.len();
        let put = match packet {
            Packet::Part(_) if out.end.is_ending || out.end.is_broken => Err(Stuck::Lost),
            Packet::Part(part) => out.put_part(part, payload),
            Packet::Response(response) => out.put_response(response, payload),
        };
        if out.buffer.len() > before && self.condition.corrupts() {
            fpdu::damage(&mut out.buffer[before..]);
        }
        if out.pending() >= WRITE_LENGTH && !out.is_blocked {
            self.write(&mut out);
        }
        let has_ended = is_response && out.end.is_ending;
        if out.open.is_none() && out.waiter.is_some() || has_ended {
            self.engine.notify(self.id);
        }
        drop(out);
        if is_response && !self.is_receiving.load(Ordering::SeqCst) {
            let mut out = self.out();
            if !out.is_blocked {
                self.write(&mut out);
            }
            // The caller may hold a lock of the QP, so another thread delivers the completions.
            if out.has_completed() {
                self.engine.notify(self.id);
            }
        }
        put
    }

    fn wake(&self, waiting: Weak<dyn Wake>) {
        self.out().waiter = Some(waiting);
    }

    fn taken(&self) -> u64 {
        0
    }

    fn flush(&self) {
        {
            let mut out = self.out();
            if !out.is_blocked {
                self.write(&mut out);
            }
            if out.waiter.is_some() && out.pending() < BUFFER_LIMIT / 2 {
                self.engine.notify(self.id);
            }
        }
        self.complete();
    }
}

impl Dedicated for Connection {
    fn settle(&self) {
        let end = {
            let incoming = unpoisoned(self.incoming.lock());
            incoming.received + rustix::io::ioctl_fionread(&*self.socket).unwrap_or(0)
        };
        let started = Instant::now();
        loop {
            let has_found = self.serve(true);
            let incoming = unpoisoned(self.incoming.lock());
            let is_held = incoming.is_held && started.elapsed() < MAX_UNSETTLED;
            if !is_held && (!has_found || incoming.received >= end) {
                break;
            }
        }
    }

    fn end(&self) {
        let is_new = !std::mem::replace(&mut self.out().end.is_ending, true);
        if is_new {
            self.engine.notify(self.id);
        }
    }
}

/// Whether this end must close a connection that the peer has not closed. `whole` is the time since the connection
/// began to end, and `silent` is the time since data has last arrived. If this end closed the connection earlier, TCP
/// would reset it, and the peer would lose the last data that this end has sent.
pub(super) fn has_ended(whole: Duration, silent: Duration) -> bool {
    silent >= CLOSE_TIMEOUT || whole >= PEER_TIMEOUT
}
