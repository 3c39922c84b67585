//! Finds the prefix length of an address's subnet, as the kernel reports it.

use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Returns the prefix length of an address of an interface, or `None` if it is unknown.
pub(super) fn of(address: Ipv6Addr, interface: &str) -> Option<u8> {
    let read = |file| fs::read_to_string(file).unwrap_or_default();
    match address.to_ipv4_mapped() {
        Some(address) => in_routes(&read("/proc/net/route"), address, interface),
        None => in_addresses(&read("/proc/net/if_inet6"), address, interface),
    }
}

/// Searches the kernel's list of IPv6 addresses. Each line contains the address in hexadecimal, the interface's index,
/// the prefix length in hexadecimal, some other columns, and the name of the interface.
fn in_addresses(list: &str, address: Ipv6Addr, interface: &str) -> Option<u8> {
    list.lines().find_map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        let [text, _, bits, .., name] = words[..] else { return None };
        let is_it = name == interface && u128::from_str_radix(text, 16).is_ok_and(|found| found == address.to_bits());
        u8::from_str_radix(bits, 16).ok().filter(|bits| is_it && *bits <= 128)
    })
}

/// Searches the kernel's IPv4 routes. Routes without a gateway are the subnets of interfaces. The first columns are
/// interface, destination and gateway, and the eighth is the mask. Numbers are hexadecimal, in network byte order in
/// memory.
fn in_routes(list: &str, address: Ipv4Addr, interface: &str) -> Option<u8> {
    let bits =
        |text| u32::from_str_radix(text, 16).ok().map(|number: u32| Ipv4Addr::from(number.to_ne_bytes()).to_bits());
    let subnets = list.lines().filter_map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        let (name, [to, gateway, mask]) = (words.first()?, [*words.get(1)?, *words.get(2)?, *words.get(7)?].map(bits));
        let (to, mask) = (to?, mask?);
        let is_it = *name == interface && gateway == Some(0) && mask != 0 && address.to_bits() & mask == to;
        is_it.then_some(mask.leading_ones() as u8)
    });
    subnets.max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv6_address_has_its_listed_prefix() {
        let list = "00000000000000000000000000000001 01 80 10 80       lo\n\
                    fd000000000000000000000000000002 04 38 00 82     eth0\n\
                    fd000000000000000000000000000003 04 zz 00 82     eth0\n\
                    short\n";
        let of = |address: &str, interface| in_addresses(list, address.parse().unwrap(), interface);
        assert_eq!(of("fd00::2", "eth0"), Some(56));
        assert_eq!(of("::1", "lo"), Some(128));
        for (address, interface) in [("fd00::2", "eth1"), ("fd00::3", "eth0"), ("fd00::4", "eth0")] {
            assert_eq!(of(address, interface), None, "{address} {interface}");
        }
    }

    #[test]
    fn ipv4_address_has_its_longest_matching_prefix() {
        let number = |address: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(address));
        let line = |interface: &str, to, gateway, mask| {
            format!("{interface}\t{}\t{}\t0001\t0\t0\t0\t{}\t0\t0\t0\n", number(to), number(gateway), number(mask))
        };
        let list = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n".to_owned()
            + &line("eth0", [0; 4], [10, 0, 0, 1], [0; 4])
            + &line("eth0", [10, 0, 0, 0], [0; 4], [255, 255, 0, 0])
            + &line("eth0", [10, 0, 4, 0], [0; 4], [255, 255, 252, 0])
            + &line("eth0", [10, 0, 4, 0], [10, 0, 0, 1], [255, 255, 255, 0])
            + &line("eth1", [10, 0, 4, 0], [0; 4], [255, 255, 255, 0]);
        let of = |address: &str| in_routes(&list, address.parse().unwrap(), "eth0");
        assert_eq!(of("10.0.5.1"), Some(22));
        assert_eq!(of("10.0.9.1"), Some(16));
        assert_eq!(of("192.0.2.1"), None);
    }

    #[test]
    fn kernel_lists_the_loopback_address() {
        // The kernel lists the IPv6 address only if IPv6 is enabled.
        if fs::read_to_string("/proc/net/if_inet6").is_ok_and(|list| list.contains(" lo")) {
            assert_eq!(of(Ipv6Addr::LOCALHOST, "lo"), Some(128));
        }
        assert_eq!(of(Ipv6Addr::LOCALHOST, "no such interface"), None);
    }
}
