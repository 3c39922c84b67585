//! The form in which a request arrives, and the error for a list that C refuses.

use std::io::IoSlice;

use rdma_mummy_sys::ibv_wr_opcode as opcode;
use sideway::ibverbs::queue_pair::{GenericQueuePair, PostSendGuard, QueuePair};
use sideway::ibverbs::work_request::{PostErrorKind, PostSendError, ScatterGatherEntry, WorkRequestFlags};
use sideway_tests::recording::{Bad, Failure, Posted, World};

const SIGNALED: WorkRequestFlags = WorkRequestFlags::Signaled;

#[test]
fn each_operation_arrives_unchanged_through_either_kind() {
    let mut arrived: Vec<Vec<Posted>> = Vec::new();
    let world = World::new();
    let mut builder = world.qp_builder();
    builder.setup_max_send_wr(16);
    let pairs: [GenericQueuePair; 2] = [builder.build().unwrap().into(), builder.build_ex().unwrap().into()];
    for mut qp in pairs {
        let mut guard = qp.start_post_send();
        let list = [ScatterGatherEntry::new(5.into(), 50, 7), ScatterGatherEntry::new(6.into(), 60, 8)];
        // SAFETY: the recording device touches no memory.
        unsafe {
            guard.construct_wr(1, SIGNALED).setup_send().setup_sge(1, 10, 100);
            guard.construct_wr(2, WorkRequestFlags::Solicited).setup_send_imm(0x0102_0304).setup_sge_list(&list);
            guard.construct_wr(3, SIGNALED | WorkRequestFlags::Fence).setup_write(31, 32).setup_sge(1, 11, 12);
            guard.construct_wr(4, SIGNALED).setup_write_imm(41, 42, 0xdead_beef).setup_sge(1, 13, 14);
            guard.construct_wr(5, SIGNALED).setup_read(51, 52).setup_sge(1, 15, 16);
            guard.construct_wr(6, SIGNALED).setup_atomic_compare_swap(61, 62, 63, 64).setup_sge(1, 17, 8);
            guard.construct_wr(7, SIGNALED).setup_atomic_fetch_add(71, 72, 73).setup_sge(1, 18, 8);
            for (wr_id, imm_data) in [(21, None), (22, Some(5))] {
                guard.construct_wr(wr_id, SIGNALED).setup_send_optional_imm(imm_data).setup_sge(1, 10, 100);
                let request = guard.construct_wr(wr_id, SIGNALED).setup_write_optional_imm(31, 32, imm_data);
                request.setup_inline_data(b"either");
            }
        }
        guard.construct_wr(8, SIGNALED).setup_send().setup_inline_data(b"inline");
        let pieces = [IoSlice::new(b"in "), IoSlice::new(b""), IoSlice::new(b"pieces")];
        guard.construct_wr(9, WorkRequestFlags::empty()).setup_write(91, 92).setup_inline_data_list(&pieces);
        guard.construct_wr(10, SIGNALED).setup_send().setup_no_data();
        // Inline data sets its own flag.
        guard.construct_wr(11, SIGNALED | WorkRequestFlags::Inline).setup_send().setup_inline_data(b"inline");
        guard.construct_wr(12, SIGNALED | WorkRequestFlags::Inline).setup_send().setup_no_data();
        guard.post().unwrap();
        arrived.push(world.recording.posted());
    }
    let [basic, extended] = arrived.try_into().unwrap();
    assert_eq!(basic, extended);
    let chosen: Vec<_> =
        basic[7..11].iter().map(|request| (opcode(request.opcode.unwrap()), request.imm_data)).collect();
    assert_eq!(
        chosen,
        [
            (opcode::IBV_WR_SEND, None),
            (opcode::IBV_WR_RDMA_WRITE, None),
            (opcode::IBV_WR_SEND_WITH_IMM, Some(5)),
            (opcode::IBV_WR_RDMA_WRITE_WITH_IMM, Some(5))
        ]
    );
    assert_eq!((basic[8].rkey, basic[10].rkey, basic[10].inline.as_deref()), (31, 31, Some(&b"either"[..])));
    let basic = [&basic[..7], &basic[11..]].concat();
    assert_eq!(basic.len(), 12);
    let opcodes: Vec<_> = basic[..7].iter().map(|request| opcode(request.opcode.unwrap())).collect();
    assert_eq!(
        opcodes,
        [
            opcode::IBV_WR_SEND,
            opcode::IBV_WR_SEND_WITH_IMM,
            opcode::IBV_WR_RDMA_WRITE,
            opcode::IBV_WR_RDMA_WRITE_WITH_IMM,
            opcode::IBV_WR_RDMA_READ,
            opcode::IBV_WR_ATOMIC_CMP_AND_SWP,
            opcode::IBV_WR_ATOMIC_FETCH_AND_ADD
        ]
    );
    assert_eq!(basic[0].entries, [(1, 10, 100)]);
    assert_eq!((basic[1].imm_data, &basic[1].entries[..]), (Some(0x0102_0304), &[(5, 50, 7), (6, 60, 8)][..]));
    assert_eq!((basic[1].flags, basic[2].flags), (4, 3));
    assert_eq!((basic[2].rkey, basic[2].remote_addr), (31, 32));
    assert_eq!((basic[3].rkey, basic[3].remote_addr, basic[3].imm_data), (41, 42, Some(0xdead_beef)));
    assert_eq!((basic[4].rkey, basic[4].remote_addr), (51, 52));
    assert_eq!((basic[5].rkey, basic[5].remote_addr, basic[5].operands), (61, 62, (63, 64)));
    assert_eq!((basic[6].rkey, basic[6].remote_addr, basic[6].operands), (71, 72, (73, 0)));
    assert_eq!(basic[7].inline.as_deref(), Some(&b"inline"[..]));
    assert_eq!(basic[8].inline.as_deref(), Some(&b"in pieces"[..]));
    assert_eq!((basic[9].length, basic[9].inline.as_deref(), basic[9].entries.len()), (0, None, 0));
    assert_eq!((basic[10].flags, basic[10].inline.as_deref()), (basic[7].flags, Some(&b"inline"[..])));
    assert_eq!((basic[11].flags, basic[11].inline.as_deref()), (2, None));
}

