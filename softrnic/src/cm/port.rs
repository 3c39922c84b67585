//! Ports. A port is an abstract socket, whose name contains the port space, the port and the address
//! (`@softrnic/1/cm/SPACE/PORT/ADDRESS`), so that any process of the host can find it. These ports are independent of
//! the host's TCP and UDP ports.
//!
//! The kernel frees a name when its process exits. The kernel does not detect that a name overlaps with a wildcard
//! address (`0.0.0.0`), so overlaps are searched for in the kernel's list of sockets.

use std::fmt;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::sync::Arc;

use rdma_mummy_sys::rdma_port_space;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::calls::{random, system};
use crate::sys::descriptor::Descriptor;
use crate::sys::errno::Errno;

const PREFIX: &str = "softrnic/1/cm/";
/// The range of the ports that are assigned automatically.
const FIRST: u16 = 32768;
const COUNT: u16 = 28232;

/// The addresses on which a listener can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Host {
    /// All addresses.
    Any,
    /// All IPv4 addresses.
    Any4,
    /// All IPv6 addresses, but no IPv4 address.
    Any6,
    /// A single address, which is not an IPv4 address in mapped form.
    One(IpAddr),
}

impl Host {
    /// Returns the addresses of a socket that is bound to `ip`.
    pub(super) fn of(ip: IpAddr, af_only: bool) -> Self {
        match ip.to_canonical() {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Self::Any4,
            IpAddr::V6(Ipv6Addr::UNSPECIFIED) if af_only => Self::Any6,
            IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Self::Any,
            ip => Self::One(ip),
        }
    }

    /// Returns the listeners that can serve an address. The most specific one is the first.
    pub(super) fn listeners(ip: IpAddr) -> [Self; 3] {
        let ip = ip.to_canonical();
        [Self::One(ip), if ip.is_ipv4() { Self::Any4 } else { Self::Any6 }, Self::Any]
    }

    /// Whether these addresses contain `ip`.
    pub(super) fn covers(self, ip: IpAddr) -> bool {
        Self::listeners(ip).contains(&self)
    }

    fn overlaps(self, other: Self) -> bool {
        match (self, other) {
            (Self::One(one), other) | (other, Self::One(one)) => other.covers(one),
            (Self::Any4, Self::Any6) | (Self::Any6, Self::Any4) => false,
            _ => true,
        }
    }

    /// Returns the error for ports that overlap. As in the kernel, it is `EADDRNOTAVAIL` if either of them is a
    /// wildcard.
    pub(super) fn in_use(self, other: Self) -> Errno {
        match (self, other) {
            (Self::One(_), Self::One(_)) => Errno(libc::EADDRINUSE),
            _ => Errno(libc::EADDRNOTAVAIL),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        match text {
            "any" => Some(Self::Any),
            "any4" => Some(Self::Any4),
            "any6" => Some(Self::Any6),
            ip => ip.parse().ok().map(Self::One),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::Any4 => f.write_str("any4"),
            Self::Any6 => f.write_str("any6"),
            Self::One(ip) => ip.fmt(f),
        }
    }
}

/// A port that is bound, and its socket.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) socket: Arc<Descriptor>,
    pub(super) space: rdma_port_space,
    pub(super) number: u16,
    pub(super) host: Host,
}

impl Port {
    /// Whether this port prevents that another one is bound.
    pub(super) fn conflicts(&self, space: rdma_port_space, number: u16, host: Host) -> bool {
        self.space == space && self.number == number && self.host.overlaps(host)
    }

    /// Binds this port. If another socket is bound to it, the error is [`in_use`](Host::in_use). The ports for which
    /// `mine` returns true belong to the caller and are ignored.
    pub(super) fn take(
        space: rdma_port_space,
        number: u16,
        host: Host,
        mine: impl Fn(u16, Host) -> bool,
    ) -> Result<Self, Errno> {
        // The name is bound first and the overlaps are checked afterwards. If two processes bind overlapping ports at
        // the same time, at least one of them therefore detects the other.
        let socket = bound(space, number, host).map_err(|errno| match errno {
            Errno(libc::EADDRINUSE) => host.in_use(host),
            errno => errno,
        })?;
        let overlaps = |&(port, other): &(u16, Host)| port == number && other != host && other.overlaps(host);
        if let Some(other) = bound_ports(space).iter().find(|other| overlaps(other) && !mine(other.0, other.1)) {
            return Err(host.in_use(other.1));
        }
        Ok(Self { socket: Arc::new(socket), space, number, host })
    }

    /// Binds a free port for which `is_free` returns true. A port on which the program will not listen may overlap with
    /// others.
    pub(super) fn take_any(
        space: rdma_port_space,
        host: Host,
        listens: bool,
        is_free: impl Fn(u16) -> bool,
    ) -> Result<Self, Errno> {
        let others = if listens { bound_ports(space) } else { Vec::new() };
        // The conversion is lossless, because the value is less than `COUNT`.
        let start = (random() % u64::from(COUNT)) as u16;
        for step in 0..COUNT {
            let number = FIRST + ((u32::from(start) + u32::from(step)) % u32::from(COUNT)) as u16;
            if others.iter().any(|&(port, other)| port == number && other.overlaps(host)) {
                continue;
            }
            match bound(space, number, host) {
                Ok(_) if !is_free(number) => {}
                Ok(socket) => return Ok(Self { socket: Arc::new(socket), space, number, host }),
                Err(Errno(libc::EADDRINUSE)) => {}
                Err(errno) => return Err(errno),
            }
        }
        Err(Errno(libc::EADDRNOTAVAIL))
    }
}

