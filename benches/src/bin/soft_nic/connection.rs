//! Two connected queue pairs in one process, and the measured operations.

use std::sync::Arc;

use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::completion::BasicCompletionQueue;
use sideway::ibverbs::completion::WorkCompletionStatus;
use sideway::ibverbs::device::DeviceInfo;
use sideway::ibverbs::device_context::DeviceContext;
use sideway::ibverbs::memory_region::OwnedMemoryRegion;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{BasicQueuePair, PostSendGuard, QueuePair};
use sideway::ibverbs::work_request::WorkRequestFlags;
use sideway_tests::{device, loopback};

/// The objects that queue pairs share: the device, a protection domain, a completion queue for each side, and memory.
pub(crate) struct Resources {
    sends: BasicCompletionQueue,
    receives: BasicCompletionQueue,
    memory: OwnedMemoryRegion,
    pd: Arc<ProtectionDomain>,
    context: Arc<DeviceContext>,
    /// Bytes of memory for each side of a connection.
    len: usize,
}

/// A queue pair and its peer.
pub(crate) struct Connection {
    near: BasicQueuePair,
    far: BasicQueuePair,
    /// The start of the memory of both sides.
    address: u64,
}

impl Resources {
    /// Creates the objects for `count` connections, with `len` bytes for each side of each.
    pub(crate) fn new(count: usize, len: usize) -> Self {
        let context = device::open();
        let pd = context.alloc_pd().expect("a protection domain");
        let cq = || context.create_cq_builder().setup_cqe(16).build().expect("a completion queue");
        let access = AccessFlags::LocalWrite | AccessFlags::RemoteWrite;
        let memory = pd.reg_owned_mr(2 * count * len, access).expect("memory");
        Self { sends: cq(), receives: cq(), memory, pd, context, len }
    }

    /// Creates the connection at this index.
    pub(crate) fn connection(&self, index: usize) -> Connection {
        let qp = |cq| {
            let mut builder = self.pd.create_qp_builder();
            builder.setup_max_send_wr(16).setup_max_recv_wr(16).setup_send_cq(cq).setup_recv_cq(cq);
            builder.build().expect("a queue pair")
        };
        let (near, far) = (qp(&self.sends), qp(&self.receives));
        for (here, there) in [(&near, &far), (&far, &near)] {
            for attributes in [
                loopback::init(),
                loopback::ready_to_receive(&self.context, there.qp_number(), 0),
                loopback::ready_to_send(0, 7),
            ] {
                here.modify(&attributes).expect("a transition");
            }
        }
        Connection { near, far, address: self.memory.addr() + (2 * index * self.len) as u64 }
    }

    pub(crate) fn device(&self) -> String {
        self.context.name().to_owned()
    }

    /// Writes `len` bytes into the memory of the far side, and waits for the completion.
    pub(crate) fn write_and_poll(&mut self, connection: &mut Connection, len: u32) {
        let mut batch = connection.near.start_post_send();
        let request = batch.construct_wr(1, WorkRequestFlags::Signaled);
        // SAFETY: the memory is registered as long as `self` exists, and the completion is polled below.
        unsafe {
            request.setup_write(self.memory.rkey(), connection.address + self.len as u64).setup_sge(
                self.memory.lkey(),
                connection.address,
                len,
            );
        }
        batch.post().expect("a post");
        await_completion(&mut self.sends);
    }

    /// Sends `len` bytes into a receive of the far side, and waits for both completions.
    pub(crate) fn send_and_poll(&mut self, connection: &mut Connection, len: u32) {
        let mut batch = connection.far.start_post_recv();
        // SAFETY: as above.
        unsafe { batch.construct_wr(2).setup_sge(self.memory.lkey(), connection.address + self.len as u64, len) };
        batch.post().expect("a post");
        let mut batch = connection.near.start_post_send();
        let request = batch.construct_wr(1, WorkRequestFlags::Signaled);
        // SAFETY: as above.
        unsafe { request.setup_send().setup_sge(self.memory.lkey(), connection.address, len) };
        batch.post().expect("a post");
        await_completion(&mut self.sends);
        await_completion(&mut self.receives);
    }
}

/// Waits for the next completion, which must be a success.
fn await_completion(cq: &mut BasicCompletionQueue) {
    loop {
        if let Ok(mut poller) = cq.start_poll()
            && let Some(completion) = poller.next().expect("a completion")
        {
            assert_eq!(completion.status(), WorkCompletionStatus::Success);
            return;
        }
    }
}
