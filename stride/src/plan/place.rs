//! Where a side stands.

use std::fmt::Debug;

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
            memory: self.memory.or_else(|| other.memory.clone()),
            cpus: self.cpus.or_else(|| other.cpus.clone()),
        }
    }

    /// Where a server that was given `own` is asked to stand elsewhere by its client: a sentence for each. The client's values count.
    pub fn differences(&self, own: &Self) -> Vec<String> {
        fn differ<T: PartialEq + Debug>(option: &str, asked: Option<&T>, own: Option<&T>) -> Option<String> {
            let (asked, own) = asked.zip(own).filter(|(asked, own)| asked != own)?;
            Some(format!("the server was given {option} {own:?}; the client asks for {asked:?} there, which counts"))
        }
        let sentences = [
            differ("--device", self.device.as_ref(), own.device.as_ref()),
            differ("--ib-port", self.port.as_ref(), own.port.as_ref()),
            differ("--gid-index", self.gid_index.as_ref(), own.gid_index.as_ref()),
            differ("memory", self.memory.as_ref(), own.memory.as_ref()),
            differ("--cpu", self.cpus.as_ref(), own.cpus.as_ref()),
        ];
        sentences.into_iter().flatten().collect()
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
            ["the server was given --device \"mlx5_1\"; the client asks for \"mlx5_0\" there, which counts"]
        );
    }
}
