//! A connection over RDMA, as the C functions see it.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use trespass::{Connection, Wait, net};

use crate::inside::{Inside, refusal};
use crate::mirror::{Mirror, UNREAD, was_reset};
use crate::system;

/// How long a call polls before it sleeps.
const SPIN: Duration = Duration::from_micros(20);
/// Some states of TCP.
const ESTABLISHED: u8 = 1;
const FIN_WAIT2: u8 = 5;
const CLOSE: u8 = 7;
const CLOSE_WAIT: u8 = 8;
/// How many bytes `MSG_PEEK` and `FIONREAD` see at most.
const AHEAD: usize = 256 << 10;

#[derive(Debug)]
pub(crate) struct Stream {
    stream: Arc<net::Stream>,
    mirror: Arc<Mirror>,
    wakers: [Waker; 2],
    /// Bytes that were looked at before they are read.
    ahead: Mutex<Ahead>,
    is_nonblocking: AtomicBool,
    /// How long a call waits in each direction, in nanoseconds; 0 means without end.
    limits: [AtomicU64; 2],
    /// Whether the program has shut down reading, and writing.
    is_shut: [AtomicBool; 2],
    /// Whether the program has got the failure of the connection.
    is_reported: AtomicBool,
    /// The family of the program's socket, its address and the peer's.
    pub(crate) family: c_int,
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
    /// A TCP socket that is not connected: it keeps the options that the program sets.
    options: OnceLock<OwnedFd>,
}

#[derive(Debug, Default)]
struct Ahead {
    bytes: VecDeque<u8>,
    /// Whether the program has asked how many bytes there are, and may wait for an edge when it has read them.
    is_counted: bool,
}

/// What a call asks for besides bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Manner {
    pub(crate) never_waits: bool,
    pub(crate) waits_for_all: bool,
    pub(crate) peeks: bool,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.end();
    }
}

impl Stream {
    /// Returns the stream and the program's descriptor. `options` is the socket that the program has made.
    pub(crate) fn new(
        connection: Connection,
        family: c_int,
        (local, peer): (SocketAddr, SocketAddr),
        options: Option<OwnedFd>,
        is_nonblocking: bool,
    ) -> io::Result<(Arc<Stream>, OwnedFd)> {
        let (mirror, program) = Mirror::new()?;
        let connection = Arc::new(net::Stream::from(connection));
        let wakers = [Wait::Read, Wait::Write].map(|what| mirror.waker(what, &connection));
        let stream = Stream {
            stream: connection,
            mirror,
            wakers,
            ahead: Mutex::default(),
            is_nonblocking: AtomicBool::new(false),
            limits: Default::default(),
            is_shut: Default::default(),
            is_reported: AtomicBool::new(false),
            family,
            local,
            peer,
            options: options.map_or_else(OnceLock::new, OnceLock::from),
        };
        stream.refresh(Wait::Read);
        stream.set_nonblocking(program.as_raw_fd(), is_nonblocking);
        Ok((Arc::new(stream), program))
    }

    /// The transport and the path.
    pub(crate) fn path(&self) -> String {
        self.stream.stats().map(|stats| stats.to_string()).unwrap_or_default()
    }

    /// Follows the flag of the program's descriptor.
    pub(crate) fn set_nonblocking(&self, fd: RawFd, is_nonblocking: bool) {
        self.is_nonblocking.store(is_nonblocking, Ordering::Relaxed);
        if is_nonblocking {
            self.watch(fd);
        }
    }

    /// The program waits for the descriptor itself.
    pub(crate) fn watch(&self, _: RawFd) {
        let Some(_inside) = Inside::enter() else { return };
        if !self.mirror.watch() {
            self.refresh(Wait::Read);
            self.refresh(Wait::Write);
        }
    }

    /// The program waits for edges of the descriptor.
    pub(crate) fn watch_edges(&self) {
        let Some(_inside) = Inside::enter() else { return };
        if !self.mirror.watch_edges() {
            self.stream.wake_on_arrival(&self.wakers[Wait::Read as usize]);
        }
    }

    /// Takes over the time limits of a socket. The program's descriptor also keeps them.
    pub(crate) fn copy_limits(&self, from: RawFd, program: RawFd) {
        for (limit, name) in self.limits.iter().zip([libc::SO_RCVTIMEO, libc::SO_SNDTIMEO]) {
            let time = system::copy_time(from, program, name);
            limit.store(time.as_nanos().try_into().unwrap_or(u64::MAX), Ordering::Relaxed);
        }
    }

