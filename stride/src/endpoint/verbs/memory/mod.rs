//! Where messages lie. What goes out and what comes in are regions of their own: the first lets no peer in.

mod gpu;
mod on_demand;
#[cfg(test)]
mod tests;

use anyhow::{Context, Result, bail};
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::memory_region::{HugePageSize, HugePages, LocalKey, OwnedMemoryRegion, RemoteKey};
use sideway::ibverbs::protection_domain::ProtectionDomain;
use std::sync::Arc;

use self::gpu::{Gpu, GpuRegion};
pub use self::gpu::{Gpus, NearGpus, Nearness};
pub(super) use self::gpu::{gpus, near};
pub(super) use self::on_demand::operations as on_demand;
use crate::endpoint::PortInfo;
use crate::plan::{Memory, Operation, Plan, SideConfig};

/// What the memory of a side is of.
#[derive(Debug)]
pub(super) enum Source {
    Host(HugePages),
    Gpu(Gpu),
}

impl Source {
    /// What a place names, for a test.
    pub(super) fn open(pd: &Arc<ProtectionDomain>, plan: &Plan, place: &SideConfig) -> Result<Self> {
        if plan.placement.is_on_demand {
            on_demand::check(pd.device_context(), plan)?;
        }
        Self::find(pd, place)
    }

    /// What a place names: a GPU is looked for, and the way to register its memory.
    pub(super) fn find(pd: &Arc<ProtectionDomain>, place: &SideConfig) -> Result<Self> {
        let memory = place.memory.as_ref().unwrap_or(&Memory::Host);
        if let (None, Some(way)) = (memory.cuda(), place.gpu_registration) {
            bail!("--gpu-registration {way} requires GPU memory; give --use-cuda as well");
        }
        Ok(match memory {
            Memory::Host => Self::Host(HugePages::System),
            Memory::HugePages => Self::Host(HugePages::Reserved(HugePageSize::MIB_2)),
            Memory::Cuda(name) => Self::Gpu(Gpu::open(pd, name, place.gpu_registration)?),
        })
    }

    /// Says of a side what there is to say of its memory.
    pub(super) fn describe(&self, facts: &mut PortInfo) {
        if let Self::Gpu(gpu) = self {
            (facts.gpu, facts.registration) = (Some(gpu.fact().clone()), Some(gpu.registration()));
        }
    }

    /// Whether the processor can look at it.
    pub(super) fn is_host(&self) -> bool {
        matches!(self, Self::Host(_))
    }

    fn area(&self, pd: &Arc<ProtectionDomain>, bytes: usize, access: AccessFlags) -> Result<Area> {
        let pages = match self {
            Self::Host(pages) => *pages,
            Self::Gpu(gpu) => return Ok(Area::Gpu(gpu.region(pd, bytes, access)?)),
        };
        let region =
            |pages| pd.create_mr_builder().setup_length(bytes).setup_access(access).setup_huge_pages(pages).build();
        let region = match region(pages) {
            Err(error) if matches!(pages, HugePages::Reserved(_)) => {
                log::warn!("--huge-pages: {error}; using transparent huge pages if the kernel grants them");
                region(HugePages::Transparent)
            }
            region => region,
        };
        Ok(Area::Host(region.with_context(|| format!("{bytes} bytes for messages"))?))
    }
}

/// A region, with the memory that it is of.
#[derive(Debug)]
pub(super) enum Area {
    Host(OwnedMemoryRegion),
    Gpu(GpuRegion),
}

impl Area {
    /// The first byte, as requests name it.
    pub(super) fn start(&self) -> u64 {
        match self {
            Self::Host(region) => region.addr(),
            Self::Gpu(region) => region.start(),
        }
    }

    pub(super) fn lkey(&self) -> LocalKey {
        match self {
            Self::Host(region) => region.lkey(),
            Self::Gpu(region) => region.lkey(),
        }
    }

    pub(super) fn rkey(&self) -> RemoteKey {
        match self {
            Self::Host(region) => region.rkey(),
            Self::Gpu(region) => region.rkey(),
        }
    }

