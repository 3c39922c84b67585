//! Datagrams: sends with a destination.

use std::io::IoSlice;

use rdma_mummy_sys::ibv_wr_opcode as opcode;
use sideway::ibverbs::address::AddressHandle;
use sideway::ibverbs::queue_pair::{Datagram, PostSendGuard, QueuePair, QueuePairType};
use sideway::ibverbs::work_request::{PostErrorKind, WorkRequestFlags};
use sideway_tests::recording::{Posted, World};

use crate::batch;
use crate::requests::support::{SIGNALED, datagrams, handle, on_each_kind};

batch!(Good<'a> of Datagram { ah: &'a AddressHandle }, |this, guard| {
    guard.construct_wr(99, SIGNALED).setup_send().setup_ud_addr(this.ah, 1, 2).setup_inline_data(b"good")
});

batch!(Each<'a> of Datagram { one: &'a AddressHandle, two: &'a AddressHandle }, |this, guard| {
    // SAFETY: the recording device touches no memory.
    unsafe {
        guard.construct_wr(1, SIGNALED).setup_send().setup_ud_addr(this.one, 0x11, 0x1111).setup_sge(5, 50, 500);
        guard
            .construct_wr(2, WorkRequestFlags::Solicited)
            .setup_send_imm(0x0102_0304)
            .setup_ud_addr(this.two, 0x22, 0x8000_0000)
            .setup_sge(6, 60, 600);
    }
    guard.construct_wr(3, SIGNALED).setup_send().setup_ud_addr(this.two, 0x33, 3).setup_inline_data(b"inline");
    let pieces = [IoSlice::new(b"in "), IoSlice::new(b"pieces")];
    guard.construct_wr(4, SIGNALED).setup_send_imm(4).setup_ud_addr(this.one, 0x44, 4).setup_inline_data_list(&pieces);
    // SAFETY: the handle belongs to the queue pair's device.
    let request = unsafe { guard.construct_wr(5, SIGNALED).setup_send().setup_ud_addr_unchecked(this.one, 0x55, 5) };
    request.setup_no_data();
});

batch!(WithForeign<'a> of Datagram { ah: &'a AddressHandle, foreign: &'a AddressHandle }, |this, guard| {
    guard.construct_wr(6, SIGNALED).setup_send().setup_ud_addr(this.ah, 1, 2).setup_inline_data(b"first");
    guard.construct_wr(7, SIGNALED).setup_send().setup_ud_addr(this.foreign, 1, 2).setup_inline_data(b"second");
    guard.construct_wr(8, SIGNALED).setup_send_imm(1).setup_ud_addr(this.ah, 1, 2).setup_inline_data(b"third");
});

#[test]
fn datagram_arrives_with_its_address() {
    let world = World::new();
    let (one, two) = (handle(&world), handle(&world));
    let outcomes = on_each_kind(&world, &datagrams(&world), &Each { one: &one, two: &two }, &Good { ah: &one });
    world.recording.calls();
    drop((one, two));
    let objects: Vec<u64> = world.recording.calls().iter().map(|call| call.argument("object")).collect();
    let [one, two] = objects.try_into().unwrap();
    assert_ne!(one, two);
    for outcome in outcomes {
        outcome.result.unwrap();
        let request = |wr_id, code: opcode, datagram| Posted {
            wr_id,
            opcode: Some(code.0),
            flags: SIGNALED.bits(),
            datagram: Some(datagram),
            ..Posted::default()
        };
        let (send, send_imm) = (opcode::IBV_WR_SEND, opcode::IBV_WR_SEND_WITH_IMM);
        let expected = [
            Posted { entries: vec![(5, 50, 500)], length: 500, ..request(1, send, (one, 0x11, 0x1111)) },
            Posted {
                flags: WorkRequestFlags::Solicited.bits(),
                imm_data: Some(0x0102_0304),
                entries: vec![(6, 60, 600)],
                length: 600,
                ..request(2, send_imm, (two, 0x22, 0x8000_0000))
            },
            Posted { inline: Some(b"inline".to_vec()), length: 6, ..request(3, send, (two, 0x33, 3)) },
            Posted {
                imm_data: Some(4),
                inline: Some(b"in pieces".to_vec()),
                length: 9,
                ..request(4, send_imm, (one, 0x44, 4))
            },
            request(5, send, (one, 0x55, 5)),
        ];
        assert_eq!(outcome.posted, expected, "{}", outcome.kind);
        if outcome.kind == "extended" {
            assert_eq!(
                outcome.verbs[..4],
                ["wr_start", "wr_send", "wr_set_ud_addr", "wr_set_sge"],
                "the address stands between the operation and its data"
            );
        }
    }
    world.end();
}

