use std::fmt::{Debug, Display};

use rdma_mummy_sys as ffi;
use sideway::ibverbs::completion::{WorkCompletionFlags, WorkCompletionOperationType, WorkCompletionStatus};
use sideway::ibverbs::device_context::{LinkLayer, Mtu, ValuesMask};
use sideway::ibverbs::queue_pair::{QueuePair, QueuePairAttributeMask, QueuePairState, QueuePairType};
use sideway_tests::recording::{Completion, Failure, Recording, World, connect};

/// Asserts that a value prints its number in both formats.
#[track_caller]
fn prints(value: impl Debug + Display, number: u32) {
    for text in [format!("{value:?}"), format!("{value}")] {
        assert!(text.contains(&number.to_string()), "{text} does not show {number}");
    }
}

#[test]
fn unfilled_driver_output_is_zero() {
    let world = World::new();
    world.recording.edit(|facts| facts.fills = false);
    let device = world.context.query_device().unwrap();
    assert_eq!((device.max_qp(), device.phys_port_cnt(), device.fw_ver().as_ref()), (0, 0, ""));
    assert_eq!(device.completion_timestamp_mask(), None);
    let port = world.context.query_port(1).unwrap();
    assert_eq!((port.lid(), port.gid_tbl_len(), port.link_layer()), (0, 0, LinkLayer::Unspecified));
    assert!(world.context.query_gid(1, 0).unwrap().is_zero());
    assert!(world.context.query_gid_ex(1, 0).unwrap().gid().is_zero());
    assert_eq!(world.context.query_gid_table().unwrap(), []);
    assert_eq!(world.context.query_pkey(1, 0).unwrap(), 0);
    // The device returns the requested mask, and a clock of zero.
    let values = world.context.query_rt_values_ex(ValuesMask::RawClock).unwrap();
    assert_eq!(values.raw_clock().unwrap().cycles(), 0);
    for qp in world.queue_pairs() {
        let (attribute, init) = qp.query(QueuePairAttributeMask::all()).unwrap();
        assert_eq!(attribute.state(), QueuePairState::Reset);
        assert_eq!((attribute.dest_qp_num(), attribute.path_mtu()), (0, Mtu::from_raw(0)));
        assert_eq!((init.max_send_wr(), init.sq_sig_all()), (0, false));
    }
}

#[test]
fn driver_without_the_extended_query_leaves_the_rest_zero() {
    let recording = Recording::new();
    recording.without("query_device_ex").edit(|facts| {
        facts.device.hca_core_clock = 5;
        facts.device.orig_attr.max_qp = 6;
    });
    let device = recording.open().query_device().unwrap();
    assert_eq!((device.max_qp(), device.hca_core_clock()), (6, None));
}

#[test]
fn unknown_values_of_a_port_print() {
    let recording = Recording::new();
    let context = recording.open();
    recording.edit(|facts| {
        facts.port.state = ffi::ibv_port_state(991);
        facts.port.max_mtu = ffi::ibv_mtu(992);
        facts.port.active_mtu = ffi::ibv_mtu(u32::MAX);
        facts.port.link_layer = 203;
        facts.port.phys_state = 204;
        facts.port.active_width = 205;
        facts.port.active_speed = 206;
        facts.port.flags = 0xff;
        facts.port.port_cap_flags = u32::MAX;
        facts.port.port_cap_flags2 = u16::MAX;
    });
    let port = context.query_port(1).unwrap();
    prints(port.port_state(), 991);
    prints(port.max_mtu(), 992);
    prints(port.active_mtu(), u32::MAX);
    prints(port.link_layer(), 203);
    prints(port.phys_state(), 204);
    prints(port.active_width(), 205);
    prints(port.active_speed(), 206);
    assert_eq!((port.max_mtu().bytes(), port.throughput()), (None, None));
    assert!(format!("{port:?}").contains("991"), "{port:?}");
    let _ = format!("{:?} {:?} {:?}", port.flags(), port.port_cap_flags(), port.port_cap_flags2());
}