    /// When a call that begins to wait has waited long enough.
    fn deadline(&self, what: Wait) -> Option<Instant> {
        match self.limits[what as usize].load(Ordering::Relaxed) {
            0 => None,
            limit => Instant::now().checked_add(Duration::from_nanos(limit)),
        }
    }

    fn is_shut(&self, what: Wait) -> bool {
        self.is_shut[what as usize].load(Ordering::Relaxed)
    }

    fn ahead(&self) -> MutexGuard<'_, Ahead> {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the descriptor show the stream's state.
    fn refresh(&self, what: Wait) {
        loop {
            let seen = self.mirror.reports(what);
            let waker = &self.wakers[what as usize];
            let is_ready = match what {
                Wait::Read => {
                    let is_ready = self.stream.read_or_wake(&mut [], waker).1;
                    is_ready || self.is_shut(what) || !self.ahead().bytes.is_empty()
                }
                Wait::Write => self.stream.write_or_wake(&[], waker).1,
            };
            if self.mirror.settle(what, seen, is_ready) {
                if what == Wait::Read && is_ready {
                    self.mirror.show_end(&self.stream);
                }
                return;
            }
        }
    }

    /// Reads what the stream has, without waiting. Also returns whether something is left.
    fn read_stream(&self, bytes: &mut [u8]) -> (io::Result<usize>, bool) {
        let waker = &self.wakers[Wait::Read as usize];
        let mut count = 0;
        loop {
            let (result, is_ready) = self.stream.read_or_wake(&mut bytes[count..], waker);
            match result {
                Ok(0) if count < bytes.len() => {
                    if was_reset(&self.stream) {
                        self.mirror.fail()
                    } else {
                        self.mirror.end()
                    };
                    let error = if count == 0 { self.reset() } else { None };
                    return (error.map_or(Ok(count), Err), true);
                }
                Ok(read) => count += read,
                Err(_) if count != 0 => return (Ok(count), is_ready),
                Err(error) if error.kind() == ErrorKind::WouldBlock && self.is_shut(Wait::Read) => {
                    return (Ok(0), true);
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::OutOfMemory) => {
                    return (Err(error), is_ready);
                }
                Err(error) => {
                    self.mirror.fail();
                    return (self.report(error).map_or(Ok(0), Err), is_ready);
                }
            }
            // A short result means that nothing is left: event loops rely on it.
            if count == bytes.len() || !is_ready {
                return (Ok(count), is_ready);
            }
        }
    }

