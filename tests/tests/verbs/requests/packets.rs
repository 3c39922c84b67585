//! Raw packets: whole, and cut into segments by the device.

use rdma_mummy_sys::ibv_wr_opcode as opcode;
use sideway::ibverbs::queue_pair::{
    ExtendedQueuePair, PostSendGuard, QueuePair, QueuePairAttribute, QueuePairBuilder, QueuePairCreateFlags,
    QueuePairState, QueuePairType, RawPacket, SendOperationFlags,
};
use sideway::ibverbs::work_request::{PostErrorKind, WorkRequestFlags};
use sideway_tests::recording::{Failure, Posted, World};

use crate::batch;
use crate::requests::support::{SIGNALED, all_operations, on_each_kind, sized};

const HEADER: &[u8] = b"ethernet, ip, tcp";

batch!(Send of RawPacket {}, |_this, guard| {
    guard.construct_wr(99, SIGNALED).setup_send().setup_inline_data(b"good")
});

batch!(Each of RawPacket {}, |_this, guard| {
    // SAFETY: the recording device touches no memory of packets that have a length.
    unsafe {
        guard.construct_wr(1, SIGNALED).setup_send().setup_sge(7, 70, 60);
        guard.construct_wr(2, SIGNALED).setup_send_tso(HEADER, 1400).setup_sge(7, 70, 3000);
    }
});

fn builder(world: &World) -> QueuePairBuilder<RawPacket> {
    sized(world, world.pd.create_raw_packet_qp_builder())
}

#[test]
fn packets_arrive_unchanged() {
    let world = World::new();
    let mut builder = builder(&world);
    builder.setup_send_ops_flags(all_operations()).setup_max_tso_header(HEADER.len() as u16);
    for outcome in on_each_kind(&world, &builder, &Each {}, &Send {}) {
        outcome.result.unwrap();
        let request =
            |wr_id, code: opcode| Posted { wr_id, opcode: Some(code.0), flags: SIGNALED.bits(), ..Posted::default() };
        let expected = [
            Posted { entries: vec![(7, 70, 60)], length: 60, ..request(1, opcode::IBV_WR_SEND) },
            Posted {
                segments: Some((HEADER.to_vec(), 1400)),
                entries: vec![(7, 70, 3000)],
                length: 3000,
                ..request(2, opcode::IBV_WR_TSO)
            },
        ];
        assert_eq!(outcome.posted, expected, "{}", outcome.kind);
    }
}

#[test]
fn header_space_and_flags_arrive_for_basic_queue_pairs_too() {
    let world = World::new();
    let mut builder = builder(&world);
    builder.setup_max_tso_header(54).setup_create_flags(QueuePairCreateFlags::ScatterFcs).setup_source_qpn(0xabc);
    for extended in [false, true] {
        world.recording.calls();
        let qp_type = if extended { builder.build_ex().unwrap().qp_type() } else { builder.build().unwrap().qp_type() };
        assert_eq!(qp_type, QueuePairType::RawPacket);
        let calls = world.recording.calls();
        let create = calls.iter().find(|call| call.verb == "create_qp_ex").unwrap();
        // Domain, flags, header, and for an extended queue pair, the operations.
        let mask = 1 | 1 << 2 | 1 << 3 | u64::from(extended) << 6;
        let expected =
            [("comp_mask", mask), ("max_tso_header", 54), ("create_flags", 1 << 8 | 1 << 10), ("source_qpn", 0xabc)];
        for (name, value) in expected {
            assert_eq!(create.argument(name), value, "{name}, extended: {extended}");
        }
    }
}

#[test]
fn unrequested_segmentation_is_refused() {
    let world = World::new();
    let mut qp = builder(&world).build_ex().unwrap();
    let mut guard = qp.start_post_send();
    guard.construct_wr(7, SIGNALED).setup_send_tso(HEADER, 1).setup_no_data();
    let error = guard.post().unwrap_err();
    assert_eq!(error.kind(), PostErrorKind::OperationNotEnabled(SendOperationFlags::TcpSegmentationOffload));
    assert!(!world.recording.verbs().contains(&"wr_send_tso"));
}