#[test]
fn request_does_not_inherit_from_the_previous() {
    let world = World::new();
    let [mut qp, _] = world.queue_pairs();
    let mut guard = qp.start_post_send();
    guard.construct_wr(1, SIGNALED).setup_write_imm(1, 2, 3).setup_inline_data(b"inline");
    guard.post().unwrap();
    world.recording.posted();
    let mut guard = qp.start_post_send();
    // SAFETY: the recording device touches no memory.
    unsafe { guard.construct_wr(2, WorkRequestFlags::empty()).setup_send().setup_sge(4, 5, 6) };
    guard.post().unwrap();
    let expected = Posted {
        wr_id: 2,
        opcode: Some(opcode::IBV_WR_SEND.0),
        entries: vec![(4, 5, 6)],
        length: 6,
        ..Posted::default()
    };
    assert_eq!(world.recording.posted(), [expected]);
}

#[test]
fn batches_of_every_length_up_to_the_limit_arrive_whole() {
    let world = World::new();
    for mut qp in world.queue_pairs() {
        for length in [4, 1, 3, 2, 4, 0, 4] {
            let mut guard = qp.start_post_send();
            for wr_id in 0..length {
                guard.construct_wr(wr_id, SIGNALED).setup_send().setup_inline_data(&[wr_id as u8]);
            }
            guard.post().unwrap();
            let mut guard = qp.start_post_recv();
            for wr_id in 0..length {
                // SAFETY: the recording device touches no memory.
                unsafe { guard.construct_wr(100 + wr_id).setup_sge(1, wr_id, 1) };
            }
            guard.post().unwrap();
            let numbers: Vec<_> = world.recording.posted().iter().map(|request| request.wr_id).collect();
            assert_eq!(numbers, (0..length).chain(100..100 + length).collect::<Vec<_>>());
        }
    }
}

#[test]
fn empty_batch_succeeds_without_a_call() {
    let world = World::new();
    for (mut qp, expected) in world.queue_pairs().into_iter().zip([&[][..], &["wr_start", "wr_abort"]]) {
        world.recording.calls();
        qp.start_post_send().post().unwrap();
        qp.start_post_recv().post().unwrap();
        assert_eq!(world.recording.verbs(), expected);
    }
}

/// Four sends, numbered from 10.
fn post_four(qp: &mut GenericQueuePair) -> Result<(), PostSendError> {
    let mut guard = qp.start_post_send();
    for wr_id in 10..14 {
        guard.construct_wr(wr_id, SIGNALED).setup_send().setup_inline_data(b"x");
    }
    guard.post()
}

