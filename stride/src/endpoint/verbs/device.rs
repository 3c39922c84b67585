//! Selects the device and port of a side.

use std::fs;
use std::sync::Arc;

use anyhow::{Context, Error, Result, anyhow, bail};
use sideway::ibverbs::device::{Device, DeviceInfo, DeviceList, GetDeviceListError, TransportType};
use sideway::ibverbs::device_context::{AtomicCapability, DeviceContext, PortAttr, PortState};

use crate::endpoint::{SOFTRNIC, Unsupported};
use crate::plan::{Operation, Plan, SideConfig, Transport};

/// The error that the device does not have a port that the user named. The text is for the user.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct NoPort(pub(super) String);

/// The error that no device can be used, if the user named none.
#[derive(Debug, thiserror::Error)]
#[error("no usable RDMA device: {reasons}{instead}")]
pub(super) struct NoDevice {
    /// The reason why each device cannot be used.
    pub(super) reasons: String,
    /// What the user can do instead, as the end of the sentence. The text is empty if there is no alternative.
    pub(super) instead: &'static str,
}

/// Lists all devices. The devices of softrnic come last.
pub(super) fn list() -> Result<DeviceList> {
    softrnic::register().context("softrnic has no devices")?;
    match DeviceList::new() {
        Ok(list) if list.is_empty() => Err(no_device()),
        Ok(list) => Ok(list),
        // If the kernel's RDMA modules are not loaded, this error means that no device exists.
        Err(GetDeviceListError::Verb(error)) if error.errno().raw() == libc::ENOSYS => Err(no_device()),
        Err(error) => Err(error.into()),
    }
}

/// Whether softrnic provides a device. Other providers in the process may also have devices that the kernel does not know.
pub(super) fn is_softrnic(device: &impl DeviceInfo) -> bool {
    device.provider() == Some(SOFTRNIC)
}

fn no_device() -> Error {
    anyhow!("no RDMA device found; unset SOFTRNIC_DEVICES to use softrnic's")
}

/// Opens the device that the user named. If there is no name, opens the first device that has an active port which is
/// not in `taken`, and prefers devices that `suits` accepts.
pub(super) fn open_one(
    config: &SideConfig,
    taken: &[(String, u8)],
    suits: impl Fn(&DeviceContext) -> bool,
) -> Result<(Arc<DeviceContext>, u8)> {
    let list = list()?;
    if let Some(name) = &config.device {
        let context = list.find(name)?.open()?;
        let port = config.port.unwrap_or(1);
        let ports = ports_of_device(&context)?;
        if port > ports.max(1) {
            return Err(NoPort(no_port(name, ports, port)).into());
        }
        active(&context, port)?;
        return Ok((context, port));
    }
    let open = |device: &Device<'_>| first_active(device, config.port, taken);
    pick(list.iter(), is_softrnic, open, |found| suits(&found.0))
}

/// Returns the name of the first device on which all these ports are active. Devices that `suits` accepts are
/// preferred.
pub(super) fn with_ports(ports: &[u8], suits: impl Fn(&DeviceContext) -> bool) -> Result<String> {
    let list = list()?;
    let open = |device: &Device<'_>| {
        let first = first_active(device, ports.first().copied(), &[])?;
        ports.iter().skip(1).try_for_each(|port| first_active(device, Some(*port), &[]).map(drop))?;
        Ok(first)
    };
    pick(list.iter(), is_softrnic, open, |found| suits(&found.0)).map(|(context, _)| context.name())
}

/// Returns the first device that suits. If no device suits, returns the first one that can be opened. If no device can
/// be opened, returns an error with all causes. A softrnic device is used only if the system has no other device: if
/// the user's own device is down, the error helps more.
fn pick<D, T>(
    devices: impl Iterator<Item = D>,
    is_soft: impl Fn(&D) -> bool,
    open: impl Fn(&D) -> Result<T, String>,
    suits: impl Fn(&T) -> bool,
) -> Result<T> {
    let (soft, real): (Vec<D>, Vec<D>) = devices.partition(is_soft);
    let (mut first, mut reasons) = (None, Vec::new());
    for device in if real.is_empty() { &soft } else { &real } {
        match open(device) {
            Ok(found) if suits(&found) => return Ok(found),
            Ok(found) => first = first.or(Some(found)),
            Err(why) => reasons.push(why),
        }
    }
    let instead = if real.is_empty() || soft.is_empty() {
        ""
    } else {
        "; to use softrnic's device, which reaches processes of this host only, give -d soft0"
    };
    first.ok_or_else(|| NoDevice { reasons: reasons.join("; "), instead }.into())
}

/// Returns the iWARP device of softrnic if `context` is another device of softrnic.
pub(super) fn soft_iwarp(context: &DeviceContext) -> Result<Option<Arc<DeviceContext>>> {
    if !is_softrnic(context) || context.transport_type() == TransportType::IWarp {
        return Ok(None);
    }
    let is_ours = |device: &Device<'_>| is_softrnic(device) && device.transport_type() == TransportType::IWarp;
    Ok(list()?.iter().find(is_ours).map(|device| device.open()).transpose()?)
}

