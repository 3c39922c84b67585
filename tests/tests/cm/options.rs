//! Options, the route, and vendor options: the arguments that C receives, and its results.

use std::ptr;

use rdma_mummy_sys::ibv_sa_path_rec;
use sideway::error::VerbError;
use sideway::ibverbs::address::StaticRate;
use sideway::ibverbs::device_context::Mtu;
use sideway::ibverbs::queue_pair::Ece;
use sideway::rdmacm::communication_manager::{
    ConnectionParameter, EventKind, EventType, Identifier, PathRecord, PortSpace, RejectReason,
};
use sideway_tests::connections::{End, LONG, expect};
use sideway_tests::recording::Failure;
use sideway_tests::shim::{ConnectionEvent, Shim, channel};

use crate::{HERE, pair, raw};

#[test]
fn each_option_is_passed_with_its_level_name_and_length() {
    let shim = Shim::new();
    let channel = channel();
    let id = channel.create_id(PortSpace::Tcp).unwrap();
    shim.calls();
    id.set_type_of_service(0xb8).unwrap();
    id.set_reuse_address(true).unwrap();
    id.set_reuse_address(false).unwrap();
    id.set_af_only(true).unwrap();
    id.set_ack_timeout(31).unwrap();
    id.set_ack_timeout(32).unwrap_err();
    let given: Vec<_> = shim
        .calls()
        .iter()
        .map(|call| ["level", "optname", "optlen", "first"].map(|argument| call.argument(argument)))
        .collect();
    assert_eq!(given, [[0, 0, 1, 0xb8], [0, 1, 4, 1], [0, 1, 4, 0], [0, 2, 4, 1], [0, 3, 1, 31]]);
}

