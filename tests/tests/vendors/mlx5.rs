//! Dynamic connections and the clock.

use std::time::Duration;

use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::address::AddressHandleAttribute;
use sideway::ibverbs::device_context::Mtu;
use sideway::ibverbs::queue_pair::teardown::{Drained, ResetReason};
use sideway::ibverbs::queue_pair::{
    ExtendedQueuePair, PostSendGuard, QueuePair, QueuePairAttribute, QueuePairBuilder, QueuePairState,
    SendOperationFlags,
};
use sideway::ibverbs::shared_receive_queue::SharedReceiveQueue;
use sideway::ibverbs::work_request::{PostErrorKind, WorkRequestFlags};
use sideway::mlx5::{DciStreams, DynamicallyConnected, Mlx5DeviceFlags, is_mlx5};
use sideway_tests::recording::{Call, Failure, Kind, Recording, World, install_mlx5};

const SIGNALED: WorkRequestFlags = WorkRequestFlags::Signaled;
const KEY: u64 = 0xfedc_ba98_7654_3210;
/// `IBV_QPT_DRIVER`.
const DRIVER: u64 = 0xff;

fn world() -> World {
    install_mlx5();
    World::on(Recording::of_system())
}

fn dci_builder(world: &World) -> QueuePairBuilder<DynamicallyConnected> {
    let mut builder = world.pd.create_dci_builder().unwrap();
    builder.setup_send_cq(&world.send_cq).setup_max_send_wr(4).setup_max_send_sge(2).setup_max_inline_data(16);
    builder
}

fn dci(world: &World) -> ExtendedQueuePair<DynamicallyConnected> {
    let qp = dci_builder(world).build_dci().unwrap();
    world.recording.calls();
    qp
}

fn call(world: &World, verb: &str) -> Call {
    let calls = world.recording.calls();
    let found = calls.iter().find(|call| call.verb == verb);
    found.unwrap_or_else(|| panic!("no {verb} among {calls:?}")).clone()
}

fn shared_receive_queue(world: &World) -> SharedReceiveQueue {
    world.pd.create_srq_builder().build().unwrap()
}

#[test]
fn device_reports_its_vendor_and_its_capabilities() {
    let world = world();
    assert!(is_mlx5(&*world.context));
    let attr = world.context.query_mlx5_device().unwrap();
    assert_eq!(attr.version(), 1);
    assert!(attr.flags().contains(Mlx5DeviceFlags::CompletionVersion1));
    assert_eq!(attr.flags().bits(), 1 | 1 << 40, "flags without a name pass through");
    assert_eq!(attr.max_clock_info_update_nsec(), Some(5_000));
    assert_eq!(attr.num_lag_ports(), Some(2));
    assert_eq!(attr.dci_streams(), Some(DciStreams { log_num_concurrent: 8, log_num_errored: 4 }));
    world.recording.without("dci_streams");
    assert_eq!(world.context.query_mlx5_device().unwrap().dci_streams(), None);
    world.end();
}

#[test]
fn device_of_another_vendor_is_an_error() {
    let world = world();
    world.recording.without("mlx5dv_is_supported");
    assert!(!is_mlx5(&*world.context));
    let name = world.recording.name();
    let expected = |verb: &str| format!("{verb}: EOPNOTSUPP (Operation not supported): {name} is not an mlx5 device");
    let error = world.pd.create_dci_builder().unwrap_err();
    assert_eq!((error.errno().raw(), error.to_string()), (libc::EOPNOTSUPP, expected("mlx5dv_create_qp")));
    assert_eq!(world.pd.create_dct_builder().unwrap_err().to_string(), expected("mlx5dv_create_qp"));
    assert_eq!(world.context.query_mlx5_device().unwrap_err().to_string(), expected("mlx5dv_query_device"));
    world.end();
}

