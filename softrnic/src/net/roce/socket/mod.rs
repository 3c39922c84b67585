//! The UDP sockets of RoCEv2. This module performs I/O, and has no state of connections.
//!
//! All packets leave from the sockets that receive, so both ports of a packet are 4791. No peer checks the source port,
//! but routers that balance flows, and the receive queues of NICs, see only one flow between two hosts. A source port
//! for each QP would need a socket for each of them.
//!
//! - `batch`: packets to one destination, for one system call
//! - `numbering`: the Identifications of peers, which the ICRC covers
//! - `arrival`: received packets
//! - `forward`: packets for QPs of other processes of this host
//! - `self_test`: which Identification the kernel sends

pub(crate) mod arrival;
pub(crate) mod batch;
mod forward;
mod numbering;
mod self_test;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeSet;
use std::iter;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use thiserror::Error;

use crate::net::roce::counters::Counters;
use crate::net::roce::packet::PORT;
use crate::sys::addresses;
use crate::sys::datagram;
use crate::sys::descriptor::Descriptor;
use crate::sys::udp;
use crate::wire::address::Gid;
use crate::wire::packet::BLOCK;
use arrival::{Arrival, Dropped, Receiver};
use batch::{Batch, Header, Route};
use forward::Forwarding;
use self_test::Outcome;

/// The requested size of the receive buffers. `net.core.rmem_max` limits it if the process lacks CAP_NET_ADMIN.
const RECEIVE_BUFFER: usize = 4 << 20;
/// The maximum length of the headers of a packet, which rdma_rxe subtracts from the MTU of the interface.
pub(crate) const HEADERS: u32 = 80;
/// What the connection manager of the kernel subtracts instead: it reserves space for more extended headers.
pub(crate) const CM_HEADERS: u32 = 96;

/// The UDP sockets of this process: one for each version of IP. Several threads may use them.
#[derive(Debug)]
pub(crate) struct Sockets {
    port: u16,
    ipv4: Option<Descriptor>,
    ipv6: Option<Descriptor>,
    /// Whether the kernel supports UDP_SEGMENT.
    has_segmentation: bool,
    forwarding: Forwarding,
    dropped: Dropped,
}

/// The process for which a management datagram is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner<'n> {
    /// The owner of a block of QP numbers.
    Block(u32),
    /// The process that has a listener with this name.
    Service(&'n str),
}

/// Why no socket was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum OpenError {
    #[error(
        "cannot bind UDP port {0}: rdma_rxe is loaded in this network namespace, or another program or user uses UDP \
         port {0}; unload rdma_rxe or stop that program"
    )]
    PortTaken(u16),
    #[error(
        "cannot send RoCEv2 packets over IPv4: the kernel sends the IP Identification {identification}{}, so peers \
         would drop all packets; use IPv6", if *has_df { "" } else { " without the flag DF" }
    )]
    Identification { identification: u16, has_df: bool },
    #[error("cannot open UDP port {0}: not permitted; allow UDP sockets in the sandbox of this process")]
    NotPermitted(u16),
    #[error("cannot open UDP port {port}: {call} failed: {errno}")]
    Failed { port: u16, call: &'static str, errno: Errno },
}

/// Why a batch was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum SendError {
    /// The send buffer has no space. The caller sends the batch again when the socket is writable.
    #[error("the send buffer is full")]
    Full,
    #[error("a packet exceeds the MTU of the path{}; use a smaller path MTU", Mtu(*mtu))]
    TooLong {
        /// The MTU of the interface with the source address.
        mtu: Option<u32>,
    },
    /// For example ENETUNREACH, or EINVAL if the source is no address of this host.
    #[error("cannot send to the destination: {0}")]
    Route(Errno),
}

/// The MTU of an error.
struct Mtu(Option<u32>);

impl std::fmt::Display for Mtu {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.map_or(Ok(()), |mtu| write!(formatter, " (the interface has an MTU of {mtu})"))
    }
}

