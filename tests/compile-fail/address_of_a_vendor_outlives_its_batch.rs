//! What the address of a vendor's service borrows lives until the batch is posted.

use sideway::ibverbs::queue_pair::{PostSendGuard, QueuePair};
use sideway::ibverbs::work_request::{SendAddress, WorkRequestFlags};

#[derive(Clone, Copy)]
struct Address<'a>(&'a String);

fn post<Q: QueuePair>(qp: &mut Q)
where
    for<'a> Address<'a>: SendAddress,
{
    let mut guard = qp.start_post_send();
    {
        let place = String::from("gone before the post");
        let request = guard.construct_wr(1, WorkRequestFlags::Signaled).setup_send();
        let _ = request.setup_address(Address(&place));
    }
    let _ = guard.post();
}

fn main() {}
