//! Two queue pairs of one device, connected to each other.

mod end;
mod kind;
mod memory;
mod transition;

use std::sync::Arc;

use sideway::ibverbs::completion::CompletionChannel;
use sideway::ibverbs::device_context::DeviceContext;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{QueuePairBuilder, QueuePairState};

pub use self::end::{Completion, Copied, Copying, End, Give, Range};
pub use self::kind::{Kind, Named, QueueKind};
pub use self::memory::Memory;
pub use self::transition::{init, ready_to_receive, ready_to_send, to};
use crate::device;

/// Bytes of each side's memory.
pub const MEMORY: usize = 64 * 1024;
/// Maximum inline data of the queue pairs.
pub const INLINE: u32 = 64;
/// Maximum list entries of the queue pairs.
pub const ENTRIES: u32 = 4;
/// Depth of the queue pairs in each direction.
pub const REQUESTS: u32 = 16;
/// The first packet sequence numbers of the two sides.
pub const PSN: [u32; 2] = [0x123456, 0xfffffe];

/// Two connected sides.
#[derive(Debug)]
pub struct Loopback<Q> {
    /// The side that mostly sends.
    pub near: End<Q>,
    /// The side that mostly receives.
    pub far: End<Q>,
    /// The protection domain of both sides.
    pub pd: Arc<ProtectionDomain>,
    /// The device of both sides.
    pub context: Arc<DeviceContext>,
}

impl<Q: Kind> Loopback<Q> {
    /// Two sides with all access rights.
    ///
    /// # Panics
    ///
    /// If a step fails.
    #[track_caller]
    pub fn new(queue: QueueKind) -> Self {
        Self::with(queue, None, |_| {})
    }

    /// Two sides, with more options for their queue pairs, and a channel for their completion queues.
    ///
    /// # Panics
    ///
    /// If a step fails.
    #[track_caller]
    pub fn with(
        queue: QueueKind,
        channel: Option<(&Arc<DeviceContext>, &Arc<CompletionChannel>)>,
        wishes: impl Fn(&mut QueuePairBuilder),
    ) -> Self {
        let context = channel.map_or_else(device::open, |(context, _)| Arc::clone(context));
        let pd = context.alloc_pd().unwrap_or_else(|error| panic!("{error}"));
        let end = |number| {
            let mut builder = context.create_cq_builder();
            builder.setup_cqe(4 * REQUESTS).setup_cq_context(number);
            if let Some((_, channel)) = channel {
                builder.setup_comp_channel(channel, 0);
            }
            let cq = queue.build(&builder);
            let mut builder = pd.create_qp_builder();
            builder
                .setup_max_send_wr(REQUESTS)
                .setup_max_recv_wr(REQUESTS)
                .setup_max_send_sge(ENTRIES)
                .setup_max_recv_sge(ENTRIES)
                .setup_max_inline_data(INLINE)
                .setup_send_cq(&cq)
                .setup_recv_cq(&cq);
            wishes(&mut builder);
            let qp = Q::build(&builder).unwrap_or_else(|error| panic!("{}: {error}", Q::NAME));
            let memory = Memory::new(&pd, MEMORY, transition::all_access());
            End { qp, cq, memory }
        };
        let (near, far) = (end(1), end(2));
        let loopback = Self { near, far, pd, context };
        loopback.connect(7);
        loopback
    }

    /// Brings both queue pairs from RESET to RTS; `rnr_retry` is the RNR retry count of a send.
    ///
    /// # Panics
    ///
    /// If a transition fails.
    #[track_caller]
    pub fn connect(&self, rnr_retry: u8) {
        let ends = [(&self.near, &self.far), (&self.far, &self.near)];
        for ((here, there), (sq_psn, rq_psn)) in ends.into_iter().zip([(PSN[0], PSN[1]), (PSN[1], PSN[0])]) {
            for attributes in [
                init(),
                ready_to_receive(&self.context, there.qp.qp_number(), rq_psn),
                ready_to_send(sq_psn, rnr_retry),
            ] {
                here.qp.modify(&attributes).unwrap_or_else(|error| panic!("{}: {error}", Q::NAME));
            }
            assert_eq!(here.qp.state(), QueuePairState::ReadyToSend);
        }
    }

    /// Resets both queue pairs and connects them again.
    ///
    /// # Panics
    ///
    /// If a transition fails.
    #[track_caller]
    pub fn reconnect(&mut self, rnr_retry: u8) {
        for end in [&mut self.near, &mut self.far] {
            end.qp.modify(&to(QueuePairState::Reset)).unwrap_or_else(|error| panic!("{}: {error}", Q::NAME));
            end.drain();
        }
        self.connect(rnr_retry);
    }

    /// Sends a message in each direction.
    ///
    /// # Panics
    ///
    /// If a message does not arrive.
    #[track_caller]
    pub fn works(&mut self) {
        for backwards in [false, true] {
            let (from, into) =
                if backwards { (&mut self.far, &mut self.near) } else { (&mut self.near, &mut self.far) };
            from.memory.write(0, b"still here");
            into.post_receive(1, 100, 10);
            from.post_send(2, 0, 10);
            assert_eq!(into.success().wr_id, 1);
            assert_eq!(from.success().wr_id, 2);
            assert_eq!(into.bytes(100, 10), b"still here");
        }
    }
}
