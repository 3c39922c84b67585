//! Data that the address of a vendor's service borrows lives until the batch is posted.

use sideway::ibverbs::queue_pair::vendor::Vendor;
use sideway::ibverbs::queue_pair::{PostSendGuard, QueuePair};
use sideway::ibverbs::work_request::WorkRequestFlags;

#[derive(Debug)]
enum Name {}

fn post(qp: &mut impl QueuePair<Service = Vendor<Name>>) {
    let mut guard = qp.start_post_send();
    {
        let place = String::from("dropped before the post");
        let request = guard.construct_wr(1, WorkRequestFlags::Signaled).setup_send();
        let _ = unsafe { request.setup_vendor_address(|_| drop(&place)) };
    }
    let _ = guard.post();
}

fn main() {}