#[test]
fn dc_initiator_has_all_operations_and_no_receive_queue() {
    let world = world();
    let qp = dci_builder(&world).build_dci().unwrap();
    let call = call(&world, "mlx5dv_create_qp");
    let operations = SendOperationFlags::Send
        | SendOperationFlags::SendWithImmediate
        | SendOperationFlags::Write
        | SendOperationFlags::WriteWithImmediate
        | SendOperationFlags::Read
        | SendOperationFlags::AtomicCompareAndSwap
        | SendOperationFlags::AtomicFetchAndAdd;
    for (name, value) in [
        ("max_send_wr", 4),
        ("max_recv_wr", 0),
        ("max_send_sge", 2),
        ("max_recv_sge", 0),
        ("max_inline_data", 16),
        ("qp_type", DRIVER),
        // The domain and the operations.
        ("comp_mask", 1 | 1 << 6),
        ("srq", 0),
        ("same_cq", 1),
        ("send_ops_flags", operations.bits()),
        // MLX5DV_QP_INIT_ATTR_MASK_DC, MLX5DV_DCTYPE_DCI.
        ("mlx5_comp_mask", 2),
        ("dc_type", 2),
        ("dct_access_key", 0),
    ] {
        assert_eq!(call.argument(name), value, "{name}");
    }
    drop(qp);
    world.end();
}

#[test]
fn dc_initiator_returns_its_streams() {
    let world = world();
    let streams = DciStreams { log_num_concurrent: 3, log_num_errored: 1 };
    let mut qp = dci_builder(&world).build_dci_with_streams(streams).unwrap();
    let create = call(&world, "mlx5dv_create_qp");
    // MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS as well.
    assert_eq!(create.argument("mlx5_comp_mask"), 2 | 8);
    assert_eq!(create.argument("dct_access_key").to_ne_bytes()[..2], [3, 1]);
    let ah = world.pd.create_ah(&AddressHandleAttribute::new()).unwrap();
    let mut guard = qp.start_post_send();
    let request = guard.construct_wr(1, SIGNALED).setup_write(2, 3);
    request.setup_dc_addr_stream(&ah, 0x1234, KEY, 5).setup_inline_data(b"x");
    guard.post().unwrap();
    let address = call(&world, "wr_set_dc_addr_stream");
    assert_eq!([address.argument("dctn"), address.argument("dc_key"), address.argument("stream")], [0x1234, KEY, 5]);
    drop((qp, ah));
    world.end();
}

