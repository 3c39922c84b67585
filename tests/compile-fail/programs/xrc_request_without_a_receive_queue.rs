//! A request of an extended reliable connection names the peer's shared receive queue.

use sideway::ibverbs::queue_pair::{BasicPostSendGuard, PostSendGuard, Xrc};
use sideway::ibverbs::work_request::WorkRequestFlags;

fn write(mut guard: BasicPostSendGuard<'_, Xrc>) {
    guard.construct_wr(1, WorkRequestFlags::empty()).setup_write(1, 2).setup_no_data();
}

fn main() {}
