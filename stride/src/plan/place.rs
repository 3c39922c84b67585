//! Where a side stands.

use serde::{Deserialize, Serialize};

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
        Self {
            device: self.device.or_else(|| other.device.clone()),
            port: self.port.or(other.port),
            gid_index: self.gid_index.or(other.gid_index),
            pkey_index: self.pkey_index.or(other.pkey_index),
            dlid: self.dlid.or(other.dlid),
            memory: self.memory.or_else(|| other.memory.clone()),
            cpus: self.cpus.or_else(|| other.cpus.clone()),
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

    fn each(&self) -> [Option<String>; 7] {
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
}