impl Sockets {
    /// Opens the sockets of the port of RoCEv2. If only one version of IP works, there is only one socket.
    pub(crate) fn open() -> Result<Self, OpenError> {
        Self::open_at(PORT)
    }

    /// Opens the sockets of another port, which only peers with this port reach.
    pub(crate) fn open_at(port: u16) -> Result<Self, OpenError> {
        let has_segmentation = ipv4().or_else(|_| ipv6()).is_ok_and(|socket| has_segmentation(&socket));
        let (ipv4, ipv6) = match (bind_ipv4(port, has_segmentation), bind_ipv6(port)) {
            (Err(error @ OpenError::PortTaken(_)), _) | (_, Err(error @ OpenError::PortTaken(_))) => return Err(error),
            (Err(OpenError::Failed { errno: Errno::AFNOSUPPORT, .. }), Err(error)) | (Err(error), Err(_)) => {
                return Err(error);
            }
            (ipv4, ipv6) => (logged(ipv4, "IPv4"), logged(ipv6, "IPv6")),
        };
        let forwarding = Forwarding::new(port).map_err(|errno| OpenError::new(port, "epoll_create", errno))?;
        Ok(Self { port, ipv4, ipv6, has_segmentation, forwarding, dropped: Dropped::default() })
    }

    /// Returns the descriptors that are readable when packets have arrived.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = &Descriptor> {
        self.sockets().chain([&self.forwarding.ready])
    }

    fn sockets(&self) -> impl Iterator<Item = &Descriptor> {
        self.ipv4.iter().chain(&self.ipv6)
    }

    /// Returns the numbers of packets that were dropped.
    #[cfg(test)]
    pub(crate) fn dropped(&self) -> &Dropped {
        &self.dropped
    }

    /// Returns the counters of packets that were dropped.
    pub(crate) fn counters(&self) -> Counters {
        let Dropped { icrc_errors, malformed, truncated, not_forwarded } = &self.dropped;
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut counters = Counters::new();
        counters.icrc_errors = value(icrc_errors);
        counters.discarded = value(malformed) + value(truncated) + value(not_forwarded);
        counters.buffer_overflows = self.overflows().into();
        counters
    }

    /// Returns how many datagrams the kernel has dropped because a receive buffer was full. The number wraps around.
    pub(crate) fn overflows(&self) -> u32 {
        self.sockets().map(udp::drops).fold(0, u32::wrapping_add)
    }

    /// Returns the size of the smallest receive buffer in bytes, as the kernel counts: a packet takes its length and
    /// several hundred bytes more.
    #[cfg(test)]
    pub(crate) fn receive_buffer(&self) -> usize {
        self.sockets().map(|socket| sockopt::socket_recv_buffer_size(socket).unwrap_or(0)).min().unwrap_or(0)
    }

    /// Returns an empty batch. It has the space of a full one, so callers should use it again.
    #[cfg(test)]
    pub(crate) fn batch(&self, route: &Route) -> Batch {
        Batch::new(self.port, route)
    }

    /// Returns what the datagrams of a route have in common.
    pub(crate) fn header(&self, route: &Route) -> Header {
        Header::new(self.port, route)
    }

    /// Sends the packets of a batch, and empties it.
    ///
    /// # Errors
    ///
    /// After an error, the batch contains the packets that were not sent.
    pub(crate) fn send(&self, batch: &mut Batch) -> Result<(), SendError> {
        let socket = self.socket(batch.flow.source, batch.flow.destination).map_err(SendError::Route)?;
        if let Some((bytes, length)) = batch.joined()
            && self.has_segmentation
        {
            let mut control = batch.control;
            control.push(libc::SOL_UDP, libc::UDP_SEGMENT, &length.to_ne_bytes());
            match datagram::send(socket, &batch.name, bytes, &control) {
                Ok(()) => {
                    batch.clear();
                    return Ok(());
                }
                // The interface does not support segments, or in kernels before Linux 6.14, exceeds the MTU.
                Err(Errno::INVAL | Errno::IO | Errno::OPNOTSUPP) => {}
                Err(error) => return Err(self.send_error(error, batch)),
            }
        }
        batch.split();
        while let Some(packet) = batch.next() {
            datagram::send(socket, &batch.name, packet, &batch.control)
                .map_err(|error| self.send_error(error, batch))?;
            batch.was_sent();
        }
        batch.clear();
        Ok(())
    }

    #[cold]
    fn send_error(&self, error: Errno, batch: &Batch) -> SendError {
        match error {
            Errno::AGAIN | Errno::NOBUFS | Errno::INTR => SendError::Full,
            Errno::MSGSIZE => SendError::TooLong { mtu: mtu(batch.flow.source).ok() },
            error => SendError::Route(error),
        }
    }

    /// Calls `arrived` with the intact packets of each datagram that has arrived, here or at another process that has
    /// forwarded it. Returns the number of datagrams. If it is not 0, more may have arrived. Never blocks.
    pub(crate) fn receive(
        &self,
        receiver: &mut Receiver,
        mut arrived: impl for<'d> FnMut(&mut dyn Iterator<Item = Arrival<'d>>),
    ) -> Result<usize, Errno> {
        let mut result = Ok(0);
        for socket in self.sockets() {
            let received = receiver.received.receive(socket, 0);
            receiver.deliver(self.port, &self.dropped, &mut arrived);
            result = result.and_then(|sum| Ok(sum + received?));
        }
        let malformed = || _ = self.dropped.malformed.fetch_add(1, Ordering::Relaxed);
        let forwarded =
            self.forwarding.receive(&mut receiver.forwarded, malformed, |arrival| arrived(&mut iter::once(arrival)));
        result.map(|sum| sum + forwarded)
    }

    /// Like [`receive`](Self::receive), for each packet.
    #[cfg(test)]
    fn receive_each(&self, receiver: &mut Receiver, mut arrived: impl FnMut(Arrival<'_>)) -> Result<usize, Errno> {
        self.receive(receiver, |arrivals| arrivals.for_each(&mut arrived))
    }

    /// Receives packets for a block of QP numbers that other processes of this user forward. The caller owns the block
    /// until its process ends.
    ///
    /// # Errors
    ///
    /// EADDRINUSE if another process owns the block.
    pub(crate) fn own(&self, block: u32) -> Result<(), Errno> {
        self.forwarding.own(block)
    }

    /// Sends a packet to the process that owns the block of its QP. Drops it if there is no such process, or if its
    /// queue is full.
    pub(crate) fn forward(&self, arrival: &Arrival<'_>) {
        if self.forwarding.send(arrival.queue_pair() / BLOCK, arrival).is_err() {
            self.dropped.not_forwarded.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Sends a management datagram to the process that owns a block or a service.
    ///
    /// # Errors
    ///
    /// ECONNREFUSED if there is no such process.
    pub(crate) fn forward_to(&self, owner: Owner<'_>, arrival: &Arrival<'_>) -> Result<(), Errno> {
        match owner {
            Owner::Block(block) => self.forwarding.send(block, arrival),
            Owner::Service(name) => self.forwarding.send_to_service(name, arrival),
        }
    }

    /// Receives the requests for a listener that other processes of this user forward.
    ///
    /// # Errors
    ///
    /// EADDRINUSE if another process has a listener with this name.
    pub(crate) fn own_service(&self, name: &str) -> Result<(), Errno> {
        self.forwarding.own_service(name)
    }

    /// Ends the effect of [`own_service`](Self::own_service).
    pub(crate) fn disown_service(&self, name: &str) {
        self.forwarding.disown_service(name);
    }

    /// Joins a multicast group at all interfaces with an address of its version of IP, or leaves it at these.
    ///
    /// # Errors
    ///
    /// The error of the first interface, if no interface has changed.
    pub(crate) fn change_membership(&self, group: Gid, joins: bool) -> Result<(), Errno> {
        let socket = self.socket(group, group)?;
        let change = |interface| match (group.ipv4().map(Ipv4Addr::from), Ipv6Addr::from(group.0)) {
            (Some(group), _) if joins => {
                sockopt::set_ip_add_membership_with_ifindex(socket, &group, &Ipv4Addr::UNSPECIFIED, interface)
            }
            (Some(group), _) => {
                sockopt::set_ip_drop_membership_with_ifindex(socket, &group, &Ipv4Addr::UNSPECIFIED, interface)
            }
            (None, group) if joins => sockopt::set_ipv6_add_membership(socket, &group, interface),
            (None, group) => sockopt::set_ipv6_drop_membership(socket, &group, interface),
        };
        let is_of_version =
            |address: &addresses::Address| Gid::from(address.ip).ipv4().is_some() == group.ipv4().is_some();
        let interfaces: BTreeSet<u32> =
            addresses::all().into_iter().filter(is_of_version).map(|address| address.interface_index).collect();
        let results: Vec<_> = interfaces.into_iter().map(change).collect();
        results.into_iter().reduce(Result::or).unwrap_or(Err(Errno::ADDRNOTAVAIL))
    }

    /// Returns the socket for packets between two addresses.
    fn socket(&self, source: Gid, destination: Gid) -> Result<&Descriptor, Errno> {
        let socket = match (source.ipv4(), destination.ipv4()) {
            (Some(_), Some(_)) => &self.ipv4,
            (None, None) => &self.ipv6,
            _ => &None,
        };
        socket.as_ref().ok_or(Errno::AFNOSUPPORT)
    }
}

/// Returns the MTU of the interface with an address of this host; see [`path_mtu`].
pub(crate) fn mtu(source: Gid) -> Result<u32, Errno> {
    let interface = batch::interface(source).ok_or(Errno::ADDRNOTAVAIL)?;
    udp::mtu(ipv4().or_else(|_| ipv6())?, interface)
}

/// Returns the largest path MTU of InfiniBand for an interface with this MTU. `headers` is [`HEADERS`] or
/// [`CM_HEADERS`].
pub(crate) fn path_mtu(interface: u32, headers: u32) -> u32 {
    let space = interface.saturating_sub(headers);
    [4096, 2048, 1024, 512].into_iter().find(|mtu| *mtu <= space).unwrap_or(256)
}

fn logged(result: Result<Descriptor, OpenError>, version: &str) -> Option<Descriptor> {
    if let Err(error) = &result {
        rdma_mummy_sys::log!(warn, "softroce does not support {version} here: {error}");
    }
    result.ok()
}

fn new(family: AddressFamily) -> Result<Descriptor, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Descriptor::open(|| rustix::net::socket_with(family, SocketType::DGRAM, flags, None))
}

fn ipv4() -> Result<Descriptor, Errno> {
    new(AddressFamily::INET)
}

fn ipv6() -> Result<Descriptor, Errno> {
    new(AddressFamily::INET6)
}

/// Older kernels ignore a control message for segments, and send one datagram.
fn has_segmentation(socket: &Descriptor) -> bool {
    udp::set(socket, libc::SOL_UDP, libc::UDP_SEGMENT, 0).is_ok()
}

/// Sets the option by which the kernel selects the Identification 0. The socket must never be connected.
fn select_identification(socket: &Descriptor) -> Result<(), Errno> {
    sockopt::set_ip_mtu_discover(socket, Ipv4PathMtuDiscovery::PROBE)
}

/// Returns a socket for the self-test.
fn probe() -> Result<Descriptor, Errno> {
    let socket = ipv4()?;
    select_identification(&socket)?;
    Ok(socket)
}

/// Sets the options of both versions of IP.
fn set_common(socket: &Descriptor) -> Result<(), Errno> {
    // Several processes of a user share the port.
    sockopt::set_socket_reuseport(socket, true)?;
    // These are faster, but not required.
    _ = sockopt::set_socket_recv_buffer_size_force(socket, RECEIVE_BUFFER)
        .or_else(|_| sockopt::set_socket_recv_buffer_size(socket, RECEIVE_BUFFER));
    _ = udp::set(socket, libc::SOL_UDP, libc::UDP_GRO, 1);
    Ok(())
}

fn bind_ipv4(port: u16, has_segmentation: bool) -> Result<Descriptor, OpenError> {
    let failed = |call| move |errno| OpenError::new(port, call, errno);
    let socket = ipv4().map_err(failed("socket"))?;
    let set = || {
        set_common(&socket)?;
        select_identification(&socket)?;
        udp::set(&socket, libc::IPPROTO_IP, libc::IP_PKTINFO, 1)?;
        // Otherwise the socket receives packets of groups that only other processes have joined.
        udp::set(&socket, libc::IPPROTO_IP, libc::IP_MULTICAST_ALL, 0)?;
        sockopt::set_ip_recvtos(&socket, true)
    };
    set().map_err(failed("setsockopt"))?;
    match self_test::run(&probe().map_err(failed("socket"))?, has_segmentation) {
        Outcome::Passed => {}
        Outcome::Unknown(why) => rdma_mummy_sys::log!(
            debug,
            "cannot check the IP Identification of packets, which should be 0: the kernel has not returned them: {why}"
        ),
        Outcome::Failed { identification, has_df } => {
            return Err(OpenError::Identification { identification, has_df });
        }
    }
    rustix::net::bind(&socket, &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port)).map_err(failed("bind"))?;
    Ok(socket)
}