    pub(super) fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        match self {
            Self::Host(region) => Ok(region.read_at(usize::try_from(offset)?, bytes)?),
            Self::Gpu(region) => region.read_at(offset, bytes),
        }
    }

    pub(super) fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        match self {
            Self::Host(region) => Ok(region.write_at(usize::try_from(offset)?, bytes)?),
            Self::Gpu(region) => region.write_at(offset, bytes),
        }
    }
}

/// The memory of a thread: for each of its queue pairs, a place of as many bytes for messages either way.
#[derive(Debug)]
pub(super) struct Areas {
    /// One for all queue pairs, or one for each.
    pairs: Vec<Pair>,
    is_shared: bool,
    /// Bytes of a place.
    pub(super) room: u64,
}

/// Two regions.
#[derive(Debug)]
pub(super) struct Pair {
    /// What messages go out from, and what is fetched comes to. Requests of this side alone reach it, so that it may be read as a slice
    /// where it is the host's.
    pub(super) outgoing: Area,
    /// What a peer writes, reads or changes, and what is received.
    pub(super) incoming: Area,
}

impl Areas {
    pub(super) fn new(
        pd: &Arc<ProtectionDomain>,
        plan: &Plan,
        source: &Source,
        room: u64,
        queue_pairs: u32,
    ) -> Result<Self> {
        let (regions, places) = if plan.placement.has_own_regions { (queue_pairs, 1) } else { (1, queue_pairs) };
        let bytes = usize::try_from(room * u64::from(places))
            .context("the buffers of all messages exceed the address space")?;
        let common = common(plan);
        let area = |access| source.area(pd, bytes, access);
        let pair = |_| Ok(Pair { outgoing: area(common)?, incoming: area(common | rights(plan.workload.operation))? });
        let pairs = (0..regions).map(pair).collect::<Result<_>>();
        let pairs = if plan.placement.has_own_regions { pairs.context("--mr-per-qp")? } else { pairs? };
        Ok(Self { pairs, is_shared: !plan.placement.has_own_regions, room })
    }

    /// Whether the processor can look at it.
    pub(super) fn is_host(&self) -> bool {
        self.pairs.iter().all(|pair| matches!((&pair.outgoing, &pair.incoming), (Area::Host(_), Area::Host(_))))
    }

    fn index(&self, lane: usize) -> usize {
        if self.is_shared { 0 } else { lane }
    }

    /// The regions of a queue pair.
    pub(super) fn of(&self, lane: usize) -> &Pair {
        &self.pairs[self.index(lane)]
    }

    /// The same, to be written.
    pub(super) fn of_mut(&mut self, lane: usize) -> &mut Pair {
        let index = self.index(lane);
        &mut self.pairs[index]
    }

    /// How far from the start of its regions the places of a queue pair are.
    pub(super) fn offset(&self, lane: usize) -> u64 {
        if self.is_shared { self.room * lane as u64 } else { 0 }
    }

    /// Where the messages of a queue pair go out from, and where those of the other side come in.
    pub(super) fn places(&self, lane: usize) -> (u64, u64) {
        let (pair, offset) = (self.of(lane), self.offset(lane));
        (pair.outgoing.start() + offset, pair.incoming.start() + offset)
    }
}

/// What the device may do with all of it.
fn common(plan: &Plan) -> AccessFlags {
    // Who looks at memory for a message needs its last byte to come last, and who looks at what swaps have returned at a place needs the last
    // of them to come last.
    let needs_order =
        plan.polls_memory() || plan.workload.is_validated && plan.workload.operation == Operation::CompareSwap;
    let mut access = AccessFlags::LocalWrite;
    access.set(AccessFlags::RelaxedOrdering, plan.placement.is_relaxed && !needs_order);
    access.set(AccessFlags::OnDemand, plan.placement.is_on_demand);
    access
}

/// What a peer may do with what comes in.
fn rights(operation: Operation) -> AccessFlags {
    match operation {
        Operation::Write | Operation::WriteWithImmediate => AccessFlags::RemoteWrite,
        Operation::Read => AccessFlags::RemoteRead,
        Operation::FetchAdd | Operation::CompareSwap => AccessFlags::RemoteAtomic,
        Operation::Send | Operation::SendWithImmediate => AccessFlags::empty(),
    }
}
