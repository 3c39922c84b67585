//! A datagram has one destination.

use sideway::ibverbs::address::AddressHandle;
use sideway::ibverbs::queue_pair::{BasicPostSendGuard, Datagram, PostSendGuard};
use sideway::ibverbs::work_request::WorkRequestFlags;

fn send<'q>(mut guard: BasicPostSendGuard<'q, Datagram>, one: &'q AddressHandle, two: &'q AddressHandle) {
    let request = guard.construct_wr(1, WorkRequestFlags::empty()).setup_send();
    request.setup_ud_addr(one, 2, 3).setup_ud_addr(two, 2, 3).setup_no_data();
}

fn main() {}
