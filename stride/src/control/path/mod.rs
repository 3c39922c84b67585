//! Selects the path between both sides: a GID on each side, and the path MTU.

mod gid;

use std::net::IpAddr;

use self::gid::Gid;
use crate::endpoint::{Intake, Path, PeerInfo, PortInfo};
use crate::plan::{Contradiction, Plan};

/// The IP addresses of the control connection, if it is a TCP connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Near {
    /// The client's address.
    pub client: Option<IpAddr>,
    /// The server's address.
    pub server: Option<IpAddr>,
}

/// Selects the paths between the ports of both sides, where the first port of the client connects to the first port of
/// the server, and so on. `asked` contains the GID indexes that the users of client and server requested, per port.
///
/// # Errors
///
/// Returns an error for the user if no path fits.
pub fn choose_all(
    client: &PortInfo,
    server: &PortInfo,
    asked: &[[Option<u32>; 2]],
    plan: &Plan,
    near: Near,
) -> Result<Path, Contradiction> {
    let pairs = client.all().zip(server.all()).enumerate();
    let ways = pairs
        .map(|(at, (client, server))| choose(client, server, asked.get(at).copied().unwrap_or_default(), plan, near));
    let mut ways = ways.collect::<Result<Vec<_>, _>>()?.into_iter();
    let Some(first) = ways.next() else { return refuse("no port in the path".to_owned()) };
    Ok(Path { others: ways.collect(), ..first })
}

/// Selects the path between two ports.
///
/// # Errors
///
/// Returns an error for the user if no path fits.
pub fn choose(
    client: &PortInfo,
    server: &PortInfo,
    asked: [Option<u32>; 2],
    plan: &Plan,
    near: Near,
) -> Result<Path, Contradiction> {
    if !client.is_iwarp() {
        check_softrnic(client, server)?;
    }
    if client.link_layer != server.link_layer {
        return refuse(format!(
            "{} of the client is on {}, and {} of the server on {}; choose another with --device or --remote-device",
            client.device, client.link_layer, server.device, server.link_layer
        ));
    }
    check_partitions(client, server)?;
    let mtu = packet(client, server, plan.attributes.mtu)?;
    let gids = if client.link_layer == "InfiniBand" {
        // Traffic class and flow label are fields of the GRH, which only packets with a GID have.
        by_identifier(client, server, asked, plan.attributes.traffic_class != 0 || plan.attributes.flow_label != 0)?
    } else if client.is_iwarp() {
        // The queue pairs of an iWARP device use the IP addresses of the TCP connection, and need no GIDs.
        None
    } else {
        Some(by_gid(client, server, asked, near)?)
    };
    let [client_gid, server_gid] = gids.map_or([None, None], |pair| pair.map(Some));
    Ok(Path { client_gid, server_gid, mtu, others: Vec::new() })
}

/// Checks that two softrnic devices can reach each other. softrnic devices connect only processes of the same user, in
/// the same network namespace of one host.
fn check_softrnic(client: &PortInfo, server: &PortInfo) -> Result<(), Contradiction> {
    let name = |port_info: &PortInfo| format!("{} of {}", port_info.device, port_info.host);
    match (client.connects_one_host(), server.connects_one_host()) {
        (false, false) => Ok(()),
        (true, true) => {
            let has_both = !client.machine.is_empty() && !server.machine.is_empty();
            if !has_both || client.machine == server.machine {
                return Ok(());
            }
            refuse(format!(
                "{} and {} are softrnic devices, which connect processes of one user in one network namespace of one \
                 host only; add -R to connect over TCP, run both sides there, or name network devices with --device and \
                 --remote-device",
                name(client),
                name(server)
            ))
        }
        (is_client, _) => {
            let (soft, real, option) =
                if is_client { (client, server, "--device") } else { (server, client, "--remote-device") };
            refuse(format!(
                "{} is a softrnic device, which connects processes of one host and cannot reach the network device {}; \
                 name another with {option}",
                name(soft),
                name(real)
            ))
        }
    }
}

