//! Rank 0's connections to all ranks, which one thread serves.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::meet::{bytes, unread};
use super::ssh::Children;
use crate::control::{Partial, Unframed, tune};
use crate::mesh::Rank;
use crate::mesh::coordinator::{Action, Addresses, Coordinator, Results};
use crate::mesh::message::{LONGEST_ORDER, Order, Report, message};
use crate::program::interrupt::Signal;
use crate::program::print_line;

/// Connections that may be open in addition to those of the ranks.
const SPARE: usize = 64;

/// How long a connection may take to send its first message, and how long rank 0 waits for its last messages to leave.
const SHORT: Duration = Duration::from_secs(5);

/// Longest pause between two looks at signals and remote shells.
const LOOK: Duration = Duration::from_millis(200);

/// Maximum number of bytes that wait for a rank that does not read.
const MOST_WAITING: usize = 1 << 20;

/// Maximum number of messages of one rank that are read in a row, so that a flood delays no other rank.
const MOST_AT_ONCE: usize = 64;

/// A connection.
struct Peer {
    stream: TcpStream,
    addresses: Addresses,
    partial: Partial,
    waiting: Vec<u8>,
    rank: Option<Rank>,
    opened: Instant,
    is_closed: bool,
}

/// Runs the mesh to its end.
pub(super) fn run(
    listener: &TcpListener,
    coordinator: Coordinator,
    signal: &dyn Fn() -> Option<Signal>,
    children: &mut Children,
) -> Result<Results> {
    listener.set_nonblocking(true)?;
    let mut hub = Hub { peers: Vec::new(), coordinator, start: Instant::now(), is_full: false };
    let mut ended = None;
    loop {
        hub.wait(listener);
        hub.accept(listener);
        for at in 0..hub.peers.len() {
            hub.read(at);
        }
        let now = hub.start.elapsed();
        hub.coordinator.tick(now);
        for (rank, why) in children.ended() {
            hub.coordinator.start_failed(rank, why, now);
        }
        if let Some(signal) = signal() {
            hub.coordinator.interrupt(format!("ended by {signal}: the results are incomplete"));
        }
        hub.act();
        hub.peers.retain(|peer| !peer.is_closed && (peer.rank.is_some() || peer.opened.elapsed() < SHORT));
        if hub.coordinator.has_ended() {
            let since = *ended.get_or_insert_with(Instant::now);
            if hub.peers.iter().all(|peer| peer.waiting.is_empty()) || since.elapsed() > SHORT {
                return Ok(hub.coordinator.into_results());
            }
        }
    }
}

struct Hub {
    peers: Vec<Peer>,
    coordinator: Coordinator,
    start: Instant,
    /// Whether this process has too many open files to accept a connection.
    is_full: bool,
}

impl Hub {
    /// Waits until a connection has something to do, or until time has passed.
    fn wait(&self, listener: &TcpListener) {
        // Without a free descriptor, the listener stays readable.
        let own = (!self.is_full).then(|| PollFd::new(listener, PollFlags::IN));
        let flags = |peer: &Peer| if peer.waiting.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
        let peers = self.peers.iter().map(|peer| PollFd::new(&peer.stream, flags(peer)));
        let mut all: Vec<_> = own.into_iter().chain(peers).collect();
        let left = self.coordinator.deadline().map(|deadline| deadline.saturating_sub(self.start.elapsed()));
        // A millisecond more, so that the time has passed after the call.
        let left = left.unwrap_or(LOOK).min(LOOK) + Duration::from_millis(1);
        // Ignores the error, because the caller then reads in vain and calls again.
        let _ = poll(&mut all, Timespec::try_from(left).ok().as_ref());
    }