fn bind_ipv6(port: u16) -> Result<Descriptor, OpenError> {
    let failed = |call| move |errno| OpenError::new(port, call, errno);
    let socket = ipv6().map_err(failed("socket"))?;
    let set = || {
        set_common(&socket)?;
        sockopt::set_ipv6_v6only(&socket, true)?;
        sockopt::set_ipv6_mtu_discover(&socket, Ipv6PathMtuDiscovery::PROBE)?;
        udp::set(&socket, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)?;
        // rdma_rxe sends no checksums.
        udp::set(&socket, libc::SOL_UDP, libc::UDP_NO_CHECK6_RX, 1)?;
        // See `bind_ipv4`. Kernels before Linux 4.20 lack this option.
        _ = udp::set(&socket, libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_ALL, 0);
        // Without this option, the kernel selects the flow label.
        _ = udp::set(&socket, libc::IPPROTO_IPV6, libc::IPV6_FLOWINFO_SEND, 1);
        sockopt::set_ipv6_recvtclass(&socket, true)
    };
    set().map_err(failed("setsockopt"))?;
    rustix::net::bind(&socket, &SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0)).map_err(failed("bind"))?;
    Ok(socket)
}

impl OpenError {
    /// The thread of softrnic cannot serve the sockets.
    pub(crate) fn thread(errno: Errno) -> Self {
        Self::Failed { port: PORT, call: "epoll_ctl", errno }
    }

    /// Other processes could not pass packets on.
    pub(crate) fn forwarding(errno: Errno) -> Self {
        Self::Failed { port: PORT, call: "listen", errno }
    }

    /// The error number that a verb reports.
    pub(crate) fn errno(self) -> i32 {
        match self {
            Self::PortTaken(_) => libc::EADDRINUSE,
            Self::Identification { .. } => libc::EPROTONOSUPPORT,
            Self::NotPermitted(_) => libc::EACCES,
            Self::Failed { errno, .. } => errno.raw_os_error(),
        }
    }

    fn new(port: u16, call: &'static str, errno: Errno) -> Self {
        match errno {
            Errno::ADDRINUSE => Self::PortTaken(port),
            Errno::ACCESS | Errno::PERM => Self::NotPermitted(port),
            errno => Self::Failed { port, call, errno },
        }
    }
}
