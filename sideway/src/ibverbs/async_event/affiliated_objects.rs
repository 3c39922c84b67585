//! Which objects of a device its events can name.

use crate::ffi::Registry;
use crate::ibverbs::completion::CompletionQueueCore;
use crate::ibverbs::queue_pair::QueuePairCore;
use crate::ibverbs::shared_receive_queue::SharedReceiveQueueCore;
use crate::ibverbs::work_queue::WorkQueueCore;

/// The objects of one device context that its events can name.
///
/// The context pointers that C keeps for its user (`qp_context` and its like) would lead there too, but not for objects that
/// other code has made on the same context: their addresses are simply not found here.
#[derive(Debug, Default)]
pub(crate) struct AffiliatedObjects {
    pub(crate) completion_queues: Registry<CompletionQueueCore>,
    pub(crate) queue_pairs: Registry<QueuePairCore>,
    pub(crate) work_queues: Registry<WorkQueueCore>,
    pub(crate) shared_receive_queues: Registry<SharedReceiveQueueCore>,
}
