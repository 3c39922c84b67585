//! Two connected queue pairs of one process, and what is measured on them.

use std::sync::Arc;

use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::completion::BasicCompletionQueue;
use sideway::ibverbs::completion::WorkCompletionStatus;
use sideway::ibverbs::device::DeviceInfo;
use sideway::ibverbs::device_context::DeviceContext;
use sideway::ibverbs::memory_region::OwnedMemoryRegion;
use sideway::ibverbs::queue_pair::{BasicQueuePair, PostSendGuard, QueuePair};
use sideway::ibverbs::work_request::WorkRequestFlags;
use sideway_tests::{device, loopback};

pub(crate) struct Lane {
    near: Side,
    far: Side,
    context: Arc<DeviceContext>,
}

struct Side {
    qp: BasicQueuePair,
    cq: BasicCompletionQueue,
    memory: OwnedMemoryRegion,
}

impl Lane {
    /// Two sides with so much memory each.
    pub(crate) fn new(len: usize) -> Self {
        let context = device::open();
        let side = || {
            let pd = context.alloc_pd().expect("a domain");
            let cq = context.create_cq_builder().setup_cqe(16).build().expect("a completion queue");
            let mut builder = pd.create_qp_builder();
            builder.setup_max_send_wr(16).setup_max_recv_wr(16).setup_send_cq(&cq).setup_recv_cq(&cq);
            let qp = builder.build().expect("a queue pair");
            let access = AccessFlags::LocalWrite | AccessFlags::RemoteWrite;
            let memory = pd.reg_owned_mr(len, access).expect("memory");
            Side { qp, cq, memory }
        };
        let (near, far) = (side(), side());
        for (here, there) in [(&near, &far), (&far, &near)] {
            for attributes in [
                loopback::init(),
                loopback::ready_to_receive(&context, there.qp.qp_number(), 0),
                loopback::ready_to_send(0, 7),
            ] {
                here.qp.modify(&attributes).expect("a transition");
            }
        }
        Self { near, far, context }
    }

    pub(crate) fn device(&self) -> String {
        self.context.name().to_owned()
    }

    /// Writes so many bytes into the other side's memory, and waits for the completion.
    pub(crate) fn write_and_poll(&mut self, len: u32) {
        let Self { near, far, .. } = self;
        let mut batch = near.qp.start_post_send();
        let request = batch.construct_wr(1, WorkRequestFlags::Signaled);
        // SAFETY: the memory is registered as long as the side, and its completion is waited for below.
        unsafe {
            request.setup_write(far.memory.rkey(), far.memory.addr()).setup_sge(
                near.memory.lkey(),
                near.memory.addr(),
                len,
            );
        }
        batch.post().expect("a post");
        near.completion();
    }

    /// Sends so many bytes into a receive of the other side's, and waits for both completions.
    pub(crate) fn send_and_poll(&mut self, len: u32) {
        let Self { near, far, .. } = self;
        let mut batch = far.qp.start_post_recv();
        // SAFETY: as above.
        unsafe { batch.construct_wr(2).setup_sge(far.memory.lkey(), far.memory.addr(), len) };
        batch.post().expect("a post");
        let mut batch = near.qp.start_post_send();
        let request = batch.construct_wr(1, WorkRequestFlags::Signaled);
        // SAFETY: as above.
        unsafe { request.setup_send().setup_sge(near.memory.lkey(), near.memory.addr(), len) };
        batch.post().expect("a post");
        near.completion();
        far.completion();
    }
}

impl Side {
    /// Waits for the next completion, which is to be a success.
    fn completion(&mut self) {
        loop {
            if let Ok(mut poller) = self.cq.start_poll()
                && let Some(completion) = poller.next().expect("a completion")
            {
                assert_eq!(completion.status(), WorkCompletionStatus::Success);
                return;
            }
        }
    }
}
