//! Finding and opening devices.

use std::env;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use sideway::ibverbs::device::{Device, DeviceInfo, DeviceList, GetDeviceListError};
use sideway::ibverbs::device_context::{DeviceContext, PortAttr, PortState};

/// The list of devices, with at least one: the system's devices, then softrnic's, which reach only programs on this
/// host. The environment variable `SOFTRNIC_DEVICES` selects softrnic's devices.
///
/// # Errors
///
/// The variable is invalid, [there is no device](no_device), or the library cannot be loaded.
pub fn device_list() -> Result<DeviceList> {
    softrnic::register()?;
    match DeviceList::new() {
        Ok(list) if list.is_empty() => Err(no_device()),
        Ok(list) => Ok(list),
        // A kernel without loaded RDMA modules returns ENOSYS.
        Err(GetDeviceListError::Verb(error)) if error.errno().raw() == libc::ENOSYS => Err(no_device()),
        Err(error) => Err(error.into()),
    }
}

/// Returns the device of this name, or all devices if `name` is absent.
///
/// # Errors
///
/// No device has this name; the error lists the others.
pub fn devices<'list>(list: &'list DeviceList, name: Option<&str>) -> Result<Vec<Device<'list>>> {
    match name {
        Some(name) => Ok(vec![list.find(name)?]),
        None => Ok(list.iter().collect()),
    }
}

/// Opens the device of this name, or the first that has an active port. The ports of softrnic are always active.
///
/// # Errors
///
/// No device has this name, or it cannot be opened.
pub fn open_device(name: Option<&str>) -> Result<Arc<DeviceContext>> {
    let list = device_list()?;
    let devices = devices(&list, name)?;
    if name.is_none()
        && let Some(active) = devices.iter().find_map(open_active)
    {
        return Ok(active);
    }
    Ok(devices.first().ok_or_else(no_device)?.open()?)
}

/// The device, if it can be opened and has an active port.
fn open_active(device: &Device<'_>) -> Option<Arc<DeviceContext>> {
    let context = device.open().ok()?;
    let ports = u8::try_from(context.query_device().ok()?.phys_port_cnt()).unwrap_or(u8::MAX);
    let mut states = (1..=ports).filter_map(|port| Some(context.query_port(port).ok()?.port_state()));
    states.any(|state| state == PortState::Active).then_some(context)
}

/// Queries a port, which must be active.
///
/// # Errors
///
/// The port does not exist, or it is not active.
pub fn active_port(context: &DeviceContext, port_num: u8) -> Result<PortAttr> {
    let name = context.name();
    let port = context.query_port(port_num).with_context(|| format!("port {port_num} of {name}"))?;
    let state = port.port_state();
    if state != PortState::Active {
        bail!(
            "port {port_num} of {name} is {state}, not active; check the cable and the network interface (`ip link`)"
        );
    }
    Ok(port)
}

/// The error that no device exists, with the ways to create a software one.
pub fn no_device() -> anyhow::Error {
    anyhow!("no RDMA device found; unset SOFTRNIC_DEVICES to use softrnic's, or {}", advice())
}

/// The error that no device supports connections by IP address; softrnic's do unless `SOFTRNIC_DEVICES` is 0.
pub fn no_device_with_connections() -> anyhow::Error {
    anyhow!("no RDMA device supports connections by IP address; {}", advice())
}

/// Returns the text on how to create a device of the kernel.
fn advice() -> String {
    let program = env::args().next().unwrap_or_else(|| "PROGRAM".to_owned());
    format!(
        "create one as root with `modprobe rdma_rxe`, `ip link set eth0 up` and `rdma link add rxe_0 type rxe netdev eth0` (any \
         Ethernet interface), or run `cargo xtask softroce -- {program}`, a virtual machine with such a device"
    )
}
