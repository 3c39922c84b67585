//! Opens sockets: registers the UMEM, creates the rings, binds.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::rings::{Layout, Rings};
use super::{Completion, Fill, Granted, Queue, Rx, RxQueue, SharedQueue, Side, Socket, Tx, TxQueue};
use crate::error::{Error, ErrorKind, Step};
use crate::interface::Interface;
use crate::ring::{Consumer, Producer, Ring};
use crate::sys::{self, Desc, Errno, Mapping};
use crate::umem::{Bound, METADATA_LEN, Umem};

/// Entries of each ring.
const RING_SIZE: u32 = 2048;
/// Descriptors that a kernel before 6.17 sends per call in copy mode.
const DEFAULT_BUDGET: u32 = 32;
/// Time limit for a closed socket to release its queue, which takes about 20 ms.
const BUSY_TIMEOUT: Duration = Duration::from_secs(1);
const RETRY: Duration = Duration::from_millis(2);

/// Whether packets may, must, or must not be transferred without a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZeroCopy {
    /// The kernel selects the mode; [`Granted`] contains the result.
    #[default]
    Preferred,
    /// Zero copy; opening fails with [`NoZeroCopy`](ErrorKind::NoZeroCopy) if the driver does not support it.
    Required,
    /// Copy mode.
    Refused,
}

/// Busy polling: the program's system calls run the driver, instead of interrupts (Linux 5.11).
///
/// Also set `napi_defer_hard_irqs` and `gro_flush_timeout` of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyPoll {
    /// How long a call polls an idle driver, in microseconds.
    pub microseconds: u32,
    /// Packets per call.
    pub budget: u32,
}

impl Default for BusyPoll {
    fn default() -> Self {
        Self { microseconds: 20, budget: 64 }
    }
}

/// The options of a [`Socket`].
#[derive(Debug)]
pub struct SocketBuilder {
    interface: Interface,
    queue: u32,
    ring_size: u32,
    zero_copy: ZeroCopy,
    is_multi_buffer: bool,
    busy_poll: Option<BusyPoll>,
    busy_timeout: Duration,
    socket: Option<OwnedFd>,
}

impl SocketBuilder {
    pub(super) fn new(interface: &Interface, queue: u32) -> Self {
        Self {
            interface: interface.clone(),
            queue,
            ring_size: RING_SIZE,
            zero_copy: ZeroCopy::default(),
            is_multi_buffer: false,
            busy_poll: None,
            busy_timeout: BUSY_TIMEOUT,
            socket: None,
        }
    }

    /// Entries of each ring, a power of two. 2048 by default.
    pub fn ring_size(&mut self, entries: u32) -> &mut Self {
        self.ring_size = entries;
        self
    }

    /// Whether packets may be copied. A socket that shares a UMEM has the mode of the first socket of that UMEM.
    pub fn zero_copy(&mut self, zero_copy: ZeroCopy) -> &mut Self {
        self.zero_copy = zero_copy;
        self
    }

    /// Receives packets that are larger than a frame, in pieces (`XDP_USE_SG`, Linux 6.6). The XDP program must support
    /// it too: [`Program::load_multi_buffer`](crate::Program::load_multi_buffer).
    #[doc(alias = "XDP_USE_SG")]
    pub fn multi_buffer(&mut self, is_enabled: bool) -> &mut Self {
        self.is_multi_buffer = is_enabled;
        self
    }

    /// Enables busy polling, which requires CAP_NET_ADMIN.
    pub fn busy_poll(&mut self, busy_poll: BusyPoll) -> &mut Self {
        self.busy_poll = Some(busy_poll);
        self
    }

    /// How long to retry while the queue is in use: the kernel releases the queue of a closed socket with a delay. 1
    /// second by default.
    pub fn busy_timeout(&mut self, timeout: Duration) -> &mut Self {
        self.busy_timeout = timeout;
        self
    }

    /// Uses an AF_XDP socket that another process has opened, so that this process needs no CAP_NET_RAW. The socket
    /// must be new: not bound, and without a UMEM.
    ///
    /// This function is safe by the rules of I/O safety: the kernel rejects other descriptors and used sockets, and
    /// safe code cannot write to the rings through a duplicate. Another process that keeps a duplicate can map the
    /// rings and so change the UMEM, like a debugger. So accept sockets only from trusted processes.
    pub fn socket(&mut self, socket: OwnedFd) -> &mut Self {
        self.socket = Some(socket);
        self
    }

