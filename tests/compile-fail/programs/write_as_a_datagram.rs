//! Datagrams are sends: there is no write to a queue pair without a connection.

use sideway::ibverbs::address::AddressHandle;
use sideway::ibverbs::queue_pair::{Datagram, ExtendedPostSendGuard, PostSendGuard};
use sideway::ibverbs::work_request::WorkRequestFlags;

fn write<'q>(mut guard: ExtendedPostSendGuard<'q, Datagram>, ah: &'q AddressHandle) {
    guard.construct_wr(1, WorkRequestFlags::empty()).setup_write(1, 2).setup_ud_addr(ah, 3, 4).setup_no_data();
}

fn main() {}
