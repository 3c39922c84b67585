//! An unposted batch points to the headers of its segmented packets.

use sideway::ibverbs::queue_pair::{BasicQueuePair, PostSendGuard, QueuePair};
use sideway::ibverbs::work_request::WorkRequestFlags;

fn send(qp: &mut BasicQueuePair) {
    let mut guard = qp.start_post_send();
    {
        let header = [0; 54];
        guard.construct_wr(1, WorkRequestFlags::empty()).setup_send_tso(&header, 1000).setup_no_data();
    }
    drop(guard.post());
}

fn main() {}