#[test]
fn refused_option_reports_when_it_can_be_set() {
    let shim = Shim::new();
    let channel = channel();
    let id = channel.create_id(PortSpace::Tcp).unwrap();
    type Set<'i> = &'i dyn Fn() -> Result<(), VerbError>;
    let options: [(Set<'_>, &str); 4] = [
        (&|| id.set_reuse_address(true), "before bind_addr"),
        (&|| id.set_af_only(true), "before bind_addr"),
        (&|| id.set_type_of_service(1), "in this state"),
        (&|| id.set_ack_timeout(1), "datagrams are not acknowledged"),
    ];
    for (set, hint) in options {
        for (errno, hint) in
            [(libc::EINVAL, hint), (libc::ENOSYS, "the kernel does not support the option; upgrade it")]
        {
            shim.fail("rdma_set_option", 0, Failure::documented(errno));
            let error = set().unwrap_err();
            assert_eq!((error.verb(), error.errno().raw()), ("rdma_set_option", errno));
            assert!(error.hint().unwrap().contains(hint), "{error}");
        }
    }
}

#[test]
fn given_path_replaces_route_resolution_on_infiniband() {
    let shim = Shim::new();
    let channel = channel();
    let id = channel.create_id(PortSpace::Tcp).unwrap();
    id.resolve_addr(None, (HERE, 9).into(), LONG).unwrap();
    expect(&channel, EventType::AddressResolved);
    shim.calls();
    let path = PathRecord::new(id.local_gid().unwrap(), id.peer_gid().unwrap());
    let error = id.set_path(&path).unwrap_err();
    assert!(error.hint().unwrap().contains("not on an InfiniBand port"), "{error}");
    assert_eq!(shim.verbs(), [""; 0]);
    // An unknown port has no link layer, and softrnic has no InfiniBand path.
    let (_, c_id) = raw(&channel, &id);
    // SAFETY: no other thread uses the identifier.
    unsafe { (*c_id).port_num = 0 };
    shim.instead("rdma_set_option", |_| 0);
    id.set_path(&path).unwrap();
    let calls = shim.calls();
    let call = calls.iter().find(|call| call.verb == "rdma_set_option").unwrap();
    // The first byte has the flags: for the manager, primary, in both directions.
    assert_eq!(["level", "optname", "optlen", "first"].map(|argument| call.argument(argument)), [1, 1, 72, 43]);
    let error = id.set_path(&path).unwrap_err();
    assert_eq!(error.hint(), Some("the address is not resolved, or the route already is; call this between the two"));
}

#[test]
fn paths_are_copied_for_any_reported_count() {
    let _shim = Shim::new();
    let channel = channel();
    let (_listener, id) = pair(&channel, PortSpace::Tcp);
    let [path] = id.paths()[..] else { panic!("{:?}", id.paths()) };
    assert_eq!((path.mtu(), path.rate(), path.packet_life_time()), (Mtu::Mtu4096, StaticRate::Gbps100, 16));
    assert_eq!((path.pkey(), path.hop_limit(), path.is_reversible()), (0xffff, 64, true));
    let (_, c_id) = raw(&channel, &id);
    // SAFETY: no other thread uses the identifier, which has a record.
    let (before, route) = unsafe { ((*c_id).route.path_rec, &raw mut (*c_id).route) };
    // SAFETY: the record is written.
    let mut records: [ibv_sa_path_rec; 2] = unsafe { [*before, *before] };
    records[1].mtu = 0x3f;
    records[1].rate = 0xff;
    let read = |records: *mut ibv_sa_path_rec, count| {
        // SAFETY: as above.
        unsafe { ((*route).path_rec, (*route).num_paths) = (records, count) };
        id.paths()
    };
    let two = read(records.as_mut_ptr(), 2);
    assert_eq!(two[0], path);
    assert_eq!((two[1].mtu(), two[1].rate()), (Mtu::from_raw(0x3f), StaticRate::from_raw(0xff)));
    assert!(format!("{:?}", two[1]).contains("Mtu(63)"), "{:?}", two[1]);
    assert_eq!(read(records.as_mut_ptr(), 0), []);
    assert_eq!(read(records.as_mut_ptr(), -1), []);
    assert_eq!(read(ptr::null_mut(), 7), []);
    assert_eq!(read(before, 1), [path]);
}

#[test]
fn vendor_options_are_the_peers() {
    let shim = Shim::new();
    let channel = channel();
    let (_listener, id) = pair(&channel, PortSpace::Tcp);
    let offer = Ece { vendor_id: 0x15b3, options: 7, comp_mask: 0 };
    id.set_local_ece(offer).unwrap();
    id.connect(ConnectionParameter::default().setup_qp_number(5)).unwrap();
    let request = expect(&channel, EventType::ConnectRequest);
    assert_eq!(request.cm_id().remote_ece().unwrap(), offer);
    request.cm_id().reject_ece(b"plainly").unwrap();
    let event = expect(&channel, EventType::Rejected);
    let EventKind::Rejected(rejection) = event.kind() else { panic!("{event:?}") };
    assert_eq!(rejection.reason(), Some(RejectReason::VendorOptionNotSupported));
    assert!(shim.verbs().contains(&"rdma_reject_ece"));

    let (_listener, id) = pair(&channel, PortSpace::Tcp);
    let with_queue_pair = End::of(id);
    for result in [with_queue_pair.id.set_local_ece(offer), with_queue_pair.id.remote_ece().map(drop)] {
        let error = result.unwrap_err();
        assert!(error.hint().unwrap().contains("created through the identifier"), "{error}");
    }
    with_queue_pair.qp.close().unwrap();
}

#[test]
fn library_without_vendor_options_gives_a_typed_error() {
    let shim = Shim::new();
    let channel = channel();
    let (_listener, id) = pair(&channel, PortSpace::Tcp);
    id.connect(&ConnectionParameter::default()).unwrap();
    let request = expect(&channel, EventType::ConnectRequest);
    type Call = fn(&Identifier) -> Result<(), VerbError>;
    let calls: [(&str, Call); 3] = [
        ("rdma_set_local_ece", |id| id.set_local_ece(Ece { vendor_id: 1, ..Ece::default() })),
        ("rdma_get_remote_ece", |id| id.remote_ece().map(drop)),
        ("rdma_reject_ece", |id| id.reject_ece(b"")),
    ];
    for (verb, call) in calls {
        shim.fail(verb, 0, Failure::documented(libc::EOPNOTSUPP));
        let error = call(request.cm_id()).unwrap_err();
        assert_eq!((error.verb(), error.errno().raw()), (verb, libc::EOPNOTSUPP));
        assert!(error.hint().unwrap().contains("older than rdma-core 31"), "{error}");
    }
    // The vendor options of the response were not set.
    request.cm_id().reject(b"").unwrap();
}

#[test]
fn changed_address_of_the_network_device_is_reported() {
    let shim = Shim::new();
    let channel = channel();
    let (_listener, id) = pair(&channel, PortSpace::Tcp);
    let (c_channel, c_id) = raw(&channel, &id);
    shim.raise(c_channel, ConnectionEvent::new(EventType::AddressChange.raw(), c_id));
    let event = expect(&channel, EventType::AddressChange);
    assert!(matches!(event.kind(), EventKind::AddressChange));
    assert_eq!(event.to_string(), "address change");
}
