//! The state of one connection.

mod close;
mod inbox;
mod landing;
mod placing;
mod read;
mod receive;
mod send;
mod short;

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use crate::memory::{Buf, Progress};

use super::{Agreement, Failure, Remote, Request, Stock};
use inbox::Sends;
use landing::{Landings, Offers};
use placing::Placing;

pub(crate) use placing::Place;
pub use placing::Placed;
pub(crate) use read::Received;
pub(crate) use short::Protocol;

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
    /// Whether the backend lets a peer write to a buffer.
    pub(crate) announces: bool,
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
            announces: true,
            keepalive: 5_000,
            linger: 10_000,
        }
    }
}

/// The whole state of a connection. Only [`Protocol::whole`] returns it for changes, and it then ends the short path.
#[derive(Debug)]
pub(crate) struct Whole {
    settings: Settings,
    agreement: Agreement,
    /// Requests to the backend, in order. Requests that the backend has not accepted stay in the queue.
    pub(crate) requests: VecDeque<Request>,
    /// Each transfer that has not ended has a reference to this.
    under_way: Arc<()>,
    outgoing: Outgoing,
    incoming: Incoming,
    /// The code and the reason in the peer's CLOSE.
    peer_close: Option<(u32, String)>,
    /// Whether the link has ended, so that nothing is sent or received.
    ended: bool,
    failure: Option<Failure>,
    alive: Alive,
    linger_until: Option<u64>,
    is_unclaimed: bool,
    /// How many messages the peer has READ, and how many this side has READ.
    rendezvous_sent: u64,
    rendezvous_received: u64,
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
    /// The number of SENDs that the link has completed.
    completed: u64,
    /// Whether the program may send: the connection has not failed, ended or closed.
    is_open: bool,
    /// Whether this side has sent a RETURN that the peer has not confirmed yet.
    returning: bool,
    /// Whether a flush by the program, or the end of the connection, waits until all SENDs have completed. Links report
    /// completions in batches; a probe makes them report earlier.
    is_flushing: bool,
    /// Whether the program's last message was refused because no memory was free.
    lacks_memory: bool,
    /// How many probes were sent, and how many have completed.
    probes: u64,
    probed: u64,
    /// When this number of probes has completed, the keys of all granted regions are valid.
    valid_from: u64,
    /// Frames that wait for credits.
    queue: VecDeque<Item>,
    /// The total number of bytes in `queue` and in `exposed`, and of those that this side WRITEs.
    waiting: usize,
    /// The messages that the peer READs, in order, each with its length. The backend has their buffers.
    exposed: VecDeque<(Remote, usize)>,
    /// The number of messages removed from `exposed`, modulo 2^32.
    done: u32,
    /// The buffers that the peer has announced.
    offers: Offers,
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
    /// The number of SENDs that have arrived.
    received: u64,
    /// The limit last announced to the peer.
    announced: u16,
    /// The number of credits that are leased to the peer. The limit may be up to `freed + lease`.
    lease: u16,
    inbox: Inbox,
    /// The number of READs in progress.
    in_flight: u16,
    /// The READ into a region, if one is in progress.
    placing: Option<Arc<Progress>>,
    /// How many messages this side no longer needs, and how many of these it has announced by DONE. Both numbers are
    /// modulo 2^32.
    done: u32,
    done_told: u32,
    /// Whether the peer has returned credits and the confirmation is not sent yet.
    returned: bool,
    landings: Landings,
    end: End,
}

/// What has arrived and the program has not read. Reading changes nothing else.
#[derive(Debug, Default)]
struct Inbox {
    /// The number of SENDs whose receives are free again.
    freed: u64,
    /// The received SENDs with unread frames. A frame that was read is removed from the front of its SEND.
    sends: Sends,
    /// How many bytes of the first frame's payload the program has read.
    cursor: usize,
    /// The messages in the inbox that this side READs or that the peer WRITEs, in order, and the number of the first of them.
    reads: VecDeque<Read>,
    first_read: u32,
    /// The total length of the messages that are being READ, or that were READ but not yet taken by the program.
    ahead: usize,
    /// The length of the first announced message if there is no memory for it, and none will be returned; otherwise 0.
    lacking: u32,
    /// The part of a message of several frames that has arrived.
    assembly: Option<Assembly>,
    /// Whether the program has read all messages before the FIN or CLOSE.
    end: bool,
    /// Whether the program has stopped reading.
    discard: bool,
    /// Whether the program receives into regions, so that messages wait in the peer's memory until it does.
    places: bool,
    /// The last call that received in a region.
    region_call: Weak<()>,
}

/// The progress of the end of the incoming messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Open,
    /// FIN or CLOSE has arrived.
    Arrived,
    Acked,
}

