//! What a side reports about itself, both to the peer and in the results.

use std::fmt;
use std::iter;

use serde::{Deserialize, Serialize};

use crate::plan::Memory;

/// The description of a port of a side, and of the machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PortInfo {
    /// Version of this program.
    pub version: String,
    /// Host name.
    pub host: String,
    /// Kernel release, as in `uname -r`.
    pub kernel: String,
    /// Identifies the running system by its boot ID, which all containers on it share. For softrnic devices, the
    /// network namespace and the user are added, because these devices cannot reach other namespaces or users. Empty if
    /// unknown.
    #[serde(default)]
    pub machine: String,
    /// Processor model. Empty if the system does not report it.
    #[serde(default)]
    pub cpu_model: String,
    /// Frequency governor of the processors, such as `performance`. If processors have different governors, all are
    /// listed. Empty if unknown.
    #[serde(default)]
    pub cpu_governor: String,
    /// Device name.
    pub device: String,
    /// The provider of the device, which is `softrnic` or the name of the kernel driver.
    pub provider: String,
    /// Firmware version. Empty if the device has none.
    pub firmware: String,
    /// Vendor ID.
    pub vendor_id: u32,
    /// Part ID, which the vendor has assigned.
    pub vendor_part_id: u32,
    /// Port number.
    pub port: u8,
    /// `Ethernet`, `InfiniBand` or [`IWARP`].
    pub link_layer: String,
    /// Speed in Gb/s that the port reports.
    #[serde(rename = "gigabits_per_second")]
    pub gigabits: Option<f64>,
    /// Active MTU of the port in bytes.
    #[serde(rename = "mtu_bytes")]
    pub mtu: u32,
    /// Length of the longest message in bytes, if the transport has a limit of its own.
    #[serde(default, rename = "longest_message_bytes", skip_serializing_if = "Option::is_none")]
    pub longest: Option<u32>,
    /// LID of the port. Only InfiniBand ports have one.
    pub lid: u16,
    /// Destination LID that the user gave.
    #[serde(default)]
    pub dlid: Option<u16>,
    /// Partition of the queue pairs. `None` if librdmacm chooses it, or if the device has no partitions.
    #[serde(default)]
    pub partition: Option<Partition>,
    /// GIDs of the port.
    pub gids: Vec<GidInfo>,
    /// Kind of memory that contains the messages.
    pub memory: Memory,
    /// The GPU whose memory contains the messages, if any.
    #[serde(default)]
    pub gpu: Option<GpuInfo>,
    /// How GPU memory is registered.
    #[serde(default)]
    pub registration: Option<Registration>,
    /// NUMA node of the device.
    pub numa_node: Option<u32>,
    /// Processors to which the user bound the threads. Empty if the system chooses.
    pub cpus: Vec<u32>,
    /// NUMA nodes on which the threads may run. Empty if unknown.
    pub thread_nodes: Vec<u32>,
    /// Processors of the device's NUMA node, in the syntax of `--cpu`. Empty if unknown.
    pub near_cpus: String,
    /// Whether the threads are bound to the processors in `near_cpus` by default.
    #[serde(rename = "is_bound_to_node", default)]
    pub is_bound: bool,
    /// How many reads and atomics a queue pair can have outstanding, first as requester and then as responder.
    pub reads: [u32; 2],
    /// Size of the largest message that is sent inline. `None` before the queue pairs exist.
    #[serde(rename = "inline_bytes", default)]
    pub inline: Option<u32>,
    /// Further ports of the test, which may belong to this device or to others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Self>,
}

/// An entry of a port's GID table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GidInfo {
    /// The index in the table.
    pub index: u32,
    /// The GID in IPv6 notation.
    pub gid: String,
    /// `IB`, `RoCE v1` or `RoCE v2`.
    pub kind: String,
    /// The network interface to which the GID belongs. Empty if there is none.
    pub interface: String,
    /// Prefix length of the GID's subnet, if known.
    pub prefix: Option<u8>,
}

/// An entry of a port's P_Key table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partition {
    /// The index in the table.
    pub index: u16,
    /// The P_Key, whose highest bit means full membership. The other bits are the partition.
    pub key: u16,
}

impl Partition {
    const FULL: u16 = 1 << 15;

    /// Returns the entry at `index` of a table that has `length` entries.
    ///
    /// # Errors
    ///
    /// Returns an error for the user if the entry does not exist or is empty.
    pub(super) fn find(index: u16, length: u16, key: impl Fn(u16) -> Option<u16>, owner: &str) -> Result<Self, String> {
        let is_used = |key: &u16| key & !Self::FULL != 0;
        if let Some(key) = Some(index).filter(|index| *index < length).and_then(&key).filter(is_used) {
            return Ok(Self { index, key });
        }
        let keys: Vec<_> = (0..length).filter_map(|at| Some((at, key(at).filter(is_used)?))).collect();
        let mut texts: Vec<_> = keys.iter().take(8).map(|(index, key)| format!("{index} ({key:#06x})")).collect();
        if keys.len() > texts.len() {
            texts.push(format!("{} more", keys.len() - texts.len()));
        }
        let there = if texts.is_empty() { "none at all".to_owned() } else { texts.join(", ") };
        Err(format!("--pkey-index {index}: no P_Key at this index of {owner}; it has {there}"))
    }

