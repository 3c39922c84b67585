//! The device of the tests.

use std::cmp::Reverse;
use std::env;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use sideway::error::VerbError;
use sideway::ibverbs::address::{GidEntry, GidType};
use sideway::ibverbs::device::{DeviceInfo, DeviceList};
use sideway::ibverbs::device_context::{DeviceContext, LinkLayer};
use sideway::ibverbs::memory_window::MemoryWindowType;

use crate::requirements::may_not_run;

/// The environment variable that names the device. If it is not set, the tests run on [`SOFT_DEVICE`]. Names that begin
/// with `soft` are devices of softrnic.
pub const TEST_DEVICE: &str = "SIDEWAY_TEST_DEVICE";

/// The device of `softrnic`, which works on any machine.
pub const SOFT_DEVICE: &str = "soft0";

/// The port that is used.
pub const PORT: u8 = 1;

/// The name of the device; registers the soft device if needed.
///
/// # Panics
///
/// If no device is named, and the soft one cannot be registered.
#[track_caller]
pub fn name() -> String {
    let name = env::var(TEST_DEVICE).ok().filter(|name| !name.is_empty()).unwrap_or_else(|| SOFT_DEVICE.to_owned());
    if name.starts_with("soft") {
        softrnic::Builder::new().device(&name).register().unwrap_or_else(|error| panic!("{error}"));
    }
    name
}

/// Whether the device is one of softrnic.
#[track_caller]
pub fn is_soft() -> bool {
    name().starts_with("soft")
}

/// Opens the device.
///
/// # Panics
///
/// If the device does not exist, or does not open.
#[track_caller]
pub fn open() -> Arc<DeviceContext> {
    let name = name();
    let list = DeviceList::new().unwrap_or_else(|error| panic!("{error}"));
    let device = list.find(&name).unwrap_or_else(|error| panic!("{error}"));
    device.open().unwrap_or_else(|error| panic!("{error}"))
}

/// The GID of the tests' packets; `None` on InfiniBand.
///
/// # Panics
///
/// If the port needs a GID and has none.
#[track_caller]
pub fn gid(context: &DeviceContext) -> Option<GidEntry> {
    let port = context.query_port(PORT).unwrap_or_else(|error| panic!("{error}"));
    if port.link_layer() != LinkLayer::Ethernet {
        return None;
    }
    let table = context.query_gid_table().unwrap_or_else(|error| panic!("{error}"));
    Some(best_gid(table).unwrap_or_else(|| panic!("port {PORT} of {} has no GID", context.name())))
}

/// The best GID of the port in the device's table, if there is one: RoCE v2 before v1, an IPv4 address before a global
/// and a link-local IPv6 one.
pub(crate) fn best_gid(table: Vec<GidEntry>) -> Option<GidEntry> {
    let usable = table.into_iter().filter(|entry| entry.port_num() == u32::from(PORT) && !entry.gid().is_zero());
    usable.max_by_key(|entry| {
        let gid = entry.gid();
        let is_of_v2 = entry.gid_type() == GidType::RoceV2;
        (is_of_v2, gid.is_ipv4_mapped(), !gid.is_unicast_link_local(), Reverse(entry.gid_index()))
    })
}

/// The device's folder in sysfs.
///
/// # Panics
///
/// If the device is not one of the kernel's.
#[track_caller]
pub fn sysfs(context: &DeviceContext) -> PathBuf {
    context.sysfs_path().unwrap_or_else(|| panic!("{} is not in /sys", context.name()))
}

/// Whether safe code gets extended queue pairs: some drivers, such as libmlx5, do not check their send queues for
/// overflow. If not, reports that what needs them did not run.
///
/// # Panics
///
/// If the device does not open.
#[track_caller]
pub fn has_extended_queue_pairs() -> bool {
    let context = open();
    let pd = context.alloc_pd().unwrap_or_else(|error| panic!("{error}"));
    let cq = context.create_cq_builder().build().unwrap_or_else(|error| panic!("{error}"));
    let built = pd.create_qp_builder().setup_send_cq(&cq).setup_recv_cq(&cq).build_ex();
    lacks_none(built.map(drop), "extended queue pairs for safe code")
}

/// Whether the device has memory windows. If not, reports that what needs them did not run.
///
/// # Panics
///
/// If the device does not open.
#[track_caller]
pub fn has_windows() -> bool {
    let pd = open().alloc_pd().unwrap_or_else(|error| panic!("{error}"));
    lacks_none(pd.alloc_mw(MemoryWindowType::Type2).map(drop), "memory windows")
}

/// Whether a request is supported. Other errors are left to the test.
fn lacks_none(requested: Result<(), VerbError>, what: &str) -> bool {
    let is_lacking = requested.is_err_and(|error| error.errno().raw() == libc::EOPNOTSUPP);
    if is_lacking {
        may_not_run(&format!("the device has no {what}"));
    }
    !is_lacking
}

/// Whether the device is the kernel's soft-RoCE, whose driver in rdma-core has known faults.
pub fn is_soft_roce(context: &DeviceContext) -> bool {
    // Of the kernel's drivers, only this one has the network interface in a file of this name.
    context.sysfs_path().is_some_and(|path| fs::exists(path.join("parent")).unwrap_or(false))
}

/// Whether the device is softrnic's, whose capabilities are known.
pub fn is_soft_nic(context: &DeviceContext) -> bool {
    context.name() == SOFT_DEVICE
}
