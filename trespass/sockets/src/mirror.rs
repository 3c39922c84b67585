//! The descriptor of a stream: one end of a pair of Unix sockets, of which the library holds the other end.
//!
//! It is readable while the library has put a byte into it, and not writable while the program's end has filled the
//! pair. So all ways to wait for a socket work in the kernel, also for edges: each arrival puts another byte.
//!
//! A worker's waker reports an arrival (or room to write) once; then a call registers it again. A call that has found
//! nothing left clears the descriptor, but only if no waker has reported meanwhile: see [`Mirror::settle`].
//!
//! Nothing is put into the pair unless something waits for the descriptor: a call of this library that sleeps, or the
//! program, which has then made the descriptor non-blocking or named it to `poll`, `select` or `epoll`.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Wake, Waker};
use std::time::Instant;

use libc::pollfd;
use trespass::{Wait, net};

use crate::system::{self, put, shut, take};

/// More than the program's end accepts.
const FILL: [u8; 16 << 10] = [0; 16 << 10];

/// The code with which a stream ends that has bytes which the program has not read, so that the peer gets an error.
pub(crate) const UNREAD: u32 = 1;

#[derive(Debug)]
pub(crate) struct Mirror {
    library: OwnedFd,
    /// A duplicate of the program's end: the program may close its number at any time, and the system may then give
    /// the number to another file.
    program: OwnedFd,
    /// Whether the program waits for edges: each arrival makes one, also while bytes are left.
    has_edges: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Whether the program waits for the descriptor.
    is_watched: bool,
    directions: [Direction; 2],
    /// Whether the peer's end, and whether the end of the connection, is shown.
    is_ended: bool,
    has_failed: bool,
    /// Whether the program has closed the stream: an epoll may know the descriptor until the last call has ended.
    is_closed: bool,
}

#[derive(Debug, Default)]
struct Direction {
    /// How often the waker was called.
    reports: u64,
    /// How many calls sleep on the descriptor.
    sleepers: u32,
    /// Reading: whether bytes are in the pair, so that the descriptor is readable. Writing: whether the pair is full.
    is_filled: bool,
}

/// The waker of one direction.
#[derive(Debug)]
struct Report {
    mirror: Arc<Mirror>,
    stream: Weak<net::Stream>,
    what: Wait,
    /// If the program waits for edges: how many requests had arrived at the last report.
    arrived: AtomicU64,
}

impl Wake for Report {
    fn wake(self: Arc<Self>) {
        let stream = self.stream.upgrade().filter(|_| self.what == Wait::Read);
        let mut is_new = true;
        if let Some(stream) = &stream {
            self.mirror.show_end(stream);
            if self.mirror.has_edges.load(Ordering::Relaxed) {
                let arrived = stream.wake_on_arrival(&Waker::from(Arc::clone(&self)));
                is_new = self.arrived.swap(arrived, Ordering::Relaxed) != arrived;
            }
        }
        self.mirror.report(self.what, is_new);
    }
}

impl Mirror {
    /// Creates the mirror, and returns it with the program's end.
    pub(crate) fn new() -> io::Result<(Arc<Mirror>, OwnedFd)> {
        let [program, library] = system::pair()?;
        // The system raises it to its minimum.
        system::set_option(program.as_raw_fd(), libc::SOL_SOCKET, libc::SO_SNDBUF, &1);
        let own = system::duplicate(program.as_raw_fd())?;
        let (has_edges, state) = (AtomicBool::new(false), Mutex::default());
        Ok((Arc::new(Mirror { library, program: own, has_edges, state }), program))
    }

