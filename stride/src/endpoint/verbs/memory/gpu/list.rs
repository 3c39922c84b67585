//! Lists the GPUs of the machine, and finds those that are near a device.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::Result;
use rdma_cuda::{Absent, Driver};

use super::card::Card;
use crate::endpoint::GpuInfo;

/// The folder in sysfs that contains all PCI devices.
const BUS: &str = "/sys/bus/pci/devices";

/// The GPUs of the machine.
#[derive(Clone, Debug)]
pub enum Gpus {
    /// The machine has one or more GPUs.
    Some(Vec<GpuInfo>),
    /// No GPU is available, for this reason.
    None(String),
}

/// The GPUs nearest to a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NearGpus {
    /// How near the GPUs are to the device.
    pub nearness: Nearness,
    /// The indexes of these GPUs.
    pub gpus: Vec<u32>,
}

/// How near a GPU is to a device. Later variants are nearer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Nearness {
    /// The GPU and the device have the same NUMA node.
    Node,
    /// The GPU and the device have the same PCI root.
    Root,
    /// The GPU and the device are below this number of common PCI bridges.
    Bridges(usize),
}

impl fmt::Display for Nearness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Node => "same NUMA node",
            Self::Root => "same PCI root",
            Self::Bridges(_) => "same PCI bridge",
        })
    }
}

/// Returns all GPUs that the driver lists. If one of the GPUs cannot be described, returns the reason and lists no GPU.
pub(in crate::endpoint::verbs) fn gpus() -> Gpus {
    match Driver::get() {
        Ok(driver) => all(driver).unwrap_or_else(|error| Gpus::None(format!("{error:#}"))),
        Err(absent) => Gpus::None(absent.to_string()),
    }
}

fn all(driver: &'static Driver) -> Result<Gpus> {
    let count = Card::count(driver)?;
    if count == 0 {
        return Ok(Gpus::None(Absent::Gpu.to_string()));
    }
    (0..count).map(|index| fact(index, &Card::new(driver, index)?)).collect::<Result<_>>().map(Gpus::Some)
}

/// Describes a GPU.
pub(super) fn fact(index: u32, card: &Card) -> Result<GpuInfo> {
    let address = card.address()?.to_string();
    let node = std::fs::read_to_string(Path::new(BUS).join(&address).join("numa_node"));
    // If there is no node, the file contains -1, which is not parsed as a node.
    let numa_node = node.ok().and_then(|text| text.trim().parse().ok());
    Ok(GpuInfo { index, name: card.name()?, pci_address: address, numa_node })
}

/// Returns the GPUs that are nearest to a device. `device` is the folder of the device in sysfs.
pub(in crate::endpoint::verbs) fn near(device: Option<&Path>, node: Option<u32>, gpus: &[GpuInfo]) -> Option<NearGpus> {
    let device = device.and_then(|device| device.canonicalize().ok());
    let places: Vec<_> = gpus
        .iter()
        .map(|gpu| (gpu.index, Path::new(BUS).join(&gpu.pci_address).canonicalize().ok(), gpu.numa_node))
        .collect();
    nearest(device.as_deref(), node, &places)
}

/// Returns the GPUs that are nearest to a device with this PCI path and NUMA node.
pub(super) fn nearest(
    device: Option<&Path>,
    node: Option<u32>,
    gpus: &[(u32, Option<PathBuf>, Option<u32>)],
) -> Option<NearGpus> {
    let nearness = |path: &Option<PathBuf>, other: Option<u32>| {
        let common = device.zip(path.as_deref()).map_or(0, |(one, other)| in_common(one, other));
        match common {
            0 if node.is_some() && node == other => Some(Nearness::Node),
            0 => None,
            1 => Some(Nearness::Root),
            more => Some(Nearness::Bridges(more - 1)),
        }
    };
    let found: Vec<_> = gpus.iter().filter_map(|(index, path, node)| Some((*index, nearness(path, *node)?))).collect();
    let best = found.iter().map(|(_, nearness)| *nearness).max()?;
    let gpus = found.into_iter().filter(|(_, nearness)| *nearness == best).map(|(index, _)| index).collect();
    Some(NearGpus { nearness: best, gpus })
}

/// Returns how many components the paths have in common, counted from the PCI root.
fn in_common(one: &Path, other: &Path) -> usize {
    let steps = |path: &Path| {
        let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        let root = parts.iter().position(|part| part.starts_with("pci"))?;
        Some(parts[root..].to_vec())
    };
    let (Some(one), Some(other)) = (steps(one), steps(other)) else { return 0 };
    one.iter().zip(&other).take_while(|(one, other)| one == other).count()
}