/// Four receives, numbered from 20.
fn post_four_receives(qp: &mut GenericQueuePair) -> Result<(), PostSendError> {
    let mut guard = qp.start_post_recv();
    for wr_id in 20..24 {
        guard.construct_wr(wr_id).setup_no_data();
    }
    guard.post()
}

#[test]
fn refused_request_is_named_with_the_posted_count() {
    let world = World::new();
    let [mut basic, mut extended] = world.queue_pairs();
    for index in 0..4 {
        for (failure, kind) in [
            (Failure::documented(libc::ENOMEM), PostErrorKind::NotEnoughResources),
            (Failure::negative(libc::EINVAL), PostErrorKind::InvalidWorkRequest),
            (Failure::minus_one(libc::EFAULT), PostErrorKind::InvalidQueuePair),
            (Failure::documented(libc::EIO), PostErrorKind::Verb),
        ] {
            world.recording.refuse_requests(Bad::At(index), failure).posted();
            let error = post_four(&mut basic).unwrap_err();
            assert_eq!((error.kind(), error.posted()), (kind, Some(index)));
            assert_eq!(error.verb_error().errno().raw(), failure.errno());
            let failed = error.failed_request().unwrap();
            assert_eq!((failed.index, failed.wr_id), (Some(index), 10 + index as u64));
            assert!(error.to_string().contains(&format!("request {index} (wr_id 1{index})")), "{error}");
            assert_eq!(world.recording.posted().len(), index);
            for qp in [&mut basic, &mut extended] {
                world.recording.refuse_requests(Bad::At(index), failure).posted();
                let error = post_four_receives(qp).unwrap_err();
                assert_eq!((error.kind(), error.posted()), (kind, Some(index)));
                let failed = error.failed_request().unwrap();
                assert_eq!((failed.index, failed.wr_id), (Some(index), 20 + index as u64));
                assert_eq!(world.recording.posted().len(), index);
            }
        }
    }
    post_four(&mut basic).unwrap();
    post_four_receives(&mut basic).unwrap();
}

#[test]
fn bad_wr_outside_the_batch_is_not_dereferenced() {
    let world = World::new();
    let [mut basic, _] = world.queue_pairs();
    for bad in [Bad::Null, Bad::Foreign, Bad::Behind] {
        for post in [post_four, post_four_receives] {
            world.recording.refuse_requests(bad, Failure::documented(libc::EINVAL));
            let error = post(&mut basic).unwrap_err();
            // The device has accepted some requests of the batch, but their number is unknown.
            assert_eq!((error.failed_request(), error.posted()), (None, None), "{bad:?}");
            assert!(!error.to_string().contains("nothing of the batch was posted"), "{error}");
            assert!(!world.recording.posted().is_empty());
        }
    }
    post_four(&mut basic).unwrap();
}

#[test]
fn stale_bad_wr_is_not_taken_for_this_batch() {
    let world = World::new();
    let [mut basic, _] = world.queue_pairs();
    post_four(&mut basic).unwrap();
    world.recording.refuse_requests(Bad::Behind, Failure::documented(libc::EINVAL));
    let mut guard = basic.start_post_send();
    guard.construct_wr(1, SIGNALED).setup_send().setup_inline_data(b"x");
    guard.construct_wr(2, SIGNALED).setup_send().setup_inline_data(b"x");
    let error = guard.post().unwrap_err();
    assert_eq!((error.failed_request(), error.posted()), (None, None));
}

#[test]
fn extended_verbs_post_all_or_nothing() {
    let world = World::new();
    let [_, mut qp] = world.queue_pairs();
    for failure in
        [Failure::documented(libc::ENOMEM), Failure::negative(libc::ENOMEM), Failure::minus_one(libc::ENOMEM)]
    {
        world.recording.fail("wr_complete", 0, failure);
        let error = post_four(&mut qp).unwrap_err();
        assert_eq!((error.kind(), error.posted()), (PostErrorKind::NotEnoughResources, None));
        assert_eq!(error.failed_request(), None);
        assert_eq!(error.verb_error().verb(), "ibv_wr_complete");
        assert_eq!(world.recording.posted(), []);
        post_four(&mut qp).unwrap();
        assert_eq!(world.recording.posted().len(), 4);
    }
}
