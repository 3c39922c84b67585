//! The form of a request depends on the service, so generic code must name the service.

use sideway::ibverbs::queue_pair::{PostSendGuard, QueuePair};
use sideway::ibverbs::work_request::WorkRequestFlags;

fn send(qp: &mut impl QueuePair) {
    let mut guard = qp.start_post_send();
    guard.construct_wr(1, WorkRequestFlags::empty()).setup_send().setup_no_data();
}

fn main() {}
