//! Describes devices and their ports.

use std::fs;
use std::net::Ipv6Addr;
use std::os::unix::fs::MetadataExt;

use anyhow::{Error, Result, bail};
use sideway::ibverbs::address::GidEntry;
use sideway::ibverbs::device::{Device, DeviceInfo, TransportType};
use sideway::ibverbs::device_context::{DeviceContext, PortAttr, PortState};

use super::abilities::Abilities;
use super::device::{active, list, ports_of_device, provider};
use super::memory::{self, Gpus, NearGpus};
use crate::endpoint::numa::{self, Nodes};
use crate::endpoint::prefix;
use crate::endpoint::processor;
use crate::endpoint::{GidInfo, IWARP, Partition, PortInfo, SOFTRNIC};
use crate::plan::{Memory, SideConfig};

/// A port, its state, and whether it can be used.
#[derive(Clone, Debug)]
pub struct DevicePort {
    /// The state, such as `active` or `down`.
    pub state: String,
    /// The reason why the port cannot be used, in one or two words.
    pub obstacle: Option<&'static str>,
    /// The description of the port.
    pub port_info: PortInfo,
    /// The GPUs nearest to the device.
    pub gpus: Option<NearGpus>,
}

/// The devices of the machine.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// All ports of the devices that could be opened.
    pub ports: Vec<DevicePort>,
    /// For each device that could not be opened, the cause.
    pub failed: Vec<String>,
    /// The capabilities of each device by its name, or the reason why they are unknown.
    pub abilities: Vec<(String, Result<Abilities, String>)>,
}

/// Lists all ports of all devices. For each, names those of `gpus` that are nearest to its device.
///
/// # Errors
///
/// Returns an error if the list of devices is not available.
pub fn ports(gpus: &Gpus) -> Result<Found> {
    Ok(gather(list()?.iter(), |device| {
        ports_of(device, gpus).map_err(|error| {
            let (name, why) = (device.name(), format!("{error:#}"));
            if why.contains(&*name) { why } else { format!("{name}: {why}") }
        })
    }))
}

/// The ports of a device and its capabilities.
type Known = (Vec<DevicePort>, Result<Abilities, String>);

/// Describes all devices. If a device cannot be opened, the other devices are still described.
fn gather<D>(devices: impl Iterator<Item = D>, of: impl Fn(&D) -> Result<Known, String>) -> Found {
    let mut found = Found::default();
    for device in devices {
        match of(&device) {
            Ok((ports, abilities)) => {
                found.abilities.extend(ports.first().map(|port| (port.port_info.device.clone(), abilities)));
                found.ports.extend(ports);
            }
            Err(why) => found.failed.push(why),
        }
    }
    found
}

fn ports_of(device: &Device<'_>, gpus: &Gpus) -> Result<Known> {
    let context = device.open()?;
    let count = ports_of_device(&context)?;
    let near = match gpus {
        Gpus::Some(gpus) => {
            let files = context.sysfs_path().map(|path| path.join("device"));
            memory::near(files.as_deref(), context.numa_node(), gpus)
        }
        Gpus::None(_) => None,
    };
    let of = |port| {
        let attributes = context.query_port(port)?;
        let port_info = describe(&context, port, &attributes, &SideConfig::default())?;
        let state = attributes.port_state();
        let obstacle = obstacle(device.transport_type(), state);
        Ok(DevicePort { state: state.to_string(), obstacle, port_info, gpus: near.clone() })
    };
    let ports = (1..=count).map(of).collect::<Result<_>>()?;
    let abilities = || Abilities::of(&context.alloc_pd()?, &provider(&context));
    Ok((ports, abilities().map_err(|error: Error| format!("{error:#}"))))
}

/// Returns the reason why a port cannot be used, if there is one.
fn obstacle(transport: TransportType, state: PortState) -> Option<&'static str> {
    match (transport, state) {
        (TransportType::IWarp, PortState::Active) => Some("only with -R"),
        (_, PortState::Active) => None,
        _ => Some("not active"),
    }
}

/// Returns the description of an active port.
pub(super) fn port_info(context: &DeviceContext, port: u8, config: &SideConfig) -> Result<PortInfo> {
    let port_info = describe(context, port, &active(context, port)?, config)?;
    port_info.check_dlid().map_err(Error::msg)?;
    Ok(port_info)
}

/// Returns the partition that `config` names, or the first one.
fn partition(
    context: &DeviceContext,
    port: u8,
    attributes: &PortAttr,
    config: &SideConfig,
) -> Result<Option<Partition>> {
    let owner = format!("port {port} of {}", context.name());
    let key = |index| context.query_pkey(port, index).ok();
    match Partition::find(config.pkey_index.unwrap_or(0), attributes.pkey_tbl_len(), key, &owner) {
        Err(why) if config.pkey_index.is_some() => bail!(why),
        found => Ok(found.ok()),
    }
}