#[test]
fn each_request_names_its_target() {
    let world = world();
    let ah = world.pd.create_ah(&AddressHandleAttribute::new()).unwrap();
    let mut qp = dci(&world);
    let mut guard = qp.start_post_send();
    guard.construct_wr(1, SIGNALED).setup_send().setup_dc_addr(&ah, 0x10, KEY).setup_inline_data(b"hello");
    let request = guard.construct_wr(2, SIGNALED).setup_read(7, 8);
    // SAFETY: the recording device accesses no memory, and the handle belongs to it.
    unsafe { request.setup_dc_addr_unchecked(&ah, 0x11, !KEY).setup_sge(9, 10, 11) };
    guard.post().unwrap();
    let calls = world.recording.calls();
    let names: Vec<_> = calls.iter().map(|call| call.verb).collect();
    assert_eq!(
        names,
        [
            "wr_start",
            "wr_send",
            "wr_set_dc_addr",
            "wr_set_inline_data",
            "wr_rdma_read",
            "wr_set_dc_addr",
            "wr_set_sge",
            "wr_complete"
        ]
    );
    // SAFETY: the address is only compared.
    let handle = unsafe { ah.ah() }.as_ptr().addr() as u64;
    for (call, dctn, key) in [(&calls[2], 0x10, KEY), (&calls[5], 0x11, !KEY)] {
        assert_eq!([call.argument("ah"), call.argument("dctn"), call.argument("dc_key")], [handle, dctn, key]);
    }
    let posted = world.recording.posted();
    assert_eq!(posted.iter().map(|request| request.wr_id).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(posted[0].inline.as_deref(), Some(&b"hello"[..]));
    assert_eq!(posted[1].entries, [(9, 10, 11)]);
    drop((qp, ah));
    world.end();
}

/// The recording device reports an address without an open request as a violation.
#[test]
fn refused_request_reaches_no_function_of_mlx5() {
    let world = world();
    let ah = world.pd.create_ah(&AddressHandleAttribute::new()).unwrap();
    let mut qp = dci_builder(&world).setup_send_ops_flags(SendOperationFlags::Send).build_dci().unwrap();
    world.recording.calls();
    let mut guard = qp.start_post_send();
    guard.construct_wr(1, SIGNALED).setup_write(2, 3).setup_dc_addr(&ah, 1, 2).setup_inline_data(b"x");
    guard.construct_wr(2, SIGNALED).setup_send().setup_dc_addr(&ah, 1, 2).setup_inline_data(b"x");
    let error = guard.post().unwrap_err();
    assert_eq!(error.kind(), PostErrorKind::OperationNotEnabled(SendOperationFlags::Write));
    assert_eq!(world.recording.verbs(), ["wr_start", "wr_abort"]);
    let mut guard = qp.start_post_send();
    guard.construct_wr(3, SIGNALED).setup_send().setup_dc_addr(&ah, 1, 2).setup_inline_data(b"x");
    guard.post().unwrap();
    assert_eq!(world.recording.posted()[0].wr_id, 3);
    drop((qp, ah));
    world.end();
}

#[test]
fn address_handle_of_another_device_is_refused() {
    let world = world();
    let other = self::world();
    let ah = other.pd.create_ah(&AddressHandleAttribute::new()).unwrap();
    let mut qp = dci(&world);
    let mut guard = qp.start_post_send();
    guard.construct_wr(1, SIGNALED).setup_send().setup_dc_addr(&ah, 1, 2).setup_inline_data(b"x");
    let error = guard.post().unwrap_err();
    assert_eq!(error.kind(), PostErrorKind::InvalidWorkRequest);
    assert!(error.to_string().contains("belongs to another device context than the queue pair"), "{error}");
    assert_eq!(world.recording.verbs(), ["wr_start", "wr_send", "wr_abort"]);
    assert_eq!(world.recording.posted(), []);
    drop((qp, ah));
    world.end();
    other.end();
}

#[test]
fn stream_on_an_initiator_without_streams_is_refused() {
    let world = world();
    let ah = world.pd.create_ah(&AddressHandleAttribute::new()).unwrap();
    let mut qp = dci(&world);
    let mut guard = qp.start_post_send();
    guard.construct_wr(1, SIGNALED).setup_send().setup_dc_addr_stream(&ah, 1, 2, 3).setup_inline_data(b"x");
    let error = guard.post().unwrap_err();
    assert!(error.to_string().contains("was built without streams; build it with build_dci_with_streams"), "{error}");
    drop((qp, ah));
    world.end();
}

#[test]
fn null_functions_are_detected_when_the_initiator_is_built() {
    let world = world();
    let streams = DciStreams { log_num_concurrent: 1, log_num_errored: 1 };
    world.recording.without("wr_set_dc_addr_stream");
    let error = dci_builder(&world).build_dci_with_streams(streams).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("created the queue pair without the function wr_set_dc_addr_stream; upgrade rdma-core"),
        "{error}"
    );
    world.recording.without("wr_set_dc_addr");
    let error = dci_builder(&world).build_dci().unwrap_err();
    assert_eq!(
        error.to_string(),
        "mlx5dv_create_qp: EOPNOTSUPP (Operation not supported): libmlx5 created the queue pair without the function \
         wr_set_dc_addr; upgrade rdma-core"
    );
    assert!(!world.recording.live().contains(&Kind::QueuePair));
    world.end();
}

