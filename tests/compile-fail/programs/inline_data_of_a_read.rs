//! The device writes the local buffer of a read, so the buffer is registered memory.

use sideway::ibverbs::queue_pair::{BasicPostSendGuard, PostSendGuard};
use sideway::ibverbs::work_request::WorkRequestFlags;

fn read(mut guard: BasicPostSendGuard<'_>) {
    guard.construct_wr(1, WorkRequestFlags::empty()).setup_read(1, 2).setup_inline_data(b"x");
}

fn main() {}