    /// Whether two ports can communicate. The ports must be in the same partition, and at least one of them must be a
    /// full member.
    pub fn meets(self, other: Self) -> bool {
        (self.key ^ other.key) & !Self::FULL == 0 && (self.key | other.key) & Self::FULL != 0
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "P_Key {:#06x} (index {})", self.key, self.index)
    }
}

/// The name of the link layer of iWARP ports.
pub const IWARP: &str = "iWARP";

/// The name of the provider of software devices.
pub const SOFTRNIC: &str = "softrnic";

impl PortInfo {
    /// Returns this port and then the further ones.
    pub fn all(&self) -> impl Iterator<Item = &Self> {
        iter::once(self).chain(&self.others)
    }

    /// Returns the device and the port number, for texts and tables.
    pub fn name(&self) -> String {
        format!("{} port {}", self.device, self.port)
    }

    /// Whether the device is an iWARP device. Only librdmacm can connect the queue pairs of such a device, by IP
    /// addresses.
    pub fn is_iwarp(&self) -> bool {
        self.link_layer == IWARP
    }

    /// Whether the device is one of softrnic.
    pub fn is_soft(&self) -> bool {
        self.provider == SOFTRNIC
    }

    /// Whether the device connects only processes of one host. softrnic gives RoCEv2 devices, which reach other hosts,
    /// these names.
    pub fn connects_one_host(&self) -> bool {
        self.is_soft() && !self.device.starts_with("softroce")
    }

    /// Checks that the port's link layer has LIDs, if the user gave `--dlid`.
    ///
    /// # Errors
    ///
    /// Returns an error for the user.
    pub(super) fn check_dlid(&self) -> Result<(), String> {
        match self.dlid {
            Some(lid) if self.link_layer != "InfiniBand" => Err(format!(
                "--dlid {lid}: port {} of {} is on {}, which has no LIDs; leave it out",
                self.port, self.device, self.link_layer
            )),
            _ => Ok(()),
        }
    }
}

/// The description of a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuInfo {
    /// Index in the order of the CUDA driver.
    pub index: u32,
    /// Product name.
    pub name: String,
    /// PCI address in sysfs notation.
    pub pci_address: String,
    /// NUMA node.
    pub numa_node: Option<u32>,
}

impl fmt::Display for GpuInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GPU {} ({}, {})", self.index, self.name, self.pci_address)
    }
}

/// How GPU memory is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Registration {
    /// GPU memory is registered as a DMA buffer.
    DmaBuf,
    /// GPU memory is registered by its address. With a NIC, this requires `nvidia_peermem`; with softrnic, the CUDA
    /// driver copies the data.
    PeerMemory,
}

impl fmt::Display for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::DmaBuf => "DMA buffer",
            Self::PeerMemory => "peer memory",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partition_requires_one_full_member() {
        let of = |key| Partition { index: 0, key };
        for (one, other, expected) in [
            (0xffff, 0xffff, true),
            (0xffff, 0x7fff, true),
            (0x7fff, 0x7fff, false),
            (0x8001, 0xffff, false),
            (0x8001, 1, true),
        ] {
            assert_eq!(of(one).meets(of(other)), expected, "{one:#x} {other:#x}");
            assert_eq!(of(other).meets(of(one)), expected, "{one:#x} {other:#x}");
        }
    }

    #[test]
    fn missing_p_key_error_lists_the_existing_ones() {
        let keys = [0xffff, 0, 0x8001, 0x8000];
        let find = |index, length| {
            Partition::find(index, length, |index| keys.get(usize::from(index)).copied(), "port 1 of it")
        };
        assert_eq!(find(2, 4), Ok(Partition { index: 2, key: 0x8001 }));
        let there = "0 (0xffff), 2 (0x8001)";
        for (index, length, there) in
            [(1, 4, there), (3, 4, there), (4, 4, there), (2, 1, "0 (0xffff)"), (0, 0, "none at all")]
        {
            let expected = format!("--pkey-index {index}: no P_Key at this index of port 1 of it; it has {there}");
            assert_eq!(find(index, length), Err(expected));
        }
        let many = Partition::find(100, 20, |index| Some(index + 1), "it").unwrap_err();
        assert!(many.ends_with(", 7 (0x0008), 12 more"), "{many}");
    }
}
