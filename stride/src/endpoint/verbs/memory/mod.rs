//! The memory of messages. Outgoing and incoming messages have separate regions, and peers cannot access the outgoing
//! ones.

mod gpu;
mod on_demand;
#[cfg(test)]
mod tests;

use anyhow::{Context, Result, bail};
use sideway::error::VerbError;
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::memory_region::{HugePageSize, HugePages, LocalKey, OwnedMemoryRegion, RemoteKey};
use sideway::ibverbs::protection_domain::ProtectionDomain;
use std::sync::{Arc, Once};

use self::gpu::{Gpu, GpuRegion};
pub use self::gpu::{Gpus, NearGpus, Nearness};
pub(super) use self::gpu::{gpus, near};
pub(super) use self::on_demand::operations as on_demand;
use crate::endpoint::PortInfo;
use crate::plan::{Memory, Operation, Plan, SideConfig};

/// The kind of memory that a side uses.
#[derive(Debug)]
pub(super) enum Source {
    Host(HugePages),
    Gpu(Gpu),
}

impl Source {
    /// Returns the kind of memory that `config` names. If the plan uses on-demand paging, first checks that the device
    /// supports it.
    pub(super) fn open(pd: &Arc<ProtectionDomain>, plan: &Plan, config: &SideConfig) -> Result<Self> {
        if plan.placement.is_on_demand {
            on_demand::check(pd.device_context(), plan)?;
        }
        Self::find(pd, config)
    }

    /// Returns the kind of memory that `config` names. For GPU memory, opens the GPU and finds out how its memory can be
    /// registered.
    pub(super) fn find(pd: &Arc<ProtectionDomain>, config: &SideConfig) -> Result<Self> {
        let memory = config.memory.as_ref().unwrap_or(&Memory::Host);
        if let (None, Some(way)) = (memory.cuda(), config.gpu_registration) {
            bail!("--gpu-registration {way} requires GPU memory; give --use-cuda as well");
        }
        Ok(match memory {
            Memory::Host => Self::Host(HugePages::System),
            Memory::HugePages => Self::Host(HugePages::Reserved(HugePageSize::MIB_2)),
            Memory::Cuda(name) => Self::Gpu(Gpu::open(pd, name, config.gpu_registration)?),
        })
    }

    /// Adds a description of the memory to `port_info`.
    pub(super) fn describe(&self, port_info: &mut PortInfo) {
        if let Self::Gpu(gpu) = self {
            (port_info.gpu, port_info.registration) = (Some(gpu.fact().clone()), Some(gpu.registration()));
        }
    }

    /// Whether the processor can access the memory.
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
                warn_about_huge_pages(bytes, &error);
                region(HugePages::Transparent)
            }
            region => region,
        };
        Ok(Area::Host(region.with_context(|| format!("{bytes} bytes for messages"))?))
    }
}

/// Logs a warning that no reserved huge pages are available. The warning is logged only once, because the cause is the
/// same for both sides and all of their regions.
#[cold]
fn warn_about_huge_pages(bytes: usize, error: &VerbError) {
    static WARNED: Once = Once::new();
    WARNED.call_once(|| {
        log::warn!(
            "--huge-pages: cannot reserve {} pages of 2 MiB: {}; using transparent huge pages if the kernel grants them; \
             reserve pages as root in /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
            bytes.div_ceil(HugePageSize::MIB_2.bytes()),
            error.errno()
        );
    });
}

/// A memory region together with the memory that it registers.
#[derive(Debug)]
pub(super) enum Area {
    Host(OwnedMemoryRegion),
    Gpu(GpuRegion),
}

impl Area {
    /// Returns the address that requests contain.
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

/// The memory of a thread. Each queue pair has one slot per direction, and all slots have the same size.
#[derive(Debug)]
pub(super) struct Areas {
    /// One pair of regions for all queue pairs, or one pair for each.
    pairs: Vec<Pair>,
    is_shared: bool,
    /// Number of bytes per queue pair and direction.
    pub(super) slot_size: u64,
}

/// A pair of regions, one per direction.
#[derive(Debug)]
pub(super) struct Pair {
    /// Contains outgoing messages, and the data that reads and atomics return. Only requests of this side access it, so
    /// host memory may be borrowed as a slice.
    pub(super) outgoing: Area,
    /// Contains memory that a peer reads, writes or changes, and that receives use.
    pub(super) incoming: Area,
}

impl Areas {
    pub(super) fn new(
        pd: &Arc<ProtectionDomain>,
        plan: &Plan,
        source: &Source,
        slot_size: u64,
        queue_pairs: u32,
    ) -> Result<Self> {
        let (regions, places) = if plan.placement.has_own_regions { (queue_pairs, 1) } else { (1, queue_pairs) };
        let bytes = usize::try_from(slot_size * u64::from(places))
            .context("the buffers of all messages exceed the address space")?;
        let common = common(plan);
        let area = |access| source.area(pd, bytes, access);
        let pair = |_| Ok(Pair { outgoing: area(common)?, incoming: area(common | rights(plan.workload.operation))? });
        let pairs = (0..regions).map(pair).collect::<Result<_>>();
        let pairs = if plan.placement.has_own_regions { pairs.context("--mr-per-qp")? } else { pairs? };
        Ok(Self { pairs, is_shared: !plan.placement.has_own_regions, slot_size })
    }

    /// Whether the processor can access the memory.
    pub(super) fn is_host(&self) -> bool {
        self.pairs.iter().all(|pair| matches!((&pair.outgoing, &pair.incoming), (Area::Host(_), Area::Host(_))))
    }

    fn index(&self, qp: usize) -> usize {
        if self.is_shared { 0 } else { qp }
    }

    /// Returns the regions that contain the slots of a queue pair.
    pub(super) fn of(&self, qp: usize) -> &Pair {
        &self.pairs[self.index(qp)]
    }

    /// Returns the same regions mutably.
    pub(super) fn of_mut(&mut self, qp: usize) -> &mut Pair {
        let index = self.index(qp);
        &mut self.pairs[index]
    }

    /// Returns the offset of a queue pair's slots in its regions.
    pub(super) fn offset(&self, qp: usize) -> u64 {
        if self.is_shared { self.slot_size * qp as u64 } else { 0 }
    }

    /// Returns the addresses of a queue pair's outgoing and incoming messages.
    pub(super) fn places(&self, qp: usize) -> (u64, u64) {
        let (pair, offset) = (self.of(qp), self.offset(qp));
        (pair.outgoing.start() + offset, pair.incoming.start() + offset)
    }
}

/// Returns the access flags that both regions of a pair have.
fn common(plan: &Plan) -> AccessFlags {
    // If a side polls the memory of a message, the device must write the last byte last. To check the results of
    // compare-and-swaps, the device must write the last value of a slot last.
    let needs_order =
        plan.polls_memory() || plan.workload.is_validated && plan.workload.operation == Operation::CompareSwap;
    let mut access = AccessFlags::LocalWrite;
    access.set(AccessFlags::RelaxedOrdering, plan.placement.is_relaxed && !needs_order);
    access.set(AccessFlags::OnDemand, plan.placement.is_on_demand);
    access
}

/// Returns the rights that a peer needs for the incoming memory.
fn rights(operation: Operation) -> AccessFlags {
    match operation {
        Operation::Write | Operation::WriteWithImmediate => AccessFlags::RemoteWrite,
        Operation::Read => AccessFlags::RemoteRead,
        Operation::FetchAdd | Operation::CompareSwap => AccessFlags::RemoteAtomic,
        Operation::Send | Operation::SendWithImmediate | Operation::Message => AccessFlags::empty(),
    }
}
