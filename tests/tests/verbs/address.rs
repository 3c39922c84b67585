//! Address handles, replies to the sender of a datagram, and the hardware address of a peer.

use std::sync::Arc;

use sideway::error::VerbError;
use sideway::ibverbs::address::{AddressHandleAttribute, Gid, GlobalRoutingHeader};
use sideway::ibverbs::completion::{WorkCompletionFlags, WorkCompletionSource};
use sideway_tests::recording::{Failure, Kind, World};

fn peer() -> Gid {
    "::ffff:192.0.2.9".parse().expect("a GID")
}

fn way() -> AddressHandleAttribute {
    let mut way = AddressHandleAttribute::new();
    way.setup_port(1).setup_dest_lid(3).setup_grh(&peer(), 0, 0, 64, 0);
    way
}

/// A native InfiniBand header from fe80::1 to fe80::2.
fn header() -> GlobalRoutingHeader {
    let mut bytes = [0; 40];
    bytes[..8].copy_from_slice(&[0x60, 0x0a, 0xbc, 0xde, 0, 0, 0x1b, 61]);
    (bytes[8], bytes[9], bytes[23]) = (0xfe, 0x80, 1);
    (bytes[24], bytes[25], bytes[39]) = (0xfe, 0x80, 2);
    GlobalRoutingHeader::from_bytes(bytes)
}

fn source(wc_flags: WorkCompletionFlags) -> WorkCompletionSource {
    WorkCompletionSource { src_qp: 5, slid: 0x77, sl: 2, dlid_path_bits: 1, wc_flags }
}

#[test]
fn address_handle_has_its_attributes_and_is_dropped_before_its_domain() {
    let world = World::new();
    let ah = world.pd.create_ah(&way()).unwrap();
    let call = world.recording.calls().remove(0);
    assert_eq!((call.verb, call.argument("port"), call.argument("dlid")), ("create_ah", 1, 3));
    assert_eq!((call.argument("is_global"), call.argument("sgid_index"), call.argument("hop_limit")), (1, 0, 64));
    assert_eq!(call.argument("dgid_end"), peer().interface_id());
    assert!(Arc::ptr_eq(ah.protection_domain(), &world.pd));
    let recording = world.end_with(ah);
    assert_eq!(
        recording.verbs().iter().rev().take(3).rev().copied().collect::<Vec<_>>(),
        ["destroy_ah", "dealloc_pd", "close_device"]
    );
}

/// Drops the world first, and the handle last.
trait EndWith {
    fn end_with<T>(self, last: T) -> sideway_tests::recording::Recording;
}

impl EndWith for World {
    fn end_with<T>(self, last: T) -> sideway_tests::recording::Recording {
        let Self { send_cq, recv_cq, pd, context, recording } = self;
        drop((send_cq, recv_cq, pd, context));
        assert!(recording.live().contains(&Kind::ProtectionDomain), "the handle keeps it");
        drop(last);
        assert_eq!(recording.live(), []);
        recording
    }
}

#[test]
fn closing_reports() {
    let world = World::new();
    let ah = world.pd.create_ah(&way()).unwrap();
    Arc::into_inner(ah).unwrap().close().unwrap();
    assert!(!world.recording.live().contains(&Kind::AddressHandle));
    let ah = world.pd.create_ah(&way()).unwrap();
    world.recording.fail("destroy_ah", 0, Failure::documented(libc::EIO));
    let error = Arc::into_inner(ah).unwrap().close().unwrap_err();
    assert_eq!(error.to_string(), "ibv_destroy_ah: EIO (Input/output error)");
    assert!(world.recording.live().contains(&Kind::AddressHandle), "the handle is not leaked");
}

/// The error of creating a handle, for this errno of the driver.
fn refused(world: &World, way: &AddressHandleAttribute, errno: i32) -> VerbError {
    world.recording.fail("create_ah", 0, Failure::documented(errno));
    let error = world.pd.create_ah(way).expect_err("the driver refuses");
    assert_eq!((error.verb(), error.errno().raw()), ("ibv_create_ah", errno));
    error
}

#[test]
fn address_handle_errors_name_the_cause() {
    let world = World::new();
    let text = |way: &AddressHandleAttribute, errno| refused(&world, way, errno).to_string();
    let mut local = AddressHandleAttribute::new();
    local.setup_port(1).setup_dest_lid(4);
    assert_eq!(
        text(&local, libc::EINVAL),
        "ibv_create_ah: EINVAL (Invalid argument): the port is Ethernet, and the path has no global route; call setup_grh with the peer's GID"
    );
    let mut wrong = way();
    wrong.setup_grh_src_gid_index(9);
    assert!(text(&wrong, libc::EINVAL).ends_with("port 1 has no GID index 9; use an index below 4"));
    wrong.setup_grh_src_gid_index(2);
    assert!(text(&wrong, libc::EINVAL).contains("GID index 2 of port 1 is not in use"));
    let mut nobody = way();
    nobody.setup_grh_dest_gid(&Gid::default());
    assert!(text(&nobody, libc::EINVAL).contains("the peer's GID is zero"));
    let mut no_port = way();
    no_port.setup_port(7);
    assert!(text(&no_port, libc::EINVAL).contains("there is no port 7"));
    assert!(
        text(&way(), libc::ETIMEDOUT)
            .contains("cannot resolve the hardware address of 0000:0000:0000:0000:0000:ffff:c000:0209")
    );
    for errno in [libc::ENETUNREACH, libc::EHOSTUNREACH] {
        assert!(text(&way(), errno).contains("there is no route to"));
    }
    assert_eq!(refused(&world, &way(), libc::ENOMEM).hint(), None);
    // InfiniBand needs no global route.
    world.recording.edit(|facts| facts.port.link_layer = 1);
    assert_eq!(refused(&world, &local, libc::EINVAL).hint(), None);
    world.end();
}