/// Whether the device that the user named, or the only device, is softrnic's iWARP device, which has a loopback
/// address.
pub(super) fn is_soft_iwarp(config: &SideConfig) -> Result<bool> {
    let is_named = |device: &Device<'_>| config.device.as_ref().is_none_or(|name| *name == device.name());
    let is_iwarp = |device: Device<'_>| is_softrnic(&device) && device.transport_type() == TransportType::IWarp;
    let list = list()?;
    let mut named = list.iter().filter(is_named).peekable();
    Ok(named.peek().is_some() && named.all(is_iwarp))
}

/// Checks that an iWARP device supports what the plan requires.
pub(super) fn can_iwarp(context: &DeviceContext, plan: &Plan) -> Result<()> {
    if context.transport_type() != TransportType::IWarp {
        return Ok(());
    }
    let name = context.name();
    let operation = plan.workload.operation;
    if plan.attributes.transport != Transport::Rc {
        let transport = plan.attributes.transport;
        return Err(
            Unsupported(format!("{name} is an iWARP device, which has no {transport}; give --transport rc")).into()
        );
    }
    if operation != operation.without_immediate() && !is_softrnic(context) {
        let text = format!("{name} is an iWARP device, which has no immediate data; measure another operation");
        return Err(Unsupported(text).into());
    }
    Ok(())
}

/// Checks that the device is not an iWARP device, because only librdmacm can connect the queue pairs of iWARP devices.
pub(super) fn connects(name: &str, transport: TransportType) -> Result<()> {
    if transport == TransportType::IWarp {
        bail!(
            "{name} is an iWARP device, whose queue pairs only librdmacm connects; add -R, or name another device with -d"
        );
    }
    Ok(())
}

/// Opens the port that the user gave, or the first active port that is not in `taken`. If there is none, the error
/// contains the cause.
fn first_active(
    device: &Device<'_>,
    asked: Option<u8>,
    taken: &[(String, u8)],
) -> Result<(Arc<DeviceContext>, u8), String> {
    let name = device.name();
    connects(&name, device.transport_type()).map_err(|error| format!("{error:#}"))?;
    let context = device.open().map_err(|error| format!("{error:#}"))?;
    let port_info = context.query_device().map_err(|error| format!("{name}: {error}"))?;
    let count = u8::try_from(port_info.phys_port_cnt()).unwrap_or(u8::MAX);
    let is_taken = |port| taken.iter().any(|(device, other)| *device == name && *other == port);
    let state = |port| match context.query_port(port) {
        Ok(_) if is_taken(port) => Err("already one of the test's ports".to_owned()),
        Ok(attributes) if attributes.port_state() == PortState::Active => Ok(()),
        Ok(attributes) => Err(attributes.port_state().to_string()),
        Err(error) => Err(error.to_string()),
    };
    let port = active_port(&name, count, asked, state)?;
    Ok((context, port))
}

/// Returns the number of ports of a device.
pub(super) fn ports_of_device(context: &DeviceContext) -> Result<u8> {
    Ok(u8::try_from(context.query_device()?.phys_port_cnt()).unwrap_or(u8::MAX))
}

/// Returns the error for a port number that the device does not have.
fn no_port(name: &str, count: u8, asked: u8) -> String {
    let there = if count == 1 { "port 1".to_owned() } else { format!("ports 1 to {count}") };
    format!("{name} has no port {asked} (only {there})")
}

/// Selects the port that the user gave, or the first active one. The device has `count` ports.
fn active_port(
    name: &str,
    count: u8,
    asked: Option<u8>,
    state: impl Fn(u8) -> Result<(), String>,
) -> Result<u8, String> {
    if let Some(asked) = asked.filter(|asked| !(1..=count).contains(asked)) {
        return Err(no_port(name, count, asked));
    }
    let mut reasons = Vec::new();
    for port in (1..=count).filter(|port| asked.is_none_or(|asked| asked == *port)) {
        match state(port) {
            Ok(()) => return Ok(port),
            Err(why) => reasons.push(format!("port {port} of {name} is {why}")),
        }
    }
    Err(if reasons.is_empty() { format!("{name} has no port") } else { reasons.join("; ") })
}

pub(super) fn active(context: &DeviceContext, port: u8) -> Result<PortAttr> {
    let name = context.name();
    let attributes = context.query_port(port).with_context(|| format!("port {port} of {name}"))?;
    let state = attributes.port_state();
    if state != PortState::Active {
        bail!("port {port} of {name} is {state}, not active; check the cable and the network interface (`ip link`)");
    }
    Ok(attributes)
}

