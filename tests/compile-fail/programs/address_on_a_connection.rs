//! A connected queue pair has its peer, so its requests accept no address.

use sideway::ibverbs::address::AddressHandle;
use sideway::ibverbs::queue_pair::{BasicPostSendGuard, PostSendGuard};
use sideway::ibverbs::work_request::WorkRequestFlags;

fn send<'q>(mut guard: BasicPostSendGuard<'q>, ah: &'q AddressHandle) {
    guard.construct_wr(1, WorkRequestFlags::empty()).setup_send().setup_ud_addr(ah, 2, 3).setup_no_data();
}

fn main() {}