    /// Reads without waiting: first the bytes that were looked at.
    fn read_now(&self, parts: &mut [IoSliceMut<'_>], peeks: bool) -> (io::Result<usize>, bool) {
        let mut ahead = self.ahead();
        if peeks {
            let (result, is_ready) = self.look_ahead(&mut ahead);
            let (first, second) = ahead.bytes.as_slices();
            let seen = copy(parts, [first, second]);
            return if seen == 0 { (result.map(|_| 0), is_ready) } else { (Ok(seen), true) };
        }
        let (first, second) = ahead.bytes.as_slices();
        let mut count = copy(parts, [first, second]);
        ahead.bytes.drain(..count);
        if !ahead.bytes.is_empty() {
            return (Ok(count), true);
        }
        let (mut skipped, mut is_left) = (count, None);
        for part in parts {
            let at = skipped.min(part.len());
            skipped -= at;
            if at == part.len() {
                continue;
            }
            let (result, is_ready) = self.read_stream(&mut part[at..]);
            is_left = Some(is_ready);
            match result {
                Ok(read) => count += read,
                Err(error) if count == 0 => return (Err(error), is_ready),
                Err(_) => break,
            }
            if !is_ready {
                break;
            }
        }
        // Perhaps the bytes that were looked at have filled the parts.
        let is_ready = is_left.unwrap_or_else(|| self.stream.read_or_wake(&mut [], &self.wakers[0]).1);
        if std::mem::take(&mut ahead.is_counted) && is_ready {
            self.mirror.renew();
        }
        (Ok(count), is_ready)
    }

    /// Fills the bytes that were looked at.
    fn look_ahead(&self, ahead: &mut Ahead) -> (io::Result<()>, bool) {
        let before = ahead.bytes.len();
        if before >= AHEAD {
            return (Ok(()), true);
        }
        let mut bytes = vec![0; AHEAD - before];
        let (result, is_ready) = self.read_stream(&mut bytes);
        (result.map(|count| ahead.bytes.extend(&bytes[..count])), is_ready)
    }

    /// How many bytes can be read.
    pub(crate) fn readable(&self, _: RawFd) -> usize {
        let Some(_inside) = Inside::enter() else { return 0 };
        let mut ahead = self.ahead();
        _ = self.look_ahead(&mut ahead);
        ahead.is_counted = true;
        let count = ahead.bytes.len();
        drop(ahead);
        self.refresh(Wait::Read);
        count
    }

    pub(crate) fn read(&self, parts: &mut [IoSliceMut<'_>], manner: Manner) -> io::Result<usize> {
        let most: usize = parts.iter().map(|part| part.len()).sum();
        if most == 0 {
            return Ok(0);
        }
        let waits = !manner.never_waits && !self.is_nonblocking.load(Ordering::Relaxed);
        let Some(inside) = Inside::enter() else { return Err(io::Error::from_raw_os_error(refusal(waits))) };
        let (mut count, mut spin, mut limit) = (0, None, None);
        let mut rest = parts;
        loop {
            let seen = self.mirror.reports(Wait::Read);
            let (result, is_ready) = self.read_now(rest, manner.peeks);
            let would_block = matches!(&result, Err(error) if error.kind() == ErrorKind::WouldBlock);
            let lacks = match &result {
                Ok(read) => waits && manner.waits_for_all && manner.peeks && (1..most.min(AHEAD)).contains(read),
                Err(_) => would_block && waits,
            };
            if !lacks && !self.mirror.settle(Wait::Read, seen, is_ready) {
                self.refresh(Wait::Read);
            } else if !lacks && is_ready {
                self.mirror.show_end(&self.stream);
            }
            match result {
                Ok(read) if lacks => count = read,
                Ok(read) => {
                    if manner.peeks {
                        return Ok(read);
                    }
                    count += read;
                    if count == most || read == 0 || !manner.waits_for_all || !waits {
                        return Ok(count);
                    }
                    IoSliceMut::advance_slices(&mut rest, read);
                    continue;
                }
                Err(_) if !lacks => return if count == 0 { result } else { Ok(count) },
                Err(_) => {}
            }
            if goes_on(&mut spin) {
                continue;
            }
            self.mirror.begin_sleep(Wait::Read);
            if !manner.peeks || count == 0 {
                self.refresh(Wait::Read);
            } else if !self.mirror.settle(Wait::Read, seen, false) {
                // The bytes that were looked at make it readable, but more have arrived.
                self.mirror.end_sleep(Wait::Read);
                continue;
            }
            let deadline = *limit.get_or_insert_with(|| self.deadline(Wait::Read));
            let slept = inside.sleep(|| self.mirror.sleep(Wait::Read, deadline));
            self.mirror.end_sleep(Wait::Read);
            let is_over = match slept {
                // A call that looks at bytes gets no more of them.
                Ok(0) => manner.peeks && count != 0,
                Ok(_) => false,
                Err(error) if count == 0 => return Err(error),
                Err(_) => true,
            };
            if is_over {
                self.refresh(Wait::Read);
                return Ok(count);
            }
            spin = None;
        }
    }

    pub(crate) fn write(&self, parts: &mut [IoSlice<'_>], never_waits: bool) -> io::Result<usize> {
        let most: usize = parts.iter().map(|part| part.len()).sum();
        if most == 0 {
            return Ok(0);
        }
        let waits = !never_waits && !self.is_nonblocking.load(Ordering::Relaxed);
        let Some(inside) = Inside::enter() else { return Err(io::Error::from_raw_os_error(refusal(waits))) };
        let (mut count, mut spin, mut limit) = (0, None, None);
        let mut rest = parts;
        loop {
            let seen = self.mirror.reports(Wait::Write);
            let (result, is_ready) = self.stream.write_or_wake(rest, &self.wakers[Wait::Write as usize]);
            let failed = match result {
                Ok(written) => {
                    count += written;
                    IoSlice::advance_slices(&mut rest, written);
                    None
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => None,
                Err(error) => Some(error),
            };
            if let Some(error) = failed {
                // Perhaps only writing is shut down.
                self.mirror.show_end(&self.stream);
                return if count == 0 { Err(self.refusal(error)) } else { Ok(count) };
            }
            if count == most {
                // Also a write that takes the last room.
                if !is_ready && !self.mirror.settle(Wait::Write, seen, false) {
                    self.refresh(Wait::Write);
                }
                return Ok(count);
            }
            if is_ready {
                // A short result means that there is no room: event loops rely on it.
                continue;
            }
            if !waits {
                // If there is room again, nothing has cleared the descriptor, so no edge would follow.
                if !self.mirror.settle(Wait::Write, seen, false) {
                    continue;
                }
                return if count == 0 { Err(ErrorKind::WouldBlock.into()) } else { Ok(count) };
            }
            if goes_on(&mut spin) {
                continue;
            }
            self.mirror.begin_sleep(Wait::Write);
            self.refresh(Wait::Write);
            let deadline = *limit.get_or_insert_with(|| self.deadline(Wait::Write));
            let slept = inside.sleep(|| self.mirror.sleep(Wait::Write, deadline));
            self.mirror.end_sleep(Wait::Write);
            if let Err(error) = slept
                && error.kind() != ErrorKind::BrokenPipe
            {
                return if count == 0 { Err(error) } else { Ok(count) };
            }
            spin = None;
        }
    }

    pub(crate) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let Some(_inside) = Inside::enter() else { return Err(io::Error::from_raw_os_error(libc::EINTR)) };
        if self.is_shut(Wait::Write) && !matches!(self.stream.is_at_end(), Ok(false)) {
            return Err(ErrorKind::NotConnected.into());
        }
        if how != Shutdown::Write {
            // The bytes that have arrived can still be read.
            self.is_shut[Wait::Read as usize].store(true, Ordering::Relaxed);
        }
        if how == Shutdown::Read {
            return Ok(());
        }
        self.stream.shutdown(Shutdown::Write).map_err(|_| ErrorKind::NotConnected)?;
        self.is_shut[Wait::Write as usize].store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Ends the connection, as the system does for the sockets of a process that ends.
    pub(crate) fn end(&self) {
        // A waker of the worker may still run.
        self.mirror.close();
        let is_ready = self.stream.read_or_wake(&mut [], &self.wakers[Wait::Read as usize]).1;
        let is_left = !self.ahead().bytes.is_empty() || is_ready && matches!(self.stream.is_at_end(), Ok(false));
        self.stream.connection().abandon(if is_left { UNREAD } else { 0 }, "");
    }

    /// Returns the error of a failure, which the program gets once. Then it finds the end, as with TCP.
    fn report(&self, error: io::Error) -> Option<io::Error> {
        (!self.is_reported.swap(true, Ordering::Relaxed)).then_some(error)
    }

    /// Returns an error if the peer has not read everything, and the program has not got it yet.
    fn reset(&self) -> Option<io::Error> {
        if was_reset(&self.stream) { self.report(ErrorKind::ConnectionReset.into()) } else { None }
    }

    /// What the program gets for an error of a write.
    fn refusal(&self, error: io::Error) -> io::Error {
        match error.kind() {
            ErrorKind::OutOfMemory | ErrorKind::InvalidInput => Some(error),
            ErrorKind::BrokenPipe => self.reset(),
            _ => self.report(error),
        }
        .unwrap_or_else(|| ErrorKind::BrokenPipe.into())
    }

    /// Returns a failure that the program has not got yet.
    pub(crate) fn failure(&self) -> Option<io::Error> {
        let _inside = Inside::enter()?;
        match self.stream.is_at_end() {
            Err(error) => self.report(error),
            Ok(true) => self.reset(),
            Ok(false) => None,
        }
    }

    /// The state of the connection in `tcp_info`.
    pub(crate) fn state(&self) -> u8 {
        match self.stream.is_at_end() {
            Err(_) => CLOSE,
            Ok(true) if self.is_shut(Wait::Write) || was_reset(&self.stream) => CLOSE,
            Ok(true) => CLOSE_WAIT,
            Ok(false) if self.is_shut(Wait::Write) => FIN_WAIT2,
            Ok(false) => ESTABLISHED,
        }
    }

    /// The socket with the options that the program has set.
    pub(crate) fn options(&self) -> io::Result<RawFd> {
        if self.options.get().is_none() {
            // Another thread may make one meanwhile.
            _ = self.options.set(system::tcp(self.family)?);
        }
        self.options.get().map(AsRawFd::as_raw_fd).ok_or_else(|| ErrorKind::Other.into())
    }
}

/// Whether a call polls again before it sleeps.
fn goes_on(spin: &mut Option<Instant>) -> bool {
    Instant::now() < *spin.get_or_insert_with(|| Instant::now() + SPIN)
}

/// Copies bytes to the parts, and returns how many.
fn copy(parts: &mut [IoSliceMut<'_>], from: [&[u8]; 2]) -> usize {
    let mut bytes = from.into_iter().flatten();
    parts.iter_mut().flat_map(|part| part.iter_mut()).zip(&mut bytes).map(|(to, byte)| *to = *byte).count()
}