#[test]
fn dc_initiator_lacks_atomics_if_the_device_does() {
    let world = world();
    world.recording.without("atomics");
    let qp = dci_builder(&world).build_dci().unwrap();
    let flags: Vec<_> = world
        .recording
        .calls()
        .iter()
        .filter(|call| call.verb == "mlx5dv_create_qp")
        .map(|call| SendOperationFlags::from_bits_retain(call.argument("send_ops_flags")))
        .collect();
    assert_eq!(flags.len(), 2);
    assert!(flags[0].contains(SendOperationFlags::AtomicFetchAndAdd));
    assert!(!flags[1].contains(SendOperationFlags::AtomicFetchAndAdd));
    // Requested atomics are not dropped.
    let error =
        dci_builder(&world).setup_send_ops_flags(SendOperationFlags::AtomicFetchAndAdd).build_dci().unwrap_err();
    assert_eq!(error.errno().raw(), libc::EOPNOTSUPP);
    drop(qp);
    // A different reason of the second try is reported.
    world.recording.fail("mlx5dv_create_qp", 1, Failure::documented(libc::ENOMEM));
    assert_eq!(dci_builder(&world).build_dci().unwrap_err().errno().raw(), libc::ENOMEM);
    world.end();
}

#[test]
fn receives_and_missing_queues_are_refused_before_the_call() {
    let world = world();
    let error = dci_builder(&world).setup_max_recv_wr(1).build_dci().unwrap_err();
    assert!(error.to_string().contains("an initiator of dynamic connections has no receive queue"), "{error}");
    let error = world.pd.create_dci_builder().unwrap().build_dci().unwrap_err();
    assert_eq!(
        error.to_string(),
        "mlx5dv_create_qp: EINVAL (Invalid argument): no completion queue is set; call setup_send_cq"
    );
    let other = self::world();
    let error = dci_builder(&world).setup_send_cq(&other.send_cq).build_dci().unwrap_err();
    assert!(error.to_string().contains("another device context than the domain"), "{error}");
    assert!(!world.recording.verbs().contains(&"mlx5dv_create_qp"));
    world.recording.fail("mlx5dv_create_qp", 0, Failure::documented(libc::ENOMEM));
    let error = dci_builder(&world).build_dci().unwrap_err();
    assert_eq!(error.to_string(), "mlx5dv_create_qp: ENOMEM (Cannot allocate memory)");
    world.end();
    other.end();
}

#[test]
fn dc_target_has_a_key_and_a_shared_receive_queue_but_no_requests() {
    let world = world();
    let srq = shared_receive_queue(&world);
    let mut builder = world.pd.create_dct_builder().unwrap();
    builder.setup_recv_cq(&world.recv_cq);
    let error = builder.build_dct(KEY).unwrap_err();
    assert!(error.to_string().ends_with("a target has no receive queue of its own; call setup_srq"), "{error}");
    let target = builder.setup_srq(&srq).build_dct(KEY).unwrap();
    // SAFETY: the pointer becomes a number.
    let srq_address = unsafe { srq.srq() }.as_ptr().addr() as u64;
    let create = call(&world, "mlx5dv_create_qp");
    for (name, value) in [
        ("max_send_wr", 0),
        ("max_recv_wr", 0),
        ("max_send_sge", 0),
        ("max_recv_sge", 0),
        ("qp_type", DRIVER),
        // Only the domain is set, because the library accepts nothing else for a target.
        ("comp_mask", 1),
        ("srq", srq_address),
        ("same_cq", 1),
        ("mlx5_comp_mask", 2),
        ("dc_type", 1),
        ("dct_access_key", KEY),
    ] {
        assert_eq!(create.argument(name), value, "{name}");
    }
    let mut init = QueuePairAttribute::new();
    init.setup_state(QueuePairState::Init).setup_pkey_index(0).setup_port(1);
    init.setup_access_flags(AccessFlags::RemoteWrite);
    target.modify(&init).unwrap();
    let mut ready = QueuePairAttribute::new();
    ready.setup_state(QueuePairState::ReadyToReceive).setup_path_mtu(Mtu::Mtu1024).setup_min_rnr_timer(12);
    world.recording.fail("modify_qp", 0, Failure::documented(libc::EINVAL));
    assert_eq!(
        target.modify(&ready).unwrap_err().to_string(),
        "ibv_modify_qp(Init -> ReadyToReceive): EINVAL: needs AddressVector"
    );
    assert_eq!(target.qp_number(), 0, "the device has not given it one yet");
    target.modify(ready.setup_address_vector(&AddressHandleAttribute::new())).unwrap();
    assert_ne!(target.qp_number(), 0);
    assert_eq!(target.state(), QueuePairState::ReadyToReceive);
    // The target uses the C object of the queue.
    drop((builder, srq));
    assert!(world.recording.live().contains(&Kind::SharedReceiveQueue));
    target.close().unwrap();
    world.end();
}