/// Checks that both ports are in one partition, if either side requested a P_Key other than the first.
fn check_partitions(client: &PortInfo, server: &PortInfo) -> Result<(), Contradiction> {
    match (client.partition, server.partition) {
        (Some(ours), Some(theirs)) if ours.index.max(theirs.index) > 0 && !ours.meets(theirs) => refuse(format!(
            "the client's {ours} and the server's {theirs} do not match: both sides must be in one partition, at least \
             one as a full member (0x8000 and more); give other --pkey-index and --remote-pkey-index"
        )),
        _ => Ok(()),
    }
}

/// Checks that the path from the client fits the ports of this side.
///
/// # Errors
///
/// Returns how the client has violated the protocol.
pub(super) fn check(path: &Path, own: &PortInfo) -> Result<(), String> {
    let (ways, ports) = (path.all().count(), own.all().count());
    if ways != ports {
        return Err(format!("names {ways} paths for the server's {ports} ports"));
    }
    path.all().zip(own.all()).try_for_each(|(path, own)| check_one(path, own))
}

fn check_one(path: &Path, own: &PortInfo) -> Result<(), String> {
    if let Some(index) = path.server_gid
        && !own.gids.iter().any(|gid| gid.index == index)
    {
        return Err(format!("requests GID {index} of the server, which does not exist"));
    }
    if ![256, 512, 1024, 2048, 4096].contains(&path.mtu) || path.mtu > own.mtu {
        return Err(format!("requests an MTU of {} bytes, and the server's port supports {}", path.mtu, own.mtu));
    }
    if path.server_gid.is_none() && own.link_layer != "InfiniBand" && !own.is_iwarp() {
        return Err(format!("names no GID, which {} requires", own.link_layer));
    }
    Ok(())
}

/// Checks that the description of the peer's queue pairs fits the plan.
///
/// # Errors
///
/// Returns how the peer has violated the protocol.
pub(super) fn check_ends(peer_info: &PeerInfo, path: &Path, plan: &Plan) -> Result<(), String> {
    let (ports, ways) = (peer_info.all().count(), path.all().count());
    if ports != ways {
        return Err(format!("sent queue pairs of {ports} ports, expected {ways}"));
    }
    peer_info.all().zip(path.all()).try_for_each(|(peer_info, path)| check_ends_of(peer_info, path, plan))
}

/// Checks the description of the peer's queue pairs for one port.
fn check_ends_of(peer_info: &PeerInfo, path: &Path, plan: &Plan) -> Result<(), String> {
    let (found, due) = (peer_info.queue_pairs.len(), plan.queues.queue_pairs / plan.ports());
    if found != due as usize {
        return Err(format!("sent {found} queue pairs, expected {due}"));
    }
    if let Some(index) =
        peer_info.queue_pairs.iter().position(|end| !Intake::is_of(end.intake.as_ref(), plan.attributes.transport))
    {
        return Err(format!("sent a target for queue pair {index} that {} does not use", plan.attributes.transport));
    }
    match &peer_info.gid {
        Some(text) if text.parse::<std::net::Ipv6Addr>().is_err() => Err(format!("sent a malformed GID: {text:?}")),
        None if path.client_gid.is_some() => Err("sent no GID".to_owned()),
        _ => Ok(()),
    }
}

fn refuse<T>(sentence: String) -> Result<T, Contradiction> {
    Err(Contradiction(sentence))
}

/// Returns the path MTU, which is the requested one, or else the largest that both ports support.
fn packet(client: &PortInfo, server: &PortInfo, asked: Option<u32>) -> Result<u32, Contradiction> {
    let most = client.mtu.min(server.mtu);
    let Some(asked) = asked.filter(|asked| *asked > most) else { return Ok(asked.unwrap_or(most)) };
    let (owner, port_info) = if client.mtu == most { ("client", client) } else { ("server", server) };
    refuse(format!(
        "--mtu {asked} is above {most}, the MTU of port {} of the {owner}'s {}; give --mtu {most}",
        port_info.port, port_info.device
    ))
}

