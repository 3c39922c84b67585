//! The state of one connection.

mod close;
mod inbox;
mod read;
mod receive;
mod send;

use std::collections::VecDeque;

use crate::memory::Buf;

use super::frame::HEADER;
use super::{Agreement, Failure, Remote, Request, Stock};
use inbox::Inbox;

pub(crate) use read::Received;

/// The settings of a connection, which come from the worker's options. Times are in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// The maximum number of credits leased to a busy connection.
    pub(crate) window: u16,
    /// Messages up to this length are sent in SENDs. The peer READs longer ones if they are in registered memory.
    pub(crate) eager: usize,
    /// The high-water mark: how many bytes may wait to be sent, or to be READ by the peer, before `try_send` returns
    /// `WouldBlock`.
    pub(crate) send_high_water: usize,
    /// Maximum number of bytes that this side fetches with READs before the program receives them.
    pub(crate) read_ahead: usize,
    /// Length of the longest message that is READ in one piece, into memory that is allocated before any byte has
    /// arrived.
    pub(crate) rendezvous: u32,
    /// Length of the longest message that is assembled for the program.
    pub(crate) message: u32,
    /// If the peer is inactive for this time, its NIC is probed. The value 0 disables the probe.
    pub(crate) keepalive: u64,
    /// How long `close` waits until the peer has received everything.
    pub(crate) linger: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            window: super::WINDOW,
            eager: 16 << 10,
            send_high_water: 1 << 20,
            read_ahead: 4 << 20,
            rendezvous: 64 << 20,
            message: 1 << 30,
            keepalive: 5_000,
            linger: 10_000,
        }
    }
}

/// Operations that a link performs immediately, without a queued request.
pub(crate) trait Port {
    /// Exposes a buffer so that the peer can read it. Returns the buffer if this fails.
    fn expose(&mut self, message: Buf) -> Result<Remote, Buf>;

    /// Posts one SEND that contains both parts. If the link cannot do this now, posts nothing and returns false.
    #[inline]
    fn send_now(&mut self, _header: &[u8; HEADER], _payload: &[u8]) -> bool {
        false
    }
}

/// A connection that is established, or has ended.
#[derive(Debug)]
pub(crate) struct Connection {
    settings: Settings,
    agreement: Agreement,
    /// Requests to the backend, in order. Requests that the backend has not accepted stay in the queue.
    pub(crate) requests: VecDeque<Request>,
    outgoing: Outgoing,
    incoming: Incoming,
    /// The code and the reason in the peer's CLOSE.
    peer_close: Option<(u32, String)>,
    /// Whether the link has ended, so that nothing is sent or received.
    ended: bool,
    failure: Option<Failure>,
    alive: Alive,
    linger_until: Option<u64>,
    /// Whether work other than short messages is in progress. If so, the worker must process the connection in each
    /// turn.
    is_unsettled: bool,
    is_unclaimed: bool,
    /// How many messages the peer has READ, and how many this side has READ.
    read: (u64, u64),
}

/// Counters for `stats()`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) sends: u64,
    pub(crate) receives: u64,
    pub(crate) rendezvous_sent: u64,
    pub(crate) rendezvous_received: u64,
}

#[derive(Debug, Default)]
struct Outgoing {
    /// How many SENDs the peer has granted since the start, modulo 2^16, and how many of them this side has used.
    limit: u16,
    sent: u64,
    /// While `sent` is below this number, a short message may be sent immediately: the connection is open, nothing
    /// waits to be sent, and credits are left. [`Connection::pause`] sets it to 0.
    usual_until: u64,
    /// The number of SENDs that the link has completed.
    completed: u64,
    /// Whether the program may send: the connection has not failed, ended or closed.
    is_open: bool,
    /// Maximum length of a message that may be sent inline, without a buffer.
    short: usize,
    /// Whether this side has sent a RETURN that the peer has not confirmed yet.
    returning: bool,
    /// The worker's turn in which a message was sent immediately. Later messages of that turn wait for its end, and
    /// share SENDs.
    left_in: u32,
    /// Whether a flush by the program, or the end of the connection, waits until all SENDs have completed. Links report
    /// completions in batches; a probe makes them report earlier.
    is_flushing: bool,
    /// Whether the program's last message was refused because no memory was free.
    lacks_memory: bool,
    is_proving: bool,
    /// How many probes were sent, and how many have completed.
    probes: u64,
    probed: u64,
    /// When this number of probes has completed, the keys of all granted regions are valid.
    valid_from: u64,
    /// Frames that wait for credits.
    queue: VecDeque<Item>,
    /// The total number of bytes in `queue` and in `exposed`.
    waiting: usize,
    /// The messages that the peer READs, in order, each with its length. The backend has their buffers.
    exposed: VecDeque<(Remote, usize)>,
    /// The number of messages removed from `exposed`, modulo 2^32.
    done: u32,
    fin: Fin,
    fin_acked: bool,
}