#[test]
fn dc_target_refuses_a_shared_receive_queue_of_another_device() {
    let world = world();
    let other = self::world();
    let mut builder = world.pd.create_dct_builder().unwrap();
    builder.setup_recv_cq(&world.recv_cq);
    let error = builder.setup_srq(&shared_receive_queue(&other)).build_dct(KEY).unwrap_err();
    assert_eq!(
        error.to_string(),
        "mlx5dv_create_qp: EINVAL (Invalid argument): the shared receive queue given to setup_srq belongs to another device \
         context than the domain; build both from one"
    );
    drop(builder);
    world.end();
    other.end();
}

#[test]
fn transitions_of_an_initiator_need_no_peer() {
    let world = world();
    let qp = dci(&world);
    let mut init = QueuePairAttribute::new();
    init.setup_state(QueuePairState::Init).setup_pkey_index(0).setup_access_flags(AccessFlags::RemoteWrite);
    world.recording.fail("modify_qp", 0, Failure::documented(libc::EINVAL));
    assert_eq!(
        qp.modify(&init).unwrap_err().to_string(),
        "ibv_modify_qp(Reset -> Init): EINVAL: needs Port; must not set AccessFlags"
    );
    drop(qp);
    world.end();
}

/// No request can mark the end of an initiator's queue, because a request without a target is incomplete.
#[test]
fn dc_initiator_is_drained_by_a_reset() {
    let mut world = world();
    let ah = world.pd.create_ah(&AddressHandleAttribute::new()).unwrap();
    let mut qp = dci(&world);
    qp.modify(QueuePairAttribute::new().setup_state(QueuePairState::ReadyToSend)).unwrap();
    let mut guard = qp.start_post_send();
    guard.construct_wr(1, SIGNALED).setup_send().setup_dc_addr(&ah, 1, 2).setup_inline_data(b"x");
    guard.post().unwrap();
    let mut seen = Vec::new();
    let drained =
        qp.drain(&mut [&mut world.send_cq], Duration::from_secs(60), |record| seen.push(record.wr_id)).unwrap();
    assert_eq!((drained, seen), (Drained::Reset(ResetReason::Unmarked), vec![1]));
    assert_eq!(qp.state(), QueuePairState::Reset);
    drop((qp, ah));
    world.end();
}

#[test]
fn time_stamps_become_nanoseconds() {
    let world = world();
    let clock = world.context.mlx5_clock_info().unwrap();
    assert_eq!(clock.timestamp_to_ns(1000), 5_000_000);
    assert_eq!(clock.timestamp_to_ns(1500), 5_001_000);
    assert_eq!(clock.timestamp_to_ns(500), 4_999_000);
    world.recording.fail("mlx5dv_get_clock_info", 0, Failure::negative(libc::EINVAL));
    let error = world.context.mlx5_clock_info().unwrap_err();
    assert_eq!(error.to_string(), "mlx5dv_get_clock_info: EINVAL (Invalid argument)");
    world.end();
}
