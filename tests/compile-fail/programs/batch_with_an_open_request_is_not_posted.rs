//! A half-built request prevents posting.

use sideway::ibverbs::queue_pair::{BasicPostSendGuard, PostSendGuard};
use sideway::ibverbs::work_request::WorkRequestFlags;

fn early(mut guard: BasicPostSendGuard<'_>) {
    let request = guard.construct_wr(1, WorkRequestFlags::empty()).setup_send();
    drop(guard.post());
    request.setup_no_data();
}

fn main() {}