    /// Opens a socket that receives and sends.
    ///
    /// # Errors
    ///
    /// [`Error::kind`] distinguishes missing privileges, a queue in use, a missing queue and limits. The error text
    /// contains the remedy.
    #[doc(alias = "xsk_socket__create")]
    pub fn open(&mut self, umem: &Umem) -> Result<Queue, Error> {
        let mut open = self.start(umem)?;
        let [rx, tx] = [open.add(self, libc::XDP_RX_RING)?, open.add(self, libc::XDP_TX_RING)?];
        let [fill, completion] = [open.add_umem_ring(self, true)?, open.add_umem_ring(self, false)?];
        let socket = open.bind(self, umem, None)?;
        let side = || Side::new(&umem.holder, &socket);
        Ok(Queue {
            rx: Rx::new(Consumer::new(rx), side()),
            tx: Tx::new(Producer::new(tx), side()),
            fill: Fill::new(Producer::new(fill), side()),
            completion: Completion::new(Consumer::new(completion), side()),
        })
    }

    /// Opens a socket that only receives.
    ///
    /// # Errors
    ///
    /// See [`open`](Self::open).
    pub fn open_rx(&mut self, umem: &Umem) -> Result<RxQueue, Error> {
        let mut open = self.start(umem)?;
        let rx = open.add(self, libc::XDP_RX_RING)?;
        let fill = open.add_umem_ring(self, true)?;
        open.unused(self, libc::XDP_UMEM_COMPLETION_RING)?;
        let socket = open.bind(self, umem, None)?;
        let side = || Side::new(&umem.holder, &socket);
        Ok(RxQueue { rx: Rx::new(Consumer::new(rx), side()), fill: Fill::new(Producer::new(fill), side()) })
    }

    /// Opens a socket that only sends. It needs no XDP program, and only the capability CAP_NET_RAW.
    ///
    /// # Errors
    ///
    /// See [`open`](Self::open).
    pub fn open_tx(&mut self, umem: &Umem) -> Result<TxQueue, Error> {
        let mut open = self.start(umem)?;
        let tx = open.add(self, libc::XDP_TX_RING)?;
        let completion = open.add_umem_ring(self, false)?;
        open.unused(self, libc::XDP_UMEM_FILL_RING)?;
        let socket = open.bind(self, umem, None)?;
        let side = || Side::new(&umem.holder, &socket);
        let (tx, completion) = (Producer::new(tx), Consumer::new(completion));
        Ok(TxQueue { tx: Tx::new(tx, side()), completion: Completion::new(completion, side()) })
    }

    /// Opens a further socket on the queue of `first`, with its UMEM, fill ring and completion ring.
    ///
    /// # Errors
    ///
    /// See [`open`](Self::open). The builder must have the interface and queue of `first`.
    pub fn share(&mut self, first: &Socket) -> Result<SharedQueue, Error> {
        let umem = first.umem();
        let mut open = Opening::new(self)?;
        let [rx, tx] = [open.add(self, libc::XDP_RX_RING)?, open.add(self, libc::XDP_TX_RING)?];
        let socket = open.bind(self, umem, Some(first))?;
        let side = || Side::new(&umem.holder, &socket);
        Ok(SharedQueue { rx: Rx::new(Consumer::new(rx), side()), tx: Tx::new(Producer::new(tx), side()) })
    }

    fn start(&mut self, umem: &Umem) -> Result<Opening, Error> {
        let mut open = Opening::new(self)?;
        // If the UMEM is registered, it is shared. The other socket must then stay open until this one is bound.
        open.shared = umem.bound();
        if open.shared.is_none() {
            open.register(self, umem)?;
        }
        Ok(open)
    }

    fn subject(&self) -> String {
        format!("{} queue {}", self.interface, self.queue)
    }

    fn error(&self, step: Step, errno: Errno) -> Error {
        Error::new(step, errno, self.subject())
    }
}

/// A socket that is not bound yet.
struct Opening {
    // This field comes before the descriptor, as in `Socket`.
    rings: Rings,
    fd: Arc<OwnedFd>,
    layouts: [Layout; 4],
    budget: u32,
    /// A bound socket with the same UMEM, and whether multi-buffer is enabled on that socket.
    shared: Option<(Arc<OwnedFd>, bool)>,
}

