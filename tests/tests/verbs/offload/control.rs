//! ECE, packet pacing, data order, and the attributes of `ibv_modify_qp`.

use rdma_mummy_sys as ffi;
use sideway::ibverbs::address::{AddressHandleAttribute, Gid};
use sideway::ibverbs::queue_pair::{
    DataInOrder, DataInOrderFlags, Ece, PathMigrationState, QueuePair, QueuePairAttribute, QueuePairAttributeMask,
    QueuePairCapabilities, QueuePairState, RateLimit,
};
use sideway::ibverbs::work_request::WorkRequestOperationType;
use sideway_tests::recording::{Failure, World, connect};

use crate::offload::queue_pair;

#[test]
fn ece_options_are_set_and_the_accepted_ones_returned() {
    let world = World::new();
    for qp in world.queue_pairs() {
        world.recording.calls();
        let own = qp.query_ece().unwrap();
        assert_eq!(own, Ece { vendor_id: 0x15b3, options: 0b1110, comp_mask: 0 });
        let accepted = qp.set_ece(Ece { vendor_id: 0x15b3, options: 0b0111, comp_mask: 5 }).unwrap();
        assert_eq!(accepted, Ece { vendor_id: 0x15b3, options: 0b0110, comp_mask: 5 });
        let calls = world.recording.calls();
        assert_eq!(calls.iter().map(|call| call.verb).collect::<Vec<_>>(), ["query_ece", "set_ece"]);
        assert_eq!(calls[1].arguments, [("vendor_id", 0x15b3), ("options", 0b0111), ("comp_mask", 5)]);

        let error = qp.set_ece(Ece::default()).unwrap_err();
        assert_eq!((error.verb(), error.errno().raw()), ("ibv_set_ece", libc::EOPNOTSUPP));
        assert!(error.hint().unwrap().contains("the vendor is 0"), "{error}");
        world.recording.fail("query_ece", 0, Failure::documented(libc::EOPNOTSUPP));
        assert_eq!(qp.query_ece().unwrap_err().to_string(), "ibv_query_ece: EOPNOTSUPP (Operation not supported)");
        world.recording.calls();
    }
    world.end();
}

#[test]
fn rate_limit_arrives_whole_and_a_refusal_reports_why() {
    let world = World::new();
    let qp = queue_pair(&world);
    let limit = RateLimit { rate_kbps: 1_000_000, max_burst_bytes: 65_536, typical_packet_bytes: 1_500 };
    qp.modify_rate_limit(&limit).unwrap();
    let [call] = &world.recording.calls()[..] else { panic!("one call") };
    assert_eq!(call.verb, "modify_qp_rate_limit");
    assert_eq!(
        call.arguments,
        [("rate_limit", 1_000_000), ("max_burst_sz", 65_536), ("typical_pkt_sz", 1_500), ("comp_mask", 0)]
    );

    world.recording.fail_always("modify_qp_rate_limit", Failure::documented(libc::EINVAL));
    let error = qp.modify_rate_limit(&limit).unwrap_err();
    assert!(error.hint().unwrap().contains("in Reset; move it to ReadyToSend"), "{error}");
    connect(&qp).unwrap();
    assert_eq!(qp.modify_rate_limit(&limit).unwrap_err().hint(), None);
    world.recording.edit(|facts| {
        facts.device.packet_pacing_caps.qp_rate_limit_min = 1;
        facts.device.packet_pacing_caps.qp_rate_limit_max = 500_000;
    });
    let error = qp.modify_rate_limit(&limit).unwrap_err();
    assert!(
        error.hint().unwrap().contains("1000000 kbit/s are outside the device's range; use 1 to 500000"),
        "{error}"
    );
}

#[test]
fn device_without_pacing_is_an_error() {
    let recording = sideway_tests::recording::Recording::new();
    recording.without("modify_qp_rate_limit");
    let context = recording.open();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq_builder().build().unwrap();
    let qp = pd.create_qp_builder().setup_send_cq(&cq).setup_recv_cq(&cq).build().unwrap();
    let error = qp.modify_rate_limit(&RateLimit::default()).unwrap_err();
    assert_eq!(error.to_string(), "ibv_modify_qp_rate_limit: EOPNOTSUPP (Operation not supported)");
}

#[test]
fn data_order_is_what_the_driver_reports() {
    let world = World::new();
    let qp = queue_pair(&world);
    let ask = |flags| qp.query_data_in_order(WorkRequestOperationType::Write, flags);
    assert_eq!(ask(DataInOrderFlags::empty()), DataInOrder::empty());
    let all = DataInOrderFlags::ReturnCapabilities | DataInOrderFlags::DeviceOnly;
    for (given, expected) in [
        (1, DataInOrder::WholeMessage),
        (2, DataInOrder::Aligned128Bytes),
        (3, DataInOrder::WholeMessage | DataInOrder::Aligned128Bytes),
        (-libc::EINVAL, DataInOrder::empty()),
    ] {
        world.recording.edit(|facts| facts.data_in_order = given);
        assert_eq!(ask(all), expected);
    }
    let calls = world.recording.calls();
    let operation = u64::from(ffi::ibv_wr_opcode::IBV_WR_RDMA_WRITE.0);
    assert_eq!(calls[0].arguments, [("op", operation), ("flags", 0)]);
    assert_eq!(calls[1].arguments, [("op", operation), ("flags", 3)]);
}

