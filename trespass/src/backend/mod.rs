//! The interface between the worker and a backend. A backend transports SENDs.
//!
//! A worker has one [`Backend`] of each kind. Each backend has a pool and its own connections. The worker calls its
//! backends from one thread, or under its lock. No call blocks. The worker is generic over the backend, so the data
//! path has no dynamic call.
//!
//! # Ownership of memory
//!
//! - A [`Buf`] has one owner. Passing a `Buf` by value transfers its memory.
//! - `post_receives` transfers buffers to the shared receive queue. A received message transfers its buffer to
//!   [`Events::received`]; the other buffers return when the backend is dropped.
//! - `post` transfers a request's buffer to the backend. The backend returns the buffer when the request completes or
//!   the queue pair is flushed: buffers of SENDs through `spare`, buffers of reads through [`Events::read`]. A time-out
//!   never returns a buffer.
//! - `expose` transfers a buffer to the backend, for the peer to read. The backend returns it through `spare` when
//!   [`Request::Conceal`] has completed or the link has ended. By then the peer's key is invalid.
//! - `announce` transfers a buffer to the backend, for the peer to write to. The backend returns it in the same way, or
//!   through [`Events::landed`] if [`Request::Land`] has completed.
//! - [`Events::ended`] is the last event of a link, after the link has returned all its buffers.
//! - The pool's memory outlives all buffers. Regions outlive the queue pairs, because the backend drops queue pairs
//!   first.
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
use std::time::Duration;

use crate::memory::{Buf, Domain, Pool, Progress, RegionMemory};

pub(crate) use crate::proto::{HEADER, Remote, Request};

pub(crate) mod tcp;
pub(crate) mod verbs;

/// Returns the number of turns until a worker next reads the clock, which takes a system call on some machines.
/// `passed` is the time since the last reading. If the program polls rarely, the number is small.
pub(crate) fn turns_until_look(passed: Duration) -> u32 {
    if passed < Duration::from_millis(4) { 128 } else { 16 }
}

/// Identifies a link of a backend: an index into the worker's table of connections, and the generation of that index.
/// The worker chooses both.
///
/// The worker reuses an index only after [`Events::ended`] of its previous link, so a backend may keep a `Vec` by
/// index. A call for a link that has ended does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct LinkId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// Identifies a listener of a backend; the worker chooses the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ListenerId(pub(crate) u32);

/// Identifies an incoming connection that the worker has not accepted or rejected yet; the backend chooses the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct IncomingId(pub(crate) u64);

/// The capabilities of a backend's links, which do not change after the backend was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Abilities {
    /// Length in bytes of the buffers that are passed to `post_receives`, which is also the maximum length of a SEND.
    /// If a peer has shorter segments, the hello negotiates that length.
    pub(crate) segment: u32,
    /// The capacity of the shared receive queue.
    pub(crate) receives: u32,
    /// Maximum number of outstanding reads of a link; 0 if the backend does not support [`Request::Read`]. Without
    /// reads there is no rendezvous.
    pub(crate) reads: u16,
    /// Whether the backend supports [`Request::Write`].
    pub(crate) writes: bool,
    /// Whether [`Backend::announce`] can let a peer write to one buffer and to no other memory.
    pub(crate) announces: bool,
}

/// The bytes of a region that a peer may access.
#[derive(Debug)]
pub(crate) struct RegionPart {
    pub(crate) memory: Arc<RegionMemory>,
    pub(crate) offset: usize,
    pub(crate) length: usize,
    pub(crate) is_writable: bool,
    /// Completes when the key is invalid.
    pub(crate) closed: Arc<Progress>,
}

/// Properties of an established link.
#[derive(Clone, Debug)]
pub(crate) struct Established {
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
    /// Device, port and GID as text, for `stats()` and `doctor()`.
    pub(crate) path: String,
}

/// The reason for the end of a link.
#[derive(Debug)]
pub(crate) enum Ended {
    /// This side called `disconnect`, and the link has closed.
    Closed,
    /// The peer disconnected, or its process died.
    PeerClosed,
    /// The peer's worker rejected the connection. This variant contains the bytes that the worker passed to
    /// [`Backend::reject`].
    Rejected(Vec<u8>),
    /// Another failure: no route, no listener, retries exhausted, device removed. The error has the kind that a socket
    /// would return, and the verb's status as its source.
    Failed(io::Error),
}

/// Events that [`Backend::poll`] reports to the worker. Only `poll` calls these methods, so they must not call the
/// backend.
pub(crate) trait Events {
    /// A client requests a connection; `hello` is not parsed yet. The worker answers with [`Backend::accept`] or
    /// [`Backend::reject`].
    fn incoming(&mut self, listener: ListenerId, incoming: IncomingId, peer: SocketAddr, hello: &[u8]);
    /// The link is established. It transmits requests, including requests that were posted earlier. At the client,
    /// `hello` is the server's answer; at the server it is empty. The backend reports received data only after this
    /// event.
    fn established(&mut self, link: LinkId, established: Established, hello: &[u8]);
    /// A SEND arrived; `message[..length]` contains its bytes, and `message` has the length of a segment. The receive
    /// is no longer posted. Returns false if the SEND violates the protocol: the worker then ends the link and ignores
    /// later messages.
    fn received(&mut self, link: LinkId, message: Buf, length: usize) -> bool;
    /// A receive is returned without a message: it was flushed, or a link that has ended consumed it.
    fn returned(&mut self, receive: Buf);
    /// `requests` more SENDs of the link have completed: the peer's NIC has received them. Completions are reported in
    /// batches (selective signalling).
    fn sent(&mut self, link: LinkId, requests: u32);
    /// A READ has completed. If `whole` is false, it has failed: the contents of the buffer are undefined, and the link
    /// ends.
    fn read(&mut self, link: LinkId, token: u32, into: Buf, whole: bool);
    /// WRITEs of this number of bytes have completed.
    fn wrote(&mut self, link: LinkId, bytes: usize);
    /// A message that the peer has written to an announced buffer. The peer cannot change it any more.
    fn landed(&mut self, link: LinkId, token: u32, message: Buf);
    /// Transfers have completed or failed, or keys of regions have become invalid. The progress of each of them is
    /// already updated.
    fn moved(&mut self, link: LinkId);
    /// A probe was acknowledged.
    fn probed(&mut self, link: LinkId);
    /// The last event of a link: no request is outstanding, and the link has returned all its buffers.
    fn ended(&mut self, link: LinkId, why: Ended);
}