impl Opening {
    fn new(options: &mut SocketBuilder) -> Result<Self, Error> {
        if !options.ring_size.is_power_of_two() {
            let cause = format!("rings of {} entries; choose a power of two", options.ring_size);
            return Err(Error::invalid(Step::SizeRing, options.subject(), cause));
        }
        let fd = match options.socket.take() {
            Some(fd) => fd,
            None => {
                sys::socket(libc::AF_XDP, libc::SOCK_RAW).map_err(|errno| options.error(Step::OpenSocket, errno))?
            }
        };
        let layouts = Layout::read(fd.as_fd()).map_err(|errno| options.error(Step::MapRing, errno))?;
        if let Some(busy_poll) = options.busy_poll {
            enable_busy_poll(fd.as_fd(), busy_poll).map_err(|errno| options.error(Step::EnableBusyPoll, errno))?;
        }
        Ok(Self { rings: Rings::default(), fd: Arc::new(fd), layouts, budget: DEFAULT_BUDGET, shared: None })
    }

    fn set(&self, name: i32, value: u32) -> Result<(), Errno> {
        sys::set_option(self.fd.as_fd(), libc::SOL_XDP, name, &value, size_of::<u32>())
    }

    fn register(&self, options: &SocketBuilder, umem: &Umem) -> Result<(), Error> {
        let geometry = umem.holder.geometry();
        let mut register = libc::xdp_umem_reg {
            addr: umem.holder.base().as_ptr() as u64,
            len: umem.holder.len() as u64,
            chunk_size: geometry.frame_size,
            headroom: geometry.headroom,
            flags: if geometry.is_unaligned { libc::XDP_UMEM_UNALIGNED_CHUNK_FLAG } else { 0 },
            tx_metadata_len: 0,
        };
        if geometry.has_metadata {
            register.flags |= libc::XDP_UMEM_TX_METADATA_LEN;
            register.tx_metadata_len = METADATA_LEN as u32;
        }
        if geometry.software_checksum {
            register.flags |= libc::XDP_UMEM_TX_SW_CSUM;
        }
        let set = |register: &libc::xdp_umem_reg| {
            sys::set_option(self.fd.as_fd(), libc::SOL_XDP, libc::XDP_UMEM_REG, register, size_of_val(register))
        };
        let mut registered = set(&register);
        if registered == Err(libc::EINVAL) && geometry.has_metadata {
            // Kernels from 6.8 to 6.10 take the length without the flag.
            register.flags &= !libc::XDP_UMEM_TX_METADATA_LEN;
            registered = set(&register);
        }
        registered.map_err(|errno| options.error(Step::RegisterUmem, errno))
    }

    /// Adds the RX or TX ring.
    fn add(&mut self, options: &SocketBuilder, name: i32) -> Result<Ring<Desc>, Error> {
        let is_rx = name == libc::XDP_RX_RING;
        let offset = if is_rx { libc::XDP_PGOFF_RX_RING as u64 } else { libc::XDP_PGOFF_TX_RING as u64 };
        let ring = self.map(options, name, usize::from(!is_rx), offset)?;
        if !is_rx && self.set(sys::XDP_MAX_TX_SKB_BUDGET, options.ring_size).is_ok() {
            self.budget = options.ring_size;
        }
        Ok(ring)
    }

    /// Adds the fill or completion ring.
    fn add_umem_ring(&mut self, options: &SocketBuilder, is_fill: bool) -> Result<Ring<u64>, Error> {
        if is_fill {
            self.map(options, libc::XDP_UMEM_FILL_RING, 2, libc::XDP_UMEM_PGOFF_FILL_RING)
        } else {
            self.map(options, libc::XDP_UMEM_COMPLETION_RING, 3, libc::XDP_UMEM_PGOFF_COMPLETION_RING)
        }
    }

    fn map<T: Copy>(&mut self, options: &SocketBuilder, name: i32, at: usize, offset: u64) -> Result<Ring<T>, Error> {
        let (size, layout) = (options.ring_size, self.layouts[at]);
        self.set(name, size).map_err(|errno| options.error(Step::SizeRing, errno))?;
        let mapping = Mapping::of_socket(self.fd.as_fd(), layout.len::<T>(size), offset)
            .map_err(|errno| options.error(Step::MapRing, errno))?;
        // SAFETY: the kernel has created the ring with this size, and described its layout. `Socket` takes over the
        // mappings, and each ring keeps the socket. A ring of a socket can be created once only.
        Ok(unsafe { self.rings.add(mapping, layout, size) })
    }

    /// Creates a ring that the kernel requires but this crate does not use.
    fn unused(&self, options: &SocketBuilder, name: i32) -> Result<(), Error> {
        self.set(name, 2).map_err(|errno| options.error(Step::SizeRing, errno))
    }