#[derive(Debug)]
enum Read {
    Waiting {
        from: Remote,
        length: u32,
    },
    InFlight,
    /// The message is READ into a region. This is the first message of the inbox.
    Placing(Box<Placing>),
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
}

impl Whole {
    /// Creates the state of an established connection. The hello granted `lease` credits to the peer; the ledger has
    /// leased them already.
    fn new(settings: Settings, agreement: Agreement, lease: u16, now: u64) -> Whole {
        Whole {
            settings,
            agreement,
            requests: VecDeque::new(),
            under_way: Arc::default(),
            outgoing: Outgoing { limit: agreement.credits, is_open: true, ..Outgoing::default() },
            incoming: Incoming {
                received: 0,
                announced: lease,
                lease,
                inbox: Inbox::default(),
                in_flight: 0,
                placing: None,
                done: 0,
                done_told: 0,
                returned: false,
                landings: Landings::new(agreement.version < 2 || !settings.announces),
                end: End::Open,
            },
            peer_close: None,
            ended: false,
            failure: None,
            alive: Alive { heard_at: now, ..Alive::default() },
            linger_until: None,
            is_unclaimed: false,
            rendezvous_sent: 0,
            rendezvous_received: 0,
        }
    }

    /// Moves frames that have credits to `requests`. Call it before the backend posts. `expose` lets the peer write to a
    /// buffer, or returns it.
    #[inline]
    pub(crate) fn transmit(&mut self, stock: &mut Stock, expose: impl FnMut(Buf) -> Result<Remote, Buf>) {
        if self.ended {
            return;
        }
        self.send_queued(stock);
        self.start_reads(stock);
        if self.incoming.landings.are_used() {
            self.care_for_landings(stock, expose);
        }
        self.send_control(stock);
        let out = &self.outgoing;
        if (out.in_flight() || out.is_binding()) && !out.is_probing() && (out.is_flushing || self.is_ending()) {
            self.probe();
        }
    }

    /// Advances the time to `now`, in milliseconds. Call it at least once a second.
    pub(crate) fn tick(&mut self, now: u64, stock: &mut Stock) {
        if self.ended {
            return;
        }
        let (alive, received) = (&mut self.alive, self.incoming.received);
        if std::mem::take(&mut alive.heard) || std::mem::replace(&mut alive.received, received) != received {
            alive.heard_at = now;
        } else if self.settings.keepalive != 0
            && !self.outgoing.is_probing()
            && now.saturating_sub(alive.heard_at) >= self.settings.keepalive
        {
            self.probe();
        }
        if std::mem::replace(&mut self.alive.sent, self.outgoing.sent) == self.outgoing.sent {
            self.return_credits(stock);
        }
        self.tick_landings(stock);
    }

    fn probe(&mut self) {
        self.outgoing.probes += 1;
        self.requests.push_back(Request::Probe);
    }

    /// Records that a probe has completed. All earlier requests have then completed too.
    pub(crate) fn probed(&mut self) {
        self.outgoing.probed += 1;
        self.alive.heard = true;
    }

    /// Whether the worker must process the connection at the end of the turn.
    #[inline]
    pub(crate) fn has_work(&self, stock: &Stock) -> bool {
        !self.is_idle() || stock.starved || self.is_unsettled() || self.incoming.is_grant_due()
    }

    /// Whether nothing waits to be sent.
    #[inline]
    fn is_idle(&self) -> bool {
        self.requests.is_empty() && self.outgoing.queue.is_empty()
    }

    /// Whether work other than messages is in progress, so that each event leads to a turn.
    #[inline]
    fn is_unsettled(&self) -> bool {
        let (out, incoming) = (&self.outgoing, &self.incoming);
        !incoming.inbox.reads.is_empty()
            || incoming.done != incoming.done_told
            || incoming.returned
            || out.offers.is_withdrawn
            || incoming.landings.are_used() && (self.is_withdrawal_due() || self.is_landing_due())
            || incoming.end != End::Open
            || out.fin != Fin::Open
            || out.is_flushing
            || self.linger_until.is_some()
    }

    pub(crate) fn counters(&self) -> Counters {
        Counters {
            sends: self.outgoing.sent,
            receives: self.incoming.received,
            rendezvous_sent: self.rendezvous_sent,
            rendezvous_received: self.rendezvous_received,
        }
    }

    /// Returns the number of buffers that the peer has announced and this side has not used.
    #[cfg(test)]
    pub(crate) fn offers(&self) -> usize {
        self.outgoing.offers.len()
    }

    #[cfg(test)]
    pub(crate) fn lease(&self) -> u16 {
        self.incoming.lease
    }
}
