//! What carries SENDs: the interface between the worker and a backend.
//!
//! A worker has one [`Backend`] of each kind, each with a pool and the connections that run over it. All calls come from the worker's
//! thread (or under its lock). No call waits. The worker is generic over the backend, so the data path has no dynamic call.
//!
//! # Ownership of memory
//!
//! - A [`Buf`] is unique. Passing it by value passes the memory.
//! - `post_receives` gives buffers to the shared receive queue. A received message passes its buffer to [`Events::received`]; the rest
//!   returns when the backend is dropped.
//! - `post` gives a request's buffer to the backend. It returns with the completion, or with the flush of the queue pair: sent buffers
//!   through `spare`, those of reads through [`Events::read`]. A time-out never returns a buffer.
//! - `expose` gives a buffer to the backend, for the peer to read. It returns through `spare` once [`Request::Conceal`] has completed, or
//!   the link has ended: not before the peer's key has stopped working.
//! - [`Events::ended`] comes after the link has returned all its buffers, and is the last event of the link.
//! - The pool's arenas outlive all buffers, and regions outlive the queue pairs: the backend drops queue pairs first.
//!
//! # A turn of the worker
//!
//! ```text
//! backend.poll(events, spare)      completions; events change the connections and mark them dirty
//! backend.post_receives(buffers)   refill; only what is posted here is leased to peers as credits
//! backend.post(link, requests)     once per dirty connection: one postlist, one doorbell
//! ```

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::memory::{Buf, Domain, Pool, Progress, RegionMemory};

pub(crate) use crate::proto::{HEADER, Remote, Request};

pub(crate) mod tcp;
pub(crate) mod verbs;

/// A link of a backend, chosen by the worker: an index into its table of connections, and the index's generation.
///
/// The worker uses an index again only after [`Events::ended`] of its last link, so a backend may keep a `Vec` by index. A call with a
/// link that has ended does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct LinkId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// A listener of a backend, chosen by the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ListenerId(pub(crate) u32);

/// An incoming connection that the worker has yet to accept or reject, numbered by the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct IncomingId(pub(crate) u64);

/// What the links of a backend can do; constant once the backend exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Abilities {
    /// Length of the buffers of `post_receives`, and the most that one SEND carries, in bytes. A SEND to a peer with shorter segments is
    /// shorter: the hello negotiates it.
    pub(crate) segment: u32,
    /// Receives that the shared queue takes.
    pub(crate) receives: u32,
    /// Reads that a link has outstanding at most; 0 if the backend has no [`Request::Read`] (then there is no rendezvous).
    pub(crate) reads: u16,
    /// `Request::Probe` asks the peer's NIC. If false, the connection sends PING frames instead.
    pub(crate) probe: bool,
}

/// Bytes of a region that a peer may reach.
#[derive(Debug)]
pub(crate) struct RegionPart {
    pub(crate) memory: Arc<RegionMemory>,
    pub(crate) offset: usize,
    pub(crate) length: usize,
    pub(crate) is_writable: bool,
    /// Ends when the key works no more.
    pub(crate) closed: Arc<Progress>,
}

/// What a link is, once it is established.
#[derive(Clone, Debug)]
pub(crate) struct Established {
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
    /// Device, port and GID in words, for `stats()` and `doctor()`.
    pub(crate) path: String,
}

/// Why a link ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// `disconnect` of this side is complete.
    Closed,
    /// The peer disconnected, or its process died.
    PeerClosed,
    /// The peer's worker refused: the bytes that it gave to [`Backend::reject`].
    Rejected(Vec<u8>),
    /// Anything else: no route, no listener, retry exceeded, device gone. The kind is as sockets have it (messaging.md, section 3), the
    /// source has the verbs status.
    Failed(io::Error),
}

/// What [`Backend::poll`] reports. Implemented by the worker; called from within `poll` only, so it must not call the backend.
pub(crate) trait Events {
    /// A client asks to connect. `hello` is the client's, not yet parsed. Answered by [`Backend::accept`] or [`Backend::reject`].
    fn incoming(&mut self, listener: ListenerId, incoming: IncomingId, peer: SocketAddr, hello: &[u8]);
    /// The link carries requests from now on, and all posted earlier. At the client, `hello` is the server's answer; at the server it is
    /// empty. Data may only be received after it: the backend keeps what overtakes it.
    fn established(&mut self, link: LinkId, established: Established, hello: &[u8]);
    /// A SEND arrived: `message[..]` is what the peer sent. The receive is no longer posted. False if it violates the wire: the worker
    /// ends the link, and nothing that follows counts.
    fn received(&mut self, link: LinkId, message: Buf) -> bool;
    /// A receive is back without a message: it was flushed, or taken by a link that has ended.
    fn returned(&mut self, receive: Buf);
    /// `requests` more SENDs of the link have completed: the peer's NIC has them. Reported in batches (selective signalling).
    fn sent(&mut self, link: LinkId, requests: u32);
    /// A READ completed, or failed (`false`: the contents are undefined, and the link ends).
    fn read(&mut self, link: LinkId, token: u32, into: Buf, whole: bool);
    /// Transfers have completed or failed, or keys of regions have stopped working: their progress has ended.
    fn moved(&mut self, link: LinkId);
    /// A probe was answered.
    fn probed(&mut self, link: LinkId);
    /// The link's last event: it has no request outstanding, and all its buffers are back.
    fn ended(&mut self, link: LinkId, why: Ended);
}

