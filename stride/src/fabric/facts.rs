//! What a side says of itself: for the other one, and for the report.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::plan::Memory;

/// A side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// Version of this program.
    pub version: String,
    /// Name of the machine, and its system.
    pub host: String,
    /// As `uname` says it.
    pub kernel: String,
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
    /// Local identifier, of InfiniBand.
    pub lid: u16,
    /// The GIDs of the port.
    pub gids: Vec<GidFact>,
    /// Where the messages lie.
    pub memory: Memory,
    /// The GPU, where they lie in one's memory.
    #[serde(default)]
    pub gpu: Option<GpuFact>,
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
    /// Reads and atomics that its queue pairs can have under way, and can answer at a time.
    pub reads: [u32; 2],
}

/// An entry of a port's table of GIDs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GidFact {
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

/// A GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuFact {
    /// Its number, in the order of the CUDA driver.
    pub index: u32,
    /// As its vendor calls it.
    pub name: String,
    /// Where it is, as sysfs has it.
    pub pci_address: String,
    /// Its NUMA node.
    pub numa_node: Option<u32>,
}

impl fmt::Display for GpuFact {
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
