//! Scalable reliable datagrams.

use sideway::efa::{EfaDeviceCapabilityFlags, ScalableReliableDatagram};
use sideway::ibverbs::address::AddressHandleAttribute;
use sideway::ibverbs::queue_pair::{
    PostSendGuard, QueuePair, QueuePairAttribute, QueuePairBuilder, QueuePairState, SendOperationFlags,
};
use sideway::ibverbs::work_request::{PostErrorKind, WorkRequestFlags};
use sideway_tests::recording::{Completion, Failure, Kind, Recording, World, install_efa};

const SIGNALED: WorkRequestFlags = WorkRequestFlags::Signaled;

fn world() -> World {
    install_efa();
    World::on(Recording::of_system())
}

fn builder(world: &World) -> QueuePairBuilder<ScalableReliableDatagram> {
    let mut builder = world.pd.create_srd_qp_builder();
    builder.setup_send_cq(&world.send_cq).setup_recv_cq(&world.recv_cq).setup_max_inline_data(16);
    builder
}

#[test]
fn device_reports_its_capabilities() {
    let world = world();
    let attr = world.context.query_efa_device().unwrap();
    assert_eq!([attr.max_sq_wr(), attr.max_rq_wr(), attr.max_rdma_size()], [256, 512, 1 << 30]);
    assert_eq!([attr.max_sq_sge(), attr.max_rq_sge(), attr.inline_buf_size()], [2, 3, 32]);
    assert!(attr.device_caps().contains(EfaDeviceCapabilityFlags::Read | EfaDeviceCapabilityFlags::Write));
    assert_eq!(attr.device_caps().bits(), 0b1011 | 1 << 20, "flags without a name pass through");
    let call = world.recording.calls().pop().unwrap();
    assert_eq!((call.verb, call.argument("inlen")), ("efadv_query_device", 32));
    world.end();
}

#[test]
fn device_of_another_vendor_is_an_error() {
    let world = world();
    world.recording.without("efa");
    let name = world.recording.name();
    let error = builder(&world).build_srd().unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "efadv_query_device: EOPNOTSUPP (Operation not supported): {name} is not an EFA device, or it, its kernel driver \
             or libefa is too old for this"
        )
    );
    let error = world.context.create_cq_builder().build_efa_with_source_gid().unwrap_err();
    assert!(error.to_string().starts_with("efadv_create_cq: EOPNOTSUPP"), "{error}");
    assert!(error.to_string().contains("is not an EFA device"), "{error}");
    world.end();
}

#[test]
fn queue_pair_has_the_devices_operations() {
    let world = world();
    let send = SendOperationFlags::Send | SendOperationFlags::SendWithImmediate;
    let write = SendOperationFlags::Write | SendOperationFlags::WriteWithImmediate;
    let last_flags = || {
        let calls = world.recording.calls();
        let call = calls.iter().find(|call| call.verb == "efadv_create_qp_ex").unwrap();
        // IBV_QPT_DRIVER; the domain and the operations; EFADV_QP_DRIVER_TYPE_SRD.
        assert_eq!([call.argument("qp_type"), call.argument("comp_mask")], [0xff, 1 | 1 << 6]);
        assert_eq!(
            [call.argument("driver_qp_type"), call.argument("efa_comp_mask"), call.argument("inlen")],
            [0, 0, 16]
        );
        SendOperationFlags::from_bits_retain(call.argument("send_ops_flags"))
    };
    drop(builder(&world).build_srd().unwrap());
    assert_eq!(last_flags(), send | write | SendOperationFlags::Read);
    world.recording.without("rdma_write");
    drop(builder(&world).build_srd().unwrap());
    assert_eq!(last_flags(), send | SendOperationFlags::Read);
    world.recording.without("rdma_read");
    drop(builder(&world).build_srd().unwrap());
    assert_eq!(last_flags(), send);
    drop(builder(&world).setup_send_ops_flags(SendOperationFlags::Send).build_srd().unwrap());
    assert_eq!(last_flags(), SendOperationFlags::Send);
    world.end();
}

