//! The device writes the memory after the call has returned. The caller must guarantee that the device may do so.

use sideway::ibverbs::queue_pair::SetScatterGatherEntry;
use sideway::ibverbs::shared_receive_queue::{PostTagOperationsGuard, TagMatchingOperationFlags};

fn name(mut guard: PostTagOperationsGuard<'_>) {
    guard.construct_op(1, TagMatchingOperationFlags::Signaled).setup_add(2, 3, 4).setup_sge(1, 2, 3);
}

fn main() {}
