//! The XDP program, which selects the packets for the sockets.

mod assembler;
mod attach;
mod map;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

pub use self::attach::{AttachMode, Attached};
pub use self::map::SocketMap;
use crate::error::{Error, Step};
use crate::interface::Interface;
use crate::sys::bpf;

/// Slots of the built-in programs' maps, one for each queue.
const SLOTS: u32 = 1024;

/// Which packets the built-in program passes to the sockets. The kernel's network stack receives all others, and those
/// of queues without a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Filter {
    /// All packets.
    All,
    /// Packets to this UDP port, over IPv4 without options or fragments, or over IPv6 without extension headers;
    /// without VLAN tags.
    UdpPort(u16),
    /// Packets with this EtherType.
    EtherType(u16),
}

/// A loaded XDP program and its map of sockets.
///
/// [`attach`](Self::attach) it to each interface, and [`insert`](SocketMap::insert) the sockets into its
/// [`map`](Self::map). Packets then reach the socket of the queue on which they arrive. The NIC selects the queue.
#[derive(Debug)]
pub struct Program {
    fd: OwnedFd,
    map: SocketMap,
}

impl Program {
    /// Loads the built-in program.
    ///
    /// # Errors
    ///
    /// [`PermissionDenied`](crate::ErrorKind::PermissionDenied) without CAP_BPF and CAP_NET_ADMIN.
    pub fn load(filter: Filter) -> Result<Self, Error> {
        Self::load_as(filter, false)
    }

    /// Loads the built-in program for packets with several pieces (Linux 5.18): it can be attached to interfaces with
    /// any MTU.
    ///
    /// # Errors
    ///
    /// See [`load`](Self::load); also [`Unsupported`](crate::ErrorKind::Unsupported) on older kernels.
    #[doc(alias = "BPF_F_XDP_HAS_FRAGS")]
    pub fn load_multi_buffer(filter: Filter) -> Result<Self, Error> {
        Self::load_as(filter, true)
    }

    fn load_as(filter: Filter, has_frags: bool) -> Result<Self, Error> {
        let map = SocketMap::new(SLOTS)?;
        let instructions = assembler::program(filter, map.as_fd());
        let fd = bpf::load_xdp(&instructions, has_frags)
            .map_err(|errno| Error::new(Step::LoadProgram, errno, "the XDP program"))?;
        Ok(Self { fd, map })
    }

    /// Takes a program of the caller, and the map to which it redirects.
    pub fn from_parts(program: OwnedFd, map: SocketMap) -> Self {
        Self { fd: program, map }
    }

    /// The map of sockets.
    pub fn map(&self) -> &SocketMap {
        &self.map
    }

    /// Attaches the program to an interface, for as long as the returned value exists.
    ///
    /// # Errors
    ///
    /// [`ProgramAttached`](crate::ErrorKind::ProgramAttached) if another program is attached,
    /// [`OtherMode`](crate::ErrorKind::OtherMode) if that is attached in the other mode,
    /// [`NoNativeMode`](crate::ErrorKind::NoNativeMode), [`MtuTooLarge`](crate::ErrorKind::MtuTooLarge).
    pub fn attach(&self, interface: &Interface, mode: AttachMode) -> Result<Attached, Error> {
        attach::attach(self.fd.as_fd(), interface, mode)
    }

    /// `BPF_PROG_TEST_RUN` — runs the program on a frame of at least 14 bytes, and returns the XDP verdict: 2 passes it
    /// to the kernel, 4 redirects it to a socket.
    ///
    /// # Errors
    ///
    /// See bpf(2).
    pub fn test(&self, frame: &[u8]) -> Result<u32, Error> {
        bpf::test_run(self.fd.as_fd(), frame).map_err(|errno| Error::new(Step::TestProgram, errno, "the XDP program"))
    }
}

impl AsFd for Program {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
