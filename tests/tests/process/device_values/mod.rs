//! sideway on devices that return malformed values, lack verbs, or fail: nothing may panic or read beyond what a device
//! wrote.
#![expect(clippy::unwrap_used, reason = "a test that fails panics")]

mod fake;

use std::sync::{Arc, Once};

use sideway::ibverbs::address::{Gid, GidType, NetdevNameError};
use sideway::ibverbs::device::{DeviceInfo, DeviceList, NodeType, TransportType};
use sideway::ibverbs::device_context::{DeviceContext, PhysicalState, ValuesMask};

fn open(name: &str) -> Arc<DeviceContext> {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(fake::register);
    DeviceList::new().unwrap().find(name).unwrap().open().unwrap()
}

#[test]
fn device_outlives_its_list_and_returns_its_names() {
    let context = open(fake::OLD);
    assert_eq!(context.name(), fake::OLD);
    assert_eq!(context.guid().to_string(), "0102:0304:0506:0708");
    assert_eq!((context.index(), context.sysfs_path(), context.numa_node()), (None, None, None));
    assert_eq!(context.transport_type(), TransportType::from_raw(99));
    assert_eq!(context.node_type(), NodeType::Unknown);
    assert_eq!(context.uverbs_name(), "");
    assert_eq!(context.num_comp_vectors(), 0, "a negative number of vectors");
}

#[test]
fn missing_name_error_lists_the_known_names() {
    open(fake::OLD);
    let error = DeviceList::new().unwrap().find("mlx5_9").unwrap_err();
    assert!(error.available().iter().any(|name| name == fake::OLD), "{error}");
}

#[test]
fn unknown_values_print_as_numbers() {
    let context = open(fake::OLD);
    let port = context.query_port(1).unwrap();
    assert_eq!(port.port_state().to_string(), "unknown (77)");
    assert_eq!(port.max_mtu().bytes(), None);
    assert_eq!(port.active_width().lanes(), None);
    assert_eq!(port.active_speed().to_throughput(), None);
    assert_eq!(port.throughput(), None);
    assert_eq!(port.phys_state(), PhysicalState::from_raw(200));
    assert_eq!(port.link_layer().to_string(), "Ethernet");
    assert!(format!("{port:?} {:?}", context.query_device().unwrap()).contains("PortState(77)"));
}

#[test]
fn missing_port_error_lists_the_ports() {
    let error = open(fake::OLD).query_port(9).unwrap_err();
    assert_eq!(error.to_string(), "ibv_query_port: EINVAL (Invalid argument): there is no port 9; use port 1");
    let error = open(fake::OLD).query_gid(9, 0).unwrap_err();
    assert!(error.hint().unwrap().contains("there is no port 9"), "{error}");
}

#[test]
fn missing_gid_error_has_the_table_length() {
    let context = open(fake::OLD);
    for index in [3, u32::MAX] {
        let error = context.query_gid(1, index).unwrap_err();
        assert!(error.hint().unwrap().ends_with("; use an index below 3"), "{error}");
    }
    let error = context.query_gid_ex(1, 1).unwrap_err();
    assert_eq!(error.errno().raw(), libc::ENODATA);
    assert_eq!(error.hint(), Some("GID index 1 of port 1 is not in use; choose one that query_gid_table returns"));
}

#[test]
fn gid_table_is_built_from_single_queries_without_the_extended_verb() {
    let context = open(fake::OLD);
    let table = context.query_gid_table().unwrap();
    let indices: Vec<u32> = table.iter().map(|entry| entry.gid_index()).collect();
    assert_eq!(indices, [0, 2], "entry 1 is not in use");
    assert!(table.iter().all(|entry| entry.port_num() == 1 && entry.gid_type() == GidType::RoceV1));
    assert_eq!(table[1].gid(), Gid { raw: [3; 16] });
    assert_eq!(table[1].netdev_name(), Err(NetdevNameError::NoNetdev));
    assert_eq!(context.query_gid_ex(1, 2).unwrap(), table[1]);
    assert_eq!(context.query_gid_type(1, 0).unwrap(), GidType::RoceV1);
}

#[test]
fn oversized_gid_table_is_truncated() {
    let context = open(fake::LIAR);
    assert_eq!(context.query_port(1).unwrap().gid_tbl_len(), i32::MAX as u32);
    let table = context.query_gid_table().unwrap();
    assert_eq!(table.len(), 1 << 16, "the most entries that a port can have");
    assert!(table.iter().all(|entry| entry.gid().is_zero()));
}

#[test]
fn device_without_ports_or_with_a_negative_table_has_no_gids() {
    assert_eq!(open(fake::PORTLESS).query_gid_table().unwrap(), []);
}

#[test]
fn p_keys_are_in_host_order_and_an_absent_one_is_named() {
    let context = open(fake::OLD);
    assert_eq!(context.query_pkey(1, 0).unwrap(), 0x8001);
    assert_eq!(context.get_pkey_index(1, 0x8001).unwrap(), 0);
    let error = context.get_pkey_index(1, 0x7fff).unwrap_err();
    assert_eq!((error.errno().raw(), error.hint()), (libc::ENOENT, Some("port 1 has no P_Key 0x7fff")));
    let error = context.query_pkey(1, 5).unwrap_err();
    assert_eq!(error.hint(), Some("port 1 has 1 P_Keys; use a lower index"));
}

#[test]
fn failure_without_errno_ignores_a_stale_errno() {
    let context = open(fake::OLD);
    for _ in 0..2 {
        assert_eq!(context.query_pkey(1, 5).unwrap_err().errno().raw(), libc::EINVAL);
        assert_eq!(context.query_pkey(1, fake::SILENT as u16).unwrap_err().errno().raw(), libc::EIO);
        assert_eq!(context.query_gid(1, 5).unwrap_err().errno().raw(), libc::EINVAL);
        assert_eq!(context.query_gid(1, fake::SILENT as u32).unwrap_err().errno().raw(), libc::EIO);
    }
}

#[test]
fn unsupported_driver_call_is_an_error() {
    let error = open(fake::OLD).query_rt_values_ex(ValuesMask::RawClock).unwrap_err();
    assert_eq!(error.errno().raw(), libc::EOPNOTSUPP);
    let error = open(fake::OLD).query_port_speed(1).unwrap_err();
    assert_eq!(error.errno().raw(), libc::EOPNOTSUPP);
}

#[test]
fn failed_close_is_reported_once_and_drop_does_not_panic() {
    let context = Arc::into_inner(open(fake::LIAR)).unwrap();
    assert_eq!(context.close().unwrap_err().to_string(), "ibv_close_device: EBUSY (Device or resource busy)");
    drop(open(fake::LIAR));
    assert_eq!(Arc::into_inner(open(fake::OLD)).unwrap().close(), Ok(()));
}

#[test]
fn failed_open_names_the_device() {
    open(fake::OLD);
    let list = DeviceList::new().unwrap();
    let error = list.find(fake::CLOSED).unwrap().open().unwrap_err();
    assert_eq!(error.to_string(), format!("{}: ibv_open_device: EACCES (Permission denied)", fake::CLOSED));
}
