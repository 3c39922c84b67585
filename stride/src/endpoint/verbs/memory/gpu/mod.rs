//! GPU memory, which the program uses through the CUDA driver. The processor never dereferences an address of GPU
//! memory; instead, the driver copies the bytes.

mod card;
mod list;
mod region;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use anyhow::{Context, Error, Result, anyhow};
use rdma_cuda::{Absent, Driver};
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::device::DeviceInfo;
use sideway::ibverbs::protection_domain::ProtectionDomain;

use self::card::{Card, CardContext};
pub use self::list::{Gpus, NearGpus, Nearness};
pub(in crate::endpoint::verbs) use self::list::{gpus, near};
pub(super) use self::region::GpuRegion;
use self::region::{Refusal, Way};
use crate::endpoint::{GpuInfo, Registration};
use crate::plan::{GpuName, GpuRegistration};

/// The GPU that a side uses.
#[derive(Debug)]
pub(in crate::endpoint::verbs) struct Gpu {
    context: Arc<CardContext>,
    fact: GpuInfo,
    registration: Registration,
}

impl Gpu {
    /// Opens the GPU that the user named. Finds out how the device can register its memory, either with the method that
    /// the user gave or with the first one that works.
    pub(in crate::endpoint::verbs::memory) fn open(
        pd: &Arc<ProtectionDomain>,
        name: &str,
        asked_way: Option<GpuRegistration>,
    ) -> Result<Self> {
        let asked = name.parse::<GpuName>().with_context(|| format!("--use-cuda {name}"))?;
        let absent = |absent: &Absent| anyhow!("--use-cuda {name}: {absent}: {}", absent.remedy());
        let driver = Driver::get().map_err(|error| absent(&error))?;
        let count = Card::count(driver).with_context(|| format!("--use-cuda {name}"))?;
        if count == 0 {
            return Err(absent(&Absent::Gpu));
        }
        let (card, fact) = find(driver, count, asked).with_context(|| format!("--use-cuda {name}"))?;
        let context = CardContext::new(card).with_context(|| format!("--use-cuda {name}"))?;
        let way = Way::find(pd, &context, asked_way.map(Way::from)).map_err(|refusal| refused(&fact, pd, &refusal))?;
        Ok(Self { context, fact, registration: way.registration() })
    }

    pub(super) fn fact(&self) -> &GpuInfo {
        &self.fact
    }

    pub(super) fn registration(&self) -> Registration {
        self.registration
    }

    /// Allocates GPU memory and registers it.
    pub(super) fn region(&self, pd: &Arc<ProtectionDomain>, bytes: usize, access: AccessFlags) -> Result<GpuRegion> {
        GpuRegion::new(pd, &self.context, bytes, access, self.registration.into())
            .with_context(|| format!("{bytes} bytes for messages in the memory of {}", self.fact))
    }
}

/// Finds the requested GPU among `count` GPUs.
fn find(driver: &'static Driver, count: u32, asked: GpuName) -> Result<(Card, GpuInfo)> {
    let mut found = Vec::new();
    for index in 0..count {
        let card = Card::new(driver, index)?;
        let address = card.address()?;
        let is_it = match asked {
            GpuName::Index(asked) => asked == index,
            GpuName::Address(asked) => asked == address,
        };
        if is_it {
            return Ok((card, list::fact(index, &card)?));
        }
        found.push(format!("{index} ({address})"));
    }
    Err(anyhow!("no such GPU; choose from {} (`stride-perf devices` lists them)", found.join(", ")))
}

/// Returns the error if a device cannot register GPU memory, with remedies.
fn refused(gpu: &GpuInfo, pd: &ProtectionDomain, Refusal { by_dma_buf, by_address }: &Refusal) -> Error {
    let by_dma_buf = by_dma_buf.as_ref().map(|error| {
        format!("as a DMA buffer: {error:#}; requires Linux 5.12, CUDA 11.7 and NVIDIA's open kernel modules")
    });
    let by_address = by_address.as_ref().map(|error| {
        format!("by address: {error:#}; requires the kernel module nvidia_peermem (`modprobe nvidia_peermem`)")
    });
    let other = match (&by_dma_buf, &by_address) {
        (Some(_), Some(_)) => None,
        _ => Some("leave out --gpu-registration to try the other method".to_owned()),
    };
    let parts: Vec<String> = [by_dma_buf, by_address, other].into_iter().flatten().collect();
    anyhow!("{} cannot register memory of {gpu}: {}", pd.device_context().name(), parts.join("; "))
}
