//! What a side says of itself: for the other one, and for the report.

use std::fmt;
use std::iter;

use serde::{Deserialize, Serialize};

use crate::plan::Memory;

/// A side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PortInfo {
    /// Version of this program.
    pub version: String,
    /// Name of the machine, and its system.
    pub host: String,
    /// As `uname` says it.
    pub kernel: String,
    /// The system that runs on it, which its containers share, from one start of it to the next; of softrnic's devices with the network
    /// namespace and the user, as they reach no other. Empty where nobody says.
    #[serde(default)]
    pub machine: String,
    /// Model of its processors; empty where the system names none.
    #[serde(default)]
    pub cpu_model: String,
    /// What sets their frequency, such as `performance`, several where they differ; empty where the system knows of nothing.
    #[serde(default)]
    pub cpu_governor: String,
    /// Name of the device.
    pub device: String,
    /// What provides it: `softrnic`, or the system's driver.
    pub provider: String,
    /// Version of its firmware; empty where it has none.
    pub firmware: String,
    /// Vendor and part, as numbers.
    pub vendor_id: u32,
    /// The part.
    pub vendor_part_id: u32,
    /// The port that is used.
    pub port: u8,
    /// `Ethernet` or `InfiniBand`.
    pub link_layer: String,
    /// What the port says of its speed, in gigabits a second.
    #[serde(rename = "gigabits_per_second")]
    pub gigabits: Option<f64>,
    /// The most bytes of payload in a packet of the port's.
    #[serde(rename = "mtu_bytes")]
    pub mtu: u32,
    /// The most bytes of a message, where the service has a limit of its own.
    #[serde(default, rename = "longest_message_bytes", skip_serializing_if = "Option::is_none")]
    pub longest: Option<u32>,
    /// Local identifier, of InfiniBand.
    pub lid: u16,
    /// The LID that its packets go to, where it was given one by hand.
    #[serde(default)]
    pub dlid: Option<u16>,
    /// The partition of its queue pairs; none where the connection manager chooses it, or the device has none.
    #[serde(default)]
    pub partition: Option<Partition>,
    /// The GIDs of the port.
    pub gids: Vec<GidInfo>,
    /// Where the messages lie.
    pub memory: Memory,
    /// The GPU, where they lie in one's memory.
    #[serde(default)]
    pub gpu: Option<GpuInfo>,
    /// And how that is registered.
    #[serde(default)]
    pub registration: Option<Registration>,
    /// NUMA node of the device.
    pub numa_node: Option<u32>,
    /// The processors of its threads; empty where the system decides.
    pub cpus: Vec<u32>,
    /// NUMA nodes of the processors where its threads may run; empty where the system does not say.
    pub thread_nodes: Vec<u32>,
    /// The processors of the device's node, as `--cpu` takes them; empty where they are not known.
    pub near_cpus: String,
    /// Its threads are bound to those processors, though nobody has named any.
    #[serde(rename = "is_bound_to_node", default)]
    pub is_bound: bool,
    /// Reads and atomics that its queue pairs can have under way, and can answer at a time.
    pub reads: [u32; 2],
    /// Messages of up to so many bytes are handed over in the request itself; none before its queue pairs are made.
    #[serde(rename = "inline_bytes", default)]
    pub inline: Option<u32>,
    /// The same of further ports, where the test goes over several: of this device or of others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Self>,
}

/// An entry of a port's table of GIDs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GidInfo {
    /// Its index.
    pub index: u32,
    /// The GID, written as an address of IPv6.
    pub gid: String,
    /// `IB`, `RoCE v1` or `RoCE v2`.
    pub kind: String,
    /// The network interface; empty where there is none.
    pub interface: String,
    /// Bits of its address that are its network's, where the system knows.
    pub prefix: Option<u8>,
}

/// An entry of a port's table of P_Keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partition {
    /// Its index.
    pub index: u16,
    /// The key: the partition, and in the highest bit whether the port is a full member.
    pub key: u16,
}

impl Partition {
    const FULL: u16 = 1 << 15;

    /// The partition of an entry of a table with so many.
    ///
    /// # Errors
    ///
    /// A sentence for the user, where it has no such entry, or an empty one.
    pub(super) fn find(index: u16, length: u16, key: impl Fn(u16) -> Option<u16>, whose: &str) -> Result<Self, String> {
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
        Err(format!("--pkey-index {index}: no P_Key at this index of {whose}; it has {there}"))
    }

    /// Whether packets of one port are taken in by the other: both are members of one partition, and not both limited ones.
    pub fn meets(self, other: Self) -> bool {
        (self.key ^ other.key) & !Self::FULL == 0 && (self.key | other.key) & Self::FULL != 0
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "P_Key {:#06x} (index {})", self.key, self.index)
    }
}

/// The provider of devices in software.
pub const SOFTRNIC: &str = "softrnic";

impl PortInfo {
    /// Those of each port.
    pub fn all(&self) -> impl Iterator<Item = &Self> {
        iter::once(self).chain(&self.others)
    }

    /// The port, in sentences and tables.
    pub fn name(&self) -> String {
        format!("{} port {}", self.device, self.port)
    }

    /// Whether its device is in software, and reaches no network.
    pub fn is_soft(&self) -> bool {
        self.provider == SOFTRNIC
    }

    /// Whether a side can send to what a place names.
    ///
    /// # Errors
    ///
    /// A sentence for the user.
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

/// A GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuInfo {
    /// Its number, in the order of the CUDA driver.
    pub index: u32,
    /// As its vendor calls it.
    pub name: String,
    /// Where it is, as sysfs has it.
    pub pci_address: String,
    /// Its NUMA node.
    pub numa_node: Option<u32>,
}

impl fmt::Display for GpuInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GPU {} ({}, {})", self.index, self.name, self.pci_address)
    }
}

/// How memory of a GPU is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Registration {
    /// As a DMA buffer.
    DmaBuf,
    /// By its address: `nvidia_peermem` with a NIC, the CUDA driver's copies with softrnic.
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
    fn partitions_have_members_of_two_kinds() {
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
    fn entries_of_partitions_that_are_not_there_are_named_with_those_that_are() {
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