#[test]
fn oversized_header_is_refused() {
    let header = vec![0; 1 << 16];
    batch!(Long<'a> of RawPacket { header: &'a [u8] }, |this, guard| {
        guard.construct_wr(6, SIGNALED).setup_send().setup_inline_data(b"x");
        guard.construct_wr(7, SIGNALED).setup_send_tso(this.header, 1000).setup_no_data();
        guard.construct_wr(8, SIGNALED).setup_send_tso(&this.header[1..], 1000).setup_no_data();
    });
    let world = World::new();
    let mut builder = builder(&world);
    builder.setup_send_ops_flags(all_operations()).setup_max_tso_header(u16::MAX);
    for outcome in on_each_kind(&world, &builder, &Long { header: &header }, &Send {}) {
        let error = outcome.result.unwrap_err();
        assert_eq!((error.kind(), error.posted()), (PostErrorKind::InvalidWorkRequest, Some(0)));
        let (verb, request) = match outcome.kind {
            "basic" => ("ibv_post_send", "request 1 (wr_id 7)"),
            _ => ("ibv_wr_complete", "wr_id 7"),
        };
        assert_eq!(
            error.to_string(),
            format!(
                "{verb}: EINVAL (Invalid argument): the header has 65536 bytes; use at most 65535; {request}; nothing of \
                 the batch was posted"
            )
        );
        assert_eq!(outcome.posted, []);
        assert!(!outcome.verbs.contains(&"wr_send_tso"), "{:?}", outcome.verbs);
    }
    // A header of one byte less is accepted.
    batch!(Longest<'a> of RawPacket { header: &'a [u8] }, |this, guard| {
        guard.construct_wr(7, SIGNALED).setup_send_tso(this.header, 1000).setup_no_data()
    });
    for outcome in on_each_kind(&world, &builder, &Longest { header: &header[1..] }, &Send {}) {
        outcome.result.unwrap();
        assert_eq!(outcome.posted[0].segments.as_ref().unwrap().0.len(), 65535);
    }
}

/// mlx5's driver refuses such a header when the request starts, and then writes the data to a slot without a request.
#[test]
fn unsupported_header_length_does_not_reach_the_driver() {
    let header = [0; 65];
    // The interpreter takes long for each.
    let near_a_limit = [0, 13, 14, 15, 20, 21, 64, 65];
    let lengths = || (0..=header.len()).filter(|length| !cfg!(miri) || near_a_limit.contains(length));
    for (most, takes) in [(64, 14..=64), (14, 14..=14), (20, 14..=20)] {
        let world = World::new();
        let mut builder = builder(&world);
        builder.setup_send_ops_flags(all_operations()).setup_max_tso_header(most);
        let mut qp = builder.build_ex().unwrap();
        for length in lengths() {
            world.recording.calls();
            let mut guard = qp.start_post_send();
            // SAFETY: the recording device touches no memory of packets that have a length.
            unsafe { guard.construct_wr(7, SIGNALED).setup_send_tso(&header[..length], 1400).setup_sge(7, 70, 60) };
            let result = guard.post();
            let verbs = world.recording.verbs();
            if takes.contains(&length) {
                result.unwrap();
                assert_eq!(verbs, ["wr_start", "wr_send_tso", "wr_set_sge", "wr_complete"]);
                continue;
            }
            let (error, words) = (
                result.unwrap_err(),
                match length {
                    0..14 => {
                        format!("the header has {length} bytes; use at least the 14 of an Ethernet header; wr_id 7")
                    }
                    _ => format!(
                        "the header has {length} bytes, but the queue pair was built for {most}; raise QueuePairBuilder::setup_max_tso"
                    ),
                },
            );
            assert_eq!((error.kind(), error.posted()), (PostErrorKind::InvalidWorkRequest, Some(0)));
            assert!(error.to_string().contains(&words), "{error}");
            assert_eq!(verbs, ["wr_start", "wr_abort"]);
        }
    }
    // A queue pair for segmentation, but without a header.
    let world = World::new();
    let mut qp = builder(&world).setup_send_ops_flags(all_operations()).build_ex().unwrap();
    let mut guard = qp.start_post_send();
    guard.construct_wr(7, SIGNALED).setup_send_tso(HEADER, 1400).setup_no_data();
    assert!(guard.post().unwrap_err().to_string().contains("was built for 0"));
}

#[test]
fn raw_packet_without_data_reads_no_stale_memory() {
    let world = World::new();
    let mut builder = builder(&world);
    let mut qp = builder.setup_max_inline_data(0).build().unwrap();
    for _ in 0..2 {
        // The recording device reads the first entry, like the driver of mlx4.
        let mut guard = qp.start_post_send();
        guard.construct_wr(1, SIGNALED).setup_send().setup_no_data();
        guard.construct_wr(3, SIGNALED).setup_send().setup_inline_data(&[]);
        // SAFETY: an empty list names no memory.
        unsafe { guard.construct_wr(4, SIGNALED).setup_send().setup_sge_list(&[]) };
        guard.post().unwrap();
        assert!(world.recording.posted().iter().all(|request| request.length == 0));
        let mut guard = qp.start_post_send();
        for wr_id in 0..4 {
            // SAFETY: the recording device touches no memory of packets that have a length.
            unsafe { guard.construct_wr(wr_id, SIGNALED).setup_send().setup_sge(1, 16, 64) };
        }
        guard.post().unwrap();
        world.recording.posted();
    }
}