/// How SENDs travel, for all connections of one worker.
pub(crate) trait Backend {
    fn abilities(&self) -> Abilities;
    /// The pool that the buffers of this backend come from. Buffers of other pools are copied before they are posted.
    fn pool(&self) -> &Pool;

    /// Binds and listens; returns the address with its port. Requests to connect arrive as [`Events::incoming`].
    fn listen(&mut self, listener: ListenerId, address: SocketAddr, backlog: u32) -> io::Result<SocketAddr>;
    /// Ends a listener, and rejects what it has not yet answered.
    fn unlisten(&mut self, listener: ListenerId);
    /// Starts to connect: `hello` (at most 56 bytes) travels with the request. Answered by `established` or `ended`.
    fn connect(&mut self, link: LinkId, address: SocketAddr, hello: &[u8]) -> io::Result<()>;
    /// Accepts; `hello` (at most 56 bytes) travels with the reply. Answered by `established` or `ended`.
    fn accept(&mut self, incoming: IncomingId, link: LinkId, hello: &[u8]);
    /// Rejects; `refusal` (at most 148 bytes) arrives as [`Ended::Rejected`].
    fn reject(&mut self, incoming: IncomingId, refusal: &[u8]);
    /// Ends a link in any state. Requests that are posted are flushed; the connection has made sure that nothing is lost by it (FIN_ACK).
    /// The end is reported by `ended`, within a bounded time also if the peer is gone.
    fn disconnect(&mut self, link: LinkId);

    /// Takes requests from the front as the send queue has room, and leaves the rest; one postlist, one doorbell. Before `established` it
    /// takes none. A link that has failed takes all, and reports `ended`.
    fn post(&mut self, link: LinkId, requests: &mut VecDeque<Request>, spare: &mut Vec<Buf>);
    /// SEND of both parts, if they fit the request, and nothing of the link waits to be posted. False if it was not posted.
    #[inline]
    fn send_now(&mut self, _link: LinkId, _header: &[u8; HEADER], _payload: &[u8]) -> bool {
        false
    }
    /// Lets the link's peer read the bytes of a buffer, for a rendezvous. The key works by the time that a request posted from now on
    /// arrives. If the device has memory windows, the key is a window's: it opens these bytes alone, to this link alone, until
    /// [`Request::Conceal`]. A buffer that cannot be exposed is returned: it belongs to another pool, the link has ended, or it has as many
    /// buffers exposed as it may.
    fn expose(&mut self, link: LinkId, buffer: Buf) -> Result<Remote, Buf>;
    /// What regions are registered with; `None` if the backend has no one-sided requests.
    fn domain(&self) -> Option<Domain> {
        None
    }
    /// Lets the link's peer read, and write, a part of a region, until [`Request::Conceal`] has completed or the link has ended: then the
    /// part's progress ends. The key works by the time that a request posted from now on arrives.
    fn grant(&mut self, _link: LinkId, _part: RegionPart) -> io::Result<Remote> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "the connection does not run on RDMA, and has no regions"))
    }
    /// Posts receives, each [`Abilities::segment`] bytes; leaves what the queue has no room for.
    fn post_receives(&mut self, buffers: &mut Vec<Buf>);
    /// Takes completions and connection events, at most about `budget`; buffers of completed SENDs go to `spare`. Returns how many there were.
    fn poll(&mut self, budget: usize, events: &mut impl Events, spare: &mut Vec<Buf>) -> usize;
    /// Prepares to sleep: asks for a wake-up on [`Backend::fd`]. False if there is something to poll already.
    fn arm(&mut self) -> io::Result<bool>;
    /// Readable when `poll` has something to report, after `arm`. One descriptor for the backend's whole life (an epoll of the rest).
    fn fd(&self) -> BorrowedFd<'_>;
    /// When `poll` must be called although the descriptor stays silent: time-outs of connecting and teardown. Nanoseconds of
    /// CLOCK_MONOTONIC.
    fn deadline(&self) -> Option<u64>;
}
