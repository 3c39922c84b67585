use sideway::ibverbs::completion::{
    CreateCompletionQueueWorkCompletionFlags as Fields, GenericCompletionQueue, PollCompletionQueueError,
    TagMatchingInfo, WorkCompletionOperationType, WorkCompletionStatus,
};
use sideway::ibverbs::memory_region::RemoteKey;
use sideway_tests::recording::{Completion, Recording};

/// A completion whose fields all differ.
fn completion(wr_id: u64) -> Completion {
    Completion {
        wr_id,
        status: 0,
        opcode: 128,
        vendor_err: 11,
        byte_len: 12,
        imm_data: 0x0d00_0001,
        qp_num: 14,
        src_qp: 15,
        wc_flags: 2,
        slid: 16,
        sl: 3,
        dlid_path_bits: 4,
        completion_ts: 17,
        wallclock_ns: 18,
        cvlan: 19,
        flow_tag: 20,
        tm_tag: 21,
        tm_private: 22,
        pkey_index: 23,
    }
}

#[test]
fn completions_are_lent_one_at_a_time() {
    let recording = Recording::new();
    let context = recording.open();
    let mut cq = context.create_cq_builder().build_ex().unwrap();
    recording.complete(&cq, completion(1)).complete(&cq, completion(2)).complete(&cq, completion(3));
    recording.calls();
    {
        let mut poller = cq.start_poll().unwrap();
        for expected in 1..=3 {
            let wc = poller.next().unwrap().unwrap();
            assert_eq!(wc.wr_id(), expected);
        }
        assert!(poller.next().unwrap().is_none());
        // A further poll finds no completion, neither a new nor an old one.
        assert!(poller.next().unwrap().is_none());
    }
    assert_eq!(recording.verbs(), ["start_poll", "next_poll", "next_poll", "next_poll", "next_poll", "end_poll"]);
}

#[test]
fn early_dropped_poller_leaves_the_remaining_completions() {
    let recording = Recording::new();
    let context = recording.open();
    let mut cq = context.create_cq_builder().build_ex().unwrap();
    recording.complete(&cq, completion(1)).complete(&cq, completion(2));
    assert_eq!(cq.start_poll().unwrap().next().unwrap().unwrap().wr_id(), 1);
    assert_eq!(cq.start_poll().unwrap().next().unwrap().unwrap().wr_id(), 2);
    assert_eq!(cq.start_poll().unwrap_err(), PollCompletionQueueError::CompletionQueueEmpty);
}

#[test]
fn poll_ends_before_the_next() {
    let recording = Recording::new();
    let context = recording.open();
    let mut cq = context.create_cq_builder().build_ex().unwrap();
    recording.calls();
    assert_eq!(cq.start_poll().unwrap_err(), PollCompletionQueueError::CompletionQueueEmpty);
    // A poll that found nothing has not started.
    assert_eq!(recording.verbs(), ["start_poll"]);
    recording.complete(&cq, completion(1));
    drop(cq.start_poll().unwrap());
    recording.complete(&cq, completion(2));
    drop(cq.start_poll().unwrap());
    assert_eq!(recording.verbs(), ["start_poll", "end_poll", "start_poll", "end_poll"]);
    // Two polls at once, or a cursor read outside one, would be a violation, which fails the test.
}

#[test]
fn unrequested_field_is_an_error() {
    let recording = Recording::new();
    let context = recording.open();
    let mut cq = context.create_cq_builder().build_ex().unwrap();
    recording.complete(&cq, completion(1)).calls();
    let mut poller = cq.start_poll().unwrap();
    let wc = poller.next().unwrap().unwrap();
    assert_eq!(wc.completion_timestamp().unwrap_err().field(), Fields::CompletionTimestamp);
    assert_eq!(wc.completion_wallclock_ns().unwrap_err().field(), Fields::CompletionTimestampWallclock);
    assert_eq!(wc.cvlan().unwrap_err().field(), Fields::CustomerVlan);
    assert_eq!(wc.flow_tag().unwrap_err().field(), Fields::FlowTag);
    assert_eq!(wc.tag_matching_info().unwrap_err().field(), Fields::TagMatchingInformation);
    drop(poller);
    assert_eq!(recording.verbs(), ["start_poll", "end_poll"]);
}

