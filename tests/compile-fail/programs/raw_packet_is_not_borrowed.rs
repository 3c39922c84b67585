//! Drivers read the start of a raw packet even if it is shorter, so it is copied into a larger buffer.

use sideway::ibverbs::queue_pair::{BasicPostSendGuard, PostSendGuard, RawPacket};
use sideway::ibverbs::work_request::WorkRequestFlags;

fn send(mut guard: BasicPostSendGuard<'_, RawPacket>) {
    guard.construct_wr(1, WorkRequestFlags::empty()).setup_send().setup_borrowed_inline_data(b"");
}

fn main() {}
