//! Selects the ports of a side. Errors name the options with which the user can select ports.

use std::sync::Arc;

use anyhow::{Error, Result, anyhow, bail};
use sideway::ibverbs::device::DeviceInfo;
use sideway::ibverbs::device_context::DeviceContext;

use super::device::{self, NoDevice, NoPort};
use crate::endpoint::Role;
use crate::plan::SideConfig;

/// Opens one port for each configuration in `configs`. If no device is named, devices that `suits` accepts are
/// preferred.
pub(super) fn open(
    configs: &[SideConfig],
    role: Role,
    suits: impl Fn(&DeviceContext) -> bool,
) -> Result<Vec<(Arc<DeviceContext>, u8)>> {
    let chosen = match of_one_device(configs, role)? {
        Some(ports) => Some(device::with_ports(&ports, &suits).map_err(|error| none_has_all(error, &ports, role))?),
        None => None,
    };
    let (mut all, mut taken) = (Vec::with_capacity(configs.len()), Vec::new());
    for (at, config) in configs.iter().enumerate() {
        let config = SideConfig { device: config.device.clone().or_else(|| chosen.clone()), ..config.clone() };
        let (context, port) =
            device::open_one(&config, &taken, &suits).map_err(|error| missing(error, at, configs, role))?;
        taken.push((context.name(), port));
        all.push((context, port));
    }
    Ok(all)
}

/// Returns the ports that one device must have: all listed ports, if no device is named and the port numbers differ. If
/// all numbers are equal, each port may belong to another device.
fn of_one_device(configs: &[SideConfig], role: Role) -> Result<Option<Vec<u8>>> {
    let ports: Option<Vec<u8>> = configs.iter().map(|config| config.port.filter(|_| config.device.is_none())).collect();
    let Some(ports) = ports.filter(|ports| ports.windows(2).any(|pair| pair[0] != pair[1])) else { return Ok(None) };
    let mut once = ports.clone();
    once.sort_unstable();
    once.dedup();
    if once.len() < ports.len() {
        let (device, port) = options(role);
        bail!("{port} {} names a port twice without a device; give one device per port with {device}", list(&ports));
    }
    Ok(Some(ports))
}

/// Returns the names of the options for device and port.
fn options(role: Role) -> (&'static str, &'static str) {
    match role {
        Role::Client => ("--device", "--ib-port"),
        Role::Server => ("--remote-device", "--remote-ib-port"),
    }
}

fn list(ports: &[u8]) -> String {
    ports.iter().map(u8::to_string).collect::<Vec<_>>().join(",")
}

/// Returns what the user can do instead if no device has all ports.
fn devices_of_one_port(role: Role) -> String {
    let way = match role {
        Role::Client => "give them with -d, such as mlx5_0,mlx5_1, instead of --ib-port or -O",
        Role::Server => "give them to the client with --remote-device, such as mlx5_0,mlx5_1, and --remote-ib-port 1",
    };
    format!("if each port of the NIC is a device of its own, {way}")
}

fn none_has_all(error: Error, ports: &[u8], role: Role) -> Error {
    let Some(NoDevice { reasons, .. }) = error.downcast_ref() else { return error };
    let (way, ports) = (devices_of_one_port(role), list(ports));
    let or = if ports == "1,2" { " (or -O)" } else { "" };
    match role {
        Role::Client => anyhow!("no device has all ports of --ib-port {ports}{or} active ({reasons}); {way}"),
        Role::Server => anyhow!(
            "no device of the server has all of ports {ports} active, from the client's --remote-ib-port or -O or its \
             own --ib-port or -O ({reasons}); {way}"
        ),
    }
}

/// Adds the options with which the user can select another port to an error about a missing one.
fn missing(error: Error, at: usize, configs: &[SideConfig], role: Role) -> Error {
    if let Some(NoPort(why)) = error.downcast_ref() {
        let are_several = configs.windows(2).any(|pair| pair[0].device != pair[1].device);
        let way = match role {
            _ if configs.len() == 1 => {
                let device = if role == Role::Client { "-d" } else { "--remote-device" };
                format!("if each port of the NIC is a device of its own, name that device with {device}")
            }
            Role::Client if are_several => {
                "leave out --ib-port and -O, or give --ib-port 1, which applies to each device"
                    .to_owned()
            }
            Role::Server if are_several => {
                "leave out the client's --remote-ib-port and -O and the server's --ib-port, or give 1, which applies to \
                 each device"
                    .to_owned()
            }
            _ => devices_of_one_port(role),
        };
        return anyhow!("{why}; {way} (`stride-perf devices` lists the ports)");
    }
    if let ([SideConfig { port: Some(port), .. }], Some(NoDevice { reasons, instead })) =
        (configs, error.downcast_ref())
    {
        let what = match role {
            Role::Client => format!("no usable device with --ib-port {port} ({reasons}); leave it out"),
            Role::Server => format!(
                "no usable device of the server with port {port}, from its --ib-port or the client's --remote-ib-port \
                 ({reasons}); leave that out"
            ),
        };
        return anyhow!("{what} to use the first active port (`stride-perf devices` lists the ports){instead}");
    }
    if at == 0 || configs[at].device.is_some() {
        return error;
    }
    let (ports, number, option) = (configs.len(), at + 1, options(role).0);
    error.context(format!(
        "the test uses {ports} ports, and none is left for number {number}; name one device for all with {option}"
    ))
}
