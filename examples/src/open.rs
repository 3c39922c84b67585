//! Opening the device and the port that a program works with.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use sideway::ibverbs::device::DeviceInfo;
use sideway::ibverbs::device_context::{DeviceContext, PortAttr, PortState};

use crate::{device_list, devices, no_device};

/// Opens the device of this name, or the first that there is.
///
/// # Errors
///
/// A sentence for the user: there is none, none of this name, or it does not open.
pub fn open_device(name: Option<&str>) -> Result<Arc<DeviceContext>> {
    let list = device_list()?;
    let devices = devices(&list, name)?;
    let device = devices.first().ok_or_else(no_device)?;
    Ok(device.open()?)
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
