//! The configuration of one side.

use clap::{ArgAction, Args};
use serde::{Deserialize, Serialize};

use super::GpuRegistration;

/// The device, memory and processors of one side. If a value is `None`, the side chooses it itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SideConfig {
    /// Device name.
    pub device: Option<String>,
    /// Port number, from 1.
    pub port: Option<u8>,
    /// Index in the GID table.
    pub gid_index: Option<u32>,
    /// Index in the P_Key table.
    #[serde(default)]
    pub pkey_index: Option<u16>,
    /// LID to which packets are sent. If absent, the LID that the peer reports is used.
    #[serde(default)]
    pub dlid: Option<u16>,
    /// Kind of memory that contains the messages.
    pub memory: Option<Memory>,
    /// Processors to which threads are bound. The processors are assigned to the threads in turn.
    pub cpus: Option<Vec<u32>>,
    /// How GPU memory is registered.
    #[serde(default)]
    pub gpu_registration: Option<GpuRegistration>,
    /// Whether threads without assigned processors are bound to the device's NUMA node. If absent, they are.
    #[serde(default)]
    pub is_bound: Option<bool>,
    /// Further ports of the test, which may belong to the same device or to others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<PortSelector>,
}

/// A port of one side. If a value is `None`, the side chooses it itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortSelector {
    /// Device name.
    pub device: Option<String>,
    /// Port number, from 1.
    pub port: Option<u8>,
    /// Index in the GID table.
    pub gid_index: Option<u32>,
}

/// The kind of memory that contains messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Memory {
    /// Host memory in normal pages.
    Host,
    /// Host memory in huge pages.
    HugePages,
    /// GPU memory. The text is the index or the PCI address of the GPU.
    Cuda(String),
}

impl SideConfig {
    /// Returns the number of ports.
    pub fn count(&self) -> usize {
        1 + self.others.len()
    }

    /// Returns all ports.
    pub fn spots(&self) -> Vec<PortSelector> {
        let first = PortSelector { device: self.device.clone(), port: self.port, gid_index: self.gid_index };
        std::iter::once(first).chain(self.others.iter().cloned()).collect()
    }

    /// Replaces the ports by `spots`, unless that list is empty.
    #[must_use]
    pub fn at(mut self, spots: Vec<PortSelector>) -> Self {
        let mut spots = spots.into_iter();
        if let Some(PortSelector { device, port, gid_index }) = spots.next() {
            (self.device, self.port, self.gid_index) = (device, port, gid_index);
            self.others = spots.collect();
        }
        self
    }

    /// Splits the configuration into one per port.
    pub fn each_port(&self) -> Vec<Self> {
        self.spots().into_iter().map(|spot| self.clone().at(vec![spot])).collect()
    }

    /// If there is only one port, repeats it until there are `count` ports. Otherwise leaves the ports as they are.
    #[must_use]
    pub fn spread(self, count: usize) -> Self {
        let spots = self.spots();
        match spots.as_slice() {
            [spot] => self.at(vec![spot.clone(); count.max(1)]),
            _ => self,
        }
    }

    /// Removes all ports but the first.
    #[must_use]
    pub fn first(mut self) -> Self {
        self.others.clear();
        self
    }

    /// Fills in missing values from `other`. If `other` has a value for one port only, it applies to all ports of
    /// `self`.
    #[must_use]
    pub fn or(self, other: &Self) -> Self {
        let theirs = other.clone().spread(self.count()).spots();
        let spots = self.spots().into_iter().enumerate().map(|(at, own)| {
            let other = theirs.get(at).cloned().unwrap_or_default();
            PortSelector {
                device: own.device.or(other.device),
                port: own.port.or(other.port),
                gid_index: own.gid_index.or(other.gid_index),
            }
        });
        let spots = spots.collect();
        // How GPU memory is registered is only taken from `other` if the messages can be in GPU memory.
        let is_gpu = self.memory.as_ref().is_none_or(|memory| memory.cuda().is_some());
        let registration = other.gpu_registration.filter(|_| is_gpu);
        Self {
            pkey_index: self.pkey_index.or(other.pkey_index),
            dlid: self.dlid.or(other.dlid),
            memory: self.memory.or_else(|| other.memory.clone()),
            cpus: self.cpus.or_else(|| other.cpus.clone()),
            gpu_registration: self.gpu_registration.or(registration),
            is_bound: self.is_bound.or(other.is_bound),
            ..Self::default()
        }
        .at(spots)
    }

