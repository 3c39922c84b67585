//! Drivers read the beginning of a raw packet however short it is, so that it is copied to where more may be read.

use sideway::ibverbs::queue_pair::{BasicPostSendGuard, PostSendGuard, RawPacket};
use sideway::ibverbs::work_request::WorkRequestFlags;

fn send(mut guard: BasicPostSendGuard<'_, RawPacket>) {
    guard.construct_wr(1, WorkRequestFlags::empty()).setup_send().setup_borrowed_inline_data(b"");
}

fn main() {}
