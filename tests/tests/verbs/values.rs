//! The numeric attributes of a device and its port, and the crate's own conversions.

use sideway::ibverbs::address::{StaticRate, flow_label_to_udp_sport};
use sideway::ibverbs::device::DeviceInfo;
use sideway::ibverbs::device_context::{LinkLayer, PortState, QueuePairTypeSupport, ValuesMask};
use sideway_tests::recording::{Failure, Recording};

#[test]
fn port_uses_the_old_query_of_an_old_library() {
    let recording = Recording::new();
    recording.without("query_port");
    recording.edit(|facts| facts.port.flags = 0xff);
    let context = recording.open();
    recording.calls();
    let port = context.query_port(1).unwrap();
    assert_eq!(recording.verbs(), ["query_port_basic"]);
    assert_eq!((port.port_state(), port.link_layer()), (PortState::Active, LinkLayer::Ethernet));
    assert_eq!(port.flags().bits(), 0, "the old query cannot return flags");
}

#[test]
fn port_speed_comes_from_the_port_query() {
    let recording = Recording::new();
    let context = recording.open();
    recording.calls();
    assert_eq!(context.query_port_speed(1).unwrap(), 4000);
    let calls = recording.calls();
    assert_eq!((calls.len(), calls[0].verb, calls[0].argument("port")), (1, "query_port_speed", 1));
    for failure in [Failure::documented(libc::EINVAL), Failure::negative(libc::EINVAL)] {
        recording.fail("query_port_speed", 0, failure);
        let error = context.query_port_speed(9).unwrap_err();
        assert_eq!((error.verb(), error.errno().raw()), ("ibv_query_port_speed", libc::EINVAL));
        assert!(error.hint().unwrap().contains("there is no port 9"), "{error}");
    }
}

#[test]
fn device_has_the_kernels_index() {
    assert_eq!(Recording::new().open().index(), Some(7));
}

#[test]
fn clock_of_the_device_is_read_where_the_driver_gives_it() {
    let recording = Recording::new();
    let context = recording.open();
    recording.edit(|facts| facts.values_mask = ValuesMask::RawClock.bits());
    let clock = context.query_rt_values_ex(ValuesMask::RawClock).unwrap().raw_clock().unwrap();
    assert_eq!((clock.seconds(), clock.nanoseconds()), (0, 12345));
    assert_eq!(recording.calls().pop().unwrap().verb, "query_rt_values");
    recording.edit(|facts| facts.values_mask = 0);
    assert_eq!(context.query_rt_values_ex(ValuesMask::RawClock).unwrap().raw_clock(), None);
}

#[test]
fn queue_pair_types_form_a_bit_set() {
    let recording = Recording::new();
    // RC, UD and RAW_PACKET, whose numbers are 2, 4 and 8.
    recording.edit(|facts| facts.device.tso_caps.supported_qpts = 1 << 2 | 1 << 4 | 1 << 8);
    let types = recording.open().query_device().unwrap().tso_caps().supported_qp_types();
    let expected = [
        QueuePairTypeSupport::ReliableConnection,
        QueuePairTypeSupport::UnreliableDatagram,
        QueuePairTypeSupport::RawPacket,
    ];
    assert!(expected.into_iter().all(|kind| types.contains(kind)), "{types:?}");
    assert!(!types.contains(QueuePairTypeSupport::UnreliableConnection), "{types:?}");
}

#[test]
fn rates_convert_to_sdr_multiples_and_megabits() {
    assert_eq!((StaticRate::Gbps10.to_mult(), StaticRate::from_mult(4)), (Some(4), Some(StaticRate::Gbps10)));
    assert_eq!(
        (StaticRate::Gbps100.to_mbps(), StaticRate::from_mbps(103_125)),
        (Some(103_125), Some(StaticRate::Gbps100))
    );
    // The rates of FDR and EDR are not multiples of 2.5 Gbit/s.
    assert_eq!((StaticRate::Gbps100.to_mult(), StaticRate::from_mult(3)), (None, None));
    assert_eq!((StaticRate::Max.to_mbps(), StaticRate::from_mbps(1)), (None, None));
    assert_eq!((StaticRate::from_raw(77).to_mult(), StaticRate::from_mult(u32::MAX)), (None, None));
}

#[test]
fn flow_label_maps_to_a_udp_port() {
    assert_eq!(flow_label_to_udp_sport(0), 0xc000);
    assert_eq!(flow_label_to_udp_sport(0x3fff), 0xffff);
    // The upper bits are folded into the lower ones.
    assert_eq!(flow_label_to_udp_sport(0x4001), 0xc000);
    assert_eq!(flow_label_to_udp_sport(0xf_ffff), 0xffff ^ 0x3f);
}
