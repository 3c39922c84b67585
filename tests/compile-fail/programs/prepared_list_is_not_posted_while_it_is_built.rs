//! A list under construction has no end yet.

use sideway::ibverbs::queue_pair::{BasicSendQueue, PostSendGuard, PreparedSends};
use sideway::ibverbs::work_request::WorkRequestFlags;

fn send(queue: &mut BasicSendQueue, list: &mut PreparedSends<'_>) {
    let mut guard = list.build();
    guard.construct_wr(1, WorkRequestFlags::empty()).setup_send().setup_inline_data(b"x");
    // SAFETY: the request names no registered memory.
    unsafe { queue.post_prepared(list).unwrap() };
    guard.finish().unwrap();
}

fn main() {}