    /// Lists the values of the server's own configuration that the client overrides, as texts for the user.
    pub fn differences(&self, own: &Self) -> Vec<String> {
        let both = self.each().into_iter().zip(own.each());
        let others = both.filter_map(|(asked, own)| asked.zip(own).filter(|(asked, own)| asked != own));
        others.map(|(asked, own)| format!("the server was started with {own}; the client's {asked} applies")).collect()
    }

    /// Returns the options that have one value per port, with their values.
    pub fn port_options(&self) -> String {
        self.each().into_iter().take(3).flatten().collect::<Vec<_>>().join(" ")
    }

    /// Returns all options with their values, as on a command line.
    pub fn options(&self) -> Vec<String> {
        self.each().into_iter().flatten().collect()
    }

    fn each(&self) -> [Option<String>; 9] {
        let cpus = |cpus: &Vec<u32>| cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let spots = self.spots();
        [
            listed("--device", spots.iter().map(|spot| spot.device.clone())),
            listed("--ib-port", spots.iter().map(|spot| spot.port)),
            listed("--gid-index", spots.iter().map(|spot| spot.gid_index)),
            self.pkey_index.map(|index| format!("--pkey-index {index}")),
            self.dlid.map(|lid| format!("--dlid {lid}")),
            self.memory.as_ref().map(|memory| match memory {
                Memory::Host => "host memory".to_owned(),
                Memory::HugePages => "--huge-pages".to_owned(),
                Memory::Cuda(gpu) => format!("--use-cuda {gpu}"),
            }),
            self.cpus.as_ref().map(|list| format!("--cpu {}", cpus(list))),
            self.gpu_registration.map(|way| format!("--gpu-registration {way}")),
            self.is_bound.filter(|is_bound| !is_bound).map(|_| "--no-numa".to_owned()),
        ]
    }
}

/// Formats an option that has one value per port. If all values are equal, writes the value once. Returns `None` if
/// there are no values.
fn listed<T: ToString>(option: &str, values: impl Iterator<Item = Option<T>>) -> Option<String> {
    let mut texts: Vec<_> = values.flatten().map(|value| value.to_string()).collect();
    if texts.windows(2).all(|pair| pair[0] == pair[1]) {
        texts.truncate(1);
    }
    (!texts.is_empty()).then(|| format!("{option} {}", texts.join(",")))
}

impl Memory {
    /// Returns the name of the GPU if the messages are in GPU memory.
    pub fn cuda(&self) -> Option<&str> {
        match self {
            Self::Cuda(gpu) => Some(gpu),
            Self::Host | Self::HugePages => None,
        }
    }
}

/// Devices and memory of both sides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Args)]
#[command(next_help_heading = "Memory")]
pub struct Placement {
    /// Have the device write to memory in order (PCIe).
    ///
    /// A latency test that polls memory always uses strict ordering.
    #[arg(long = "no-relaxed-ordering", action = ArgAction::SetFalse, hide_short_help = true)]
    pub is_relaxed: bool,
    /// Register memory without pinning it (on-demand paging).
    ///
    /// The devices of both sides must support on-demand paging for the transport and the operation.
    #[serde(default)]
    #[arg(long = "odp", hide_short_help = true)]
    pub is_on_demand: bool,
    /// Give each queue pair its own memory regions and keys.
    ///
    /// By default, the queue pairs of a thread share two regions: one for remote access, and one for the data that they
    /// send. With this option, the device's caches for translations and keys need as many entries as they do for an
    /// application that has many buffers.
    #[serde(default)]
    #[arg(long = "mr-per-qp", hide_short_help = true)]
    pub has_own_regions: bool,
    /// The client's configuration.
    #[arg(skip)]
    pub client: SideConfig,
    /// The server's configuration, as far as the client determines it.
    #[arg(skip)]
    pub server: SideConfig,
}

