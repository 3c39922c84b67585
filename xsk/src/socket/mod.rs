//! Sockets: options, rings, and what the kernel has granted.

mod builder;
mod completion;
mod fill;
mod rings;
mod rx;
mod statistics;
mod tx;

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub use self::builder::{BusyPoll, SocketBuilder, ZeroCopy};
pub use self::completion::{Completion, CompletionBatch, Sent};
pub use self::fill::{Fill, FillBatch};
pub(crate) use self::rings::{Layout, Rings};
pub use self::rx::{Rx, RxBatch};
pub use self::statistics::Statistics;
pub use self::tx::{MAX_PIECES, Tx, TxBatch};
use crate::error::{Error, ErrorKind, Step};
use crate::sys::{self, Errno};
use crate::umem::{Holder, Umem};

/// A bound socket. Its rings keep it open.
///
/// Dropping the last ring closes the socket. Frames that the kernel has at that time never return to the UMEM: no call
/// reports when the kernel has released them.
#[doc(alias = "AF_XDP")]
pub struct Socket {
    // The mappings are dropped before the descriptor, because a mapped ring keeps the socket bound.
    _rings: Rings,
    fd: Arc<OwnedFd>,
    subject: String,
    queue: u32,
    granted: Granted,
    /// Whether the kernel has rejected a descriptor. Each further attempt to send would return its frame again.
    is_rejected: AtomicBool,
    umem: Umem,
}

/// The capabilities that the kernel granted to the socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Granted {
    /// Whether packets are transferred without a copy.
    pub zero_copy: bool,
    /// Whether the kernel sets a flag if it must be woken. If false, each batch wakes the kernel.
    pub need_wakeup: bool,
    /// Whether packets may have several pieces.
    pub multi_buffer: bool,
    /// Descriptors that one call sends in copy mode; 32 before Linux 6.17.
    pub tx_budget: u32,
}

impl Socket {
    /// Returns a builder for a socket on a queue of an interface.
    pub fn builder(interface: &crate::Interface, queue: u32) -> SocketBuilder {
        SocketBuilder::new(interface, queue)
    }

    pub(crate) fn new(
        rings: Rings,
        fd: Arc<OwnedFd>,
        subject: String,
        queue: u32,
        granted: Granted,
        umem: Umem,
    ) -> Self {
        Self { _rings: rings, fd, subject, queue, granted, is_rejected: AtomicBool::new(false), umem }
    }

    /// The memory of its packets.
    pub fn umem(&self) -> &Umem {
        &self.umem
    }

    /// The queue of the interface.
    pub fn queue(&self) -> u32 {
        self.queue
    }

    /// The capabilities that the kernel granted to the socket.
    pub fn granted(&self) -> Granted {
        self.granted
    }

    /// `getsockopt(XDP_STATISTICS)` — packets and descriptors that the kernel did not process.
    ///
    /// # Errors
    ///
    /// The kernel does not return the statistics.
    #[doc(alias = "XDP_STATISTICS")]
    pub fn statistics(&self) -> Result<Statistics, Error> {
        statistics::read(self.fd()).map_err(|errno| self.error(Step::ReadOption, errno))
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(crate) fn error(&self, step: Step, errno: Errno) -> Error {
        Error::new(step, errno, self.subject.clone())
    }

    /// Sends the packets in the TX ring. Returns `false` if some packets may be left.
    fn kick_tx(&self) -> Result<bool, Error> {
        if self.is_rejected.load(Ordering::Relaxed) {
            return Err(self.error(Step::Send, libc::EINVAL));
        }
        match sys::kick_tx(self.fd()) {
            Ok(()) => Ok(true),
            // The budget is used up, or the device is busy; a later call sends the rest.
            Err(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR) => Ok(false),
            Err(errno) => {
                if errno == libc::EINVAL {
                    self.is_rejected.store(true, Ordering::Relaxed);
                }
                Err(self.error(Step::Send, errno))
            }
        }
    }

    fn kick_rx(&self) -> Result<(), Error> {
        match sys::kick_rx(self.fd()) {
            Ok(()) | Err(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR) => Ok(()),
            Err(errno) => Err(self.error(Step::Receive, errno)),
        }
    }

    /// Waits for an event. Returns `false` after the time-out.
    fn wait(&self, events: i16, timeout: Duration) -> Result<bool, Error> {
        // `poll` would also send.
        if self.is_rejected.load(Ordering::Relaxed) {
            return Err(self.error(Step::Send, libc::EINVAL));
        }
        let deadline = Instant::now().checked_add(timeout);
        loop {
            let left = deadline.map_or(timeout, |deadline| deadline.saturating_duration_since(Instant::now()));
            match sys::poll(self.fd(), events, left) {
                Ok(0) => return self.check_device().map(|()| false),
                Ok(ready) if ready & events != 0 => return Ok(true),
                Ok(_) => {
                    self.check_device()?;
                    return Ok(false);
                }
                Err(libc::EINTR) => {}
                Err(errno) => return Err(self.error(Step::Wait, errno)),
            }
        }
    }

    /// If the interface was removed, a socket reports this only once, and is never ready again.
    fn check_device(&self) -> Result<(), Error> {
        // SAFETY: an `i32` may have any bytes.
        let read = unsafe { sys::get_option::<i32>(self.fd(), libc::SOL_SOCKET, libc::SO_ERROR) };
        match read {
            Ok((0, _)) => Ok(()),
            Ok((libc::ENETDOWN, _)) => {
                let cause = "the interface was removed or went down; close the socket and open it again";
                Err(self.error(Step::Wait, libc::ENETDOWN).because(ErrorKind::DeviceGone, cause.to_owned()))
            }
            Ok((errno, _)) | Err(errno) => Err(self.error(Step::Wait, errno)),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd()
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Socket").field("to", &self.subject).field("granted", &self.granted).finish_non_exhaustive()
    }
}

/// The rings of a socket that receives and sends. They may be used by different threads.
#[derive(Debug)]
pub struct Queue {
    /// Received packets.
    pub rx: Rx,
    /// Packets to send.
    pub tx: Tx,
    /// Frames to receive into.
    pub fill: Fill,
    /// Frames that were sent.
    pub completion: Completion,
}

/// The rings of a socket that only receives.
#[derive(Debug)]
pub struct RxQueue {
    /// Received packets.
    pub rx: Rx,
    /// Frames to receive into.
    pub fill: Fill,
}

/// The rings of a socket that only sends.
#[derive(Debug)]
pub struct TxQueue {
    /// Packets to send.
    pub tx: Tx,
    /// Frames that were sent.
    pub completion: Completion,
}

/// The rings of a further socket on the same queue. The socket receives into frames of the first socket's [`Fill`], and
/// the frames that it has sent return on the first socket's [`Completion`].
#[derive(Debug)]
pub struct SharedQueue {
    /// Received packets.
    pub rx: Rx,
    /// Packets to send.
    pub tx: Tx,
}

/// The fields that all four rings have.
#[derive(Debug)]
pub(crate) struct Side {
    holder: Holder,
    socket: Arc<Socket>,
}

impl Side {
    pub(crate) fn new(holder: &Holder, socket: &Arc<Socket>) -> Self {
        Self { holder: holder.clone(), socket: Arc::clone(socket) }
    }
}

/// Implements the methods that all four rings have.
macro_rules! side {
    ($name:ident) => {
        impl $name {
            /// The socket.
            pub fn socket(&self) -> &std::sync::Arc<$crate::socket::Socket> {
                &self.side.socket
            }
        }

        impl std::os::fd::AsFd for $name {
            fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
                self.side.socket.fd()
            }
        }
    };
}
use side;