fn describe(context: &DeviceContext, port: u8, attributes: &PortAttr, config: &SideConfig) -> Result<PortInfo> {
    let device = context.query_device()?;
    let table = context.query_gid_table()?;
    let gids = table.iter().filter(|entry| entry.port_num() == u32::from(port) && !entry.gid().is_zero());
    let (nodes, allowed, numa_node) = (Nodes::of_system(), numa::allowed(), context.numa_node());
    let cpus = config.cpus.clone().unwrap_or_default();
    let is_free = cpus.is_empty() && config.is_bound != Some(false);
    let bound = nodes.bound(numa_node, &allowed, &numa::online()).filter(|near| is_free && numa::can_run_on(near));
    let is_bound = bound.is_some();
    let runs_on = if cpus.is_empty() { bound.unwrap_or_else(|| allowed.clone()) } else { cpus.clone() };
    let text = |path: &str| fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default();
    let provider = provider(context);
    Ok(PortInfo {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        host: text("/proc/sys/kernel/hostname"),
        kernel: text("/proc/sys/kernel/osrelease"),
        machine: machine(text("/proc/sys/kernel/random/boot_id"), provider == SOFTRNIC),
        cpu_model: processor::model(),
        cpu_governor: processor::governor(),
        device: context.name(),
        provider,
        firmware: device.fw_ver().into_owned(),
        vendor_id: device.vendor_id(),
        vendor_part_id: device.vendor_part_id(),
        port,
        link_layer: match context.transport_type() {
            TransportType::IWarp => IWARP.to_owned(),
            _ => attributes.link_layer().to_string(),
        },
        gigabits: attributes.throughput(),
        // An unknown MTU is treated as the smallest one.
        mtu: attributes.active_mtu().bytes().unwrap_or(256),
        longest: None,
        lid: attributes.lid(),
        dlid: config.dlid,
        partition: partition(context, port, attributes, config)?,
        gids: gids.map(gid).collect(),
        memory: config.memory.clone().unwrap_or(Memory::Host),
        gpu: None,
        registration: None,
        numa_node,
        thread_nodes: nodes.of(&runs_on),
        near_cpus: nodes.near(numa_node, &allowed),
        cpus,
        is_bound,
        reads: [device.max_qp_init_rd_atom(), device.max_qp_rd_atom()],
        inline: None,
        others: Vec::new(),
    })
}

/// Returns a text that identifies the running system. For softrnic devices, it also contains the network namespace and
/// the user.
fn machine(system: String, is_soft: bool) -> String {
    let namespace = fs::metadata("/proc/self/ns/net").ok().filter(|_| is_soft && !system.is_empty());
    match namespace {
        Some(port_info) => {
            format!("{system}, network namespace {}, user {}", port_info.ino(), rustix::process::geteuid().as_raw())
        }
        None => system,
    }
}

fn gid(entry: &GidEntry) -> GidInfo {
    let (gid, interface) = (Ipv6Addr::from(entry.gid()), entry.netdev_name().unwrap_or_default());
    GidInfo {
        index: entry.gid_index(),
        gid: gid.to_string(),
        kind: entry.gid_type().to_string(),
        prefix: prefix::of(gid, &interface),
        interface,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn softrnic_machine_includes_namespace_and_user() {
        let of = |system: &str, is_soft| machine(system.to_owned(), is_soft);
        let namespace = fs::read_link("/proc/self/ns/net").unwrap().display().to_string();
        let number = namespace.trim_start_matches("net:[").trim_end_matches(']');
        let user = rustix::process::geteuid().as_raw();
        assert_eq!(of("a", true), format!("a, network namespace {number}, user {user}"));
        assert_eq!([of("a", false), of("", true)], ["a", ""]);
    }

    #[test]
    fn unopenable_device_does_not_hide_others() {
        let port = || {
            let list = list().unwrap();
            let soft = list.iter().find(|device| device.name() == "soft0").expect("softrnic is there");
            ports_of(&soft, &Gpus::Some(Vec::new())).map_err(|error| error.to_string())
        };
        let of = |is_open: &bool| if *is_open { port() } else { Err("mlx5_0: permission denied".to_owned()) };
        let found = gather([true, false, true].into_iter(), of);
        assert_eq!((found.ports.len(), found.failed), (2, vec!["mlx5_0: permission denied".to_owned()]));
        assert_eq!(found.ports[0].obstacle, None);
        assert!(
            found.abilities.len() == 2 && found.abilities.iter().all(|(device, can)| device == "soft0" && can.is_ok())
        );
    }

    #[test]
    fn unusable_port_has_an_obstacle() {
        assert_eq!(obstacle(TransportType::InfiniBand, PortState::Active), None);
        assert_eq!(obstacle(TransportType::InfiniBand, PortState::Down), Some("not active"));
        assert_eq!(obstacle(TransportType::IWarp, PortState::Active), Some("only with -R"));
    }
}
