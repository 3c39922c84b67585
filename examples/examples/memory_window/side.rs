//! What both sides have: a queue pair, and memory for what they receive and read.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::completion::{GenericCompletionQueue, WorkCompletionFlags, WorkCompletionStatus as Status};
use sideway::ibverbs::device_context::Mtu;
use sideway::ibverbs::memory_region::{OwnedMemoryRegion, RemoteKey};
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{
    GenericQueuePair, PostSendGuard, QueuePair, SendOperationFlags as Operations, SetScatterGatherEntry,
};
use sideway::ibverbs::work_request::WorkRequestFlags;
use sideway_examples::exchange::Address;
use sideway_examples::{LocalPort, Timeout, wait_for_one};

/// The longest message, and the most that is read or written at a time.
pub(crate) const MOST: u32 = 64;

/// Every port sends packets of that size, and the messages here are shorter.
const MTU: Mtu = Mtu::Mtu256;

/// A queue pair with all that it needs.
#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) qp: GenericQueuePair,
    cq: GenericCompletionQueue,
    // Dropped behind the queue pair, whose requests name it.
    memory: OwnedMemoryRegion,
    local: Address,
    timeout: Timeout,
}

/// A request that has completed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) status: Status,
    /// Bytes of the message that came.
    pub(crate) length: u32,
    /// The key that it has invalidated.
    pub(crate) invalidated: Option<RemoteKey>,
}

impl Side {
    /// A queue pair in INIT, over which peers may have `access` to what they have keys for.
    pub(crate) fn new(
        port: &LocalPort,
        pd: &Arc<ProtectionDomain>,
        timeout: Timeout,
        access: AccessFlags,
    ) -> Result<Self> {
        let memory = pd.reg_owned_mr(MOST as usize, AccessFlags::LocalWrite)?;
        let cq = port.context().create_cq_builder().setup_cqe(2).build_generic()?;
        let mut builder = pd.create_qp_builder();
        builder.setup_max_send_wr(1).setup_max_recv_wr(1).setup_max_inline_data(MOST);
        builder.setup_send_cq(&cq).setup_recv_cq(&cq);
        // What an extended queue pair cannot do unless it was asked for.
        builder.setup_send_ops_flags(
            Operations::Send
                | Operations::Read
                | Operations::Write
                | Operations::BindMemoryWindow
                | Operations::LocalInvalidate
                | Operations::SendWithInvalidate,
        );
        let qp = builder.build_generic()?;
        qp.modify(port.to_init().setup_access_flags(access))?;
        let local = port.address(qp.qp_number());
        Ok(Self { qp, cq, memory, local, timeout })
    }

    /// Connects the two with each other.
    pub(crate) fn connect(&self, port: &LocalPort, other: &Self) -> Result<()> {
        port.connect(&self.qp, MTU, &self.local, &other.local)?;
        port.connect(&other.qp, MTU, &other.local, &self.local)
    }

    /// Posts a receive for the next message.
    pub(crate) fn post_receive(&mut self) -> Result<()> {
        let mut batch = self.qp.start_post_recv();
        give(&self.memory, batch.construct_wr(1));
        Ok(batch.post()?)
    }

    /// Posts a read of what the other side has at `addr`.
    pub(crate) fn post_read(&mut self, rkey: RemoteKey, addr: u64) -> Result<()> {
        let mut batch = self.qp.start_post_send();
        give(&self.memory, batch.construct_wr(1, WorkRequestFlags::Signaled).setup_read(rkey, addr));
        Ok(batch.post()?)
    }

    /// What has come: the first so many bytes.
    pub(crate) fn found(&self, length: u32) -> Result<Vec<u8>> {
        let mut bytes = vec![0; length as usize];
        self.memory.read_at(0, &mut bytes)?;
        Ok(bytes)
    }

    /// Waits for the one request that is outstanding.
    pub(crate) fn wait(&mut self) -> Result<Done> {
        wait_for_one(&mut self.cq, self.timeout, |completion| {
            let status = completion.status();
            // After a failure the rest means nothing.
            if status != Status::Success {
                return Done { status, length: 0, invalidated: None };
            }
            let is_invalidation = completion.wc_flags().contains(WorkCompletionFlags::WithInvalidate);
            let invalidated = is_invalidation.then(|| completion.invalidated_rkey());
            Done { status, length: completion.byte_len(), invalidated }
        })
    }

    /// The same of one that is to succeed.
    pub(crate) fn expect(&mut self, what: &str) -> Result<Done> {
        let done = self.wait().context(what.to_owned())?;
        match done.status {
            Status::Success => Ok(done),
            status => bail!("{what} failed: {status}"),
        }
    }
}

/// Has the device put what comes into the memory of a [`Side`].
fn give(memory: &OwnedMemoryRegion, request: impl SetScatterGatherEntry) {
    // SAFETY: the memory is registered, has MOST bytes and is dropped behind the queue pair. It is read only by `found`, when the
    // completion has come, and one request at a time names it: after a failed one the connection is not used.
    unsafe { request.setup_sge(memory.lkey(), memory.addr(), MOST) }
}
