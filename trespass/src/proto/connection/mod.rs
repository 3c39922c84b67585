//! One connection.

mod close;
mod receive;
mod send;

use std::collections::VecDeque;

use crate::memory::Buf;

use super::frame::HEADER;
use super::{Agreement, Failure, Remote, Request, Stock};

pub(crate) use receive::Received;

/// What a connection goes by, from its options; times in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// Credits that a busy connection has leased at most.
    pub(crate) window: u16,
    /// Messages up to this length travel in SENDs, longer ones by READ if they are in registered memory.
    pub(crate) eager: usize,
    /// Bytes that may wait to be sent, or to be READ by the peer, before `try_send` returns `WouldBlock`.
    pub(crate) send_high_water: usize,
    /// Bytes of messages that are READ before the program reads them.
    pub(crate) read_ahead: usize,
    /// Longest message that is READ in one piece: the memory for it is taken before any byte has arrived.
    pub(crate) rendezvous: u32,
    /// Longest message that is assembled for the program.
    pub(crate) message: u32,
    /// After so long without a sign of the peer, its NIC is probed; 0 is never.
    pub(crate) keepalive: u64,
    /// How long `close` waits for the peer to have everything.
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

/// What a link does at once, without a request.
pub(crate) trait Port {
    /// Lets the peer read a buffer; gives it back if that cannot be.
    fn expose(&mut self, message: Buf) -> Result<Remote, Buf>;

    /// SEND of both parts. False if the link cannot do it now: nothing has happened then.
    #[inline]
    fn send_now(&mut self, _header: &[u8; HEADER], _payload: &[u8]) -> bool {
        false
    }
}

/// A connection that is established, or was.
#[derive(Debug)]
pub(crate) struct Connection {
    settings: Settings,
    agreement: Agreement,
    /// For the backend, in order. What it has not taken stays.
    pub(crate) requests: VecDeque<Request>,
    outgoing: Outgoing,
    incoming: Incoming,
    /// Code and reason of the peer's CLOSE.
    peer_close: Option<(u32, String)>,
    /// The link has ended: nothing arrives or leaves any more.
    ended: bool,
    failure: Option<Failure>,
    alive: Alive,
    linger_until: Option<u64>,
    /// Something else than short messages goes on: the worker is to look at the connection in each turn.
    is_unsettled: bool,
    is_unclaimed: bool,
    pub(crate) counters: Counters,
}

/// Numbers for `stats()`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) sends: u64,
    pub(crate) receives: u64,
    pub(crate) rendezvous_sent: u64,
    pub(crate) rendezvous_received: u64,
}

#[derive(Debug, Default)]
struct Outgoing {
    /// SENDs that the peer has receives for, since the beginning, and how many of them are used; both modulo 2^16.
    limit: u16,
    sent: u16,
    /// The last of `requests` is a SEND that messages may join: it left the reserve untouched.
    joinable: bool,
    /// RETURN has left, and is not confirmed.
    returning: bool,
    /// The worker's turn in which a message has left at once: later ones of the turn wait for its end, and share SENDs.
    left_in: u32,
    /// SENDs that the link has not completed yet.
    in_flight: u32,
    /// The program, or the end of the connection, waits for `in_flight`: links report completions late, so a probe asks for them.
    is_flushing: bool,
    /// The program could not send the last message, since there was no memory.
    lacks_memory: bool,
    is_proving: bool,
    /// What waits for credits.
    queue: VecDeque<Item>,
    /// Bytes in `queue` and `exposed`.
    waiting: usize,
    /// Messages that the peer READs, in order, and their lengths. The backend has the buffers.
    exposed: VecDeque<(Remote, usize)>,
    /// Messages that left `exposed`, modulo 2^32.
    done: u32,
    fin: Fin,
    fin_acked: bool,
}

/// What waits for credits.
#[derive(Debug)]
enum Item {
    /// A whole SEND.
    Send(Buf),
    /// The rest of a message, still to be cut; `first` if nothing of it has left.
    Rest { message: Buf, first: bool },
}

/// How far the end of the outgoing messages is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Fin {
    #[default]
    Open,
    /// `shutdown`: FIN is in the queue or has left.
    Shut,
    /// `close`: CLOSE is in the queue or has left.
    Closed,
}

