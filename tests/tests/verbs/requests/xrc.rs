//! Initiators of extended reliable connections: requests name a shared receive queue of the peer, and an initiator
//! receives nothing.

use sideway::ibverbs::queue_pair::{PostSendGuard, QueuePair, QueuePairType, Xrc};
use sideway::ibverbs::work_request::PostErrorKind;
use sideway_tests::recording::World;

use crate::batch;
use crate::requests::support::{SIGNALED, all_operations, on_each_kind, xrc};

batch!(Good of Xrc {}, |_this, guard| {
    guard.construct_wr(99, SIGNALED).setup_send().setup_xrc_srqn(1).setup_inline_data(b"good")
});

batch!(Each of Xrc {}, |_this, guard| {
    // SAFETY: the recording device touches no memory.
    unsafe {
        guard.construct_wr(1, SIGNALED).setup_send().setup_xrc_srqn(11).setup_sge(1, 2, 3);
        guard.construct_wr(2, SIGNALED).setup_send_imm(2).setup_xrc_srqn(12).setup_sge(1, 2, 3);
        guard.construct_wr(3, SIGNALED).setup_write(1, 2).setup_xrc_srqn(13).setup_sge(1, 2, 3);
        guard.construct_wr(4, SIGNALED).setup_write_imm(1, 2, 3).setup_xrc_srqn(14).setup_sge(1, 2, 3);
        guard.construct_wr(5, SIGNALED).setup_read(1, 2).setup_xrc_srqn(15).setup_sge(1, 2, 3);
        guard.construct_wr(6, SIGNALED).setup_atomic_compare_swap(1, 2, 3, 4).setup_xrc_srqn(16).setup_sge(1, 2, 8);
        guard.construct_wr(7, SIGNALED).setup_atomic_fetch_add(1, 2, 3).setup_xrc_srqn(17).setup_sge(1, 2, 8);
    }
    guard.construct_wr(8, SIGNALED).setup_send_inv(9).setup_xrc_srqn(18).setup_inline_data(b"bye");
    guard.construct_wr(9, SIGNALED).setup_local_inv(10);
});

#[test]
fn each_request_names_the_peers_shared_receive_queue() {
    let world = World::new();
    let mut builder = xrc(&world);
    builder.setup_max_send_wr(9).setup_send_ops_flags(all_operations());
    for outcome in on_each_kind(&world, &builder, &Each {}, &Good {}) {
        outcome.result.unwrap();
        let numbers: Vec<_> = outcome.posted.iter().map(|request| request.srqn).collect();
        let expected: Vec<_> = (11..=18).map(Some).chain([None]).collect();
        assert_eq!(numbers, expected, "{}", outcome.kind);
        assert_eq!((outcome.posted[7].invalidate_rkey, outcome.posted[8].invalidate_rkey), (Some(9), Some(10)));
        assert_eq!(outcome.posted[5].operands, (3, 4));
    }
}

#[test]
fn xrc_initiator_has_no_receive_queue() {
    let world = World::new();
    let mut builder = world.pd.create_xrc_send_qp_builder();
    let error = builder.build().unwrap_err();
    assert!(error.to_string().contains("call setup_send_cq"), "{error}");
    builder.setup_send_cq(&world.send_cq);
    world.recording.calls();
    drop((builder.build().unwrap(), builder.build_ex().unwrap()));
    let calls = world.recording.calls();
    for verb in ["create_qp", "create_qp_ex"] {
        let create = calls.iter().find(|call| call.verb == verb).unwrap();
        // XRC_SEND is 9.
        assert_eq!((create.argument("qp_type"), create.argument("max_send_wr")), (9, 16));
        assert_eq!((create.argument("max_recv_wr"), create.argument("max_recv_sge")), (0, 0));
    }
    drop(builder);
    world.end();
}

#[test]
fn xrc_initiator_refuses_receives() {
    let world = World::new();
    let builder = xrc(&world);
    fn receive(world: &World, mut qp: impl QueuePair) {
        assert_eq!(qp.qp_type(), QueuePairType::ReliableConnectionExtendedSend);
        world.recording.calls();
        qp.start_post_recv().post().unwrap();
        let mut guard = qp.start_post_recv();
        guard.construct_wr(7).setup_no_data();
        let error = guard.post().unwrap_err();
        assert_eq!((error.kind(), error.posted()), (PostErrorKind::InvalidWorkRequest, Some(0)));
        assert_eq!(
            error.to_string(),
            "ibv_post_recv: EINVAL (Invalid argument): the queue pair is the initiator of an XRC connection and has no \
             receive queue; request 0 (wr_id 7); nothing of the batch was posted"
        );
        assert_eq!(world.recording.verbs(), [""; 0]);
    }
    receive(&world, builder.build().unwrap());
    receive(&world, builder.build_ex().unwrap());
    receive(&world, builder.build_generic().unwrap());
}

#[test]
fn driver_without_the_setter_is_an_error_and_not_a_null_call() {
    let world = World::new();
    world.recording.without("wr_set_xrc_srqn");
    let mut qp = xrc(&world).build_ex().unwrap();
    let mut guard = qp.start_post_send();
    guard.construct_wr(7, SIGNALED).setup_write(1, 2).setup_xrc_srqn(3).setup_inline_data(b"x");
    let error = guard.post().unwrap_err();
    assert!(error.to_string().contains("the driver has no wr_set_xrc_srqn for this queue pair; wr_id 7"), "{error}");
    assert_eq!(world.recording.posted(), []);
}