    fn accept(&mut self, listener: &TcpListener) {
        loop {
            let (stream, peer) = match listener.accept() {
                Ok(accepted) => accepted,
                Err(error) => {
                    let is_full =
                        [Errno::MFILE, Errno::NFILE].iter().any(|errno| Some(*errno) == Errno::from_io_error(&error));
                    if is_full && !self.is_full {
                        print_line("warning: rank 0 has too many open files to admit a rank; raise `ulimit -n`");
                    }
                    self.is_full = is_full;
                    return;
                }
            };
            let local = stream.local_addr().map(|address| address.ip().to_canonical());
            let (Ok(local), Ok(())) = (local, stream.set_nonblocking(true)) else { continue };
            if self.peers.iter().filter(|peer| peer.rank.is_none()).count() >= self.coordinator.ranks() + SPARE {
                continue;
            }
            tune(&stream, SHORT.max(self.coordinator.silence()));
            let peer = SocketAddr::ip(&peer).to_canonical();
            self.peers.push(Peer {
                stream,
                addresses: Addresses { peer, local },
                partial: Partial::new(LONGEST_ORDER),
                waiting: Vec::new(),
                rank: None,
                opened: Instant::now(),
                is_closed: false,
            });
        }
    }

    /// Reads the messages of a connection that have arrived.
    fn read(&mut self, at: usize) {
        for _ in 0..MOST_AT_ONCE {
            let Some(peer) = self.peers.get_mut(at).filter(|peer| !peer.is_closed) else { return };
            let (rank, now) = (peer.rank, self.start.elapsed());
            let why = match peer.partial.read(|into| peer.stream.read(into)) {
                Ok(None) => continue,
                Ok(Some(frame)) => match (rank, message::<Report>(&frame)) {
                    (Some(rank), Ok(report)) => {
                        self.coordinator.report(rank, report, now);
                        continue;
                    }
                    (None, Ok(Report::Join(join))) => match self.coordinator.join(join, peer.addresses, now) {
                        Ok(rank) => {
                            peer.rank = Some(rank);
                            peer.partial = Partial::new(self.coordinator.longest_report());
                            continue;
                        }
                        Err(reject) => {
                            send(peer, &reject);
                            "rejected".to_owned()
                        }
                    },
                    (None, Ok(_)) => "it has not joined".to_owned(),
                    (_, Err(why)) => why,
                },
                Err(Unframed::Io(error))
                    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) =>
                {
                    return;
                }
                Err(unframed) => unread(&unframed),
            };
            peer.is_closed = true;
            if let Some(rank) = peer.rank.take() {
                self.coordinator.lose(rank, why, now);
                // At once, because the rank can join again by the next connection.
                self.act();
            }
            return;
        }
    }

    /// Carries out what the coordinator requests, and sends what waits.
    fn act(&mut self) {
        while let Some(action) = self.coordinator.action() {
            match action {
                Action::Print(line) => print_line(&line),
                Action::Close(rank) => self.of(rank).into_iter().for_each(|peer| peer.is_closed = true),
                Action::Send(rank, order) => {
                    self.of(rank).into_iter().for_each(|peer| send(peer, &order));
                }
            }
            self.lose_closed();
        }
        self.peers.iter_mut().for_each(flush);
        self.lose_closed();
    }

    /// Reports the ranks whose connection was closed by an error of a write.
    fn lose_closed(&mut self) {
        let now = self.start.elapsed();
        for peer in self.peers.iter_mut().filter(|peer| peer.is_closed) {
            if let Some(rank) = peer.rank.take() {
                self.coordinator.lose(rank, "it disconnected, or does not read its messages".to_owned(), now);
            }
        }
    }

    fn of(&mut self, rank: Rank) -> Option<&mut Peer> {
        self.peers.iter_mut().find(|peer| peer.rank == Some(rank))
    }
}

/// Queues a message, and sends as much as possible at once.
fn send(peer: &mut Peer, order: &Order) {
    match bytes(order) {
        Ok(bytes) if peer.waiting.len() + bytes.len() <= MOST_WAITING => {
            peer.waiting.extend(bytes);
            flush(peer);
        }
        _ => peer.is_closed = true,
    }
}

fn flush(peer: &mut Peer) {
    while !peer.waiting.is_empty() && !peer.is_closed {
        match peer.stream.write(&peer.waiting) {
            Ok(count) => drop(peer.waiting.drain(..count)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(_) => peer.is_closed = true,
        }
    }
}
