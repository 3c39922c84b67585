//! Diagnoses this machine's RDMA support, and recommends changes.

use std::fmt;

use sideway::ibverbs::device::{DeviceInfo, DeviceList};
use sideway::ibverbs::device_context::{DeviceCapabilityFlags, DeviceContext, PortState};

use crate::backend::verbs::{Options, Verbs, in_words};

/// How much locked memory a worker needs when it starts, in bytes: one chunk of its pool, and the queues of a few
/// connections.
const LOCKED: u64 = 16 << 20;

/// The findings of [`doctor`]. `Display` formats them as a report.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// The RDMA devices, including those that connections do not use.
    pub devices: Vec<DeviceReport>,
    /// The device that connections use by default, or the reason why they fall back to TCP.
    pub transport: Result<String, String>,
    /// `RLIMIT_MEMLOCK` in bytes; `None` if there is no limit.
    pub locked_memory: Option<u64>,
    /// Recommended changes.
    pub advice: Vec<String>,
}

/// One RDMA device.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceReport {
    /// The device's name, such as `mlx5_0`.
    pub name: String,
    /// The reason why the device cannot be opened or queried, if it cannot.
    pub fault: Option<String>,
    /// `RoCE`, `InfiniBand`, `iWARP`, or the text that the device reports.
    pub transport: String,
    /// Whether memory windows of type 2B revoke keys. Without them a key is valid until the connection's memory is
    /// released.
    pub has_windows: bool,
    /// The device's ports. Their numbers begin with 1.
    pub ports: Vec<PortReport>,
}

/// One port of a device.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PortReport {
    /// The port's number, which is at least 1.
    pub number: u8,
    /// Whether connections can use the port.
    pub is_active: bool,
    /// The state, link layer, MTU and speed of the port, as text.
    pub state: String,
    /// The index, address and type of each GID, as text.
    pub gids: Vec<String>,
}

/// Examines the devices, their ports and GIDs, the limit of locked memory, and the transport that a connection would
/// use. Opens each device briefly.
pub fn doctor() -> Report {
    let (devices, missing) = match DeviceList::new() {
        Ok(list) => (list.iter().map(|device| look_at(&device.name(), device.open())).collect(), None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    let options = Options::default();
    let transport = match (Verbs::open(&options, None), missing) {
        (Ok(verbs), _) => Ok(verbs.device_name()),
        (Err(_), Some(missing)) => Err(missing),
        (Err(error), None) => Err(error.to_string()),
    };
    let locked_memory = locked_memory();
    let advice = advise(&devices, &transport, locked_memory);
    Report { devices, transport, locked_memory, advice }
}

fn look_at<E: fmt::Display>(name: &str, context: Result<std::sync::Arc<DeviceContext>, E>) -> DeviceReport {
    let mut report = DeviceReport {
        name: name.to_owned(),
        fault: None,
        transport: String::new(),
        has_windows: false,
        ports: Vec::new(),
    };
    let context = match context {
        Ok(context) => context,
        Err(error) => {
            report.fault = Some(error.to_string());
            return report;
        }
    };
    report.transport = format!("{:?}", context.transport_type());
    let attributes = match context.query_device() {
        Ok(attributes) => attributes,
        Err(error) => {
            report.fault = Some(error.to_string());
            return report;
        }
    };
    report.has_windows = attributes.device_cap_flags().contains(DeviceCapabilityFlags::MemoryWindowType2B);
    let gids = context.query_gid_table().unwrap_or_default();
    for number in 1..=u8::try_from(attributes.phys_port_cnt()).unwrap_or(u8::MAX) {
        let of_port = gids.iter().filter(|entry| entry.port_num() == u32::from(number));
        let gids = of_port
            .map(|entry| format!("{} {} {:?}", entry.gid_index(), in_words(entry.gid()), entry.gid_type()))
            .collect();
        report.ports.push(match context.query_port(number) {
            Ok(port) => PortReport {
                number,
                is_active: port.port_state() == PortState::Active,
                state: format!(
                    "{:?}, {:?}, MTU {}, {}",
                    port.port_state(),
                    port.link_layer(),
                    port.active_mtu(),
                    port.throughput().map_or_else(|| "speed unknown".to_owned(), |speed| format!("{speed} Gb/s")),
                ),
                gids,
            },
            Err(error) => PortReport { number, is_active: false, state: error.to_string(), gids },
        });
    }
    report
}

/// `RLIMIT_MEMLOCK` in bytes; `None` if there is no limit.
fn locked_memory() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Memlock).current
}