    /// Binds the socket, on the queue of `first` if there is one.
    fn bind(self, options: &SocketBuilder, umem: &Umem, first: Option<&Socket>) -> Result<Arc<Socket>, Error> {
        let shared = match first {
            Some(first) => Some((first.fd(), first.granted().multi_buffer)),
            None => self.shared.as_ref().map(|(fd, is_multi_buffer)| (fd.as_fd(), *is_multi_buffer)),
        };
        let mode = match options.zero_copy {
            ZeroCopy::Preferred => 0,
            ZeroCopy::Required => libc::XDP_ZEROCOPY,
            ZeroCopy::Refused => libc::XDP_COPY,
        };
        let pieces = if options.is_multi_buffer { libc::XDP_USE_SG } else { 0 };
        // A socket that shares a UMEM has the settings of the first socket, and `bind` accepts no flag besides
        // XDP_SHARED_UMEM.
        let flags = shared.map_or(mode | pieces | libc::XDP_USE_NEED_WAKEUP, |_| libc::XDP_SHARED_UMEM);
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: flags,
            sxdp_ifindex: options.interface.index(),
            sxdp_queue_id: options.queue,
            sxdp_shared_umem_fd: shared.map_or(0, |(fd, _)| std::os::fd::AsRawFd::as_raw_fd(&fd) as u32),
        };
        bind(self.fd.as_fd(), &address, options.busy_timeout).map_err(|errno| options.diagnose(errno, umem, first))?;
        let is_multi_buffer = shared.map_or(options.is_multi_buffer, |(_, is_multi_buffer)| is_multi_buffer);
        let granted = Granted {
            zero_copy: is_zero_copy(self.fd.as_fd()).map_err(|errno| options.error(Step::ReadOption, errno))?,
            need_wakeup: true,
            multi_buffer: is_multi_buffer,
            tx_budget: self.budget,
        };
        if options.zero_copy == ZeroCopy::Required && !granted.zero_copy {
            return Err(options.error(Step::Bind, libc::EOPNOTSUPP));
        }
        let queue = (options.interface.index(), options.queue);
        umem.add_bound(Bound { socket: Arc::downgrade(&self.fd), queue, is_multi_buffer });
        Ok(Arc::new(Socket::new(self.rings, self.fd, options.subject(), options.queue, granted, umem.clone())))
    }
}

impl SocketBuilder {
    /// Determines the cause if the errno of `bind` is ambiguous.
    fn diagnose(&self, errno: Errno, umem: &Umem, first: Option<&Socket>) -> Error {
        let error = self.error(Step::Bind, errno);
        if errno != libc::EINVAL {
            return error;
        }
        match self.interface.rx_queues() {
            Some(count) if self.queue >= count => {
                let last = count - 1;
                error.because(ErrorKind::NoQueue, format!("no such queue; {} has queues 0 to {last}", self.interface))
            }
            _ if first.is_some_and(|first| first.queue() != self.queue) => error.because(
                ErrorKind::InvalidOption,
                "the first socket has another queue; use SocketBuilder::open".into(),
            ),
            _ if first.is_none() && umem.is_bound_to((self.interface.index(), self.queue)) => error.because(
                ErrorKind::InvalidOption,
                "a socket with this UMEM is bound to this queue; use SocketBuilder::share, or choose another queue"
                    .into(),
            ),
            _ => error,
        }
    }
}

/// Binds, and retries while the queue is in use.
fn bind(fd: BorrowedFd<'_>, address: &libc::sockaddr_xdp, timeout: Duration) -> Result<(), Errno> {
    let started = Instant::now();
    loop {
        match sys::bind(fd, address) {
            Err(libc::EBUSY) if started.elapsed() < timeout => thread::sleep(RETRY),
            done => return done,
        }
    }
}

fn is_zero_copy(fd: BorrowedFd<'_>) -> Result<bool, Errno> {
    // SAFETY: any four bytes are a valid `u32`.
    let (flags, _) = unsafe { sys::get_option::<u32>(fd, libc::SOL_XDP, libc::XDP_OPTIONS) }?;
    Ok(flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
}

fn enable_busy_poll(fd: BorrowedFd<'_>, busy_poll: BusyPoll) -> Result<(), Errno> {
    let options = [
        (sys::SO_PREFER_BUSY_POLL, 1),
        (libc::SO_BUSY_POLL, busy_poll.microseconds),
        (sys::SO_BUSY_POLL_BUDGET, busy_poll.budget),
    ];
    options.iter().try_for_each(|(name, value)| sys::set_option(fd, libc::SOL_SOCKET, *name, value, size_of::<u32>()))
}
