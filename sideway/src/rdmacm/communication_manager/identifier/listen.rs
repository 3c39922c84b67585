//! The passive side: binding and listening.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use rdma_mummy_sys as sys;

use super::Identifier;
use crate::error::VerbError;
use crate::rdmacm::communication_manager::socket_address::RawAddress;
use crate::rdmacm::communication_manager::{Address, InfiniBandAddress};

impl Identifier {
    /// `rdma_bind_addr(id, addr)` — binds the identifier to an address of this machine. The address of a device also
    /// selects the device. The unspecified address (`0.0.0.0`, `::`) means all addresses. Port 0 selects a free port,
    /// which [`port`](Self::port) returns.
    ///
    /// # Errors
    ///
    /// - `EADDRINUSE`, `EADDRNOTAVAIL`: the port is in use, or no network interface has the address.
    /// - `ENODEV`: no RDMA device has the address.
    /// - `EACCES`: the port is below 1024.
    /// - `EINVAL`: the identifier already has an address.
    ///
    /// # References
    ///
    /// [rdma_bind_addr(3)](https://man7.org/linux/man-pages/man3/rdma_bind_addr.3.html)
    #[doc(alias = "rdma_bind_addr")]
    pub fn bind_addr(&self, address: SocketAddr) -> Result<(), VerbError> {
        self.bind(address.into())
    }

    /// `rdma_bind_addr(id, addr)` — binds the identifier to a native InfiniBand address. Each port of an InfiniBand
    /// device has such an address.
    ///
    /// # Errors
    ///
    /// The errors are those of [`bind_addr`](Self::bind_addr). In addition, returns `EINVAL` if the service identifier
    /// is outside the identifier's port space.
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
        // SAFETY: the identifier is live, and the address is readable during the call.
        self.call("rdma_bind_addr", |id| unsafe { sys::rdma_bind_addr(id, raw.as_mut_ptr()) })
            .map_err(|error| explain_bind(error, address))
    }

    /// `rdma_listen(id, backlog)` — listens for requests to connect and for lookups of queue pairs for datagrams. They
    /// arrive as the events [`ConnectRequest`](super::super::EventKind::ConnectRequest) and
    /// [`LookupRequest`](super::super::EventKind::LookupRequest). At most `backlog` of these events wait on the
    /// channel. The kernel replaces 0, negative values and values that are too large by its limit
    /// (`net.rdma_ucm.max_backlog`, 1024).
    ///
    /// # Errors
    ///
    /// - `EADDRINUSE`, or `EADDRNOTAVAIL` if the identifier is bound to all addresses: another identifier listens on
    ///   the port.
    /// - `EINVAL`: the identifier already listens, or is connected.
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
                (libc::EADDRINUSE | libc::EADDRNOTAVAIL, Some(address)) => error.with_hint(format!(
                    "another identifier listens on {address}, perhaps in another process; \
                        use another port"
                )),
                _ => error,
            }
        })
    }
}

#[cold]
pub(in crate::rdmacm::communication_manager) fn explain_bind(error: VerbError, address: Address) -> VerbError {
    let why = match error.errno().raw() {
        libc::EADDRINUSE => "the port is in use; use another port, or 0 for any",
        libc::EADDRNOTAVAIL if address.is_unspecified() => "the port is in use; use another port, or 0 for any",
        libc::EADDRNOTAVAIL => "the port is in use, or this machine does not have the address; check with `ip address`",
        libc::ENODEV if address.infiniband().is_some() => "no port of an InfiniBand device has this GID",
        libc::ENODEV => "no RDMA device has this address; use an address of a network device that `rdma link` lists",
        libc::EACCES => "ports below 1024 need the capability CAP_NET_BIND_SERVICE; use another port",
        libc::EINVAL if address.infiniband().is_some() => {
            "the identifier may already have an address, or the service identifier is outside its port space"
        }
        libc::EINVAL => "the identifier may already have an address; create another",
        _ => return error.with_hint(format!("binding to {address}")),
    };
    error.with_hint(format!("binding to {address}: {why}"))
}