#[test]
fn attributes_of_migration_and_depth_arrive_where_c_reads_them() {
    let world = World::new();
    let qp = queue_pair(&world);
    let mut way = AddressHandleAttribute::new();
    let peer: Gid = "fe80::7".parse().unwrap();
    way.setup_port(2).setup_grh(&peer, 0x12345, 3, 64, 9).setup_dest_lid(11).setup_service_level(4);
    let depths = QueuePairCapabilities {
        max_send_wr: 101,
        max_recv_wr: 102,
        max_send_sge: 103,
        max_recv_sge: 104,
        max_inline_data: 105,
    };
    let mut attribute = QueuePairAttribute::new();
    attribute
        .setup_alternate_path(&way, 2, 77, 14)
        .setup_path_mig_state(PathMigrationState::Rearm)
        .setup_sqd_async_notify(true)
        .setup_capabilities(depths)
        .setup_rate_limit(123_456)
        .setup_current_state(QueuePairState::ReadyToSend);
    let mask = ffi::ibv_qp_attr_mask::IBV_QP_ALT_PATH.0
        | ffi::ibv_qp_attr_mask::IBV_QP_PATH_MIG_STATE.0
        | ffi::ibv_qp_attr_mask::IBV_QP_EN_SQD_ASYNC_NOTIFY.0
        | ffi::ibv_qp_attr_mask::IBV_QP_CAP.0
        | ffi::ibv_qp_attr_mask::IBV_QP_RATE_LIMIT.0
        | ffi::ibv_qp_attr_mask::IBV_QP_CUR_STATE.0;
    assert_eq!(attribute.mask().bits(), mask);
    qp.modify(&attribute).unwrap();
    assert_eq!(world.recording.calls()[0].argument("mask"), u64::from(mask));
    let arrived = world.recording.qp_attr().unwrap();
    let alternate = arrived.alt_ah_attr;
    // SAFETY: both members of the union are plain integers.
    assert_eq!(unsafe { alternate.grh.dgid.raw }, peer.raw);
    assert_eq!((alternate.grh.flow_label, alternate.grh.sgid_index, alternate.grh.hop_limit), (0x12345, 3, 64));
    assert_eq!((alternate.grh.traffic_class, alternate.dlid, alternate.sl), (9, 11, 4));
    assert_eq!((alternate.is_global, alternate.port_num), (1, 2));
    assert_eq!((arrived.alt_port_num, arrived.alt_pkey_index, arrived.alt_timeout), (2, 77, 14));
    assert_eq!(arrived.path_mig_state, ffi::ibv_mig_state::IBV_MIG_REARM);
    assert_eq!(arrived.en_sqd_async_notify, 1);
    let cap = arrived.cap;
    assert_eq!((cap.max_send_wr, cap.max_recv_wr, cap.max_send_sge), (101, 102, 103));
    assert_eq!((cap.max_recv_sge, cap.max_inline_data), (104, 105));
    assert_eq!((arrived.rate_limit, arrived.cur_qp_state), (123_456, ffi::ibv_qp_state::IBV_QPS_RTS));
    // Unset attributes are zero.
    assert_eq!((arrived.qp_state.0, arrived.qkey, arrived.ah_attr.port_num, arrived.timeout), (0, 0, 0, 0));

    let text = format!("{attribute:?}");
    for part in [
        "current_state: ReadyToSend",
        "sqd_async_notify: true",
        "alternate_address_vector: ",
        "alternate_port: 2",
        "alternate_pkey_index: 77",
        "alternate_timeout: 14",
        "path_mig_state: Rearm",
        "max_inline_data: 105",
        "rate_limit: 123456",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!format!("{:?}", QueuePairAttribute::new()).contains("alternate"));
}

#[test]
fn query_returns_attributes_and_an_unknown_state_prints() {
    let world = World::new();
    let qp = queue_pair(&world);
    world.recording.edit(|facts| {
        facts.qp.path_mig_state = ffi::ibv_mig_state(7);
        facts.qp.alt_timeout = 18;
        facts.qp.cap.max_send_wr = 33;
        facts.qp.en_sqd_async_notify = 255;
    });
    let (attribute, _) = qp.query(QueuePairAttributeMask::all()).unwrap();
    assert_eq!(format!("{:?}", attribute.path_mig_state()), "PathMigrationState(7)");
    assert_eq!((attribute.alternate_timeout(), attribute.capabilities().max_send_wr), (18, 33));
    assert!(attribute.sqd_async_notify());
}
