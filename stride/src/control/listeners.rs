//! Where a server listens, and who comes: over TCP, or over rdma_cm.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use socket2::SockRef;

use super::cm;
use super::options::tune;
use super::wire::Wire;

/// Where a server listens.
#[derive(Debug)]
pub struct Listeners {
    tcp: TcpListener,
    cm: Option<cm::Listener>,
}

impl Listeners {
    pub(super) fn new(tcp: TcpListener, cm: Option<cm::Listener>) -> Self {
        Self { tcp, cm }
    }

    /// The address of TCP. The port is that of rdma_cm too.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// Whether clients may come over rdma_cm.
    pub fn has_rdma_cm(&self) -> bool {
        self.cm.is_some()
    }

    /// Whether these are of this host alone, as softrnic serves their connections.
    pub fn has_softrnic(&self) -> bool {
        self.cm.is_some() && cm::is_softrnic()
    }

    /// What the system lacks, where softrnic serves connections of rdma_cm for that.
    pub fn lack(&self) -> Option<String> {
        self.cm.as_ref().and_then(|_| cm::lack())
    }

    pub(super) fn tcp(&self) -> &TcpListener {
        &self.tcp
    }

    pub(super) fn cm(&self) -> Option<&cm::Listener> {
        self.cm.as_ref()
    }
}

/// Over TCP alone.
impl From<TcpListener> for Listeners {
    fn from(tcp: TcpListener) -> Self {
        Self::new(tcp, None)
    }
}

/// Ends a server, from any thread.
#[derive(Debug)]
pub struct Stop(TcpListener);

impl Stop {
    /// For the server that listens there.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn new(reception: &Listeners) -> io::Result<Self> {
        reception.tcp.try_clone().map(Self)
    }

    /// Nobody else is served: the server ends, after the client whom it serves.
    pub fn stop(&self) {
        // It may have been done already. Who waits for clients of rdma_cm looks at this socket too.
        let _ = SockRef::from(&self.0).shutdown(Shutdown::Both);
    }
}

/// Who has connected.
#[derive(Debug)]
pub(super) enum Caller {
    Tcp(TcpStream),
    Cm(Box<cm::Stream>),
}

/// Keeps the connection of a caller from its end. It is held, and nothing else.
#[expect(dead_code, reason = "they are dropped, which ends the connection")]
pub(super) enum Kept {
    Tcp(io::Result<TcpStream>),
    Cm(Arc<cm::Ending>),
}

impl Caller {
    /// Says what is wrong early, where the system can.
    pub(super) fn tune(&self, timeout: Duration) {
        if let Self::Tcp(stream) = self {
            tune(stream, timeout);
        }
    }

    pub(super) fn kept(&self) -> Kept {
        match self {
            Self::Tcp(stream) => Kept::Tcp(stream.try_clone()),
            Self::Cm(stream) => Kept::Cm(stream.kept()),
        }
    }

    /// Whether something comes within this time, which may be the end. What is wrong is told where it is read.
    pub(super) fn speaks(&mut self, time: Duration) -> bool {
        let stream = match self {
            Self::Cm(stream) => return stream.speaks(time).unwrap_or(true),
            Self::Tcp(stream) => stream,
        };
        if stream.set_read_timeout(Some(time)).is_err() {
            return true;
        }
        let found = stream.peek(&mut [0]);
        let waits = [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut, io::ErrorKind::Interrupted];
        !found.is_err_and(|error| waits.contains(&error.kind()))
    }

    /// Nothing more is said here. Over rdma_cm there is no such thing as half an end.
    pub(super) fn said_all(&self) {
        if let Self::Tcp(stream) = self {
            let _ = stream.shutdown(Shutdown::Write);
        }
    }

    /// Ends the connection. To drop it is not enough: a thread of a test may have a copy of the descriptor, which stays open until that thread ends.
    pub(super) fn end(&self) {
        if let Self::Tcp(stream) = self {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn wire(&mut self) -> &mut dyn Wire {
        match self {
            Self::Tcp(stream) => stream,
            Self::Cm(stream) => &mut **stream,
        }
    }
}

impl Read for Caller {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.wire().read(into)
    }
}

impl Write for Caller {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.wire().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.wire().flush()
    }
}

impl Wire for Caller {
    fn limit(&mut self, time: Duration) -> io::Result<()> {
        self.wire().limit(time)
    }

    fn has_input(&mut self) -> io::Result<bool> {
        self.wire().has_input()
    }

    fn ear(&mut self) -> Option<OwnedFd> {
        self.wire().ear()
    }
}
