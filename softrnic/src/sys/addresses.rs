//! The IP addresses of this host, which are the GIDs of the devices. IPv4 addresses are mapped to `::ffff:a.b.c.d`.

use std::cmp::Reverse;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ptr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::sys::fork::PerProcess;
use crate::sys::unpoisoned;

/// How long a snapshot of the addresses is used.
const FRESH: Duration = Duration::from_secs(1);
/// The index of the loopback interface, which is the first one that the kernel creates.
const LOOPBACK_INDEX: u32 = 1;
/// 127.0.0.1
pub(crate) const LOOPBACK: Ipv6Addr = Ipv4Addr::LOCALHOST.to_ipv6_mapped();

/// An address of a network interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) ip: Ipv6Addr,
    pub(crate) interface_index: u32,
}

/// An address as reported by the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reported {
    address: Address,
    is_loopback: bool,
}

/// The time at which a snapshot was taken, and its addresses.
type Snapshot = (Instant, Vec<Address>);

/// The most recent snapshot of the addresses.
static SNAPSHOT: PerProcess<Mutex<Option<Snapshot>>> = PerProcess::new(Mutex::new(None), Box::default);

/// Discards the snapshot, so that the next call of [`all`] reads the addresses again.
pub(crate) fn forget() {
    *unpoisoned(SNAPSHOT.get().lock()) = None;
}

/// Returns all addresses of this host. The addresses of the loopback interface come last, because programs bind to the
/// first GID of a device before they connect to another host. A snapshot older than a second is refreshed.
///
/// The list always contains 127.0.0.1, so two QPs of one process can connect even without a network.
pub(crate) fn all() -> Vec<Address> {
    let now = Instant::now();
    let mut snapshot = unpoisoned(SNAPSHOT.get().lock());
    match &*snapshot {
        Some((when, addresses)) if now.saturating_duration_since(*when) < FRESH => addresses.clone(),
        _ => {
            // An error is not logged, because a logger may itself read the addresses.
            let addresses = in_order(read().unwrap_or_default());
            *snapshot = Some((now, addresses.clone()));
            addresses
        }
    }
}

/// Sorts the addresses: first IPv4, then IPv6, then those of the loopback interface, each group by interface index. An
/// address that two interfaces share is listed once.
fn in_order(mut reported: Vec<Reported>) -> Vec<Address> {
    if !reported.iter().any(|reported| reported.address.ip == LOOPBACK) {
        let address = Address { ip: LOOPBACK, interface_index: LOOPBACK_INDEX };
        reported.push(Reported { address, is_loopback: true });
    }
    // A stable sort keeps the kernel's order of the addresses of one interface.
    reported.sort_by_key(|Reported { address, is_loopback }| {
        let is_4 = address.ip.to_ipv4_mapped().is_some();
        (*is_loopback, Reverse(address.ip == LOOPBACK), Reverse(is_4), address.interface_index)
    });
    let mut addresses: Vec<Address> = Vec::with_capacity(reported.len());
    for Reported { address, .. } in reported {
        if !addresses.iter().any(|known| known.ip == address.ip) {
            addresses.push(address);
        }
    }
    addresses
}

/// Reads the addresses of the interfaces that are up. Returns `None` if the kernel reports an error.
fn read() -> Option<Vec<Reported>> {
    if cfg!(miri) {
        return None;
    }
    let mut first: *mut libc::ifaddrs = ptr::null_mut();
    // SAFETY: `first` is writable.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return None;
    }
    let mut reported = Vec::new();
    let mut next = first;
    while !next.is_null() {
        // SAFETY: the list is complete until it is freed below, and each entry links to the next or is the last.
        let entry = unsafe { &*next };
        // SAFETY: the entry belongs to this list.
        reported.extend(unsafe { parse_entry(entry) });
        next = entry.ifa_next;
    }
    // SAFETY: the list came from `getifaddrs`, and is no longer used.
    unsafe { libc::freeifaddrs(first) };
    Some(reported)
}

/// Parses an entry of the list. Returns `None` unless the entry contains an IP address of an interface that is up.
///
/// # Safety
///
/// `entry` comes from `getifaddrs` and is not freed yet.
unsafe fn parse_entry(entry: &libc::ifaddrs) -> Option<Reported> {
    let has = |flag: libc::c_int| entry.ifa_flags & flag as libc::c_uint != 0;
    if entry.ifa_addr.is_null() || !has(libc::IFF_UP) {
        return None;
    }
    // SAFETY: `address` is not null. Every address starts with its family, and has at least the size of the type read
    // for it.
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
    Some(Reported { address: Address { ip: octets.into(), interface_index }, is_loopback: has(libc::IFF_LOOPBACK) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(text: &str, interface_index: u32, is_loopback: bool) -> Reported {
        let ip = match text.parse() {
            Ok(std::net::IpAddr::V4(address)) => address.to_ipv6_mapped(),
            Ok(std::net::IpAddr::V6(address)) => address,
            Err(error) => panic!("{text}: {error}"),
        };
        Reported { address: Address { ip, interface_index }, is_loopback }
    }

    fn text(addresses: &[Address]) -> Vec<String> {
        addresses.iter().map(|address| address.ip.to_canonical().to_string()).collect()
    }

    #[test]
    fn ipv4_comes_first_then_ipv6_then_loopback() {
        let addresses = in_order(vec![
            reported("fe80::2", 3, false),
            reported("10.0.0.2", 3, false),
            reported("fe80::1", 2, false),
            reported("127.0.0.2", 1, true),
            reported("::1", 1, true),
            reported("10.0.0.1", 2, false),
            reported("127.0.0.1", 1, true),
        ]);
        let order = ["10.0.0.1", "10.0.0.2", "fe80::1", "fe80::2", "127.0.0.1", "127.0.0.2", "::1"];
        assert_eq!(text(&addresses), order);
    }

    #[test]
    fn loopback_address_is_listed_without_its_interface() {
        assert_eq!(text(&in_order(Vec::new())), ["127.0.0.1"]);
        assert_eq!(text(&in_order(vec![reported("10.0.0.1", 2, false)])), ["10.0.0.1", "127.0.0.1"]);
    }

    #[test]
    fn address_of_two_interfaces_is_listed_once() {
        let addresses = in_order(vec![reported("10.0.0.1", 5, false), reported("10.0.0.1", 4, false)]);
        assert_eq!(text(&addresses), ["10.0.0.1", "127.0.0.1"]);
        assert_eq!(addresses[0].interface_index, 4);
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn kernel_reports_the_loopback_interface() {
        let loopback = || all().into_iter().find(|address| address.ip == LOOPBACK);
        let expected = Some(Address { ip: LOOPBACK, interface_index: LOOPBACK_INDEX });
        assert_eq!([loopback(), loopback()], [expected; 2], "the second one is from the snapshot");
    }
}
