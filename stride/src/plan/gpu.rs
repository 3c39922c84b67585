//! Names by which users choose GPUs.

use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A PCI address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PciAddress {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

/// The name of a GPU, as the user gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuName {
    /// The index of the GPU in the order of the CUDA driver.
    Index(u32),
    /// The PCI address of the GPU.
    Address(PciAddress),
}

/// How to register GPU memory with an RDMA device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum GpuRegistration {
    /// GPU memory is registered as a DMA buffer.
    #[value(name = "dmabuf")]
    DmaBuf,
    /// GPU memory is registered by its virtual address, which requires the kernel module nvidia_peermem.
    Address,
}

impl fmt::Display for GpuRegistration {
    /// Writes the value as the option `--gpu-registration` expects it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::DmaBuf => "dmabuf",
            Self::Address => "address",
        })
    }
}

/// The error for a text that is not the name of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("not a GPU's index, such as 0, nor its PCI address, such as 0000:3b:00.0")]
pub struct NoGpuName;

impl FromStr for PciAddress {
    type Err = NoGpuName;

    /// Parses `[domain:]bus:device[.function]`, in hexadecimal digits of either case. sysfs, `lspci`, `nvidia-smi` and
    /// CUDA print addresses in this form.
    fn from_str(text: &str) -> Result<Self, NoGpuName> {
        let number = |part: &str, most: usize| {
            let is_one = !part.is_empty() && part.len() <= most && part.bytes().all(|byte| byte.is_ascii_hexdigit());
            is_one.then(|| u32::from_str_radix(part, 16).ok()).flatten().ok_or(NoGpuName)
        };
        let small = |part: &str| u8::try_from(number(part, 2)?).map_err(|_| NoGpuName);
        let (head, function) = text.rsplit_once('.').unwrap_or((text, "0"));
        let parts: Vec<&str> = head.split(':').collect();
        let (domain, bus, device) = match parts[..] {
            [bus, device] => (0, small(bus)?, small(device)?),
            [domain, bus, device] => (number(domain, 8)?, small(bus)?, small(device)?),
            _ => return Err(NoGpuName),
        };
        if function.len() != 1 {
            return Err(NoGpuName);
        }
        Ok(Self { domain, bus, device, function: small(function)? })
    }
}

impl fmt::Display for PciAddress {
    /// Writes the address as in sysfs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }
}

impl FromStr for GpuName {
    type Err = NoGpuName;

    fn from_str(text: &str) -> Result<Self, NoGpuName> {
        if text.len() < 10 && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return text.parse().map(Self::Index).map_err(|_| NoGpuName);
        }
        text.parse().map(Self::Address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pci_addresses_of_common_tools_are_parsed() {
        for (text, expected) in [
            ("0000:17:00.0", "0000:17:00.0"),
            ("17:00.0", "0000:17:00.0"),
            ("17:00", "0000:17:00.0"),
            ("00000000:CA:1F.7", "0000:ca:1f.7"),
            ("10000:01:00.0", "10000:01:00.0"),
        ] {
            let address: PciAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), expected, "{text}");
        }
        for wrong in ["", "17", "0:0:0:0", "1g:00.0", "100:00.0", "17:00.", "17:00.00", "+1:00.0", "100000000:17:00.0"]
        {
            assert_eq!(wrong.parse::<PciAddress>(), Err(NoGpuName), "{wrong}");
        }
    }

    #[test]
    fn number_is_an_index() {
        assert_eq!("4".parse(), Ok(GpuName::Index(4)));
        assert_eq!("0000:17:00.0".parse::<GpuName>(), "17:00.0".parse().map(GpuName::Address));
        for wrong in ["", "-1", "1234567890", "gpu0"] {
            assert_eq!(wrong.parse::<GpuName>(), Err(NoGpuName), "{wrong}");
        }
    }
}