/// Transports SENDs for all connections of one worker.
pub(crate) trait Backend {
    fn abilities(&self) -> Abilities;
    /// Returns the pool of this backend's buffers. Buffers of other pools are copied before they are posted.
    fn pool(&self) -> &Pool;

    /// Binds to an address and listens. Returns the address, which includes the port. Requests to connect arrive as
    /// [`Events::incoming`].
    fn listen(&mut self, listener: ListenerId, address: SocketAddr, backlog: u32) -> io::Result<SocketAddr>;
    /// Stops or continues to take requests from the system's queue, where they wait without using resources of this
    /// process. A request may still arrive after this.
    fn hold(&mut self, _listener: ListenerId, _holds: bool) {}
    /// Closes a listener, and rejects its unanswered requests.
    fn unlisten(&mut self, listener: ListenerId);
    /// Starts to connect, with `hello` (at most 56 bytes) in the request. The result is `established` or `ended`.
    fn connect(&mut self, link: LinkId, address: SocketAddr, hello: &[u8]) -> io::Result<()>;
    /// Accepts an incoming connection, with `hello` (at most 56 bytes) in the reply. The result is `established` or
    /// `ended`.
    fn accept(&mut self, incoming: IncomingId, link: LinkId, hello: &[u8]);
    /// Rejects an incoming connection. The peer receives `refusal` (at most 148 bytes) as [`Ended::Rejected`].
    fn reject(&mut self, incoming: IncomingId, refusal: &[u8]);
    /// Ends a link in any state, and flushes its posted requests. So that no data is lost, the worker calls this
    /// function only after FIN_ACK, unless the linger time has passed or the connection has failed. `ended` reports the
    /// end within a bounded time, even if the peer has failed.
    fn disconnect(&mut self, link: LinkId);

    /// Removes as many requests from the front as fit into the send queue, and posts them as one list with one
    /// doorbell. Before `established`, removes none. If the link has failed, removes all requests and reports `ended`.
    fn post(&mut self, link: LinkId, requests: &mut VecDeque<Request>, spare: &mut Vec<Buf>);
    /// Posts one inline SEND that contains both parts, if they fit and no request of the link is waiting. Returns
    /// whether the SEND was posted. The caller has checked the generation: its connection of this link is open.
    #[inline]
    fn send_now(&mut self, _link: LinkId, _header: &[u8; HEADER], _payload: &[u8]) -> bool {
        false
    }
    /// Lets the link's peer read the bytes of a buffer, for a rendezvous. The key is already valid when a request
    /// posted after this call arrives at the peer. With memory windows, the key gives access to only these bytes, on
    /// only this link, until [`Request::Conceal`]. Returns the buffer if it cannot be exposed because it belongs to
    /// another pool, because the link has ended, or because the link already exposes the maximum number of buffers.
    fn expose(&mut self, link: LinkId, buffer: Buf) -> Result<Remote, Buf>;
    /// Lets the link's peer write to a buffer, which then receives one message. [`Request::Land`] or
    /// [`Request::Conceal`] takes it back. Returns the buffer for the reasons of [`Backend::expose`].
    fn announce(&mut self, _link: LinkId, buffer: Buf) -> Result<Remote, Buf> {
        Err(buffer)
    }
    /// Returns the device with which regions are registered, or `None` if the backend has no one-sided requests.
    fn domain(&self) -> Option<Domain> {
        None
    }
    /// Lets the link's peer read or write a part of a region, until [`Request::Revoke`] has completed or the link has
    /// ended. Both complete the progress of this part. The key is already valid when a request posted after this call
    /// arrives at the peer.
    fn grant(&mut self, _link: LinkId, _part: RegionPart) -> io::Result<Remote> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "the connection uses TCP, which has no regions"))
    }
    /// Posts as many receives, of [`Abilities::segment`] bytes each, as the queue has space for.
    fn post_receives(&mut self, buffers: &mut Vec<Buf>);
    /// Processes up to about `budget` completions and connection events, and returns their number. Buffers of completed
    /// SENDs go to `spare`.
    fn poll(&mut self, budget: usize, events: &mut impl Events, spare: &mut Vec<Buf>) -> usize;
    /// Prepares to sleep: requests a wake-up on [`Backend::fd`]. Returns false if an event is pending already.
    fn arm(&mut self) -> io::Result<bool>;
    /// Returns the descriptor that becomes readable, after `arm`, when `poll` has an event. It is an epoll descriptor
    /// that watches the backend's other descriptors. It stays the same for the lifetime of the backend.
    fn fd(&self) -> BorrowedFd<'_>;
    /// Returns the time, in nanoseconds of CLOCK_MONOTONIC, at which `poll` must be called even without an event.
    /// `poll` then handles the time-outs of connecting and teardown.
    fn deadline(&self) -> Option<u64>;
}