/// Frames that wait for credits.
#[derive(Debug)]
enum Item {
    /// A whole SEND.
    Send(Buf),
    /// The remaining part of a message that is sent in parts. `first` is true if no part was sent yet.
    Rest { message: Buf, first: bool },
}

/// The progress of ending the outgoing messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Fin {
    #[default]
    Open,
    /// `shutdown`: FIN is queued or sent.
    Shut,
    /// `close`: CLOSE is queued or sent.
    Closed,
}

#[derive(Debug)]
struct Incoming {
    /// The number of SENDs that have arrived, and the number of those whose receives are free again, modulo 2^16.
    received: u64,
    freed: u16,
    /// If `received` is below this number after a SEND has arrived, a SEND of one message needs no further work: the
    /// connection is open and settled, and the peer has enough credits. [`Connection::pause`] sets it to 0.
    usual_until: u64,
    /// If `freed` has reached this number (modulo 2^16), an announcement of credits may be due.
    grant_from: u16,
    /// The limit last announced to the peer.
    announced: u16,
    /// The number of credits that are leased to the peer. The limit may be up to `freed + lease`.
    lease: u16,
    /// The received SENDs with unread frames. A frame that was read is removed from the front of its SEND.
    inbox: Inbox,
    /// How many bytes of the first frame's payload the program has read.
    cursor: usize,
    /// The messages in the inbox that this side READs, in order, and the number of the first of them.
    reads: VecDeque<Read>,
    first_read: u32,
    in_flight: u16,
    /// The total length of the messages that are being READ, or that were READ but not yet taken by the program.
    ahead: usize,
    /// How many messages this side no longer needs, and how many of these it has announced by DONE. Both numbers are
    /// modulo 2^32.
    done: u32,
    done_told: u32,
    /// Whether the peer has returned credits and the confirmation is not sent yet.
    returned: bool,
    /// The part of a message of several frames that has arrived.
    assembly: Option<Assembly>,
    /// Whether FIN or CLOSE has arrived and was acknowledged.
    fin: bool,
    fin_acked: bool,
    /// Whether the program has read all messages before the FIN or CLOSE.
    end: bool,
    /// Whether the program has stopped reading.
    discard: bool,
}

#[derive(Debug)]
enum Read {
    Waiting { from: Remote, length: u32 },
    InFlight,
    Ready(Buf),
}

#[derive(Debug)]
struct Assembly {
    /// The bytes that have arrived, with space for more.
    message: Buf,
    /// The length announced by the first frame.
    length: usize,
    filled: usize,
    /// How many of the bytes the program has read as a stream.
    taken: usize,
}

#[derive(Debug, Default)]
struct Alive {
    /// Whether the peer's NIC has answered since the last tick, apart from received SENDs.
    heard: bool,
    /// `Outgoing::sent` and `Incoming::received` at the last tick.
    sent: u64,
    received: u64,
    heard_at: u64,
    probing: bool,
}

