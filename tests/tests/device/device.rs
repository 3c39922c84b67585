//! The attributes that a device reports, compared with the kernel's files for the kernel's devices.

use std::fs;
use std::net::Ipv6Addr;
use std::path::Path;

use sideway::ibverbs::address::{Gid, GidType};
use sideway::ibverbs::device::{DeviceInfo, DeviceList, NodeType, TransportType};
use sideway::ibverbs::device_context::{DeviceContext, LinkLayer, PhysicalState, PortState};
use sideway_tests::device;

/// The text of a file without the newline.
#[track_caller]
fn text(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).trim_end().to_owned()
}

/// `4: ACTIVE` is 4.
#[track_caller]
fn number_before_colon(text: &str) -> u32 {
    let number = text.split(':').next().and_then(|number| number.parse().ok());
    number.unwrap_or_else(|| panic!("`{text}` has no number"))
}

#[test]
fn device_list_matches_the_kernels() {
    let name = device::name();
    let list = DeviceList::new().expect("a list");
    let mut listed: Vec<String> =
        list.iter().filter(|device| device.sysfs_path().is_some()).map(|device| device.name()).collect();
    // If the folder does not exist, the kernel has no devices.
    let mut present: Vec<String> = fs::read_dir("/sys/class/infiniband").map_or_else(
        |_| Vec::new(),
        |devices| devices.map(|entry| entry.expect("an entry").file_name().into_string().expect("a name")).collect(),
    );
    listed.sort();
    present.sort();
    assert_eq!(listed, present);
    assert_eq!(list.iter().filter(|device| device.name() == name).count(), 1);
    let is_the_kernels = list.find(&name).expect("the device").sysfs_path().is_some();
    assert_eq!(listed.contains(&name), is_the_kernels);
    let error = list.find("no_such_device").expect_err("there is none").to_string();
    assert!(error.contains("`no_such_device`") && error.contains(&device::name()), "{error}");

    // A device stays open without its list, and can be opened twice.
    let context = list.find(&device::name()).expect("the device").open().expect("it opens");
    let again = device::open();
    drop(list);
    assert_eq!(context.name(), device::name());
    assert_eq!(
        context.query_device().expect("an answer").node_guid(),
        again.query_device().expect("an answer").node_guid()
    );
}

#[test]
fn device_attributes_match_sysfs() {
    let context = device::open();
    let attr = context.query_device().expect("an answer");
    assert_eq!(attr.node_guid(), context.guid());
    assert_eq!(context.transport_type(), TransportType::InfiniBand);
    match context.sysfs_path() {
        Some(sysfs) => {
            assert_eq!(context.guid().to_string(), text(sysfs.join("node_guid")));
            assert_eq!(attr.sys_image_guid().to_string(), text(sysfs.join("sys_image_guid")));
            // A device in software may have an empty file.
            let fw_ver = fs::read_to_string(sysfs.join("fw_ver")).unwrap_or_default();
            assert!(fw_ver.trim_end().is_empty() || attr.fw_ver() == fw_ver.trim_end(), "{} {fw_ver}", attr.fw_ver());
            assert_eq!(number_before_colon(&text(sysfs.join("node_type"))), context.node_type().raw());
            let ports = fs::read_dir(sysfs.join("ports")).expect("the ports").count();
            assert_eq!(attr.phys_port_cnt() as usize, ports);
        }
        None => {
            assert_eq!((context.node_type(), attr.phys_port_cnt()), (NodeType::ChannelAdapter, 1));
            assert_ne!(context.guid().to_string(), "0000:0000:0000:0000");
        }
    }
    assert!(context.num_comp_vectors() >= 1);
    let limits =
        [attr.max_qp(), attr.max_qp_wr(), attr.max_sge(), attr.max_cq(), attr.max_cqe(), attr.max_mr(), attr.max_pd()];
    assert!(limits.iter().all(|&limit| limit > 0), "{limits:?}");
}

/// Compares a port with its files.
#[track_caller]
fn port_is_as_in(folder: &Path, context: &DeviceContext, port_num: u8) {
    let port = context.query_port(port_num).expect("an answer");
    assert_eq!(port.port_state().raw(), number_before_colon(&text(folder.join("state"))));
    assert_eq!(port.phys_state().raw(), number_before_colon(&text(folder.join("phys_state"))));
    let hexadecimal = |name: &str| {
        let text = text(folder.join(name));
        u16::from_str_radix(text.trim_start_matches("0x"), 16).unwrap_or_else(|_| panic!("{name}: {text}"))
    };
    assert_eq!((port.lid(), port.sm_lid()), (hexadecimal("lid"), hexadecimal("sm_lid")));
    assert_eq!(port.link_layer().to_string(), text(folder.join("link_layer")));
    // The files of the GID table, unused ones included.
    assert_eq!(port.gid_tbl_len() as usize, fs::read_dir(folder.join("gids")).expect("the table").count());
    assert_eq!(usize::from(port.pkey_tbl_len()), fs::read_dir(folder.join("pkeys")).expect("the table").count());
    let pkey = context.query_pkey(port_num, 0).expect("an answer");
    assert_eq!(pkey, hexadecimal("pkeys/0"));
}

