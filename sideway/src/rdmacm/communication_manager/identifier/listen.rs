//! The passive side: an address, and listening there.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use rdma_mummy_sys as sys;

use super::Identifier;
use crate::error::VerbError;
use crate::rdmacm::communication_manager::socket_address::RawAddress;
use crate::rdmacm::communication_manager::{Address, InfiniBandAddress};

impl Identifier {
    /// `rdma_bind_addr(id, addr)` — gives the identifier an address of this machine. An address of a device also puts it on that
    /// device; the unspecified address (`0.0.0.0`, `::`) stands for all. Port 0 is any port: [`port`](Self::port) tells which.
    ///
    /// # Errors
    ///
    /// - `EADDRINUSE`, `EADDRNOTAVAIL`: the port is in use; or no device has the address.
    /// - `ENODEV`: no RDMA device has the address.
    /// - `EACCES`: the port is below 1024.
    /// - `EINVAL`: the identifier has an address already.
    ///
    /// # References
    ///
    /// [rdma_bind_addr(3)](https://man7.org/linux/man-pages/man3/rdma_bind_addr.3.html)
    #[doc(alias = "rdma_bind_addr")]
    pub fn bind_addr(&self, address: SocketAddr) -> Result<(), VerbError> {
        self.bind(address.into())
    }

    /// `rdma_bind_addr(id, addr)` — the same with an address of InfiniBand's own, as every port of an InfiniBand device has one.
    ///
    /// # Errors
    ///
    /// As [`bind_addr`](Self::bind_addr); `EINVAL` also where the service identifier is not of the identifier's port space.
    ///
    /// # References
    ///
    /// [rdma_bind_addr(3)](https://man7.org/linux/man-pages/man3/rdma_bind_addr.3.html)
    #[doc(alias = "rdma_bind_addr")]
    pub fn bind_ib_addr(&self, address: InfiniBandAddress) -> Result<(), VerbError> {
        self.bind(address.into())
    }

    fn bind(&self, address: Address) -> Result<(), VerbError> {
        let mut raw = RawAddress::from(address);
        // SAFETY: the identifier is live, and the address can be read for the whole call.
        self.call("rdma_bind_addr", |id| unsafe { sys::rdma_bind_addr(id, raw.as_mut_ptr()) })
            .map_err(|error| explain_bind(error, address))
    }

    /// `rdma_listen(id, backlog)` — listens for connections, and for lookups of queue pairs for datagrams. They come as
    /// [`ConnectRequest`](super::super::EventKind::ConnectRequest) and
    /// [`LookupRequest`](super::super::EventKind::LookupRequest). At most `backlog` of them wait to be taken from the channel; the
    /// kernel takes 0 or less, or more than it has, for its own limit (`net.rdma_ucm.max_backlog`, 1024).
    ///
    /// # Errors
    ///
    /// - `EADDRINUSE`, or `EADDRNOTAVAIL` for all addresses: another identifier listens there.
    /// - `EINVAL`: it listens already, or is connected.
    /// - `ENODEV`: there is no device.
    ///
    /// # References
    ///
    /// [rdma_listen(3)](https://man7.org/linux/man-pages/man3/rdma_listen.3.html)
    #[doc(alias = "rdma_listen")]
    pub fn listen(&self, backlog: i32) -> Result<(), VerbError> {
        self.listens.store(true, Ordering::Relaxed);
        // SAFETY: the identifier is live.
        self.call("rdma_listen", |id| unsafe { sys::rdma_listen(id, backlog) }).map_err(|error| {
            match (error.errno().raw(), self.local_address()) {
                (libc::EADDRINUSE | libc::EADDRNOTAVAIL, Some(address)) => {
                    error.with_hint(format!("another identifier listens on {address}, perhaps of another process"))
                }
                _ => error,
            }
        })
    }
}

#[cold]
pub(in crate::rdmacm::communication_manager) fn explain_bind(error: VerbError, address: Address) -> VerbError {
    let why = match error.errno().raw() {
        libc::EADDRINUSE => "the port is in use",
        libc::EADDRNOTAVAIL if address.is_unspecified() => "the port is in use: choose another, or 0 for any",
        libc::EADDRNOTAVAIL => {
            "the port is in use, or this machine does not have the address (`ip address` shows those it has)"
        }
        libc::ENODEV if address.infiniband().is_some() => "no port of an InfiniBand device has this GID",
        libc::ENODEV => "no RDMA device has this address (`rdma link` shows which network devices have one)",
        libc::EACCES => "ports below 1024 need the right CAP_NET_BIND_SERVICE",
        libc::EINVAL if address.infiniband().is_some() => {
            "perhaps the identifier has an address already, or the service identifier is not of its port space"
        }
        libc::EINVAL => "perhaps the identifier has an address already",
        _ => return error.with_hint(format!("binding to {address}")),
    };
    error.with_hint(format!("binding to {address}: {why}"))
}
