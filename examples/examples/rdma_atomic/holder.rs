//! The side that has the counter in its memory.

use anyhow::{Result, ensure};
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::device_context::Mtu;
use sideway::ibverbs::memory_region::OwnedMemoryRegion;
use sideway::ibverbs::queue_pair::{BasicQueuePair, QueuePair};
use sideway_examples::LocalPort;
use sideway_examples::exchange::Address;

use super::message::Counter;

/// A counter, and queue pairs by which peers reach it.
#[derive(Debug)]
pub(crate) struct Holder {
    // Dropped before the memory: a peer reaches it through them.
    ends: Vec<(BasicQueuePair, Address)>,
    memory: OwnedMemoryRegion,
}

impl Holder {
    /// A counter that is 0, and this many queue pairs, in INIT.
    pub(crate) fn new(port: &LocalPort, count: u16) -> Result<Self> {
        let pd = port.context().alloc_pd()?;
        let access = AccessFlags::LocalWrite | AccessFlags::RemoteAtomic;
        // A page of its own begins at a multiple of 8, as atomic operations need.
        let memory = pd.reg_owned_mr(size_of::<u64>(), access)?;
        // Nothing is posted here, and nothing completes: the device answers by itself.
        let cq = port.context().create_cq_builder().setup_cqe(1).build()?;
        let mut builder = pd.create_qp_builder();
        builder.setup_max_send_wr(1).setup_max_recv_wr(1).setup_send_cq(&cq).setup_recv_cq(&cq);
        let ends = (0..count).map(|_| {
            let qp = builder.build()?;
            qp.modify(port.to_init().setup_access_flags(AccessFlags::RemoteAtomic))?;
            let address = port.address(qp.qp_number());
            Ok((qp, address))
        });
        Ok(Self { ends: ends.collect::<Result<_>>()?, memory })
    }

    /// Where its queue pairs are.
    pub(crate) fn addresses(&self) -> Vec<Address> {
        self.ends.iter().map(|(_, address)| *address).collect()
    }

    /// Connects each with one of the peer's.
    pub(crate) fn connect(&self, port: &LocalPort, mtu: Mtu, remotes: &[Address]) -> Result<()> {
        ensure!(remotes.len() == self.ends.len(), "each queue pair has one peer");
        self.ends.iter().zip(remotes).try_for_each(|((qp, local), remote)| port.connect(qp, mtu, local, remote))
    }

    /// By what a peer names the counter.
    pub(crate) fn counter(&self) -> Counter {
        Counter { addr: self.memory.addr(), rkey: self.memory.rkey() }
    }

    /// What it holds. The peer is to be done: whether a processor sees whole steps of a device is the device's affair.
    pub(crate) fn value(&self) -> Result<u64> {
        let mut bytes = [0; size_of::<u64>()];
        self.memory.read_at(0, &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }
}