    pub(crate) fn waker(self: &Arc<Self>, what: Wait, stream: &Arc<net::Stream>) -> Waker {
        let (mirror, stream) = (Arc::clone(self), Arc::downgrade(stream));
        Waker::from(Arc::new(Report { mirror, stream, what, arrived: AtomicU64::new(0) }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the program waits for the descriptor. Returns whether it did before.
    pub(crate) fn watch(&self) -> bool {
        std::mem::replace(&mut self.state().is_watched, true)
    }

    /// Notes that the program waits for edges. Returns whether it did before.
    pub(crate) fn watch_edges(&self) -> bool {
        self.has_edges.swap(true, Ordering::Relaxed)
    }

    /// The number of reports so far, for `settle`.
    pub(crate) fn reports(&self, what: Wait) -> u64 {
        self.state().directions[what as usize].reports
    }

    /// Bytes or the end have arrived, or there is room. Nothing `is_new` if an event of another kind has called the waker.
    fn report(&self, what: Wait, is_new: bool) {
        let mut state = self.state();
        if state.is_closed {
            return;
        }
        let is_watched = state.is_watched;
        let direction = &mut state.directions[what as usize];
        direction.reports += u64::from(is_new);
        match what {
            // Also if it is readable: this makes a new edge.
            Wait::Read if (is_watched || direction.sleepers != 0) && (is_new || !direction.is_filled) => {
                direction.is_filled = true;
                self.fill();
            }
            Wait::Write if direction.is_filled => {
                direction.is_filled = false;
                self.drain();
            }
            _ => {}
        }
    }

    /// Makes the descriptor show whether a call would not wait. `seen` is the number of reports before the stream was asked.
    /// Returns false if there was another report since, so that the stream must be asked again.
    pub(crate) fn settle(&self, what: Wait, seen: u64, is_ready: bool) -> bool {
        let mut state = self.state();
        let is_watched = state.is_watched;
        let direction = &mut state.directions[what as usize];
        if direction.reports != seen {
            return false;
        }
        let shows = is_watched || direction.sleepers != 0;
        let is_shown_ready = direction.is_filled == (what == Wait::Read);
        match (what, is_ready) {
            _ if is_ready == is_shown_ready => return true,
            (Wait::Read, true) if shows => self.fill(),
            (Wait::Read, false) => drain(self.program.as_raw_fd()),
            (Wait::Write, true) => self.drain(),
            // The pair accepts a part.
            (Wait::Write, false) if shows => _ = put(self.program.as_raw_fd(), &FILL, libc::MSG_DONTWAIT),
            _ => return true,
        }
        direction.is_filled = !direction.is_filled;
        true
    }

    /// Shows nothing from now on.
    pub(crate) fn close(&self) {
        self.state().is_closed = true;
    }

    /// Puts a byte for readers, even if one is there.
    pub(crate) fn renew(&self) {
        let mut state = self.state();
        state.directions[Wait::Read as usize].is_filled = true;
        self.fill();
    }

    /// A call begins to sleep on the descriptor.
    pub(crate) fn begin_sleep(&self, what: Wait) {
        self.state().directions[what as usize].sleepers += 1;
    }

    /// Sleeps until the descriptor is ready, the deadline passes, or a signal arrives. Returns 0 if the descriptor is
    /// readable because of an end.
    pub(crate) fn sleep(&self, what: Wait, deadline: Option<Instant>) -> io::Result<usize> {
        let fd = self.program.as_raw_fd();
        let mut flags = 0;
        if deadline.is_some() {
            let events = if what == Wait::Read { libc::POLLIN } else { libc::POLLOUT };
            match system::wait(&mut [pollfd { fd, events, revents: 0 }], deadline) {
                Ok(0) => return Err(ErrorKind::WouldBlock.into()),
                Ok(_) => flags = libc::MSG_DONTWAIT,
                Err(number) => return Err(io::Error::from_raw_os_error(number)),
            }
        }
        let slept = match what {
            Wait::Read => take(fd, &mut [0], libc::MSG_PEEK | flags),
            Wait::Write => put(fd, &[0], flags),
        };
        // Another thread may have cleared the descriptor meanwhile.
        slept.or_else(|error| if flags != 0 && error.kind() == ErrorKind::WouldBlock { Ok(1) } else { Err(error) })
    }

    pub(crate) fn end_sleep(&self, what: Wait) {
        let mut state = self.state();
        let direction = &mut state.directions[what as usize];
        direction.sleepers -= 1;
        if what == Wait::Write && !direction.is_filled {
            // What the sleeper has sent.
            self.drain();
        }
    }

    /// Shows the end of the peer's bytes or a failure if it is next and the program waits for the descriptor: the
    /// program may wait for nothing else.
    pub(crate) fn show_end(&self, stream: &net::Stream) {
        let is_due = {
            let state = self.state();
            state.is_watched && !state.is_ended && !state.has_failed && !state.is_closed
        };
        if is_due {
            match stream.is_at_end() {
                Ok(false) => {}
                Ok(true) if !was_reset(stream) => self.end(),
                _ => self.fail(),
            }
        }
    }

    /// Shows the end of the peer's bytes: the descriptor stays readable.
    pub(crate) fn end(&self) {
        if !std::mem::replace(&mut self.state().is_ended, true) {
            shut(self.library.as_fd(), libc::SHUT_WR);
        }
    }

    /// Shows that the connection has failed.
    pub(crate) fn fail(&self) {
        if !std::mem::replace(&mut self.state().has_failed, true) {
            shut(self.library.as_fd(), libc::SHUT_RDWR);
        }
    }

    fn fill(&self) {
        // If the pair is full, the descriptor is readable, but only another byte makes an edge.
        if put(self.library.as_raw_fd(), &FILL[..1], libc::MSG_DONTWAIT).is_err() {
            drain(self.program.as_raw_fd());
            _ = put(self.library.as_raw_fd(), &FILL[..1], libc::MSG_DONTWAIT);
        }
    }

    fn drain(&self) {
        drain(self.library.as_raw_fd());
    }
}

/// Whether the peer has ended the connection without reading everything.
pub(crate) fn was_reset(stream: &net::Stream) -> bool {
    matches!(stream.connection().peer_close(), Some((UNREAD, _)))
}

fn drain(fd: RawFd) {
    let mut bytes = [0; FILL.len()];
    while take(fd, &mut bytes, libc::MSG_DONTWAIT).is_ok_and(|count| count == bytes.len()) {}
}
