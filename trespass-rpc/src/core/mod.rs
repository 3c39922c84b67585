//! One connection as a state machine: no I/O, clock, threads or unsafe code. Times are in microseconds; the driver may
//! use any clock.
//!
//! The driver passes received frames to [`Connection::on_frame`], and sends the bytes that
//! [`Connection::poll_transmit`] returns. It calls [`Connection::on_time`] at the time that
//! [`Connection::next_timeout`] returns.
//!
//! # Memory
//!
//! The credit that this side grants limits the memory that a peer can occupy here: `calls` requests with a total of
//! `bytes` bytes, and `window` bytes of items on each stream. The peer gets the credit of a request back when the
//! answer has been sent, and the credit of an item when the program has taken the item. A cancelled call is answered
//! too. So credit limits all frames that a peer sends, and there is always memory for the answers. Of several pings
//! only the last one is answered, so pings need no memory.

mod calls;
mod event;
mod exchange;
mod flow;
mod id_map;
mod receive;
mod serving;
#[cfg(test)]
mod sim;
mod transmit;

use std::collections::BTreeSet;
use std::time::Duration;

use crate::error::{Certainty, RpcError};
use crate::wire::{Bulk, Flags, Header, Hello, Kind, VERSION, WireError, write};

use calls::Calls;
use serving::Serving;

pub use calls::{Outgoing, Refused};
pub use event::{BulkFrame, BulkOperation, Event, Request, Violation};
pub(crate) use id_map::IdMap;

/// While more bytes than this wait to be sent, this side sends no further items of streams.
const BACKLOG: usize = 1 << 20;
/// Maximum number of bytes in the body of a `Hello` or a `Bulk` frame.
const FIXED_LIMIT: usize = 2 << 20;

/// The credit that a side grants its peer, and the side's time-outs.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Number of calls that the peer may have in flight, at most 32,768. Defaults to 1024.
    pub calls: u32,
    /// Bytes of requests that the peer may have in flight. Defaults to 8 MiB.
    pub bytes: u32,
    /// Maximum number of bytes in the body of a request, an answer or an item. Defaults to 1 MiB.
    pub body: u32,
    /// How many bytes of items the peer may send on a stream before the program takes them. Defaults to 256 KiB.
    pub window: u32,
    /// Maximum number of bytes of an attachment or a target. Defaults to 1 GiB.
    pub attachment: u64,
    /// Maximum number of this side's calls that wait for credit; further calls return an error. Defaults to
    /// 65,536.
    pub waiting: usize,
    /// If no frame arrives for this time, this side sends a ping; after three times as long, the connection ends. Zero
    /// disables both. Defaults to 3 s.
    pub keepalive: Duration,
    /// If this side has bytes to send but the peer receives nothing for this time, the connection ends. Defaults to
    /// 10 s.
    pub stall: Duration,
    /// Whether this side's frames have checksums. Defaults to false.
    pub checksum: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            calls: 1024,
            bytes: 8 << 20,
            body: 1 << 20,
            window: 256 << 10,
            attachment: 1 << 30,
            waiting: 65_536,
            keepalive: Duration::from_secs(3),
            stall: Duration::from_secs(10),
            checksum: false,
        }
    }
}

/// Returns a duration in microseconds.
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Whether this side initiated the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// This side initiated it; its calls have odd numbers.
    Client,
    /// The peer initiated it; this side's calls have even numbers.
    Server,
}

/// The state of one connection. `C` is the driver's data for each of this side's calls.
#[derive(Debug)]
pub struct Connection<C> {
    side: Side,
    limits: Limits,
    /// The time-outs of the limits, in microseconds; `u64::MAX` is no time-out.
    keepalive: u64,
    stall: u64,
    peer: Option<Hello>,
    /// The numbers of this side and of its peer, which the peer's hello must have; 0 if not to be compared.
    ends: (u32, u32),
    /// Encoded frames that have not been sent completely.
    out: Vec<u8>,
    /// The number of bytes at the start of `out` that were sent.
    sent: usize,
    /// Total number of bytes sent.
    left: u64,
    /// Calls with items that wait until `out` is shorter.
    held: BTreeSet<u32>,
    calls: Calls<C>,
    serving: Serving,
    /// Whether this side accepts no further requests.
    is_leaving: bool,
    /// Whether the peer accepts no further requests.
    peer_leaves: bool,
    failure: Option<RpcError>,
    /// The number of the peer's last ping, if this side has not answered it yet.
    pong_due: Option<u64>,
    /// The number of pings that this side has sent, and the number of the ping that followed `GoAway`, until the pong
    /// for it arrives. After that pong, no request of the peer is in flight.
    pings: u64,
    leaves_at: Option<u64>,
    /// The time of the last ping, if no frame has arrived after it.
    ping_sent: Option<u64>,
    heard_at: u64,
    /// The last time at which bytes were sent or `out` was empty.
    progress_at: u64,
}

