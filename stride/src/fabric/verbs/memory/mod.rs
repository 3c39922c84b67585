//! Where messages lie. What goes out and what comes in are regions of their own: the first lets no peer in.

#[cfg(test)]
mod tests;

use anyhow::{Context, Result};
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::memory_region::{HugePages, LocalKey, OwnedMemoryRegion, RemoteKey};
use sideway::ibverbs::protection_domain::ProtectionDomain;
use std::sync::Arc;

use crate::plan::{Memory, Operation, Plan};

/// A region, with the memory that it is of.
#[derive(Debug)]
pub(super) struct Area(OwnedMemoryRegion);

impl Area {
    fn new(pd: &Arc<ProtectionDomain>, memory: &Memory, bytes: usize, access: AccessFlags) -> Result<Self> {
        let pages = if *memory == Memory::HugePages { HugePages::Transparent } else { HugePages::System };
        let region = pd.create_mr_builder().setup_length(bytes).setup_access(access).setup_huge_pages(pages).build();
        Ok(Self(region.with_context(|| format!("{bytes} bytes for messages"))?))
    }

    /// The first byte, as requests name it.
    pub(super) fn start(&self) -> u64 {
        self.0.addr()
    }

    pub(super) fn lkey(&self) -> LocalKey {
        self.0.lkey()
    }

    pub(super) fn rkey(&self) -> RemoteKey {
        self.0.rkey()
    }

    pub(super) fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        Ok(self.0.read_at(usize::try_from(offset)?, bytes)?)
    }

    pub(super) fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        Ok(self.0.write_at(usize::try_from(offset)?, bytes)?)
    }
}

/// The memory of a thread: for each of its queue pairs, a place of as many bytes in both areas.
#[derive(Debug)]
pub(super) struct Areas {
    /// What messages go out from, and what is fetched comes to. Requests of this side alone reach it, so that it may be read as a slice.
    pub(super) outgoing: Area,
    /// What a peer writes, reads or changes, and what is received.
    pub(super) incoming: Area,
    /// Bytes of a place.
    pub(super) room: u64,
}

impl Areas {
    pub(super) fn new(
        pd: &Arc<ProtectionDomain>,
        plan: &Plan,
        memory: &Memory,
        room: u64,
        queue_pairs: u32,
    ) -> Result<Self> {
        let bytes =
            usize::try_from(room * u64::from(queue_pairs)).context("the memory of all messages is too large")?;
        let common = if plan.is_relaxed && !plan.polls_memory() {
            AccessFlags::LocalWrite | AccessFlags::RelaxedOrdering
        } else {
            // Who looks at memory for a message needs its last byte to come last.
            AccessFlags::LocalWrite
        };
        let area = |access| Area::new(pd, memory, bytes, access);
        Ok(Self { outgoing: area(common)?, incoming: area(common | rights(plan.operation))?, room })
    }

    /// How far from the start of its areas the places of a queue pair are.
    pub(super) fn offset(&self, lane: usize) -> u64 {
        self.room * lane as u64
    }

    /// Where the messages of a queue pair go out from, and where those of the other side come in.
    pub(super) fn places(&self, lane: usize) -> (u64, u64) {
        let offset = self.offset(lane);
        (self.outgoing.start() + offset, self.incoming.start() + offset)
    }
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