impl Default for Placement {
    fn default() -> Self {
        Self {
            is_relaxed: true,
            is_on_demand: false,
            has_own_regions: false,
            client: SideConfig::default(),
            server: SideConfig::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_values_override_defaults() {
        let asked = || SideConfig { device: Some("mlx5_0".to_owned()), ..SideConfig::default() };
        let own = SideConfig { device: Some("mlx5_1".to_owned()), port: Some(2), ..SideConfig::default() };
        let both = asked().or(&own);
        assert_eq!((both.device.as_deref(), both.port), (Some("mlx5_0"), Some(2)));
        let differences = asked().differences(&own);
        assert_eq!(differences, ["the server was started with --device mlx5_1; the client's --device mlx5_0 applies"]);
    }

    fn devices(names: &[&str]) -> SideConfig {
        let of = |name: &&str| PortSelector { device: Some((*name).to_owned()), ..PortSelector::default() };
        SideConfig::default().at(names.iter().map(of).collect())
    }

    #[test]
    fn value_of_one_port_applies_to_all() {
        let one = SideConfig { pkey_index: Some(3), ..devices(&["mlx5_0"]) };
        let both = one.clone().spread(2);
        assert_eq!(both.spots(), devices(&["mlx5_0", "mlx5_0"]).spots());
        assert_eq!(both.options(), ["--device mlx5_0", "--pkey-index 3"]);
        assert_eq!(both.each_port(), [one.clone(), one.clone()]);
        assert_eq!((both.clone().first(), both.count()), (one, 2));
        assert_eq!(devices(&["a", "b"]).spread(3), devices(&["a", "b"]), "several ports are not repeated");
    }

    #[test]
    fn values_per_port_apply_in_order() {
        let asked = || SideConfig { port: Some(2), ..SideConfig::default() }.spread(2);
        let found = asked().or(&devices(&["mlx5_0", "mlx5_1"]));
        assert_eq!(found.options(), ["--device mlx5_0,mlx5_1", "--ib-port 2"]);
        assert_eq!(asked().or(&devices(&["mlx4_0"])).options(), ["--device mlx4_0", "--ib-port 2"]);
        assert_eq!(asked().or(&devices(&["a", "b", "c"])).count(), 2);
        let asked = devices(&["mlx5_0", "mlx5_1"]);
        assert_eq!(asked.differences(&asked), [""; 0]);
        let differences = asked.differences(&devices(&["mlx5_2"]));
        assert_eq!(
            differences,
            ["the server was started with --device mlx5_2; the client's --device mlx5_0,mlx5_1 applies"]
        );
    }

    #[test]
    fn gpu_registration_is_taken_with_the_memory() {
        let own = SideConfig {
            memory: Some(Memory::Cuda("0".to_owned())),
            gpu_registration: Some(GpuRegistration::DmaBuf),
            is_bound: Some(false),
            ..SideConfig::default()
        };
        assert_eq!(own.options(), ["--use-cuda 0", "--gpu-registration dmabuf", "--no-numa"]);
        assert_eq!(SideConfig::default().or(&own), own);
        let other = SideConfig { memory: Some(Memory::Cuda("1".to_owned())), ..SideConfig::default() };
        assert_eq!(other.or(&own).gpu_registration, Some(GpuRegistration::DmaBuf));
        let host = SideConfig { memory: Some(Memory::HugePages), ..SideConfig::default() };
        assert_eq!(host.or(&own).gpu_registration, None);
    }
}
