//! A queue pair that changes the counter.

use anyhow::{Result, bail};
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::completion::{GenericCompletionQueue, WorkCompletionStatus as Status};
use sideway::ibverbs::device_context::Mtu;
use sideway::ibverbs::memory_region::OwnedMemoryRegion;
use sideway::ibverbs::queue_pair::{GenericQueuePair, PostSendGuard, QueuePair};
use sideway::ibverbs::work_request::WorkRequestFlags;
use sideway_examples::exchange::Address;
use sideway_examples::{LocalPort, Timeout, wait_for_one};

use super::message::Counter;

const WR_ID: u64 = 1;
const LENGTH: u32 = size_of::<u64>() as u32;

/// A queue pair with all that it needs, so that a thread can have it for itself.
#[derive(Debug)]
pub(crate) struct Worker {
    qp: GenericQueuePair,
    cq: GenericCompletionQueue,
    // Dropped behind the queue pair, whose requests name it: where the device puts what the counter was before.
    found: OwnedMemoryRegion,
    local: Address,
    timeout: Timeout,
}

impl Worker {
    /// A queue pair in INIT.
    pub(crate) fn new(port: &LocalPort, timeout: Timeout) -> Result<Self> {
        let pd = port.context().alloc_pd()?;
        let found = pd.reg_owned_mr(LENGTH as usize, AccessFlags::LocalWrite)?;
        let cq = port.context().create_cq_builder().setup_cqe(1).build_generic()?;
        let mut builder = pd.create_qp_builder();
        builder.setup_max_send_wr(1).setup_max_recv_wr(1).setup_send_cq(&cq).setup_recv_cq(&cq);
        let qp = builder.build_generic()?;
        // The peer gets no right to anything here.
        qp.modify(port.to_init().setup_access_flags(AccessFlags::empty()))?;
        let local = port.address(qp.qp_number());
        Ok(Self { qp, cq, found, local, timeout })
    }

    /// Where it is.
    pub(crate) fn address(&self) -> Address {
        self.local
    }

    /// Connects it with one that reaches the counter.
    pub(crate) fn connect(&self, port: &LocalPort, mtu: Mtu, remote: &Address) -> Result<()> {
        port.connect(&self.qp, mtu, &self.local, remote)
    }

    /// Adds to the counter; returns what it was before.
    pub(crate) fn fetch_add(&mut self, counter: Counter, add: u64) -> Result<u64> {
        let mut batch = self.qp.start_post_send();
        let request = batch.construct_wr(WR_ID, WorkRequestFlags::Signaled);
        let request = request.setup_atomic_fetch_add(counter.rkey, counter.addr, add);
        // SAFETY: the memory is registered, has LENGTH bytes and is dropped behind the queue pair. It is read only by `wait`,
        // when the completion has come, and there is one request at a time: after a failed one the program ends.
        unsafe { request.setup_sge(self.found.lkey(), self.found.addr(), LENGTH) };
        batch.post()?;
        self.wait()
    }

    /// Makes the counter `swap` if it is `compare`; returns what it was before, which is `compare` when that has worked.
    pub(crate) fn compare_swap(&mut self, counter: Counter, compare: u64, swap: u64) -> Result<u64> {
        let mut batch = self.qp.start_post_send();
        let request = batch.construct_wr(WR_ID, WorkRequestFlags::Signaled);
        let request = request.setup_atomic_compare_swap(counter.rkey, counter.addr, compare, swap);
        // SAFETY: as in `fetch_add`.
        unsafe { request.setup_sge(self.found.lkey(), self.found.addr(), LENGTH) };
        batch.post()?;
        self.wait()
    }

    /// Waits until the request has completed; returns what the counter was before.
    fn wait(&mut self) -> Result<u64> {
        match wait_for_one(&mut self.cq, self.timeout, |completion| completion.status())? {
            Status::Success => {}
            status => bail!("changing the counter failed: {status}{}", advice(status)),
        }
        let mut bytes = [0; LENGTH as usize];
        self.found.read_at(0, &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }
}

/// What a user can do about it.
#[cold]
fn advice(status: Status) -> &'static str {
    match status {
        Status::RetryExceededError => {
            ": the server does not answer; it has ended, or is not reached from this GID (-g)"
        }
        Status::RemoteInvalidRequestError => ": does the server's device have atomic operations?",
        _ => "",
    }
}
