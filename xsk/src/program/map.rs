//! The map of sockets (`BPF_MAP_TYPE_XSKMAP`).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::error::{Error, Step};
use crate::socket::Socket;
use crate::sys::bpf;

/// Sockets by queue, to which the XDP program redirects packets. The kernel empties the slot of a closed socket.
#[doc(alias = "BPF_MAP_TYPE_XSKMAP")]
#[derive(Debug)]
pub struct SocketMap {
    fd: OwnedFd,
}

impl SocketMap {
    /// Creates a map with this number of slots.
    ///
    /// # Errors
    ///
    /// [`PermissionDenied`](crate::ErrorKind::PermissionDenied) without CAP_BPF.
    pub fn new(slots: u32) -> Result<Self, Error> {
        let fd =
            bpf::create_xsk_map(slots).map_err(|errno| Error::new(Step::CreateMap, errno, format!("{slots} slots")))?;
        Ok(Self { fd })
    }

    /// Puts a socket into the slot of its queue, in place of any socket there.
    ///
    /// # Errors
    ///
    /// [`NoQueue`](crate::ErrorKind::NoQueue) if the map has no such slot.
    pub fn insert(&self, socket: &Socket) -> Result<(), Error> {
        self.insert_at(socket.queue(), socket.as_fd())
    }

    /// Puts any AF_XDP socket into any slot, for XDP programs that do not use the queue as the key.
    ///
    /// # Errors
    ///
    /// [`NoQueue`](crate::ErrorKind::NoQueue) if the map has no such slot.
    pub fn insert_at(&self, slot: u32, socket: BorrowedFd<'_>) -> Result<(), Error> {
        bpf::set_socket(self.fd.as_fd(), slot, socket)
            .map_err(|errno| Error::new(Step::UpdateMap, errno, format!("queue {slot}")))
    }

    /// Empties a slot.
    ///
    /// # Errors
    ///
    /// The slot does not exist.
    pub fn remove(&self, slot: u32) -> Result<(), Error> {
        bpf::remove_socket(self.fd.as_fd(), slot)
            .map_err(|errno| Error::new(Step::UpdateMap, errno, format!("queue {slot}")))
    }
}

/// Takes the map of another process or library, such as that of aya's `XskMap`.
impl From<OwnedFd> for SocketMap {
    fn from(fd: OwnedFd) -> Self {
        Self { fd }
    }
}

impl AsFd for SocketMap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
