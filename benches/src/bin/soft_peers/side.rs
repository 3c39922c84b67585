//! One side of a connection: a queue pair with its completion queue and memory.

use std::env;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::completion::{BasicCompletionQueue, WorkCompletionStatus};
use sideway::ibverbs::memory_region::{OwnedMemoryRegion, RemoteKey};
use sideway::ibverbs::queue_pair::{BasicQueuePair, PostSendGuard, QueuePair};
use sideway::ibverbs::work_request::WorkRequestFlags;
use sideway_tests::{device, loopback};

/// Bytes of memory.
const MEMORY: usize = 4 << 20;
/// The maximum of requests in flight.
pub(crate) const DEPTH: u32 = 32;
/// The time limit of a wait for completions.
const TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) struct Side {
    qp: BasicQueuePair,
    cq: BasicCompletionQueue,
    memory: OwnedMemoryRegion,
}

/// The queue pair number, key and address that the peer requires.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Endpoint {
    pub(crate) number: u32,
    pub(crate) key: RemoteKey,
    pub(crate) address: u64,
}

impl Side {
    pub(crate) fn new(name: &str) -> Result<Self> {
        // SAFETY: no other thread runs yet.
        unsafe { env::set_var(device::TEST_DEVICE, name) };
        let context = device::open();
        let pd = context.alloc_pd()?;
        let cq = context.create_cq_builder().setup_cqe(4 * DEPTH).build()?;
        let mut builder = pd.create_qp_builder();
        builder.setup_max_send_wr(DEPTH).setup_max_recv_wr(DEPTH).setup_send_cq(&cq).setup_recv_cq(&cq);
        let qp = builder.build()?;
        let memory = pd.reg_owned_mr(MEMORY, AccessFlags::LocalWrite | AccessFlags::RemoteWrite)?;
        Ok(Self { qp, cq, memory })
    }

    pub(crate) fn endpoint(&self) -> Endpoint {
        Endpoint { number: self.qp.qp_number(), key: self.memory.rkey(), address: self.memory.addr() }
    }

    pub(crate) fn connect(&mut self, to: Endpoint) -> Result<()> {
        let context = device::open();
        for attributes in
            [loopback::init(), loopback::ready_to_receive(&context, to.number, 0), loopback::ready_to_send(0, 7)]
        {
            self.qp.modify(&attributes)?;
        }
        Ok(())
    }

    /// Posts a receive of `length` bytes.
    pub(crate) fn receive(&mut self, length: u32) -> Result<()> {
        let mut batch = self.qp.start_post_recv();
        // SAFETY: the memory is registered as long as `self` exists.
        unsafe { batch.construct_wr(2).setup_sge(self.memory.lkey(), self.memory.addr(), length) };
        Ok(batch.post()?)
    }

    pub(crate) fn send(&mut self, length: u32) -> Result<()> {
        let mut batch = self.qp.start_post_send();
        let request = batch.construct_wr(1, WorkRequestFlags::Signaled);
        // SAFETY: as above.
        unsafe { request.setup_send().setup_sge(self.memory.lkey(), self.memory.addr(), length) };
        Ok(batch.post()?)
    }

    pub(crate) fn write(&mut self, length: u32, to: Endpoint) -> Result<()> {
        let mut batch = self.qp.start_post_send();
        let request = batch.construct_wr(1, WorkRequestFlags::Signaled);
        // SAFETY: as above; nothing reads the target.
        unsafe {
            let request = request.setup_write(to.key, to.address);
            request.setup_sge(self.memory.lkey(), self.memory.addr(), length);
        }
        Ok(batch.post()?)
    }

    /// Waits for `count` completions, and passes the identifier of each to `each`.
    pub(crate) fn wait(&mut self, count: usize, mut each: impl FnMut(u64)) -> Result<()> {
        let (mut found, mut looks) = (0, 0_u32);
        let mut started = None;
        while found < count {
            if let Ok(mut poller) = self.cq.start_poll() {
                while let Some(completion) = poller.next()? {
                    ensure!(completion.status() == WorkCompletionStatus::Success, "{:?}", completion.status());
                    each(completion.wr_id());
                    found += 1;
                }
            }
            looks = looks.wrapping_add(1);
            // Reads the clock only occasionally.
            if looks.is_multiple_of(1 << 16) && started.get_or_insert_with(Instant::now).elapsed() > TIMEOUT {
                bail!("nothing completed within {TIMEOUT:?}");
            }
        }
        Ok(())
    }

    pub(crate) fn memory(&self) -> *mut u8 {
        std::ptr::without_provenance_mut(self.memory.addr() as usize)
    }
}