#[test]
fn port_attributes_match_sysfs() {
    let context = device::open();
    let ports = context.query_device().expect("an answer").phys_port_cnt();
    let mut seen = 0;
    for port_num in 1..=ports as u8 {
        let port = context.query_port(port_num).expect("an answer");
        match context.sysfs_path() {
            Some(sysfs) => port_is_as_in(&sysfs.join(format!("ports/{port_num}")), &context, port_num),
            None => {
                assert_eq!((port.phys_state(), port.link_layer()), (PhysicalState::LinkUp, LinkLayer::Ethernet));
                assert_eq!((port.lid(), port.sm_lid(), port.pkey_tbl_len()), (0, 0, 1));
                assert_eq!(context.query_pkey(port_num, 0).expect("an answer"), 0xffff);
            }
        }
        assert!(port.active_mtu() <= port.max_mtu());
        assert!(port.max_msg_sz() > 0);
        seen += 1;
    }
    assert!(seen >= 1);
    let port = context.query_port(device::PORT).expect("an answer");
    assert_eq!(port.port_state(), PortState::Active, "the tests need an active port");

    for port_num in [0, ports as u8 + 1] {
        let error = context.query_port(port_num).expect_err("there is no such port").to_string();
        assert!(error.contains(&format!("there is no port {port_num}")), "{error}");
    }
}

#[test]
fn gid_table_matches_sysfs() {
    let context = device::open();
    let table = context.query_gid_table().expect("the table");
    let ports = context.query_device().expect("an answer").phys_port_cnt();
    let mut in_use = 0;
    for port_num in 1..=ports as u8 {
        let port = context.query_port(port_num).expect("an answer");
        let folder = context.sysfs_path().map(|sysfs| sysfs.join(format!("ports/{port_num}")));
        let mut was_loopback = false;
        for index in 0..port.gid_tbl_len() {
            let gid = context.query_gid(port_num, index).expect("an answer");
            if let Some(folder) = &folder {
                let of_file: Gid = text(folder.join(format!("gids/{index}"))).parse().expect("a GID");
                assert_eq!(of_file, gid);
            }
            let entry = table.iter().find(|entry| (entry.port_num(), entry.gid_index()) == (port_num.into(), index));
            if gid.is_zero() {
                assert_eq!(entry, None);
                let error = context.query_gid_ex(port_num, index).expect_err("it is not in use");
                assert_eq!(error.errno().raw(), libc::ENODATA, "{error}");
                continue;
            }
            let entry = entry.unwrap_or_else(|| panic!("GID {index} is not in the table"));
            assert_eq!(entry.gid(), gid);
            assert_eq!(context.query_gid_ex(port_num, index).expect("an answer"), *entry);
            let kind = folder.as_ref().map(|folder| text(folder.join(format!("gid_attrs/types/{index}"))));
            let expected = match (kind.as_deref(), port.link_layer()) {
                (Some("RoCE v2") | None, _) => GidType::RoceV2,
                (Some("IB/RoCE v1"), LinkLayer::Ethernet) => GidType::RoceV1,
                _ => GidType::InfiniBand,
            };
            assert_eq!(
                (entry.gid_type(), context.query_gid_type(port_num, index).expect("an answer")),
                (expected, expected)
            );
            match &folder {
                Some(folder) if port.link_layer() == LinkLayer::Ethernet => assert_eq!(
                    entry.netdev_name().expect("a network interface"),
                    text(folder.join(format!("gid_attrs/ndevs/{index}")))
                ),
                Some(_) => {}
                // Addresses of this host. Those of the loopback interface come last.
                None => {
                    let is_loopback = Ipv6Addr::from(gid).to_canonical().is_loopback();
                    assert!(is_loopback || !was_loopback, "{gid}");
                    was_loopback = is_loopback;
                }
            }
            in_use += 1;
        }
        let error =
            context.query_gid(port_num, port.gid_tbl_len()).expect_err("it is past the end of the table").to_string();
        assert!(error.starts_with("ibv_query_gid"), "{error}");
    }
    assert!(in_use >= 1);
    assert_eq!(table.len(), in_use);
}
