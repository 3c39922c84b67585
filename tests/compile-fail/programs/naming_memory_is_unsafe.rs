//! The device accesses the memory after the call has returned. The caller must guarantee that the device may do so.

use sideway::ibverbs::queue_pair::{BasicPostSendGuard, PostSendGuard};
use sideway::ibverbs::work_request::WorkRequestFlags;

fn name(mut guard: BasicPostSendGuard<'_>) {
    guard.construct_wr(1, WorkRequestFlags::empty()).setup_send().setup_sge(1, 2, 3);
}

fn main() {}
