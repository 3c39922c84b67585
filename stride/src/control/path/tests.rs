use super::*;
use crate::endpoint::fake::Fake;
use crate::endpoint::{EndpointFactory, GidInfo, QpAddress, Role};
use crate::plan::{Plan, QpAttributes, Queues, SideConfig, Transport};

/// Returns a port with these GIDs, each given as address and type.
fn side(host: &str, gids: &[(&str, &str)]) -> PortInfo {
    let fake = Fake::default().open(&Plan::default(), &SideConfig::default(), Role::Client).unwrap();
    let gid = |(index, (address, kind)): (usize, &(&str, &str))| {
        let (address, prefix) = address.split_once('/').unwrap();
        let gid = match address.parse().unwrap() {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        GidInfo {
            index: index as u32,
            gid: gid.to_string(),
            kind: (*kind).to_owned(),
            interface: String::new(),
            prefix: prefix.parse().ok(),
        }
    };
    PortInfo { host: host.to_owned(), gids: gids.iter().enumerate().map(gid).collect(), ..fake.port_info().clone() }
}

fn near(client: &str, server: &str) -> Near {
    Near { client: client.parse().ok(), server: server.parse().ok() }
}

fn pair(client: &PortInfo, server: &PortInfo, asked: [Option<u32>; 2], near: Near) -> Result<[u32; 2], String> {
    let path = choose(client, server, asked, &Plan::default(), near).map_err(|contradiction| contradiction.0)?;
    Ok([path.client_gid, path.server_gid].map(|gid| gid.unwrap_or(99)))
}

const NONE: [Option<u32>; 2] = [None, None];

#[test]
fn best_pair_is_selected() {
    let usual = |last: u8| {
        let local = format!("fe80::{last}/64");
        let address = format!("10.0.0.{last}/24");
        side(
            &format!("host{last}"),
            &[(&local, "RoCE v1"), (&local, "RoCE v2"), (&address, "RoCE v1"), (&address, "RoCE v2")],
        )
    };
    assert_eq!(pair(&usual(1), &usual(2), NONE, near("10.0.0.1", "10.0.0.2")), Ok([3, 3]));
    assert_eq!(pair(&usual(1), &usual(2), NONE, Near::default()), Ok([3, 3]));
    assert_eq!(pair(&usual(1), &usual(2), [Some(1), None], Near::default()), Ok([1, 1]));
    assert_eq!(pair(&usual(1), &usual(2), [None, Some(2)], Near::default()), Ok([2, 2]));
}

#[test]
fn common_subnet_outranks_table_order() {
    let ours = side("a", &[("10.0.0.1/24", "RoCE v2"), ("10.0.1.1/24", "RoCE v2")]);
    let theirs = side("b", &[("10.0.1.2/24", "RoCE v2"), ("10.0.2.2/24", "RoCE v2")]);
    assert_eq!(pair(&ours, &theirs, NONE, near("192.168.0.1", "192.168.0.2")), Ok([1, 0]));
    // TCP is routed between these two hosts, so RoCE v2 is too.
    assert_eq!(pair(&ours, &theirs, NONE, near("10.0.0.1", "10.0.2.2")), Ok([0, 1]));
    let theirs = side("b", &[("10.0.9.2/24", "RoCE v2")]);
    assert_eq!(pair(&ours, &theirs, NONE, Near::default()), Ok([0, 0]));
    let theirs = side("b", &[("10.0.9.2/24", "RoCE v1")]);
    assert!(pair(&ours, &theirs, NONE, Near::default()).is_err());
}

#[test]
fn pairs_have_one_family_and_type() {
    let ours = side("a", &[("10.0.0.1/24", "RoCE v2"), ("fd00::1/64", "RoCE v1")]);
    let theirs = side("b", &[("fd00::2/64", "RoCE v2"), ("10.0.0.2/24", "RoCE v1")]);
    let error = pair(&ours, &theirs, NONE, Near::default()).unwrap_err();
    assert!(error.contains("client: 0 (RoCE v2 10.0.0.1), 1 (RoCE v1 fd00::1)"), "{error}");
    assert!(pair(&ours, &theirs, [Some(0), Some(0)], Near::default()).is_err());
    let theirs = side("b", &[("fd00::2/64", "RoCE v2"), ("fd00::2/64", "RoCE v1")]);
    assert_eq!(pair(&ours, &theirs, NONE, Near::default()), Ok([1, 1]));
}

#[test]
fn loopback_addresses_pair_on_one_host_only() {
    let soft = |host: &str, address: &str| {
        side(host, &[("127.0.0.1/8", "RoCE v2"), ("::1/128", "RoCE v2"), (address, "RoCE v2")])
    };
    let (ours, theirs) = (soft("a", "10.0.0.1/24"), soft("b", "10.0.0.2/24"));
    assert_eq!(pair(&ours, &theirs, NONE, near("10.0.0.1", "10.0.0.2")), Ok([2, 2]));
    let here = soft("a", "10.0.0.1/24");
    assert_eq!(pair(&here, &here, NONE, near("127.0.0.1", "127.0.0.1")), Ok([0, 0]));
    assert_eq!(pair(&here, &here, NONE, near("::1", "::1")), Ok([1, 1]));
    let (ours, theirs) = (side("a", &[("127.0.0.1/8", "RoCE v2")]), side("b", &[("127.0.0.1/8", "RoCE v2")]));
    assert!(pair(&ours, &theirs, NONE, near("10.0.0.1", "10.0.0.2")).is_err());
    assert_eq!(pair(&ours, &ours, NONE, Near::default()), Ok([0, 0]));
}

#[test]
fn missing_index_error_names_the_option() {
    let ours = side("a", &[("10.0.0.1/24", "RoCE v2")]);
    let error = pair(&ours, &ours, [Some(7), None], Near::default()).unwrap_err();
    assert!(error.starts_with("--gid-index 7: no such GID on port 1 of the client's fake0; it has 0"), "{error}");
    let error = pair(&ours, &ours, [None, Some(7)], Near::default()).unwrap_err();
    assert!(error.starts_with("--remote-gid-index 7"), "{error}");
}

#[test]
fn infiniband_uses_gids_between_subnets_only() {
    let port = |lid: u16, gid: &str| {
        let side = side("a", &[(gid, "IB")]);
        PortInfo { link_layer: "InfiniBand".to_owned(), lid, ..side }
    };
    let here = port(3, "fe80::1/64");
    assert_eq!(pair(&here, &port(4, "fe80::2/64"), NONE, Near::default()), Ok([99, 99]));
    assert_eq!(pair(&here, &port(4, "fe80:0:0:1::2/64"), NONE, Near::default()), Ok([0, 0]));
    assert_eq!(pair(&here, &port(0, "fe80::2/64"), NONE, Near::default()), Ok([0, 0]));
    assert_eq!(pair(&here, &port(4, "fe80::2/64"), [Some(0), None], Near::default()), Ok([0, 0]));
    assert!(pair(&here, &port(4, "fe80::2/64"), [None, Some(3)], Near::default()).is_err());
    for plan in [
        Plan { attributes: QpAttributes { traffic_class: 104, ..QpAttributes::default() }, ..Plan::default() },
        Plan { attributes: QpAttributes { flow_label: 1, ..QpAttributes::default() }, ..Plan::default() },
    ] {
        let path = choose(&here, &port(4, "fe80::2/64"), NONE, &plan, Near::default()).unwrap();
        assert_eq!((path.client_gid, path.server_gid), (Some(0), Some(0)));
    }
    let ethernet = side("a", &[("10.0.0.1/24", "RoCE v2")]);
    assert!(pair(&here, &ethernet, NONE, Near::default()).unwrap_err().contains("is on InfiniBand"));
}

#[test]
fn sides_must_share_a_partition() {
    let fake = |pkey_index, role| {
        let config = SideConfig { pkey_index, ..SideConfig::default() };
        let side = Fake::default().open(&Plan::default(), &config, role).unwrap();
        side.port_info().clone()
    };
    let of = |ours, theirs| {
        let (ours, theirs) = (fake(ours, Role::Client), fake(theirs, Role::Server));
        choose(&ours, &theirs, NONE, &Plan::default(), Near::default()).map(drop).map_err(|sentence| sentence.0)
    };
    for (ours, theirs) in [(None, None), (Some(1), Some(1)), (Some(1), Some(2))] {
        assert_eq!(of(ours, theirs), Ok(()));
    }
    assert!(of(Some(2), Some(2)).is_err());
    let error = of(Some(1), None).unwrap_err();
    assert!(
        error.starts_with("the client's P_Key 0x8001 (index 1) and the server's P_Key 0xffff (index 0) do not match"),
        "{error}"
    );
    let unknown = PortInfo { partition: None, ..fake(None, Role::Server) };
    assert!(choose(&fake(Some(1), Role::Client), &unknown, NONE, &Plan::default(), Near::default()).is_ok());
}

#[test]
fn path_mtu_is_supported_by_both_ports() {
    let small = PortInfo { mtu: 1024, ..side("a", &[("10.0.0.1/24", "RoCE v2")]) };
    let large = side("a", &[("10.0.0.2/24", "RoCE v2")]);
    let mtu = |asked| {
        let plan = Plan { attributes: QpAttributes { mtu: asked, ..QpAttributes::default() }, ..Plan::default() };
        choose(&small, &large, NONE, &plan, Near::default()).map(|path| path.mtu).map_err(|sentence| sentence.0)
    };
    assert_eq!(mtu(None), Ok(1024));
    assert_eq!(mtu(Some(512)), Ok(512));
    assert_eq!(
        mtu(Some(4096)).unwrap_err(),
        "--mtu 4096 is above 1024, the MTU of port 1 of the client's fake0; give --mtu 1024"
    );
}

#[test]
fn ports_are_paired_in_order() {
    let ports = |last: u8| {
        let first = side("a", &[(&format!("10.0.0.{last}/24"), "RoCE v2")]);
        let second = side("a", &[("fe80::1/64", "RoCE v2"), (&format!("10.0.1.{last}/24"), "RoCE v2")]);
        PortInfo { others: vec![PortInfo { mtu: 1024, longest: Some(8928), ..second }], ..first }
    };
    let (client, server) = (ports(1), ports(2));
    let choose = |asked: &[[Option<u32>; 2]]| {
        choose_all(&client, &server, asked, &Plan::default(), Near::default()).map_err(|contradiction| contradiction.0)
    };
    let path = choose(&[]).unwrap();
    let ways: Vec<_> = path.all().map(|way| (way.client_gid, way.server_gid, way.mtu)).collect();
    assert_eq!(ways, [(Some(0), Some(0), 4096), (Some(1), Some(1), 1024)]);
    // A message must fit the paths of all ports.
    let limits = path.limits(&[&client, &server]);
    assert_eq!((limits.mtu, limits.longest), (1024, Some(8928)));
    let asked = choose(&[NONE, [Some(0), None]]).unwrap();
    assert_eq!((asked.client_gid, asked.others[0].client_gid), (Some(0), Some(0)));
    let error = choose(&[NONE, [Some(7), None]]).unwrap_err();
    assert!(error.starts_with("--gid-index 7: no such GID on port 1 of the client's fake0"), "{error}");
}

#[test]
fn client_path_is_checked() {
    let own = side("a", &[("10.0.0.1/24", "RoCE v2")]);
    let path = Path { client_gid: Some(77), server_gid: Some(0), mtu: 4096, others: Vec::new() };
    assert_eq!(check(&path, &own), Ok(()));
    assert!(check(&Path { server_gid: Some(1), ..path.clone() }, &own).is_err());
    assert!(check(&Path { server_gid: None, ..path.clone() }, &own).is_err());
    assert!(check(&Path { mtu: 8192, ..path.clone() }, &own).is_err());
    assert!(check(&Path { mtu: 1000, ..path.clone() }, &own).is_err());
    let two = Path { others: vec![path.clone()], ..path.clone() };
    assert!(check(&two, &own).unwrap_err().starts_with("names 2 paths "));
    let wide = PortInfo { others: vec![own.clone()], ..own.clone() };
    assert_eq!(check(&two, &wide), Ok(()));
    let wrong = Path { others: vec![Path { mtu: 8192, ..path.clone() }], ..path.clone() };
    assert!(check(&wrong, &wide).is_err());
    let peer_info = PeerInfo {
        lid: 0,
        gid: Some("::1".to_owned()),
        reads: 16,
        queue_pairs: Vec::new(),
        inline: 0,
        listening: None,
        others: Vec::new(),
    };
    assert!(check_ends(&peer_info, &path, &Plan::default()).unwrap_err().contains("0 queue pairs"));
    let (xrc, dc) = (Intake::Xrc { number: 1, srq: 2 }, Intake::Dc { number: 1, key: 2 });
    let all = [None, Some(xrc), Some(dc)];
    for (transport, right) in [
        (Transport::Rc, None),
        (Transport::Ud, None),
        (Transport::Srd, None),
        (Transport::Xrc, Some(xrc)),
        (Transport::Dc, Some(dc)),
    ] {
        let plan = Plan {
            attributes: QpAttributes { transport, ..QpAttributes::default() },
            queues: Queues { queue_pairs: 2, ..Queues::default() },
            ..Plan::default()
        };
        for wrong in all {
            let end = |intake| QpAddress { number: 1, psn: 2, address: 3, rkey: 4, intake };
            let peer_info = PeerInfo { queue_pairs: vec![end(right), end(wrong)], ..peer_info.clone() };
            let expected = format!("sent a target for queue pair 1 that {transport} does not use");
            let expected = if wrong == right { Ok(()) } else { Err(expected) };
            assert_eq!(check_ends(&peer_info, &path, &plan), expected);
        }
    }
}

#[test]
fn efa_devices_use_their_only_gid() {
    let efa = |host, gid| {
        let mut port_info = side(host, &[(gid, "IB")]);
        port_info.link_layer = "Unspecified".to_owned();
        port_info
    };
    let (client, server) = (efa("a", "fe80::1/64"), efa("b", "fe80::2/64"));
    let plan =
        Plan { attributes: QpAttributes { transport: Transport::Srd, ..QpAttributes::default() }, ..Plan::default() };
    let path = choose(&client, &server, [None; 2], &plan, Near::default()).unwrap();
    assert_eq!((path.client_gid, path.server_gid), (Some(0), Some(0)));
    assert_eq!(check(&path, &server), Ok(()));
}

#[test]
fn softrnic_connects_on_one_machine_only() {
    let host = |machine: &str, provider: &str, last: u8| {
        let side = side(machine, &[(&format!("10.0.0.{last}/24"), "RoCE v2")]);
        PortInfo { machine: machine.to_owned(), provider: provider.to_owned(), ..side }
    };
    let soft = |machine: &str| host(machine, "softrnic", 1);
    let error = |client: &PortInfo, server: &PortInfo, near| pair(client, server, NONE, near).err().unwrap_or_default();
    let far = near("10.0.0.1", "10.0.0.2");
    assert_eq!(error(&soft("a"), &soft("a"), far), "");
    // Containers have host names of their own, but may share the network namespace that softrnic uses.
    assert_eq!(error(&PortInfo { host: "container".to_owned(), ..soft("a") }, &soft("a"), far), "");
    // If a proxy relays the connection, its address is a loopback address too.
    assert_ne!(error(&soft("a"), &soft("b"), near("127.0.0.1", "127.0.0.1")), "");
    assert_eq!(error(&soft(""), &soft("b"), far), "");
    let two = error(&soft("a"), &soft("b"), far);
    assert!(
        two.contains("of one host only; add -R to connect over TCP, run both sides there, or name network devices"),
        "{two}"
    );
    let server = error(&host("a", "mlx5", 2), &soft("b"), far);
    assert!(server.starts_with("fake0 of b is a softrnic device") && server.ends_with("--remote-device"), "{server}");
    let client = error(&soft("a"), &host("a", "mlx5", 2), far);
    assert!(client.starts_with("fake0 of a is a softrnic device") && client.ends_with("with --device"), "{client}");
}
