//! Where a side stands.

use serde::{Deserialize, Serialize};

use super::GpuRegistration;

/// The device, memory and processors of a side. What is none is chosen by that side.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Name of the device.
    pub device: Option<String>,
    /// Port of the device, from 1.
    pub port: Option<u8>,
    /// Index in the table of GIDs.
    pub gid_index: Option<u32>,
    /// Index in the table of P_Keys, of partitions.
    #[serde(default)]
    pub pkey_index: Option<u16>,
    /// The LID that its packets go to; none is the one that the other side says of itself.
    #[serde(default)]
    pub dlid: Option<u16>,
    /// Where the messages lie.
    pub memory: Option<Memory>,
    /// Processors, one for each thread in turn.
    pub cpus: Option<Vec<u32>>,
    /// How memory of a GPU is registered.
    #[serde(default)]
    pub gpu_registration: Option<GpuRegistration>,
    /// Threads that have no processors may be bound to those of the device's NUMA node; none is yes.
    #[serde(default)]
    pub is_bound: Option<bool>,
}

/// Where messages lie.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Memory {
    /// Pages of the host.
    Host,
    /// Huge pages of the host.
    HugePages,
    /// A GPU's: its number, or its address on the PCI bus.
    Cuda(String),
}

impl Place {
    /// This one, and what it leaves open as another has it.
    #[must_use]
    pub fn or(self, other: &Self) -> Self {
        // Of memory that is not taken the registration is not either.
        let is_gpu = self.memory.as_ref().is_none_or(|memory| memory.cuda().is_some());
        let registration = other.gpu_registration.filter(|_| is_gpu);
        Self {
            device: self.device.or_else(|| other.device.clone()),
            port: self.port.or(other.port),
            gid_index: self.gid_index.or(other.gid_index),
            pkey_index: self.pkey_index.or(other.pkey_index),
            dlid: self.dlid.or(other.dlid),
            memory: self.memory.or_else(|| other.memory.clone()),
            cpus: self.cpus.or_else(|| other.cpus.clone()),
            gpu_registration: self.gpu_registration.or(registration),
            is_bound: self.is_bound.or(other.is_bound),
        }
    }

    /// Where a server that was given `own` is asked to stand elsewhere by its client: a sentence for each. The client's values count.
    pub fn differences(&self, own: &Self) -> Vec<String> {
        let both = self.each().into_iter().zip(own.each());
        let others = both.filter_map(|(asked, own)| asked.zip(own).filter(|(asked, own)| asked != own));
        others
            .map(|(asked, own)| format!("the server was given {own}; the client asks for {asked} there, which counts"))
            .collect()
    }

    /// Its options, as on a command line.
    pub fn options(&self) -> Vec<String> {
        self.each().into_iter().flatten().collect()
    }

    fn each(&self) -> [Option<String>; 9] {
        let cpus = |cpus: &Vec<u32>| cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        [
            self.device.as_ref().map(|name| format!("--device {name}")),
            self.port.map(|port| format!("--ib-port {port}")),
            self.gid_index.map(|index| format!("--gid-index {index}")),
            self.pkey_index.map(|index| format!("--pkey-index {index}")),
            self.dlid.map(|lid| format!("--dlid {lid}")),
            self.memory.as_ref().map(|memory| match memory {
                Memory::Host => "memory of the host".to_owned(),
                Memory::HugePages => "--huge-pages".to_owned(),
                Memory::Cuda(gpu) => format!("--use-cuda {gpu}"),
            }),
            self.cpus.as_ref().map(|list| format!("--cpu {}", cpus(list))),
            self.gpu_registration.map(|way| format!("--gpu-registration {way}")),
            self.is_bound.filter(|is_bound| !is_bound).map(|_| "--no-numa".to_owned()),
        ]
    }
}

impl Memory {
    /// The GPU, where it is one's.
    pub fn cuda(&self) -> Option<&str> {
        match self {
            Self::Cuda(gpu) => Some(gpu),
            Self::Host | Self::HugePages => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_goes_before_what_is_there() {
        let asked = || Place { device: Some("mlx5_0".to_owned()), ..Place::default() };
        let own = Place { device: Some("mlx5_1".to_owned()), port: Some(2), ..Place::default() };
        let both = asked().or(&own);
        assert_eq!((both.device.as_deref(), both.port), (Some("mlx5_0"), Some(2)));
        let told = asked().differences(&own);
        assert_eq!(
            told,
            ["the server was given --device mlx5_1; the client asks for --device mlx5_0 there, which counts"]
        );
    }

    #[test]
    fn how_memory_is_registered_goes_with_the_memory() {
        let own = Place {
            memory: Some(Memory::Cuda("0".to_owned())),
            gpu_registration: Some(GpuRegistration::DmaBuf),
            is_bound: Some(false),
            ..Place::default()
        };
        assert_eq!(own.options(), ["--use-cuda 0", "--gpu-registration dmabuf", "--no-numa"]);
        assert_eq!(Place::default().or(&own), own);
        let other = Place { memory: Some(Memory::Cuda("1".to_owned())), ..Place::default() };
        assert_eq!(other.or(&own).gpu_registration, Some(GpuRegistration::DmaBuf));
        let host = Place { memory: Some(Memory::HugePages), ..Place::default() };
        assert_eq!(host.or(&own).gpu_registration, None);
    }
}
