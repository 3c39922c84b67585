//! The addresses of this host, which are the GIDs of the devices. IPv4 ones stand in `::ffff:a.b.c.d`.

use std::cmp::Reverse;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ptr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::sys::fork::PerProcess;
use crate::sys::unpoisoned;

/// How long a look holds.
const FRESH: Duration = Duration::from_secs(1);
/// The loopback interface's index: the kernel makes it before any other.
const LOOPBACK_INDEX: u32 = 1;
/// 127.0.0.1
const LOOPBACK: Ipv6Addr = Ipv4Addr::LOCALHOST.to_ipv6_mapped();

/// An address of a network interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) ip: Ipv6Addr,
    pub(crate) interface_index: u32,
}

/// An address as the kernel tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Told {
    address: Address,
    is_loopback: bool,
}

/// When it was, and what was seen.
type Look = (Instant, Vec<Address>);

/// The last.
static LOOK: PerProcess<Mutex<Option<Look>>> = PerProcess::new(Mutex::new(None), Box::default);

/// Has the next look read them anew.
pub(crate) fn forget() {
    *unpoisoned(LOOK.get().lock()) = None;
}

/// All of them, those of the loopback interface first; read anew where the last look is older than a second.
///
/// 127.0.0.1 is always among them, since two queue pairs of one process meet on it whatever the network does.
pub(crate) fn all() -> Vec<Address> {
    let now = Instant::now();
    let mut look = unpoisoned(LOOK.get().lock());
    match &*look {
        Some((when, addresses)) if now.saturating_duration_since(*when) < FRESH => addresses.clone(),
        _ => {
            // Not logged where it fails: a logger may ask for addresses itself.
            let addresses = in_order(read().unwrap_or_default());
            *look = Some((now, addresses.clone()));
            addresses
        }
    }
}

/// Loopback, IPv4, IPv6, each in the order of the interfaces; one that two interfaces have stands once.
fn in_order(mut told: Vec<Told>) -> Vec<Address> {
    if !told.iter().any(|told| told.address.ip == LOOPBACK) {
        let address = Address { ip: LOOPBACK, interface_index: LOOPBACK_INDEX };
        told.push(Told { address, is_loopback: true });
    }
    // A stable sort: addresses of one interface stay as the kernel has them.
    told.sort_by_key(|Told { address, is_loopback }| {
        let is_4 = address.ip.to_ipv4_mapped().is_some();
        (Reverse(*is_loopback), Reverse(address.ip == LOOPBACK), Reverse(is_4), address.interface_index)
    });
    let mut addresses: Vec<Address> = Vec::with_capacity(told.len());
    for Told { address, .. } in told {
        if !addresses.iter().any(|known| known.ip == address.ip) {
            addresses.push(address);
        }
    }
    addresses
}

/// The addresses of the interfaces that are up; `None` where the kernel does not tell.
fn read() -> Option<Vec<Told>> {
    if cfg!(miri) {
        return None;
    }
    let mut first: *mut libc::ifaddrs = ptr::null_mut();
    // SAFETY: `first` can be written.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return None;
    }
    let mut told = Vec::new();
    let mut next = first;
    while !next.is_null() {
        // SAFETY: the list is whole until it is freed below, and each entry links to the next or to nothing.
        let entry = unsafe { &*next };
        // SAFETY: the entry is of this list.
        told.extend(unsafe { tell(entry) });
        next = entry.ifa_next;
    }
    // SAFETY: it came from `getifaddrs` and is not used any more.
    unsafe { libc::freeifaddrs(first) };
    Some(told)
}

/// What an entry says, where it is of an IP address of an interface that is up.
///
/// # Safety
///
/// The entry is one of `getifaddrs`, not yet freed.
unsafe fn tell(entry: &libc::ifaddrs) -> Option<Told> {
    let has = |flag: libc::c_int| entry.ifa_flags & flag as libc::c_uint != 0;
    if entry.ifa_addr.is_null() || !has(libc::IFF_UP) {
        return None;
    }
    // SAFETY: it is not null, and every address begins with its family; as its family says, it is as large as is read.
    let octets = unsafe {
        match i32::from((*entry.ifa_addr).sa_family) {
            libc::AF_INET => {
                let address = (*entry.ifa_addr.cast::<libc::sockaddr_in>()).sin_addr.s_addr;
                Ipv4Addr::from(address.to_ne_bytes()).to_ipv6_mapped().octets()
            }
            libc::AF_INET6 => (*entry.ifa_addr.cast::<libc::sockaddr_in6>()).sin6_addr.s6_addr,
            _ => return None,
        }
    };
    // SAFETY: the name ends with a zero byte.
    let interface_index = unsafe { libc::if_nametoindex(entry.ifa_name) };
    Some(Told { address: Address { ip: octets.into(), interface_index }, is_loopback: has(libc::IFF_LOOPBACK) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str, interface_index: u32, is_loopback: bool) -> Told {
        let ip = match text.parse() {
            Ok(std::net::IpAddr::V4(address)) => address.to_ipv6_mapped(),
            Ok(std::net::IpAddr::V6(address)) => address,
            Err(error) => panic!("{text}: {error}"),
        };
        Told { address: Address { ip, interface_index }, is_loopback }
    }

    fn text(addresses: &[Address]) -> Vec<String> {
        addresses.iter().map(|address| address.ip.to_canonical().to_string()).collect()
    }

    #[test]
    fn loopback_comes_first_then_ipv4_then_ipv6() {
        let addresses = in_order(vec![
            told("fe80::2", 3, false),
            told("10.0.0.2", 3, false),
            told("fe80::1", 2, false),
            told("127.0.0.2", 1, true),
            told("::1", 1, true),
            told("10.0.0.1", 2, false),
            told("127.0.0.1", 1, true),
        ]);
        let order = ["127.0.0.1", "127.0.0.2", "::1", "10.0.0.1", "10.0.0.2", "fe80::1", "fe80::2"];
        assert_eq!(text(&addresses), order);
    }

    #[test]
    fn the_loopback_address_is_there_without_its_interface() {
        assert_eq!(text(&in_order(Vec::new())), ["127.0.0.1"]);
        assert_eq!(text(&in_order(vec![told("10.0.0.1", 2, false)])), ["127.0.0.1", "10.0.0.1"]);
    }

    #[test]
    fn an_address_of_two_interfaces_stands_once() {
        let addresses = in_order(vec![told("10.0.0.1", 5, false), told("10.0.0.1", 4, false)]);
        assert_eq!(text(&addresses), ["127.0.0.1", "10.0.0.1"]);
        assert_eq!(addresses[1].interface_index, 4);
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn the_kernel_tells_of_the_loopback_interface() {
        let first = all()[0];
        assert_eq!(first, Address { ip: LOOPBACK, interface_index: LOOPBACK_INDEX });
        assert_eq!(all()[0], first, "the second time from memory");
    }
}
