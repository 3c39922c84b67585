//! An unposted batch points to the inline data that it borrows.

use sideway::ibverbs::queue_pair::{BasicQueuePair, PostSendGuard, QueuePair};
use sideway::ibverbs::work_request::WorkRequestFlags;

fn send(qp: &mut BasicQueuePair) {
    let mut guard = qp.start_post_send();
    {
        let bytes = vec![1_u8; 8];
        guard.construct_wr(1, WorkRequestFlags::empty()).setup_send().setup_borrowed_inline_data(&bytes);
    }
    drop(guard.post());
}

fn main() {}