/// Selects GIDs for InfiniBand, or no GIDs if LIDs suffice. LIDs do not suffice if a port has none, if the sides are in
/// different subnets, or if GIDs are requested or `needed`.
fn by_identifier(
    client: &PortInfo,
    server: &PortInfo,
    asked: [Option<u32>; 2],
    needed: bool,
) -> Result<Option<[u32; 2]>, Contradiction> {
    let subnet = |port_info: &PortInfo, asked: Option<u32>| {
        let gids = Gid::all(port_info);
        gids.into_iter().find(|gid| asked.is_none_or(|index| gid.index == index)).map(|gid| (gid.index, gid.subnet()))
    };
    let missing = |owner: &str, port_info: &PortInfo, asked: Option<u32>| {
        let index = asked.map_or_else(String::new, |index| format!(" of index {index}"));
        Contradiction(format!("port {} of the {owner}'s {} has no GID{index}", port_info.port, port_info.device))
    };
    let (ours, theirs) = (subnet(client, asked[0]), subnet(server, asked[1]));
    let has_identifiers = client.lid != 0 && server.lid != 0;
    let is_one_subnet = ours.zip(theirs).is_none_or(|((_, ours), (_, theirs))| ours == theirs);
    if has_identifiers && is_one_subnet && asked == [None, None] && !needed {
        return Ok(None);
    }
    let (ours, _) = ours.ok_or_else(|| missing("client", client, asked[0]))?;
    let (theirs, _) = theirs.ok_or_else(|| missing("server", server, asked[1]))?;
    Ok(Some([ours, theirs]))
}

/// Selects GIDs for Ethernet: the best pair of entries from both tables.
fn by_gid(
    client: &PortInfo,
    server: &PortInfo,
    asked: [Option<u32>; 2],
    near: Near,
) -> Result<[u32; 2], Contradiction> {
    let ours = asked_of("client", "--gid-index", client, asked[0])?;
    let theirs = asked_of("server", "--remote-gid-index", server, asked[1])?;
    let is_one_host = client.host == server.host || near.server.is_none_or(|address| address.is_loopback());
    let pairs = ours.iter().flat_map(|ours| theirs.iter().map(move |theirs| (ours, theirs)));
    // The GIDs of a pair must have the same type and address family. Unless the users requested both GIDs, the address
    // of each GID must also be able to reach the other.
    let fits = |(ours, theirs): &(&Gid, &Gid)| {
        ours.is_like(theirs) && (asked.iter().all(Option::is_some) || ours.reaches(theirs, is_one_host))
    };
    let best = pairs
        .filter(fits)
        .max_by_key(|(ours, theirs)| (ours.rank(theirs, near), std::cmp::Reverse((ours.index, theirs.index))));
    best.map(|(ours, theirs)| [ours.index, theirs.index]).ok_or_else(|| {
        Contradiction(format!(
            "no GIDs of the client's {} and the server's {} have the same type and reach each other (client: {}; \
             server: {}); give --gid-index and --remote-gid-index, or assign addresses of one network",
            client.device,
            server.device,
            gid::list(&ours),
            gid::list(&theirs)
        ))
    })
}

/// Returns all GIDs of a port, or only the requested one.
fn asked_of(owner: &str, option: &str, port_info: &PortInfo, asked: Option<u32>) -> Result<Vec<Gid>, Contradiction> {
    let mut gids = Gid::all(port_info);
    if let Some(index) = asked {
        let all = gid::list(&gids);
        gids.retain(|gid| gid.index == index);
        if gids.is_empty() {
            return refuse(format!(
                "{option} {index}: no such GID on port {} of the {owner}'s {}; it has {all}",
                port_info.port, port_info.device
            ));
        }
    }
    Ok(gids)
}

#[cfg(test)]
mod tests;
