//! Registered GPU memory, and the two methods by which it can be registered.

use std::os::fd::AsFd;
use std::sync::Arc;

use anyhow::{Context, Error, Result};
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::memory_region::{LocalKey, MemoryRegion, RemoteKey};
use sideway::ibverbs::protection_domain::ProtectionDomain;

use super::card::{Allocation, CardContext};
use crate::endpoint::Registration;
use crate::plan::GpuRegistration;

/// How GPU memory is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// The memory is registered as a DMA buffer, which drivers of all vendors can support.
    DmaBuf,
    /// The memory is registered by address. NVIDIA's kernel module gives NIC drivers access to the memory; softrnic
    /// copies the data through the CUDA driver.
    Address,
}

/// The errors of those methods that were tried.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) by_dma_buf: Option<Error>,
    pub(super) by_address: Option<Error>,
}

impl Way {
    /// Returns the method that the user gave, or else the first method that works for a small region.
    pub(super) fn find(
        pd: &Arc<ProtectionDomain>,
        context: &Arc<CardContext>,
        asked: Option<Self>,
    ) -> Result<Self, Refusal> {
        let attempt = |way| {
            let access = AccessFlags::LocalWrite | AccessFlags::RemoteWrite;
            GpuRegion::new(pd, context, 1, access, way).map(drop)
        };
        match asked {
            Some(way) => Self::only(way, attempt),
            None => Self::first(attempt),
        }
    }

    pub(super) fn only(way: Self, attempt: impl Fn(Self) -> Result<()>) -> Result<Self, Refusal> {
        attempt(way).map(|()| way).map_err(|error| match way {
            Self::DmaBuf => Refusal { by_dma_buf: Some(error), by_address: None },
            Self::Address => Refusal { by_dma_buf: None, by_address: Some(error) },
        })
    }

    pub(super) fn first(attempt: impl Fn(Self) -> Result<()>) -> Result<Self, Refusal> {
        let Err(by_dma_buf) = attempt(Self::DmaBuf) else { return Ok(Self::DmaBuf) };
        log::info!("cannot register as a DMA buffer: {by_dma_buf:#}");
        let Err(by_address) = attempt(Self::Address) else { return Ok(Self::Address) };
        Err(Refusal { by_dma_buf: Some(by_dma_buf), by_address: Some(by_address) })
    }

    pub(super) fn registration(self) -> Registration {
        match self {
            Self::DmaBuf => Registration::DmaBuf,
            Self::Address => Registration::PeerMemory,
        }
    }
}

impl From<GpuRegistration> for Way {
    fn from(asked: GpuRegistration) -> Self {
        match asked {
            GpuRegistration::DmaBuf => Self::DmaBuf,
            GpuRegistration::Address => Self::Address,
        }
    }
}

impl From<Registration> for Way {
    fn from(registration: Registration) -> Self {
        match registration {
            Registration::DmaBuf => Self::DmaBuf,
            Registration::PeerMemory => Self::Address,
        }
    }
}

/// A memory region in GPU memory, together with that memory.
#[derive(Debug)]
pub(in crate::endpoint::verbs) struct GpuRegion {
    /// The memory region, which is `Some` until drop.
    region: Option<Arc<MemoryRegion>>,
    memory: Option<Allocation>,
    start: u64,
    lkey: LocalKey,
    rkey: RemoteKey,
}

impl GpuRegion {
    pub(super) fn new(
        pd: &Arc<ProtectionDomain>,
        context: &Arc<CardContext>,
        bytes: usize,
        access: AccessFlags,
        way: Way,
    ) -> Result<Self> {
        let memory = Allocation::new(context, bytes)?;
        let (start, bytes) = (memory.start(), memory.bytes());
        let region = match way {
            Way::DmaBuf => {
                let file = memory.dma_buf()?;
                // SAFETY: the memory outlives the region: `drop` ends the region first. The processor never accesses
                // it, so writes of a peer break no guarantee of Rust.
                unsafe { pd.reg_dmabuf_mr(0, bytes, start, file.as_fd(), access) }?
            }
            Way::Address => {
                let address = usize::try_from(start)?;
                // SAFETY: the memory outlives the region, and the processor never accesses it, as in the other branch.
                unsafe { pd.reg_mr(address, bytes, access) }?
            }
        };
        Ok(Self { start, lkey: region.lkey(), rkey: region.rkey(), region: Some(region), memory: Some(memory) })
    }

    /// Returns the address that requests contain.
    pub(in crate::endpoint::verbs) fn start(&self) -> u64 {
        self.start
    }

    pub(in crate::endpoint::verbs) fn lkey(&self) -> LocalKey {
        self.lkey
    }

    pub(in crate::endpoint::verbs) fn rkey(&self) -> RemoteKey {
        self.rkey
    }

    pub(in crate::endpoint::verbs) fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.memory.as_ref().context("the memory is there")?.read_at(offset, bytes)
    }

    pub(in crate::endpoint::verbs) fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.memory.as_mut().context("the memory is there")?.write_at(offset, bytes)
    }
}

impl Drop for GpuRegion {
    fn drop(&mut self) {
        let region = self.region.take().and_then(Arc::into_inner);
        let ended = region.map(MemoryRegion::close);
        if let Some(Ok(())) = ended {
            return;
        }
        // The memory is not freed, because the device may still access it.
        log::warn!("GPU memory stays allocated because it could not be deregistered: {ended:?}");
        std::mem::forget(self.memory.take());
    }
}