#[test]
#[cfg_attr(miri, ignore = "makes system calls")]
fn unknown_values_of_a_device_and_its_gids_print() {
    let recording = Recording::new();
    let context = recording.open();
    recording.edit(|facts| {
        facts.device.orig_attr.atomic_cap = ffi::ibv_atomic_cap(993);
        facts.device.orig_attr.device_cap_flags = u32::MAX as _;
        facts.device.device_cap_flags_ex = u64::MAX;
        facts.device.orig_attr.fw_ver = [-1; 64];
        facts.gids[0].gid_type = 994;
        facts.gids[0].ndev_ifindex = u32::MAX;
    });
    let device = context.query_device().unwrap();
    prints(device.atomic_cap(), 993);
    assert!(!device.fw_ver().is_empty());
    let _ = format!("{device:?}");
    let entries = context.query_gid_table().unwrap();
    prints(entries[0].gid_type(), 994);
    assert!(entries[0].netdev_name().is_err());
    prints(context.query_gid_type(1, 0).unwrap(), 994);
}

#[test]
fn unknown_values_of_a_completion_print() {
    let world = World::new();
    let odd = Completion { status: 995, opcode: 996, wc_flags: u32::MAX, ..Completion::default() };
    let mut basic = world.context.create_cq_builder().build().unwrap();
    let mut extended = world.context.create_cq_builder().build_ex().unwrap();
    world.recording.complete(&basic, odd).complete(&extended, odd);
    let mut poller = basic.start_poll().unwrap();
    let wc = poller.next().unwrap().unwrap();
    prints(wc.status(), 995);
    prints(wc.opcode(), 996);
    assert_eq!(wc.wc_flags(), WorkCompletionFlags::all());
    assert!(format!("{wc:?}").contains("995"));
    let mut poller = extended.start_poll().unwrap();
    let wc = poller.next().unwrap().unwrap();
    prints(wc.status(), 995);
    prints(wc.opcode(), 996);
    assert!(format!("{wc:?}").contains("996"));
    prints(WorkCompletionStatus::from_raw(u32::MAX), u32::MAX);
    prints(WorkCompletionOperationType::from_raw(u32::MAX), u32::MAX);
}

#[test]
fn unknown_values_of_a_queue_pair_print() {
    let world = World::new();
    world.recording.edit(|facts| {
        facts.query_state = Some(997);
        facts.query_type = Some(998);
        facts.qp.path_mtu = ffi::ibv_mtu(999);
        facts.qp.qp_access_flags = u32::MAX;
        facts.qp.ah_attr.static_rate = 207;
    });
    for qp in world.queue_pairs() {
        let (attribute, init) = qp.query(QueuePairAttributeMask::all()).unwrap();
        prints(attribute.state(), 997);
        prints(init.qp_type(), 998);
        prints(attribute.path_mtu(), 999);
        prints(attribute.address_vector().static_rate(), 207);
        assert!(format!("{attribute:?} {init:?}").contains("997"));
        // A queue pair in an unknown state cannot be modified, and the error states that.
        world.recording.fail("modify_qp", 0, Failure::documented(libc::EINVAL));
        let error = connect(&qp).unwrap_err();
        assert!(error.to_string().contains("997"), "{error}");
    }
}

#[test]
fn unknown_type_is_refused_and_prints() {
    let world = World::new();
    let mut builder = world.qp_builder();
    builder.setup_qp_type(QueuePairType::from_raw(4711));
    for error in [builder.build().map(drop).unwrap_err(), builder.build_generic().map(drop).unwrap_err()] {
        assert_eq!(error.errno().raw(), libc::EINVAL);
        assert_eq!(
            error.hint().unwrap(),
            "this builder makes queue pairs of the types [ReliableConnection, UnreliableConnection]; for \
             QueuePairType(4711) use the builder of its vendor's module"
        );
    }
    assert_eq!(world.recording.verbs(), [""; 0]);
}

#[test]
fn unknown_state_of_the_driver_is_handled() {
    let world = World::new();
    for qp in world.queue_pairs() {
        // SAFETY: the queue pair is alive, and no other thread uses it.
        unsafe { (*qp.qp().as_ptr()).state = ffi::ibv_qp_state(4712) };
        prints(qp.state(), 4712);
    }
}

#[test]
fn driver_output_beyond_its_space_is_an_error() {
    let recording = Recording::new();
    let context = recording.open();
    recording.edit(|facts| {
        let first = facts.gids[0];
        facts.gids = vec![first; 100];
    });
    assert_eq!(context.query_gid_table().unwrap().len(), 4, "the table of the port has 4 entries");
    recording.edit(|facts| facts.port.gid_tbl_len = -1);
    assert_eq!(context.query_gid_table().unwrap(), []);
}