impl Connection {
    /// Creates the state of an established connection. The hello granted `lease` credits to the peer; the ledger has
    /// leased them already.
    pub(crate) fn new(settings: Settings, agreement: Agreement, lease: u16, now: u64) -> Connection {
        Connection {
            settings,
            agreement,
            requests: VecDeque::new(),
            outgoing: Outgoing {
                limit: agreement.credits,
                is_open: true,
                short: send::SHORT.min(agreement.segment as usize - HEADER).min(agreement.message as usize),
                ..Outgoing::default()
            },
            incoming: Incoming {
                received: 0,
                freed: 0,
                usual_until: 0,
                grant_from: 0,
                announced: lease,
                lease,
                inbox: Inbox::default(),
                cursor: 0,
                reads: VecDeque::new(),
                first_read: 0,
                in_flight: 0,
                ahead: 0,
                done: 0,
                done_told: 0,
                returned: false,
                assembly: None,
                fin: false,
                fin_acked: false,
                end: false,
                discard: false,
            },
            peer_close: None,
            ended: false,
            failure: None,
            alive: Alive { heard_at: now, ..Alive::default() },
            linger_until: None,
            is_unsettled: true,
            is_unclaimed: false,
            read: (0, 0),
        }
    }

    /// Makes the next message check the whole state. Call it before any change after which a message needs more work
    /// than usual, such as a request that must be posted before the message.
    #[inline]
    fn pause(&mut self) {
        (self.outgoing.usual_until, self.incoming.usual_until) = (0, 0);
    }

    /// Marks the connection as changing, so that each event leads to a turn.
    fn unsettle(&mut self) {
        self.is_unsettled = true;
        self.pause();
    }

    /// Moves frames that have credits to `requests`. Call it before the backend posts.
    #[inline]
    pub(crate) fn transmit(&mut self, stock: &mut Stock) {
        if self.ended {
            return;
        }
        self.pause();
        self.send_queued(stock);
        self.start_reads(stock);
        self.send_control(stock);
        let out = &self.outgoing;
        if (out.in_flight() || out.is_binding()) && !out.is_proving && (out.is_flushing || self.is_ending()) {
            self.outgoing.is_proving = true;
            self.probe();
        }
        let (out, incoming) = (&self.outgoing, &self.incoming);
        let is_ending = incoming.fin || out.fin != Fin::Open || self.linger_until.is_some();
        self.is_unsettled = is_ending || out.is_flushing || !incoming.reads.is_empty() || incoming.has_status();
    }

    /// Advances the time to `now`, in milliseconds. Call it at least once a second.
    pub(crate) fn tick(&mut self, now: u64, stock: &mut Stock) {
        if self.ended {
            return;
        }
        self.pause();
        let (alive, received) = (&mut self.alive, self.incoming.received);
        if std::mem::take(&mut alive.heard) || std::mem::replace(&mut alive.received, received) != received {
            (alive.heard_at, alive.probing) = (now, false);
        } else if self.settings.keepalive != 0
            && !alive.probing
            && now.saturating_sub(alive.heard_at) >= self.settings.keepalive
        {
            alive.probing = true;
            self.probe();
        }
        if std::mem::replace(&mut self.alive.sent, self.outgoing.sent) == self.outgoing.sent {
            self.return_credits(stock);
        }
    }

    fn probe(&mut self) {
        self.outgoing.probes += 1;
        self.requests.push_back(Request::Probe);
    }

    /// Records that a probe has completed. All earlier requests have then completed too.
    pub(crate) fn probed(&mut self) {
        self.outgoing.is_proving = false;
        self.outgoing.probed += 1;
        self.alive.heard = true;
    }

    /// Whether the worker must process the connection at the end of the turn.
    #[inline]
    pub(crate) fn needs_turn(&mut self, stock: &Stock) -> bool {
        let waits = !self.requests.is_empty() || !self.outgoing.queue.is_empty() || stock.starved;
        waits
            || self.is_unsettled
            || self.is_grant_due() && {
                // The peer's next SEND may bring the credit that the announcement needs, so it leads to a turn.
                self.pause();
                true
            }
    }

    pub(crate) fn counters(&self) -> Counters {
        let (rendezvous_sent, rendezvous_received) = self.read;
        Counters { sends: self.outgoing.sent, receives: self.incoming.received, rendezvous_sent, rendezvous_received }
    }

    #[cfg(test)]
    pub(crate) fn lease(&self) -> u16 {
        self.incoming.lease
    }
}
