//! A datagram needs a destination.

use sideway::ibverbs::queue_pair::{BasicPostSendGuard, Datagram, PostSendGuard};
use sideway::ibverbs::work_request::WorkRequestFlags;

fn send(mut guard: BasicPostSendGuard<'_, Datagram>) {
    guard.construct_wr(1, WorkRequestFlags::empty()).setup_send().setup_inline_data(b"no peer?");
}

fn main() {}
