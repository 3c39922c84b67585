//! All queries of a device, its ports and their tables, and its events, with a new and an old driver.

use std::time::Duration;

use sideway::ibverbs::address::AddressHandleAttribute;
use sideway::ibverbs::async_event::AsyncEventType;
use sideway::ibverbs::device::{DeviceInfo, DeviceList};
use sideway::ibverbs::device_context::ValuesMask;
use sideway_tests::recording::{Raised, Recording};

use super::{Outcome, open, show};

pub(super) fn act(recording: &Recording) -> Outcome {
    let list = DeviceList::new()?;
    let device = list.find(&recording.name())?;
    show((device.name(), device.guid(), device.index(), device.node_type(), device.transport_type()));
    let context = device.open()?;
    drop(list);
    show((context.num_comp_vectors(), context.sysfs_path(), context.uverbs_name()));
    let attr = context.query_device()?;
    show((&attr, attr.device_clock(), attr.fw_ver(), attr.node_guid(), attr.atomic_cap(), attr.odp_caps()));
    show((attr.tso_caps(), attr.rss_caps(), attr.tm_caps(), attr.raw_packet_caps(), attr.packet_pacing_caps()));
    let port = context.query_port(1)?;
    show((&port, port.throughput(), port.max_mtu().bytes(), port.active_width().lanes(), port.gid_tbl_len()));
    show(context.query_port_speed(1)?);
    for entry in context.query_gid_table()? {
        show((&entry, entry.gid_type(), entry.port_num()));
    }
    show((context.query_gid(1, 0)?, context.query_gid_ex(1, 0)?, context.query_gid_type(1, 0)?));
    show((context.query_pkey(1, 0)?, context.get_pkey_index(1, 0xffff)?));
    show(context.query_rt_values_ex(ValuesMask::RawClock)?.raw_clock());
    let mut way = AddressHandleAttribute::new();
    way.setup_port(1).setup_grh_src_gid_index(0);
    show(context.resolve_eth_l2_from_gid(&way)?);

    let events = context.async_events()?;
    recording.raise(&context, Raised::of_port(AsyncEventType::PortActive.raw(), 1));
    recording.raise(&context, Raised::of_device(AsyncEventType::DeviceFatal.raw()));
    for _ in 0..2 {
        let event = events.get_async_event(Some(Duration::ZERO))?;
        show((&event, event.to_string()));
    }

    recording.without("query_port").without("query_device_ex");
    let old = open(recording)?;
    show((old.query_device()?, old.query_port(1)?));
    Ok(())
}