#[derive(Debug)]
struct Incoming {
    /// SENDs that arrived, and those of them whose receives are free again; both modulo 2^16.
    received: u16,
    freed: u16,
    /// Limit that was announced to the peer last.
    announced: u16,
    /// Credits leased to the peer: the limit may be `freed + lease`.
    lease: u16,
    /// SENDs with frames that the program has not read, each from the next such frame on.
    inbox: VecDeque<Buf>,
    /// Bytes of the first frame's payload that the program has read.
    cursor: usize,
    /// Messages in the inbox that are READ, in order; the number of the first.
    reads: VecDeque<Read>,
    first_read: u32,
    in_flight: u16,
    /// Bytes of messages that are being READ, or have been and are not read by the program.
    ahead: usize,
    /// Messages that this side has finished with, and those of them that DONE has announced, modulo 2^32.
    done: u32,
    done_told: u32,
    /// The peer returned credits, and has no confirmation yet.
    returned: bool,
    /// A message of several frames, as far as it is there.
    assembly: Option<Assembly>,
    /// FIN or CLOSE has arrived; it was acknowledged.
    fin: bool,
    fin_acked: bool,
    /// The program has read everything up to the FIN or CLOSE.
    end: bool,
    /// The program reads no more.
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
    /// What is there, and room for more.
    message: Buf,
    /// The length that the first frame has announced.
    length: usize,
    filled: usize,
}

#[derive(Debug, Default)]
struct Alive {
    /// Something arrived, or left, since the last tick.
    heard: bool,
    used: bool,
    heard_at: u64,
    probing: bool,
}

impl Connection {
    /// `lease` is what the hello granted to the peer, and is leased in the ledger.
    pub(crate) fn new(settings: Settings, agreement: Agreement, lease: u16, now: u64) -> Connection {
        Connection {
            settings,
            agreement,
            requests: VecDeque::new(),
            outgoing: Outgoing { limit: agreement.credits, ..Outgoing::default() },
            incoming: Incoming {
                received: 0,
                freed: 0,
                announced: lease,
                lease,
                inbox: VecDeque::new(),
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
            counters: Counters::default(),
        }
    }

    /// Moves what has credits to `requests`. To be called before the backend posts.
    #[inline]
    pub(crate) fn transmit(&mut self, stock: &mut Stock) {
        if self.ended {
            return;
        }
        self.send_queued(stock);
        self.start_reads(stock);
        self.send_control(stock);
        if self.outgoing.in_flight != 0 && !self.outgoing.is_proving && (self.outgoing.is_flushing || self.is_ending())
        {
            self.outgoing.is_proving = true;
            self.requests.push_back(Request::Probe);
        }
        let (out, incoming) = (&self.outgoing, &self.incoming);
        let is_ending = incoming.fin || out.fin != Fin::Open || self.linger_until.is_some();
        self.is_unsettled = is_ending || out.is_flushing || !incoming.reads.is_empty() || incoming.has_status();
    }

    /// Time passes, `now` in milliseconds; at least once a second.
    pub(crate) fn tick(&mut self, now: u64, stock: &mut Stock) {
        if self.ended {
            return;
        }
        let alive = &mut self.alive;
        if std::mem::take(&mut alive.heard) {
            (alive.heard_at, alive.probing) = (now, false);
        } else if self.settings.keepalive != 0
            && !alive.probing
            && now.saturating_sub(alive.heard_at) >= self.settings.keepalive
        {
            alive.probing = true;
            self.requests.push_back(Request::Probe);
        }
        if !std::mem::take(&mut self.alive.used) {
            self.return_credits(stock);
        }
    }

    /// A probe was answered: all requests before it have completed.
    pub(crate) fn probed(&mut self) {
        self.outgoing.is_proving = false;
        self.alive.heard = true;
    }

    /// Whether the worker is to look at the connection at the end of the turn.
    #[inline]
    pub(crate) fn needs_turn(&self, stock: &Stock) -> bool {
        let waits = !self.requests.is_empty() || !self.outgoing.queue.is_empty() || stock.starved;
        waits || self.is_unsettled || self.is_grant_due()
    }

    pub(crate) fn counters(&self) -> Counters {
        self.counters
    }

    #[cfg(test)]
    pub(crate) fn lease(&self) -> u16 {
        self.incoming.lease
    }
}