#[test]
fn address_handle_of_another_device_is_refused() {
    let (world, other) = (World::new(), World::new());
    let (ah, foreign) = (handle(&world), handle(&other));
    let outcomes =
        on_each_kind(&world, &datagrams(&world), &WithForeign { ah: &ah, foreign: &foreign }, &Good { ah: &ah });
    for outcome in outcomes {
        let error = outcome.result.unwrap_err();
        assert_eq!((error.kind(), error.posted()), (PostErrorKind::InvalidWorkRequest, Some(0)));
        let (verb, request) = match outcome.kind {
            "basic" => ("ibv_post_send", "request 1 (wr_id 7)"),
            _ => ("ibv_wr_complete", "wr_id 7"),
        };
        assert_eq!(
            error.to_string(),
            format!(
                "{verb}: EINVAL (Invalid argument): an object that the request names (address handle or memory \
                 window) belongs to another device context than the queue pair; {request}; nothing of the batch was posted"
            )
        );
        assert_eq!(outcome.posted, []);
        assert!(
            !outcome.verbs.contains(&"post_send") && !outcome.verbs.contains(&"wr_complete"),
            "{:?}",
            outcome.verbs
        );
        // The first datagram has an address, the second has none.
        let given = outcome.verbs.iter().filter(|verb| **verb == "wr_set_ud_addr").count();
        assert_eq!(given, if outcome.kind == "basic" { 0 } else { 1 });
    }
    drop((ah, foreign));
    world.end();
    other.end();
}

#[test]
fn two_opened_contexts_of_one_device_are_two_devices() {
    let world = World::new();
    let again = world.recording.open().alloc_pd().unwrap();
    let ah = handle(&world);
    let mut qp = {
        let mut builder = again.create_ud_qp_builder();
        let cq = again.device_context().create_cq_builder().build().unwrap();
        builder.setup_send_cq(&cq).setup_recv_cq(&cq).setup_max_inline_data(8);
        builder.build().unwrap()
    };
    let mut guard = qp.start_post_send();
    guard.construct_wr(1, SIGNALED).setup_send().setup_ud_addr(&ah, 1, 2).setup_inline_data(b"x");
    assert_eq!(guard.post().unwrap_err().kind(), PostErrorKind::InvalidWorkRequest);
    assert_eq!(world.recording.posted(), []);
}

#[test]
fn driver_without_the_setter_is_an_error_and_not_a_null_call() {
    let world = World::new();
    world.recording.without("wr_set_ud_addr");
    let ah = handle(&world);
    let mut qp = datagrams(&world).build_ex().unwrap();
    for _ in 0..2 {
        world.recording.calls();
        let mut guard = qp.start_post_send();
        guard.construct_wr(7, SIGNALED).setup_send().setup_ud_addr(&ah, 1, 2).setup_inline_data(b"x");
        assert_eq!(
            guard.post().unwrap_err().to_string(),
            "ibv_wr_complete: EOPNOTSUPP (Operation not supported): the driver has no wr_set_ud_addr for this queue pair; \
             wr_id 7; nothing of the batch was posted"
        );
        assert_eq!(world.recording.verbs(), ["wr_start", "wr_send", "wr_abort"]);
    }
}

#[test]
fn half_built_datagram_is_not_posted() {
    let world = World::new();
    let ah = handle(&world);
    let builder = datagrams(&world);
    batch!(Halves<'a> of Datagram { ah: &'a AddressHandle }, |this, guard| {
        drop(guard.construct_wr(1, SIGNALED).setup_send());
        drop(guard.construct_wr(2, SIGNALED).setup_send_imm(1).setup_ud_addr(this.ah, 3, 4));
    });
    for outcome in on_each_kind(&world, &builder, &Halves { ah: &ah }, &Good { ah: &ah }) {
        outcome.result.unwrap();
        assert_eq!(outcome.posted, []);
        let expected: &[&str] = if outcome.kind == "basic" { &[] } else { &["wr_start", "wr_abort"] };
        assert_eq!(outcome.verbs, expected);
    }
}