#[test]
fn requests_carry_their_destination() {
    let world = world();
    let ah = world.pd.create_ah(&AddressHandleAttribute::new()).unwrap();
    let mut qp = builder(&world).build_srd().unwrap();
    world.recording.calls();
    let mut guard = qp.start_post_send();
    guard.construct_wr(1, SIGNALED).setup_send_imm(5).setup_ud_addr(&ah, 0x10, 0x20).setup_inline_data(b"hello");
    let request = guard.construct_wr(2, SIGNALED).setup_read(7, 8).setup_ud_addr(&ah, 0x11, 0x21);
    // SAFETY: the recording device touches no memory.
    unsafe { request.setup_sge(9, 10, 11) };
    guard.post().unwrap();
    let calls = world.recording.calls();
    let addresses: Vec<_> = calls
        .iter()
        .filter(|call| call.verb == "wr_set_ud_addr")
        .map(|call| [call.argument("qpn"), call.argument("qkey")])
        .collect();
    assert_eq!(addresses, [[0x10, 0x20], [0x11, 0x21]]);
    let posted = world.recording.posted();
    assert_eq!(posted.iter().map(|request| request.wr_id).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(posted[0].imm_data, Some(5));
    assert_eq!((posted[1].rkey, posted[1].remote_addr), (7, 8));
    drop((qp, ah));
    world.end();
}

#[test]
fn address_handle_of_another_device_is_refused() {
    let world = world();
    let other = self::world();
    let ah = other.pd.create_ah(&AddressHandleAttribute::new()).unwrap();
    let mut qp = builder(&world).build_srd().unwrap();
    let mut guard = qp.start_post_send();
    guard.construct_wr(1, SIGNALED).setup_send().setup_ud_addr(&ah, 1, 2).setup_inline_data(b"x");
    assert_eq!(guard.post().unwrap_err().kind(), PostErrorKind::InvalidWorkRequest);
    assert_eq!(world.recording.posted(), []);
    drop((qp, ah));
    world.end();
    other.end();
}

#[test]
fn refused_queue_pair_leaks_nothing() {
    let world = world();
    world.recording.fail("efadv_create_qp_ex", 0, Failure::documented(libc::EOPNOTSUPP));
    let error = builder(&world).build_srd().unwrap_err();
    assert!(error.to_string().starts_with("efadv_create_qp_ex: EOPNOTSUPP"), "{error}");
    assert!(!world.recording.live().contains(&Kind::QueuePair));
    world.end();
}

#[test]
fn transitions_are_those_of_datagrams() {
    let world = world();
    let qp = builder(&world).build_srd().unwrap();
    let mut init = QueuePairAttribute::new();
    init.setup_state(QueuePairState::Init).setup_pkey_index(0).setup_port(1);
    world.recording.fail("modify_qp", 0, Failure::documented(libc::EINVAL));
    assert_eq!(qp.modify(&init).unwrap_err().to_string(), "ibv_modify_qp(Reset -> Init): EINVAL: needs QueueKey");
    qp.modify(init.setup_qkey(1)).unwrap();
    drop(qp);
    world.end();
}

#[test]
fn address_handle_has_a_number() {
    let world = world();
    let ah = world.pd.create_ah(&AddressHandleAttribute::new()).unwrap();
    let number = ah.efa_ahn().unwrap();
    assert_eq!(number & 0x8000, 0x8000);
    world.recording.fail("efadv_query_ah", 0, Failure::documented(libc::ENOMEM));
    assert_eq!(ah.efa_ahn().unwrap_err().to_string(), "efadv_query_ah: ENOMEM (Cannot allocate memory)");
    drop(ah);
    world.end();
}

#[test]
fn completion_gives_the_sender_on_an_old_device() {
    let world = world();
    let (mut cq, reader) = world.context.create_cq_builder().build_efa_with_source_gid().unwrap();
    let calls = world.recording.calls();
    let create = calls.iter().find(|call| call.verb == "efadv_create_cq").unwrap();
    assert_eq!(
        [create.argument("efa_wc_flags"), create.argument("efa_comp_mask"), create.argument("inlen")],
        [1, 0, 16]
    );
    for wr_id in [2, 3] {
        world.recording.complete(&cq, Completion { wr_id, ..Completion::default() });
    }
    let mut poller = cq.start_poll().unwrap();
    let gid = reader.read(&poller.next().unwrap().unwrap()).unwrap();
    assert_eq!((gid.raw[0], gid.raw[15]), (0xfe, 2));
    assert_eq!(reader.read(&poller.next().unwrap().unwrap()), None);
    drop(poller);

    // A completion of another queue does not belong to this reader.
    let (mut other, _reader) = world.context.create_cq_builder().build_efa_with_source_gid().unwrap();
    world.recording.complete(&other, Completion { wr_id: 4, ..Completion::default() });
    world.recording.calls();
    let mut poller = other.start_poll().unwrap();
    assert_eq!(reader.read(&poller.next().unwrap().unwrap()), None);
    assert!(!world.recording.verbs().contains(&"wc_read_sgid"));
    drop(poller);

    // The reader keeps the queue alive.
    assert_eq!(cq.close().unwrap_err().errno().raw(), libc::EBUSY);
    assert!(!world.recording.verbs().contains(&"destroy_cq"));
    drop(reader);
    assert!(world.recording.verbs().contains(&"destroy_cq"));
    drop((other, _reader));
    world.end();
}

#[test]
fn null_reader_is_detected_at_build_time() {
    let world = world();
    let before = world.recording.live();
    world.recording.without("wc_read_sgid");
    let error = world.context.create_cq_builder().build_efa_with_source_gid().unwrap_err();
    assert_eq!(
        error.to_string(),
        "efadv_create_cq: EOPNOTSUPP (Operation not supported): libefa created the queue without the function wc_read_sgid; upgrade rdma-core"
    );
    world.recording.without("read_byte_len");
    let error = world.context.create_cq_builder().build_efa_with_source_gid().unwrap_err();
    assert_eq!(error.verb(), "efadv_create_cq");
    assert!(error.to_string().contains("without the function read_byte_len"), "{error}");
    assert_eq!(world.recording.live(), before);
    world.end();
}
