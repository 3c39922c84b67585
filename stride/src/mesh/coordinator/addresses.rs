//! The addresses at which ranks reach each other, as far as rank 0 sees them.

use std::net::{IpAddr, Ipv4Addr};

/// The addresses of a rank's connection, as rank 0 sees them.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// The rank's address.
    pub peer: IpAddr,
    /// The address by which the rank has reached rank 0.
    pub local: IpAddr,
}

/// Returns the address at which `from` reaches `to`.
pub(super) fn between(from: Option<Addresses>, to: Option<Addresses>) -> IpAddr {
    match (from, to) {
        // `to` runs on rank 0's host, which `from` has reached by this address.
        (Some(from), Some(to)) if to.peer.is_loopback() => from.local,
        (_, Some(to)) => to.peer,
        _ => IpAddr::V4(Ipv4Addr::LOCALHOST),
    }
}

/// Returns an address at which ranks on other hosts reach this one, if one is known. `all` are the addresses of all
/// ranks.
pub(super) fn public(own: Addresses, all: &[Option<Addresses>]) -> IpAddr {
    let mut locals = all.iter().flatten().map(|addresses| addresses.local);
    if own.peer.is_loopback() { locals.find(|local| !local.is_loopback()).unwrap_or(own.peer) } else { own.peer }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_on_the_host_of_rank_0_are_reached_by_its_address() {
        let at = |text: &str| text.parse::<IpAddr>().unwrap();
        let member = |peer: &str, local: &str| Some(Addresses { peer: at(peer), local: at(local) });
        let all = [member("127.0.0.1", "127.0.0.1"), member("192.0.2.2", "192.0.2.1")];
        let [near, far] = all;
        assert_eq!(between(far, near), at("192.0.2.1"));
        assert_eq!(between(near, far), at("192.0.2.2"));
        assert_eq!(between(near, near), at("127.0.0.1"));
        assert_eq!([near, far].map(|own| public(own.unwrap(), &all)), [at("192.0.2.1"), at("192.0.2.2")]);
    }
}