#[test]
fn missing_port_does_not_reach_the_driver() {
    let world = World::new();
    let qp = builder(&world).build().unwrap();
    world.recording.calls();
    for port in [0, 2, 255] {
        let mut init = QueuePairAttribute::new();
        init.setup_state(QueuePairState::Init).setup_port(port);
        let hint = format!("EINVAL (Invalid argument): there is no port {port}; use a port from 1 to 1");
        assert_eq!(qp.modify(&init).unwrap_err().to_string(), format!("ibv_modify_qp(Reset -> Init): {hint}"));
        assert!(!world.recording.verbs().contains(&"modify_qp"));
    }
    qp.modify(QueuePairAttribute::new().setup_state(QueuePairState::Init).setup_port(1)).unwrap();
}

#[test]
fn unconfirmed_port_does_not_reach_the_driver() {
    let world = World::new();
    let qp = builder(&world).build().unwrap();
    world.recording.calls();
    world.recording.fail("query_device_ex", 0, Failure::documented(libc::EIO));
    let mut init = QueuePairAttribute::new();
    init.setup_state(QueuePairState::Init).setup_port(3);
    let error = qp.modify(&init).unwrap_err();
    assert_eq!((error.verb_error().verb(), error.verb_error().errno().raw()), ("ibv_query_device_ex", libc::EIO));
    assert!(!world.recording.verbs().contains(&"modify_qp"));
}

/// mlx5's driver refuses checksums when the request starts, unless it has queried that the device computes them. After
/// the refusal, the driver writes the data to a slot without a request.
#[test]
fn checksums_are_requested_only_if_the_driver_has_the_port() {
    let raw_checksums = 1 << 26;
    for (flags, link_layer, writes) in [(raw_checksums, 2, true), (0, 2, false), (raw_checksums, 1, false)] {
        let world = World::new();
        world.recording.edit(|facts| {
            facts.device.orig_attr.device_cap_flags = flags;
            facts.port.link_layer = link_layer;
        });
        let mut builder = builder(&world);
        builder.setup_send_ops_flags(all_operations()).setup_max_tso_header(64);
        let mut qp = builder.build_ex().unwrap();
        let post = |qp: &mut ExtendedQueuePair<RawPacket>, flags, segmented| {
            world.recording.calls();
            let mut guard = qp.start_post_send();
            let request = guard.construct_wr(7, SIGNALED | flags);
            if segmented {
                // SAFETY: the recording device touches no memory of packets that have a length.
                unsafe { request.setup_send_tso(HEADER, 1400).setup_sge(7, 70, 3000) };
            } else {
                request.setup_send().setup_inline_data(b"14 bytes and 2");
            }
            let result = guard.post().map_err(|error| error.to_string());
            (result, world.recording.verbs())
        };
        let refused = |(result, verbs): (Result<(), String>, Vec<&'static str>)| {
            let text = result.unwrap_err();
            assert!(text.contains("IpChecksum needs a queue pair with an Ethernet port"), "{text}");
            assert!(text.contains("wr_id 7; nothing of the batch was posted"), "{text}");
            assert_eq!(verbs, ["wr_start", "wr_abort"]);
        };
        for segmented in [false, true] {
            refused(post(&mut qp, WorkRequestFlags::IpChecksum, segmented));
            post(&mut qp, WorkRequestFlags::empty(), segmented).0.unwrap();
        }
        qp.modify(QueuePairAttribute::new().setup_state(QueuePairState::Init).setup_port(1)).unwrap();
        for segmented in [false, true] {
            let posted = post(&mut qp, WorkRequestFlags::IpChecksum, segmented);
            if writes {
                posted.0.unwrap();
                let flags = world.recording.posted().last().unwrap().flags;
                assert_ne!(flags & WorkRequestFlags::IpChecksum.bits(), 0);
            } else {
                refused(posted);
            }
        }
        // A port that does not reach the driver has no effect, and neither has a state without a port.
        let mut other = builder.build_ex().unwrap();
        world.recording.fail("modify_qp", 0, Failure::documented(libc::EINVAL));
        other.modify(QueuePairAttribute::new().setup_state(QueuePairState::Init).setup_port(1)).unwrap_err();
        refused(post(&mut other, WorkRequestFlags::IpChecksum, false));
    }
}

#[test]
fn basic_queue_pair_leaves_checksums_to_its_driver() {
    let world = World::new();
    let mut qp = builder(&world).build().unwrap();
    let mut guard = qp.start_post_send();
    guard.construct_wr(7, SIGNALED | WorkRequestFlags::IpChecksum).setup_send().setup_inline_data(b"14 bytes and 2");
    guard.post().unwrap();
    assert_eq!(world.recording.posted()[0].flags & WorkRequestFlags::IpChecksum.bits(), 1 << 4);
}