/// mlx5 refuses a missing port without setting errno.
#[test]
fn refusal_without_errno_ignores_an_earlier_failure() {
    let world = World::new();
    let mut no_port = way();
    no_port.setup_port(7);
    assert_eq!(refused(&world, &way(), libc::ETIMEDOUT).errno().raw(), libc::ETIMEDOUT);
    world.recording.fail("create_ah", 0, Failure::silent());
    let error = world.pd.create_ah(&no_port).unwrap_err();
    assert_eq!(error.errno().raw(), libc::EIO);
    assert!(error.hint().unwrap().contains("there is no port 7"), "{error}");
    world.end();
}

#[test]
fn reply_address_comes_from_completion_and_header() {
    let world = World::new();
    let with_header = source(WorkCompletionFlags::GlobalRoutingHeader);
    let back = world.context.init_ah_from_wc(1, &with_header, Some(&header())).unwrap();
    let call = world.recording.calls().remove(0);
    assert_eq!((call.verb, call.argument("port"), call.argument("slid")), ("init_ah_from_wc", 1, 0x77));
    assert_eq!((call.argument("sl"), call.argument("src_qp")), (2, 5));
    assert_eq!((call.argument("wc_flags"), call.argument("grh")), (1, 1));
    assert!(back.is_global());
    assert_eq!((back.port(), back.dest_lid(), back.service_level(), back.src_path_bits()), (1, 0x77, 2, 1));
    assert_eq!(back.grh_dest_gid(), header().source_gid());
    assert_eq!((back.grh_flow_label(), back.grh_hop_limit()), (0xabcde, 61));

    // Without a header, none is read, whether it was passed or not.
    for given in [None, Some(&header())] {
        let back = world.context.init_ah_from_wc(1, &source(WorkCompletionFlags::empty()), given).unwrap();
        assert!(!back.is_global());
        assert_eq!(back.dest_lid(), 0x77);
    }
    world.recording.calls();
    let ah = world.pd.create_ah_from_wc(1, &with_header, Some(&header())).unwrap();
    assert_eq!(world.recording.verbs(), ["init_ah_from_wc", "create_ah"]);
    drop(ah);
    world.end();
}

#[test]
fn missing_header_is_not_read() {
    let world = World::new();
    let with_header = source(WorkCompletionFlags::GlobalRoutingHeader);
    for error in [
        world.context.init_ah_from_wc(1, &with_header, None).map(drop).unwrap_err(),
        world.pd.create_ah_from_wc(1, &with_header, None).map(drop).unwrap_err(),
    ] {
        assert!(error.hint().unwrap().contains("pass the first 40 bytes"), "{error}");
    }
    let extended_lid = WorkCompletionSource { slid: 0x1_0000, ..source(WorkCompletionFlags::empty()) };
    let error = world.context.init_ah_from_wc(1, &extended_lid, None).unwrap_err();
    assert!(error.hint().unwrap().contains("0x10000 has more than 16 bits"), "{error}");
    assert_eq!(world.recording.verbs(), [""; 0], "the library was called");
    world.end();
}

#[test]
fn failed_reply_address_is_explained() {
    let world = World::new();
    let with_header = source(WorkCompletionFlags::GlobalRoutingHeader);
    let refused = |port, header: &GlobalRoutingHeader| {
        world.recording.fail("init_ah_from_wc", 0, Failure::minus_one(libc::EPROTONOSUPPORT));
        world.context.init_ah_from_wc(port, &with_header, Some(header)).unwrap_err().to_string()
    };
    let text = refused(1, &header());
    assert!(text.starts_with("ibv_init_ah_from_wc: EPROTONOSUPPORT"), "{text}");
    assert!(text.ends_with(
        "port 1 probably has no GID fe80:0000:0000:0000:0000:0000:0000:0002, the datagram's destination; pass the receiving port"
    ));
    assert!(refused(1, &GlobalRoutingHeader::from_bytes([0; 40])).contains("neither a global routing header nor IPv4"));
    assert!(refused(3, &header()).contains("there is no port 3"));
    world.end();
}

#[test]
fn peer_hardware_address_is_resolved() {
    let world = World::new();
    let found = world.context.resolve_eth_l2_from_gid(&way()).unwrap();
    assert_eq!((found.mac, found.vlan_id), ([0xff, 0xff, 192, 0, 2, 9], None));
    assert_eq!(found.to_string(), "ff:ff:c0:00:02:09");
    let call = world.recording.calls().remove(0);
    assert_eq!((call.argument("port"), call.argument("sgid_index")), (1, 0));
    world.recording.edit(|facts| facts.vlan = 4095);
    let found = world.context.resolve_eth_l2_from_gid(&way()).unwrap();
    assert_eq!((found.vlan_id, found.to_string().as_str()), (Some(4095), "ff:ff:c0:00:02:09 vlan 4095"));
    world.recording.fail("resolve_eth_l2_from_gid", 0, Failure::documented(libc::ETIMEDOUT));
    let error = world.context.resolve_eth_l2_from_gid(&way()).unwrap_err();
    assert!(error.hint().unwrap().contains("cannot resolve the hardware address"), "{error}");
    world.end();
}