fn advise(devices: &[DeviceReport], transport: &Result<String, String>, locked_memory: Option<u64>) -> Vec<String> {
    let mut advice = Vec::new();
    if let Some(limit) = locked_memory.filter(|&limit| limit < LOCKED) {
        advice.push(format!(
            "raise the limit of locked memory from {} KiB with `ulimit -l unlimited`, /etc/security/limits.conf, LimitMEMLOCK= of \
             systemd, or `docker run --ulimit memlock=-1`",
            limit >> 10
        ));
    }
    for device in devices.iter().filter(|device| device.fault.is_some()) {
        advice.push(format!("check that this user may open /dev/infiniband/uverbs* for {}", device.name));
    }
    let idle =
        devices.iter().filter(|device| device.fault.is_none() && !device.ports.iter().any(|port| port.is_active));
    for device in idle {
        advice.push(format!("bring the network interface of {} up: none of its ports is active", device.name));
    }
    if devices.is_empty() {
        advice.push(
            "install rdma-core and its providers if this machine has a NIC; or enable the feature `softrnic`"
                .to_owned(),
        );
    } else if transport.is_err() {
        advice.push("load the kernel's connection manager with `modprobe rdma_ucm` if it is missing".to_owned());
    }
    advice
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.transport {
            Ok(device) => writeln!(f, "connections use RDMA, over {device}")?,
            Err(reason) => writeln!(f, "connections use TCP: {reason}")?,
        }
        match self.locked_memory {
            Some(limit) => writeln!(f, "locked memory: at most {} KiB", limit >> 10)?,
            None => writeln!(f, "locked memory: no limit")?,
        }
        for device in &self.devices {
            writeln!(f, "{}: {}", device.name, device.fault.as_deref().unwrap_or(&device.transport))?;
            if device.fault.is_none() && !device.has_windows {
                writeln!(f, "  no memory windows of type 2B: a peer's key is valid until the memory is released")?;
            }
            for port in &device.ports {
                writeln!(f, "  port {}: {}", port.number, port.state)?;
                port.gids.iter().try_for_each(|gid| writeln!(f, "    GID {gid}"))?;
            }
        }
        self.advice.iter().try_for_each(|advice| writeln!(f, "advice: {advice}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_soft_device_is_reported_with_its_address() {
        softrnic::register().unwrap();
        let report = doctor();
        // A hardware device of the machine takes precedence.
        let device = report.transport.as_deref().unwrap();
        assert!(report.devices.iter().any(|one| one.name == device), "{report:?}");
        let soft = report.devices.iter().find(|device| device.name == "soft0").unwrap();
        let is_limited = std::env::var_os(softrnic::PROFILE_VARIABLE).is_some_and(|profile| !profile.is_empty());
        assert_eq!(soft.has_windows, !is_limited, "devices with the limits of a NIC have none");
        assert!(soft.ports[0].gids.iter().any(|gid| gid.contains("127.0.0.1")), "{soft:?}");
        let text = report.to_string();
        assert!(text.starts_with(&format!("connections use RDMA, over {device}\n")), "{text}");
    }

    #[test]
    fn a_small_limit_of_locked_memory_gets_advice() {
        let advice = advise(&[], &Err("no device".to_owned()), Some(64 << 10));
        assert!(advice[0].starts_with("raise the limit of locked memory from 64 KiB"), "{advice:?}");
        assert!(advise(&[], &Ok("mlx5_0".to_owned()), None).iter().all(|line| !line.contains("locked")));
    }

    #[test]
    fn a_device_without_an_active_port_gets_advice() {
        let port = PortReport { number: 1, is_active: false, state: "Down".to_owned(), gids: Vec::new() };
        let device = DeviceReport {
            name: "mlx5_0".to_owned(),
            fault: None,
            transport: "InfiniBand".to_owned(),
            has_windows: true,
            ports: vec![port],
        };
        let advice = advise(&[device], &Err("no port".to_owned()), None);
        assert!(advice[0].contains("interface of mlx5_0 up"), "{advice:?}");
    }
}