#[test]
fn requested_fields_are_read_besides_the_standard_ones() {
    let recording = Recording::new();
    let context = recording.open();
    let further =
        Fields::CompletionTimestamp | Fields::CompletionTimestampWallclock | Fields::CustomerVlan | Fields::FlowTag;
    let further = further | Fields::TagMatchingInformation;
    let mut cq = context.create_cq_builder().setup_wc_flags(further).build_ex().unwrap();
    assert_eq!(cq.wc_flags(), further | Fields::StandardFlags);
    recording.complete(&cq, completion(1));
    let mut poller = cq.start_poll().unwrap();
    let wc = poller.next().unwrap().unwrap();
    assert_eq!((wc.completion_timestamp(), wc.completion_wallclock_ns()), (Ok(17), Ok(18)));
    assert_eq!((wc.cvlan(), wc.flow_tag()), (Ok(19), Ok(20)));
    assert_eq!(wc.tag_matching_info(), Ok(TagMatchingInfo { tag: 21, private: 22 }));
    assert_eq!(wc.invalidated_rkey(), RemoteKey::from_raw(0x0d00_0001_u32.to_be()));
    assert_eq!((wc.vendor_err(), wc.byte_len(), wc.imm_data()), (11, 12, 0x0d00_0001));
    assert_eq!((wc.qp_num(), wc.src_qp(), wc.wc_flags().bits()), (14, 15, 2));
    assert_eq!((wc.slid(), wc.sl(), wc.dlid_path_bits()), (16, 3, 4));
    assert_eq!(wc.status(), WorkCompletionStatus::Success);
    assert_eq!(wc.opcode(), WorkCompletionOperationType::Receive);
}

#[test]
fn basic_queue_returns_the_same_fields() {
    let recording = Recording::new();
    let context = recording.open();
    let mut cq = context.create_cq_builder().build().unwrap();
    recording.complete(&cq, completion(1)).calls();
    let mut poller = cq.start_poll().unwrap();
    let wc = poller.next().unwrap().unwrap();
    assert_eq!((wc.vendor_err(), wc.byte_len(), wc.imm_data()), (11, 12, 0x0d00_0001));
    assert_eq!((wc.qp_num(), wc.src_qp(), wc.wc_flags().bits()), (14, 15, 2));
    assert_eq!(wc.pkey_index(), 23);
    assert_eq!((wc.slid(), wc.sl(), wc.dlid_path_bits()), (16, 3, 4));
    assert!(poller.next().unwrap().is_none());
    assert_eq!(recording.verbs(), ["poll_cq"]);
}

#[test]
fn queue_without_a_reader_is_refused() {
    let standard = [
        "start_poll",
        "next_poll",
        "end_poll",
        "read_opcode",
        "read_vendor_err",
        "read_wc_flags",
        "read_byte_len",
        "read_imm_data",
        "read_qp_num",
    ];
    let further = [
        ("read_completion_ts", Fields::CompletionTimestamp),
        ("read_completion_wallclock_ns", Fields::CompletionTimestampWallclock),
        ("read_cvlan", Fields::CustomerVlan),
        ("read_flow_tag", Fields::FlowTag),
    ];
    let all = standard.map(|name| (name, Fields::StandardFlags)).into_iter().chain(further);
    for (name, fields) in all {
        let recording = Recording::new();
        recording.without(name);
        let context = recording.open();
        let mut builder = context.create_cq_builder();
        builder.setup_wc_flags(fields);
        recording.calls();
        let error = builder.build_ex().unwrap_err();
        assert_eq!((error.verb(), error.errno().raw()), ("ibv_create_cq_ex", libc::EOPNOTSUPP), "{name}");
        assert!(error.hint().unwrap().contains(name), "{error}");
        // A failed creation leaks nothing.
        let verbs = recording.verbs();
        assert_eq!(verbs[..2], ["create_cq_ex", "destroy_cq"], "{name}");
        assert!(verbs.chunks(2).all(|pair| pair == &verbs[..2]), "{verbs:?}");
        let generic = builder.build_generic().unwrap();
        assert!(matches!(generic, GenericCompletionQueue::Basic(_)), "{name}");
    }
}

#[test]
fn infiniband_only_readers_may_be_missing() {
    for name in ["read_src_qp", "read_slid", "read_sl", "read_dlid_path_bits"] {
        let recording = Recording::new();
        recording.without(name);
        let context = recording.open();
        let mut cq = context.create_cq_builder().build_ex().unwrap();
        assert_ne!(cq.wc_flags() & Fields::StandardFlags, Fields::StandardFlags, "the queue reports");
        recording.complete(&cq, completion(1));
        let mut poller = cq.start_poll().unwrap();
        let wc = poller.next().unwrap().unwrap();
        match name {
            "read_src_qp" => assert_eq!(wc.src_qp(), 0),
            "read_slid" => assert_eq!(wc.slid(), 0),
            "read_sl" => assert_eq!(wc.sl(), 0),
            _ => assert_eq!(wc.dlid_path_bits(), 0),
        }
        assert_eq!((wc.byte_len(), wc.imm_data(), wc.qp_num()), (12, 0x0d00_0001, 14));
    }
}

#[test]
fn reader_that_was_not_requested_may_be_missing() {
    let recording = Recording::new();
    recording.without("read_completion_ts").without("read_cvlan");
    let context = recording.open();
    context.create_cq_builder().build_ex().unwrap();
}