#[test]
fn aborted_batch_is_not_posted_with_the_next() {
    let world = World::new();
    let mut qp = datagrams(&world).build().unwrap();
    let gone = handle(&world);
    {
        let mut guard = qp.start_post_send();
        for wr_id in 0..8 {
            guard.construct_wr(wr_id, SIGNALED).setup_send().setup_ud_addr(&gone, 1, 2).setup_inline_data(b"given up");
        }
    }
    drop(gone);
    let ah = handle(&world);
    qp.start_post_send().post().unwrap();
    let mut guard = qp.start_post_send();
    guard.construct_wr(9, SIGNALED).setup_send().setup_ud_addr(&ah, 1, 2).setup_inline_data(b"new");
    guard.post().unwrap();
    // The provider would have detected a missing handle.
    assert_eq!(world.recording.posted().iter().map(|request| request.wr_id).collect::<Vec<_>>(), [9]);
    assert_eq!(world.recording.violations(), [""; 0]);
}

#[test]
fn forgotten_refused_batch_fails_the_next_and_ends() {
    let (world, other) = (World::new(), World::new());
    let (ah, foreign) = (handle(&world), handle(&other));
    let mut qp = datagrams(&world).build_ex().unwrap();
    let mut guard = qp.start_post_send();
    guard.construct_wr(1, SIGNALED).setup_send().setup_ud_addr(&foreign, 1, 2).setup_inline_data(b"x");
    std::mem::forget(guard);
    drop(foreign);
    let mut post = |wr_id| {
        let mut guard = qp.start_post_send();
        guard.construct_wr(wr_id, SIGNALED).setup_send().setup_ud_addr(&ah, 1, 2).setup_inline_data(b"x");
        guard.post()
    };
    // The functions of the queue pair still have no effect; only the end of the batch reaches the driver.
    assert_eq!(post(2).unwrap_err().failed_request().unwrap().wr_id, 1);
    assert_eq!(world.recording.posted(), []);
    post(3).unwrap();
    assert_eq!(world.recording.posted().iter().map(|request| request.wr_id).collect::<Vec<_>>(), [3]);
    // A batch within another is possible only if the first was forgotten; drivers then wait forever.
    assert_eq!(world.recording.violations(), ["wr_start: a batch was already started"]);
}

#[test]
fn connected_builder_error_names_the_datagram_builder() {
    let world = World::new();
    let mut builder = world.qp_builder();
    builder.setup_qp_type(QueuePairType::UnreliableDatagram);
    for (verb, error) in [
        ("ibv_create_qp", builder.build().map(drop).unwrap_err()),
        ("ibv_create_qp_ex", builder.build_ex().map(drop).unwrap_err()),
        ("ibv_create_qp_ex", builder.build_generic().map(drop).unwrap_err()),
    ] {
        assert_eq!(
            error.to_string(),
            format!(
                "{verb}: EINVAL (Invalid argument): this builder makes queue pairs of the types [ReliableConnection, \
                 UnreliableConnection]; for UnreliableDatagram use ProtectionDomain::create_ud_qp_builder"
            )
        );
    }
    builder.setup_qp_type(QueuePairType::ReliableConnectionExtendedSend);
    assert!(builder.build().unwrap_err().to_string().contains("ProtectionDomain::create_xrc_send_qp_builder"));
    assert_eq!(world.recording.verbs(), [""; 0]);
}

#[test]
fn queue_pair_of_datagrams_is_made_and_receives() {
    let world = World::new();
    let builder = datagrams(&world);
    world.recording.calls();
    let mut qp = builder.build_generic().unwrap();
    let calls = world.recording.calls();
    let create = calls.iter().find(|call| call.verb == "create_qp_ex").unwrap();
    // UD is 4; send and send with immediate data.
    assert_eq!((create.argument("qp_type"), create.argument("send_ops_flags")), (4, 0b1100));
    assert_eq!(QueuePair::qp_type(&qp), QueuePairType::UnreliableDatagram);
    let mut guard = qp.start_post_recv();
    // SAFETY: the recording device touches no memory.
    unsafe { guard.construct_wr(1).setup_sge(2, 3, 4) };
    guard.post().unwrap();
    assert_eq!(world.recording.posted()[0].entries, [(2, 3, 4)]);
}
