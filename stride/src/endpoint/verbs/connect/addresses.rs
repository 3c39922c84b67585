//! IP addresses, and the devices to which they belong.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::slice;

use anyhow::{Context, Error, Result, anyhow, bail};
use sideway::ibverbs::device::DeviceInfo;
use sideway::ibverbs::device_context::DeviceContext;
use sideway::rdmacm::{ConnectError, ConnectStep};

use crate::endpoint::verbs::{self, description, device};
use crate::endpoint::{Gpus, PortInfo, Role};
use crate::plan::{SideConfig, Transport};

/// Maximum number of addresses per device that an error lists.
const NAMED: usize = 4;

/// Returns an IP address of the device that `config` names, or of any device. This is used if both sides are in one
/// process.
pub(super) fn own(config: &SideConfig) -> Result<IpAddr> {
    if device::is_soft_iwarp(config)? {
        return Ok(Ipv4Addr::LOCALHOST.into());
    }
    let found = verbs::ports::open(slice::from_ref(config), Role::Client, |_| true)?;
    let (context, port) = found.first().context("each side has a port")?;
    let port_info = description::port_info(context, *port, config)?;
    of(&port_info).first().copied().with_context(|| {
        format!(
            "port {port} of {} has no IP address for --rdma-cm; assign one to its network interface, or start a server \
             and name it by its address",
            port_info.device
        )
    })
}

/// Returns the IP addresses of a port.
fn of(port_info: &PortInfo) -> Vec<IpAddr> {
    // GIDs of InfiniBand ports are left out, because they are not IP addresses.
    let gids = port_info.gids.iter().filter(|gid| gid.kind.starts_with("RoCE"));
    let mut all = Vec::new();
    for address in gids.filter_map(|gid| gid.gid.parse::<Ipv6Addr>().ok()) {
        let address = address.to_canonical();
        if !all.contains(&address) && !is_link_local(address) {
            all.push(address);
        }
    }
    all
}

/// Whether the address is link-local.
pub(super) fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// Returns the error for an IP address that belongs to no device.
pub(super) fn unreachable(address: IpAddr, transport: Transport, role: Role, error: ConnectError) -> Error {
    let is_of_address =
        matches!(error.step(), ConnectStep::ResolveAddress | ConnectStep::ResolveRoute | ConnectStep::Bind);
    if !is_of_address {
        return error.into();
    }
    let devices = devices();
    match role {
        Role::Client if transport != Transport::Rc => anyhow!(
            "--rdma-cm: no RDMA device leads to the server's address {address} by {transport}: {error}; give --transport \
             rc, which iWARP devices have too"
        ),
        Role::Client => anyhow!(
            "--rdma-cm: no RDMA device leads to the server's address {address}: {error}; name the server by an address \
             in a network of {devices}"
        ),
        Role::Server => anyhow!(
            "--rdma-cm: {address} is not an address of an RDMA device of the server: {error}; name the server by an \
             address of {devices}"
        ),
    }
}

/// Lists the devices with their IP addresses, for an error text.
fn devices() -> String {
    let Ok(description::Found { ports, .. }) = description::ports(&Gpus::Some(Vec::new())) else {
        return "no device".to_owned();
    };
    let texts: Vec<String> = ports
        .iter()
        .map(|port| {
            let mut addresses: Vec<String> = of(&port.port_info).iter().map(IpAddr::to_string).collect();
            if addresses.is_empty() {
                addresses.push("no RoCE address".to_owned());
            } else if addresses.len() > NAMED {
                addresses.truncate(NAMED);
                addresses.push("…".to_owned());
            }
            format!("{} port {} ({})", port.port_info.device, port.port_info.port, addresses.join(", "))
        })
        .collect();
    if texts.is_empty() { "no device".to_owned() } else { texts.join(", ") }
}

/// Checks that the device to which the address belongs is the one that the user gave with `--device`.
pub(super) fn agree(context: &DeviceContext, port: u8, config: &SideConfig, address: IpAddr, role: Role) -> Result<()> {
    let found = context.name();
    if let Some(asked) = config.device.as_ref().filter(|asked| **asked != found) {
        let option = match role {
            Role::Client => "--device",
            Role::Server => "--remote-device, or the server's --device,",
        };
        // softrnic's device has no entry in sysfs.
        let soft = if asked.starts_with("soft") && context.sysfs_path().is_some() {
            ", or set RDMA_MUMMY_RDMACM=softrnic, which connects the devices of softrnic"
        } else {
            ""
        };
        bail!(
            "{option} is {asked}, but --rdma-cm resolves {address} to {found}; leave it out, or name the server by an \
             address of {asked}'s network{soft}"
        );
    }
    if let Some(asked) = config.port.filter(|asked| *asked != port) {
        let option = if role == Role::Client { "--ib-port" } else { "the server's --ib-port" };
        bail!("{option} is {asked}, but --rdma-cm resolves {address} to port {port} of {found}; leave it out");
    }
    Ok(())
}
