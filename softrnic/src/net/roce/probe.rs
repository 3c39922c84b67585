//! Whether any process of the peer's host uses the port of RoCEv2.
//!
//! If none does, the host returns an ICMP error. The kernel reports it only on a connected socket, whose packets do not
//! have the Identification that the ICRC requires. So this socket sends a packet that no receiver accepts.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use super::icrc;
use super::packet::PORT;
use super::socket::batch::{Route, interface};
use crate::sys::descriptor::Descriptor;
use crate::wire::address::Gid;

/// A packet that was sent to the host of a peer, to which it may have returned an error.
#[derive(Debug)]
pub(crate) struct Probe(Descriptor);

impl Probe {
    /// Sends a packet. Returns `None` if this is not possible.
    pub(crate) fn new(route: &Route) -> Option<Self> {
        Self::to_port(route, PORT).ok()
    }

    fn to_port(route: &Route, port: u16) -> Result<Self, Errno> {
        let [from, to] = [(route.source, 0), (route.destination, port)]
            .map(|(gid, port)| address(gid, port, interface(route.source).unwrap_or(0)));
        let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = Descriptor::open(|| rustix::net::socket_with(family, SocketType::DGRAM, flags, None))?;
        rustix::net::bind(&socket, &from)?;
        rustix::net::connect(&socket, &to)?;
        // The ICRC of zeros is wrong.
        let mut bytes = Vec::new();
        super::management::packet().write(&[], &mut bytes);
        bytes.extend([0; icrc::LENGTH]);
        rustix::net::send(&socket, &bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
        Ok(Self(socket))
    }

    /// Whether the host has returned an error.
    pub(crate) fn is_refused(&self) -> bool {
        let received = rustix::net::recv(&self.0, &mut [0_u8; 1][..], RecvFlags::DONTWAIT);
        received.is_err_and(|error| error == Errno::CONNREFUSED)
    }
}

fn address(gid: Gid, port: u16, interface: u32) -> SocketAddr {
    match gid.ipv4() {
        Some(address) => SocketAddrV4::new(Ipv4Addr::from(address), port).into(),
        None => {
            let [first, second, ..] = gid.0;
            let is_link_local = first == 0xfe && second & 0xc0 == 0x80;
            SocketAddrV6::new(gid.0.into(), port, 0, if is_link_local { interface } else { 0 }).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use rustix::event::{PollFd, PollFlags};

    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "opens sockets")]
    fn only_an_unused_port_is_refused() {
        let local = Gid::from_ipv4([127, 0, 0, 1]);
        let route = Route { source: local, destination: local, traffic_class: 0, hop_limit: 0, flow_label: 0 };
        let used = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = used.local_addr().unwrap().port();
        let probe = Probe::to_port(&route, port).unwrap();
        used.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        assert!(used.recv(&mut [0; 100]).unwrap() > icrc::LENGTH);
        assert!(!probe.is_refused());
        drop(used);
        let probe = Probe::to_port(&route, port).unwrap();
        rustix::event::poll(&mut [PollFd::new(&probe.0, PollFlags::IN)], None).unwrap();
        assert!(probe.is_refused());
    }
}