/// Checks that the device supports the plan's operation, as far as the device reports this.
pub(super) fn can(context: &DeviceContext, plan: &Plan) -> Result<()> {
    let device = context.query_device()?;
    let atomics = device.atomic_cap() != AtomicCapability::None;
    // The limits that the device reports apply to connected transports only.
    let is_counted = matches!(plan.attributes.transport, Transport::Rc | Transport::Xrc | Transport::Dc);
    let reads = device.max_qp_init_rd_atom().min(device.max_qp_rd_atom());
    has(&context.name(), plan.workload.operation, atomics, !is_counted || reads > 0)
}

fn has(device: &str, operation: Operation, has_atomics: bool, has_reads: bool) -> Result<()> {
    let missing = match operation {
        _ if operation.is_atomic() && !has_atomics => "atomics; measure another operation",
        _ if operation.fetches() && !has_reads => "reads; measure another operation",
        _ => return Ok(()),
    };
    Err(Unsupported(format!("{device} does not support {missing}, or name another device with -d")).into())
}

/// Returns the kernel's driver of a device, or the provider of a device that the kernel does not know.
pub(super) fn provider(context: &DeviceContext) -> String {
    if is_softrnic(context) {
        return SOFTRNIC.to_owned();
    }
    let Some(path) = context.sysfs_path() else { return context.provider().unwrap_or("unknown").to_owned() };
    let driver = fs::read_link(path.join("device/driver")).ok();
    let name = driver.as_deref().and_then(|driver| driver.file_name()).map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_else(|| "kernel".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reported_missing_operation_is_rejected() {
        let result = |operation, atomics, reads| {
            has("efa_0", operation, atomics, reads).map_err(|error| error.downcast::<Unsupported>().unwrap().0)
        };
        for operation in [Operation::FetchAdd, Operation::CompareSwap] {
            assert!(result(operation, false, true).unwrap_err().starts_with("efa_0 does not support atomics; "));
            assert!(result(operation, true, false).unwrap_err().starts_with("efa_0 does not support reads; "));
            assert_eq!(result(operation, true, true), Ok(()));
        }
        assert!(result(Operation::Read, true, false).is_err());
        assert_eq!(result(Operation::Read, false, true), Ok(()));
        assert_eq!(result(Operation::Send, false, false), Ok(()));
    }

    #[test]
    fn softrnic_is_chosen_only_without_other_devices() {
        let pick_of = |devices: &[(&'static str, Result<u8, &str>)], suits: fn(&u8) -> bool| {
            let opened = |device: &(&'static str, Result<u8, &str>)| device.1.map_err(str::to_owned);
            let found = pick(devices.iter().copied(), |device| device.0.starts_with("soft"), opened, suits);
            found.map_err(|error| error.to_string())
        };
        let any = |_: &u8| true;
        let (soft, down) = (("soft0", Ok(9)), ("mlx5_0", Err("port 1 of mlx5_0 is down")));
        assert_eq!(pick_of(&[soft], any), Ok(9));
        assert_eq!(pick_of(&[down, ("mlx5_1", Ok(1)), ("mlx5_2", Ok(2)), soft], any), Ok(1));
        assert_eq!(pick_of(&[("mlx5_1", Ok(1)), ("mlx5_2", Ok(2))], |found| *found == 2), Ok(2));
        assert_eq!(
            pick_of(&[("mlx5_1", Ok(1)), soft], |found| *found == 9),
            Ok(1),
            "missing features are reported later"
        );
        let result = pick_of(&[down, ("siw0", Err("siw0 is an iWARP device")), soft], any).unwrap_err();
        let reasons =
            "no usable RDMA device: port 1 of mlx5_0 is down; siw0 is an iWARP device; to use softrnic's device";
        assert!(result.starts_with(reasons) && result.ends_with("-d soft0"), "{result}");
        assert!(pick_of(&[down], any).unwrap_err().ends_with("is down"));
    }

    #[test]
    fn missing_port_is_distinguished_from_inactive_port() {
        let of = |count, asked| {
            active_port("mlx5_0", count, asked, |port| if port == 2 { Ok(()) } else { Err("down".to_owned()) })
        };
        assert_eq!((of(2, None), of(2, Some(2))), (Ok(2), Ok(2)));
        assert_eq!(of(2, Some(1)), Err("port 1 of mlx5_0 is down".to_owned()));
        assert_eq!(of(1, Some(2)), Err("mlx5_0 has no port 2 (only port 1)".to_owned()));
        assert_eq!(of(2, Some(0)), Err("mlx5_0 has no port 0 (only ports 1 to 2)".to_owned()));
        assert_eq!(of(0, None), Err("mlx5_0 has no port".to_owned()));
    }

    #[test]
    fn iwarp_device_error_names_the_device() {
        let error = connects("siw_0", TransportType::IWarp).expect_err("an iWARP device is rejected").to_string();
        assert!(error.starts_with("siw_0 is an iWARP device") && error.contains("add -R"), "{error}");
        for transport in [TransportType::InfiniBand, TransportType::Unspecified, TransportType::Unknown] {
            assert!(connects("mlx5_0", transport).is_ok(), "{transport}");
        }
    }
}
