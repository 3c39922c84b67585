//! Opening the device and the port that a program works with.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use sideway::ibverbs::device::{Device, DeviceInfo};
use sideway::ibverbs::device_context::{DeviceContext, PortAttr, PortState};

use crate::{device_list, devices, no_device};

/// Opens the device of this name, or the first that has an active port. The devices of the system come before those of
/// softrnic, whose ports are always active.
///
/// # Errors
///
/// A sentence for the user: there is none, none of this name, or it does not open.
pub fn open_device(name: Option<&str>) -> Result<Arc<DeviceContext>> {
    let list = device_list()?;
    let devices = devices(&list, name)?;
    if name.is_none()
        && let Some(active) = devices.iter().find_map(open_active)
    {
        return Ok(active);
    }
    let device = devices.first().ok_or_else(no_device)?;
    Ok(device.open()?)
}

/// The device, where it opens and has an active port.
fn open_active(device: &Device<'_>) -> Option<Arc<DeviceContext>> {
    let context = device.open().ok()?;
    let ports = u8::try_from(context.query_device().ok()?.phys_port_cnt()).unwrap_or(u8::MAX);
    let mut states = (1..=ports).filter_map(|port| Some(context.query_port(port).ok()?.port_state()));
    states.any(|state| state == PortState::Active).then_some(context)
}

/// Asks a port, and sees to it that it is active.
///
/// # Errors
///
/// There is no such port, or it is down.
pub fn active_port(context: &DeviceContext, port_num: u8) -> Result<PortAttr> {
    let name = context.name();
    let port = context.query_port(port_num).with_context(|| format!("port {port_num} of {name}"))?;
    let state = port.port_state();
    if state != PortState::Active {
        bail!(
            "port {port_num} of {name} is {state}, not active: is the cable in and the network interface up (`ip link`)?"
        );
    }
    Ok(port)
}
