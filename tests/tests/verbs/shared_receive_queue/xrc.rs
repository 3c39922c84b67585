//! XRC domains, and the receiving queue pairs in them.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::device::DeviceInfo;
use sideway::ibverbs::queue_pair::{QueuePairAttribute, QueuePairAttributeMask, QueuePairState};
use sideway::ibverbs::xrc_domain::XrcDomainFlags;
use sideway_tests::recording::{Failure, Kind, Recording, World};

#[test]
fn domain_is_opened_by_its_file_and_its_flags() {
    let world = World::new();
    let file = std::fs::File::open("/dev/null").unwrap();
    let both = XrcDomainFlags::Create | XrcDomainFlags::Exclusive;
    for (given, flags, fd) in [
        (None, XrcDomainFlags::Create, -1),
        (Some(file.as_fd()), XrcDomainFlags::empty(), file.as_raw_fd()),
        (Some(file.as_fd()), both, file.as_raw_fd()),
    ] {
        let xrcd = world.context.open_xrcd(given, flags).unwrap();
        assert_eq!(xrcd.device_context().name(), world.recording.name());
        let call = world.recording.calls().remove(0);
        assert_eq!((call.verb, call.argument("comp_mask")), ("open_xrcd", 3));
        assert_eq!((call.argument("fd"), call.argument("oflags")), (fd as u64, flags.bits() as u64));
        assert_eq!(world.recording.live().iter().filter(|&&kind| kind == Kind::XrcDomain).count(), 1);
        drop(xrcd);
        assert_eq!(world.recording.verbs(), ["close_xrcd"]);
    }
    world.end();
}

#[test]
fn failed_open_is_explained() {
    let world = World::new();
    let file = std::fs::File::open("/dev/null").unwrap();
    let error = world.context.open_xrcd(None, XrcDomainFlags::empty()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "ibv_open_xrcd: EINVAL (Invalid argument): without a file there is no domain to open; pass XrcDomainFlags::Create"
    );
    assert_eq!(world.recording.verbs(), [""; 0]);
    let both = XrcDomainFlags::Create | XrcDomainFlags::Exclusive;
    for (errno, flags, words) in [
        (libc::EINVAL, both, "may already have a domain"),
        (libc::EAGAIN, XrcDomainFlags::empty(), "XrcDomainFlags::Create"),
        (libc::EBADF, XrcDomainFlags::Create, "pass a file"),
        (libc::EOPNOTSUPP, XrcDomainFlags::Create, "does not support XRC"),
    ] {
        world.recording.fail("open_xrcd", 0, Failure::documented(errno));
        let error = world.context.open_xrcd(Some(file.as_fd()), flags).unwrap_err();
        assert_eq!((error.verb(), error.errno().raw()), ("ibv_open_xrcd", errno));
        assert!(error.hint().unwrap().contains(words), "{error}");
    }
    world.end();
}

#[test]
fn driver_without_close_xrcd_opens_no_domain() {
    for function in ["open_xrcd", "close_xrcd"] {
        let recording = Recording::new();
        let context = recording.without(function).open();
        recording.calls();
        let error = context.open_xrcd(None, XrcDomainFlags::Create).unwrap_err();
        assert_eq!(
            error.to_string(),
            "ibv_open_xrcd: EOPNOTSUPP (Operation not supported): the device or its driver does not support XRC \
             (DeviceCapabilityFlags::ExtendedReliableConnection)"
        );
        assert_eq!(recording.verbs(), [""; 0], "{function}");
    }
}

#[test]
fn xrc_receive_queue_pair_needs_only_its_domain() {
    let world = World::new();
    let xrcd = world.context.open_xrcd(None, XrcDomainFlags::Create).unwrap();
    world.recording.calls();
    let qp = xrcd.create_recv_qp().unwrap();
    let call = world.recording.calls().remove(0);
    // SAFETY: the pointers are compared, and the number read, while the objects are alive.
    let (domain, number) = unsafe { (xrcd.xrcd().as_ptr().addr(), (*qp.qp().as_ptr()).qp_num) };
    // IBV_QP_INIT_ATTR_XRCD and IBV_QPT_XRC_RECV.
    assert_eq!((call.verb, call.argument("comp_mask"), call.argument("qp_type")), ("create_qp_ex", 2, 10));
    assert_eq!((call.argument("xrcd"), qp.qp_number()), (domain as u64, number));

    let mut init = QueuePairAttribute::new();
    init.setup_state(QueuePairState::Init).setup_pkey_index(0).setup_port(1);
    init.setup_access_flags(AccessFlags::RemoteWrite);
    assert_eq!(qp.state(), QueuePairState::Reset);
    qp.modify(&init).unwrap();
    assert_eq!(qp.state(), QueuePairState::Init);
    let (found, _) = qp.query(QueuePairAttributeMask::State).unwrap();
    assert_eq!(found.state(), QueuePairState::Init);
    // The table of transitions contains this type.
    world.recording.fail("modify_qp", 0, Failure::documented(libc::EINVAL));
    let mut ready = QueuePairAttribute::new();
    let error = qp.modify(ready.setup_state(QueuePairState::ReadyToReceive)).unwrap_err();
    assert!(error.to_string().contains("MinResponderNotReadyTimer"), "{error}");

    world.recording.fail("create_qp_ex", 0, Failure::documented(libc::EOPNOTSUPP));
    let error = xrcd.create_recv_qp().unwrap_err();
    assert!(error.to_string().ends_with("the device or its driver does not support XRC queue pairs"), "{error}");
    drop((qp, xrcd));
    world.end();
}

#[test]
fn queue_pair_is_opened_by_its_number() {
    let world = World::new();
    let xrcd = world.context.open_xrcd(None, XrcDomainFlags::Create).unwrap();
    let made = xrcd.create_recv_qp().unwrap();
    world.recording.calls();
    let opened = xrcd.open_qp(made.qp_number()).unwrap();
    let call = world.recording.calls().remove(0);
    // NUM, XRCD and TYPE.
    assert_eq!((call.verb, call.argument("comp_mask"), call.argument("qp_type")), ("open_qp", 0b1011, 10));
    assert_eq!(call.argument("qp_num"), u64::from(made.qp_number()));
    assert_eq!(opened.qp_number(), made.qp_number());
    drop(made);
    assert!(world.recording.live().contains(&Kind::QueuePair), "each closes its own");

    let error = xrcd.open_qp(999).unwrap_err();
    assert_eq!(
        error.to_string(),
        "ibv_open_qp: EINVAL (Invalid argument): this domain may have no receiving XRC queue pair of number 999; check the number"
    );
    let other = world.context.open_xrcd(None, XrcDomainFlags::Create).unwrap();
    assert_eq!(other.open_qp(opened.qp_number()).unwrap_err().errno().raw(), libc::EINVAL);
    assert_eq!(Arc::strong_count(&other), 1, "a refused object keeps a reference");
    opened.close().unwrap();
    drop((xrcd, other));
    world.end();

    let recording = Recording::new();
    let xrcd = recording.without("open_qp").open().open_xrcd(None, XrcDomainFlags::Create).unwrap();
    let error = xrcd.open_qp(1).unwrap_err();
    assert!(error.to_string().ends_with("the device or its driver does not support sharing queue pairs"), "{error}");
}
