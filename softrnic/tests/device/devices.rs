//! Tests of device lists and device queries, as a C program makes them.

use std::ffi::CStr;
use std::mem::zeroed;
use std::net::Ipv6Addr;
use std::ptr;

use crate::common::{name_of, open};
use rdma_mummy_sys::*;

#[test]
fn registered_device_is_listed() {
    assert_eq!(softrnic::Builder::new().device("soft0").register(), Ok(()));
    assert_eq!(softrnic::Builder::new().device("soft0").register(), Ok(()), "again");
    assert_eq!(softrnic::register(), Ok(()), "devices are registered already");
    let other = softrnic::Builder::new().device("other").register().map_err(|error| error.to_string());
    let expected = "cannot register devices: this process has registered others, or with another profile (soft0); \
                    register all of them at once";
    assert_eq!(other, Err(expected.to_owned()));

    let mut count = 0;
    // SAFETY: the list has `count` devices, and is freed after its last use.
    unsafe {
        let list = ibv_get_device_list(&raw mut count);
        let devices: Vec<_> = (0..count as usize).map(|place| *list.add(place)).collect();
        let soft: Vec<_> = devices.iter().copied().filter(|&device| name_of(device) == c"soft0").collect();
        assert_eq!(soft.len(), 1, "{:?}", devices.iter().map(|&device| name_of(device)).collect::<Vec<_>>());
        assert!((*list.add(count as usize)).is_null());
        assert_eq!((*soft[0]).node_type, ibv_node_type::IBV_NODE_CA);
        assert_eq!(ibv_get_device_guid(soft[0]).to_ne_bytes()[0] & 3, 2, "locally administered");
        assert!(ibv_get_device_index(soft[0]) >= 0);
        ibv_free_device_list(list);
    }
}

#[test]
fn open_device_reports_its_attributes() {
    let context = open(c"soft0");
    // SAFETY: the context is open; attributes are numbers, and writable.
    unsafe {
        let mut attr: ibv_device_attr = zeroed();
        assert_eq!(ibv_query_device(context, &raw mut attr), 0);
        assert_eq!(CStr::from_ptr(attr.fw_ver.as_ptr()).to_str(), Ok(env!("CARGO_PKG_VERSION")));
        assert_eq!(attr.node_guid, ibv_get_device_guid((*context).device));
        assert_eq!((attr.phys_port_cnt, attr.max_pkeys), (1, 1));
        assert_eq!(attr.atomic_cap, ibv_atomic_cap::IBV_ATOMIC_HCA);

        let mut extended: ibv_device_attr_ex = zeroed();
        assert_eq!(ibv_query_device_ex(context, ptr::null(), &raw mut extended), 0);
        assert_eq!(extended.orig_attr.max_qp, attr.max_qp);
        assert_eq!(extended.completion_timestamp_mask, u64::MAX);
        assert_eq!(extended.odp_caps.general_caps, u64::from(ibv_odp_general_caps::IBV_ODP_SUPPORT.0));

        let mut port: ibv_port_attr = zeroed();
        assert_eq!(ibv_query_port(context, 1, &raw mut port), 0);
        assert_eq!((port.state, port.active_mtu), (ibv_port_state::IBV_PORT_ACTIVE, ibv_mtu::IBV_MTU_4096));
        assert_eq!(u32::from(port.link_layer), IBV_LINK_LAYER_ETHERNET);
        assert_eq!(ibv_query_port(context, 2, &raw mut port), libc::EINVAL);

        let mut values: ibv_values_ex = zeroed();
        values.comp_mask = ibv_values_mask::IBV_VALUES_MASK_RAW_CLOCK.0;
        assert_eq!(ibv_query_rt_values_ex(context, &raw mut values), 0);
        // With 32 bits, the field has the low bits of the clock, as with mlx5.
        assert_ne!(values.raw_clock.tv_nsec, 0);

        let mut pkey = 0;
        assert_eq!(ibv_query_pkey(context, 1, 0, &raw mut pkey), 0);
        assert_eq!((pkey, ibv_get_pkey_index(context, 1, pkey)), (0xffff, 0));
        assert_eq!(ibv_close_device(context), 0);
    }
}

#[test]
fn host_addresses_are_gids() {
    let context = open(c"soft0");
    // SAFETY: the context is open; entries are numbers, and writable.
    unsafe {
        let mut entries: [ibv_gid_entry; 256] = zeroed();
        let count = ibv_query_gid_table(context, entries.as_mut_ptr(), entries.len(), 0);
        assert!(count >= 1, "{count}");
        let entries = &entries[..count as usize];
        let is_loopback = |entry: &ibv_gid_entry| Ipv6Addr::from(entry.gid.raw).to_canonical().is_loopback();
        assert!(entries.iter().any(is_loopback) && entries.is_sorted_by_key(is_loopback), "loopback comes last");
        for entry in entries {
            assert_eq!(entry.gid_type, ibv_gid_type::IBV_GID_TYPE_ROCE_V2.0);
            let mut same: ibv_gid_entry = zeroed();
            assert_eq!(ibv_query_gid_ex(context, 1, entry.gid_index, &raw mut same, 0), 0);
            assert_eq!(same.gid.raw, entry.gid.raw);
            let mut gid: ibv_gid = zeroed();
            assert_eq!(ibv_query_gid(context, 1, entry.gid_index as i32, &raw mut gid), 0);
            assert_eq!(gid.raw, entry.gid.raw);
        }
        assert_eq!(ibv_close_device(context), 0);
    }
}

#[test]
fn device_with_objects_is_not_closed() {
    let context = open(c"soft0");
    // SAFETY: all objects are created here and destroyed at the end in order.
    unsafe {
        let pd = ibv_alloc_pd(context);
        let mut domain: ibv_parent_domain_init_attr = zeroed();
        domain.pd = pd;
        let parent = ibv_alloc_parent_domain(context, &raw mut domain);
        assert!(!parent.is_null());
        assert_eq!(ibv_close_device(context), -1);
        assert_eq!(ibv_dealloc_pd(pd), libc::EBUSY);
        assert_eq!((ibv_dealloc_pd(parent), ibv_dealloc_pd(pd), ibv_close_device(context)), (0, 0, 0));
    }
}