impl<C> Connection<C> {
    /// Creates an established connection, which transmits its hello first.
    pub fn new(side: Side, limits: Limits, hello: &Hello, now: u64) -> Self {
        let limits = Limits { calls: limits.calls.clamp(1, calls::MOST), window: limits.window.max(1), ..limits };
        let mut connection = Self {
            side,
            limits,
            keepalive: if limits.keepalive.is_zero() { u64::MAX } else { micros(limits.keepalive).max(1) },
            stall: micros(limits.stall),
            peer: None,
            ends: hello.ends,
            out: Vec::new(),
            sent: 0,
            left: 0,
            held: BTreeSet::new(),
            calls: Calls::new(side),
            serving: Serving::new(&limits),
            is_leaving: false,
            peer_leaves: false,
            failure: None,
            pong_due: None,
            pings: 0,
            leaves_at: None,
            ping_sent: None,
            heard_at: now,
            progress_at: now,
        };
        let hello = Hello {
            versions: (VERSION.into(), VERSION.into()),
            calls: limits.calls,
            bytes: limits.bytes,
            body: limits.body,
            window: limits.window,
            attachment: limits.attachment,
            ..hello.clone()
        };
        connection.frame(Header::new(Kind::Hello, 0), &[], &[&hello.to_bytes()]);
        connection
    }

    /// Returns the peer's hello.
    pub fn peer(&self) -> Option<&Hello> {
        self.peer.as_ref()
    }

    /// Returns the limits that this side grants.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the reason why the connection ended.
    pub fn failure(&self) -> Option<&RpcError> {
        self.failure.as_ref()
    }

    /// Whether neither side has a call in flight.
    pub fn is_idle(&self) -> bool {
        self.serving.count() == 0 && self.calls.count() == 0
    }

    /// Whether the peer has no call in flight, and this side has transmitted all its frames.
    pub fn is_drained(&self) -> bool {
        self.serving.count() == 0 && self.out.len() == self.sent
    }

    /// Whether the peer has acknowledged that this side accepts no more calls. No request is then in flight.
    pub fn has_left(&self) -> bool {
        self.is_leaving && self.leaves_at.is_none()
    }

    /// Whether calls may be made.
    pub fn is_open(&self) -> bool {
        self.peer.is_some() && self.failure.is_none() && !self.peer_leaves
    }

    fn is_own(&self, id: u32) -> bool {
        (id & 1 == 1) == (self.side == Side::Client)
    }

    fn flow(&mut self, id: u32) -> Option<&mut flow::Flow> {
        if self.is_own(id) { self.calls.flow(id) } else { self.serving.get(id) }
    }

    /// Accepts no further calls, and announces this to the peer. Running calls continue.
    pub fn go_away(&mut self, reason: &str) {
        if !self.is_leaving {
            self.is_leaving = true;
            self.frame(Header::new(Kind::GoAway, 0), &[], &[reason.as_bytes()]);
            self.ping();
            self.leaves_at = Some(self.pings);
        }
    }

    fn ping(&mut self) {
        self.pings += 1;
        self.frame(Header { method: self.pings, ..Header::new(Kind::Ping, 0) }, &[], &[]);
    }

    /// Ends the connection and all calls of this side; calls that were sent end with [`Certainty::Unknown`].
    pub fn fail(&mut self, failure: RpcError, mut each: impl FnMut(&mut C, RpcError)) {
        if self.failure.is_some() {
            return;
        }
        self.calls.end_all(|data, is_sent| {
            let certainty = if is_sent { Certainty::Unknown } else { Certainty::NotSent };
            each(data, RpcError { certainty, ..failure.clone() });
        });
        self.failure = Some(failure);
        self.serving.clear();
        self.held.clear();
        self.out.clear();
        self.sent = 0;
    }

    /// Sends calls that wait for credit.
    fn release(&mut self, now: u64) {
        self.calls.release(now, &mut self.out);
    }

    fn frame(&mut self, mut header: Header, meta: &[u8], parts: &[&[u8]]) {
        if self.failure.is_some() {
            return;
        }
        if self.limits.checksum {
            header.flags.0 |= Flags::CHECKSUM;
        }
        write(&mut self.out, &header, meta, parts);
    }
}

/// Splits the body of a request into descriptors, arguments and inline bytes: see [`Bulk::split`].
pub fn split_body(flags: Flags, body: &[u8]) -> Result<(impl Iterator<Item = Bulk> + '_, &[u8], &[u8]), WireError> {
    Bulk::split(body, flags.bulks())
}