fn name(space: rdma_port_space, port: u16, host: Host) -> Result<SocketAddrUnix, Errno> {
    SocketAddrUnix::new_abstract_name(format!("{PREFIX}{}/{port}/{host}", space.0).as_bytes()).map_err(system)
}

pub(super) fn socket() -> Result<Descriptor, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let make = || rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    Descriptor::open(make).map_err(system)
}

fn bound(space: rdma_port_space, port: u16, host: Host) -> Result<Descriptor, Errno> {
    let socket = socket()?;
    rustix::net::bind(&socket, &name(space, port, host)?).map_err(system)?;
    Ok(socket)
}

/// The result of connecting to a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The socket is connected to a listener.
    Listener,
    /// The backlog is full.
    Full,
    NoListener,
}

/// Connects to the listener of an address.
pub(super) fn connect(socket: impl AsFd, space: rdma_port_space, ip: IpAddr, port: u16) -> Result<Found, Errno> {
    for host in Host::listeners(ip) {
        match rustix::net::connect(&socket, &name(space, port, host)?) {
            Ok(()) => return Ok(Found::Listener),
            Err(rustix::io::Errno::CONNREFUSED | rustix::io::Errno::NOENT) => {}
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(Found::Full),
            Err(errno) => return Err(system(errno)),
        }
    }
    Ok(Found::NoListener)
}

/// Returns the ports of a port space that are bound. The list is empty if the kernel's list cannot be read.
fn bound_ports(space: rdma_port_space) -> Vec<(u16, Host)> {
    let Ok(list) = fs::read("/proc/net/unix") else { return Vec::new() };
    let prefix = format!("@{PREFIX}{}/", space.0);
    String::from_utf8_lossy(&list).lines().filter_map(|line| read(line, &prefix)).collect()
}

/// Parses a line of the kernel's list. Connected sockets are ignored, because the kernel lists them under the name of
/// their listener.
pub(super) fn read(line: &str, prefix: &str) -> Option<(u16, Host)> {
    const UNCONNECTED: &str = "01";
    let mut words = line.split_whitespace().skip(5);
    let is_free = words.next()? == UNCONNECTED;
    let (port, host) = words.nth(1)?.strip_prefix(prefix)?.split_once('/')?;
    Some((port.parse().ok()?, Host::parse(host)?)).filter(|_| is_free)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn hosts_overlap_like_socket_addresses() {
        let one = |text| Host::of(ip(text), false);
        let (any, any4, any6) = (one("::"), one("0.0.0.0"), Host::of(ip("::"), true));
        assert_eq!((any, any4, any6), (Host::Any, Host::Any4, Host::Any6));
        assert_eq!(one("::ffff:10.0.0.1"), one("10.0.0.1"));
        let yes = [(any, any4), (any, any6), (any, one("::1")), (any, one("1.1.1.1")), (any4, one("1.1.1.1"))];
        let no = [(any4, any6), (any6, one("1.1.1.1")), (any4, one("::1")), (one("::1"), one("::2"))];
        for (overlaps, pairs) in [(true, &yes[..]), (false, &no[..])] {
            for &(a, b) in pairs {
                assert_eq!((a.overlaps(b), b.overlaps(a)), (overlaps, overlaps), "{a} {b}");
            }
        }
        for host in [any, any4, any6, one("fe80::1"), one("10.0.0.1")] {
            assert!(host.overlaps(host) && Host::parse(&host.to_string()) == Some(host), "{host}");
        }
    }

    #[test]
    fn kernel_list_is_parsed_and_other_sockets_ignored() {
        let prefix = "@softrnic/1/cm/262/";
        let line = |state, name| format!("0000000000000000: 00000002 00000000 00010000 0005 {state} 28137 {name}");
        let read = |state, name| read(&line(state, name), prefix);
        assert_eq!(read("01", "@softrnic/1/cm/262/7471/any4"), Some((7471, Host::Any4)));
        assert_eq!(read("01", "@softrnic/1/cm/262/1/fe80::1"), Some((1, Host::One(ip("fe80::1")))));
        assert_eq!(read("03", "@softrnic/1/cm/262/7471/any4"), None, "a connection to the port");
        for name in ["", "/run/x", "@softrnic/1/cm/273/1/any", "@softrnic/1/cm/262/99999/any", "@softrnic/1/cm/262/1/x"]
        {
            assert_eq!(read("01", name), None, "{name}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn port_is_bound_once() {
        // A port space that no other process uses.
        let space = rdma_port_space(1 << 31 | sideway_test_names::random() as u32);
        let free = Port::take_any(space, Host::Any4, true, |number| number % 2 == 1)
            .unwrap_or_else(|errno| panic!("{errno:?}"));
        assert_eq!(free.number % 2, 1);
        let take = |host| Port::take(space, free.number, host, |_, _| false).map(drop);
        for host in [Host::Any, Host::Any4, Host::One(ip("10.0.0.1"))] {
            assert_eq!(take(host), Err(Errno(libc::EADDRNOTAVAIL)), "{host}");
        }
        assert_eq!(take(Host::Any6), Ok(()));
        assert_eq!(take(Host::One(ip("::1"))), Ok(()));
        let number = free.number;
        drop(free);
        let one = Host::One(ip("10.0.0.1"));
        let bound_ports = Port::take(space, number, one, |_, _| false).unwrap_or_else(|errno| panic!("{errno:?}"));
        let take = |host| Port::take(space, number, host, |_, _| false).map(drop);
        assert_eq!((take(one), take(Host::Any4)), (Err(Errno(libc::EADDRINUSE)), Err(Errno(libc::EADDRNOTAVAIL))));
        drop(bound_ports);
        assert!(Port::take(space, number, Host::Any, |_, _| false).is_ok());
    }
}
