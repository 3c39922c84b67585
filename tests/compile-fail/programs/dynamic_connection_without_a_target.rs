//! A request of an initiator of dynamic connections needs a destination.

use sideway::ibverbs::queue_pair::{ExtendedQueuePair, PostSendGuard, QueuePair};
use sideway::ibverbs::work_request::WorkRequestFlags;
use sideway::mlx5::DynamicallyConnected;

fn post(qp: &mut ExtendedQueuePair<DynamicallyConnected>) {
    let mut guard = qp.start_post_send();
    guard.construct_wr(1, WorkRequestFlags::Signaled).setup_send().setup_inline_data(b"nowhere");
}

fn main() {}
