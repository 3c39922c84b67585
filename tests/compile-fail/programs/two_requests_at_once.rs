//! A request is finished, or dropped, before the next begins.

use sideway::ibverbs::queue_pair::{ExtendedPostSendGuard, PostSendGuard};
use sideway::ibverbs::work_request::WorkRequestFlags;

fn twice(mut guard: ExtendedPostSendGuard<'_>) {
    let first = guard.construct_wr(1, WorkRequestFlags::empty());
    let second = guard.construct_wr(2, WorkRequestFlags::empty());
    drop((first, second));
}

fn main() {}
