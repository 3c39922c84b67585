//! Tests of requests that only change keys.

use rdma_mummy_sys::ibv_wc_status as Status;

use super::wire::{Link, REQUESTS};
use super::*;
use crate::mem::{Bind, Window};

const MW_BIND: Access = ibv_access_flags::IBV_ACCESS_MW_BIND.0;

/// A window of one end, and the request that binds it.
struct Bound {
    window: Arc<Window>,
    bytes: Bytes,
    rkey: u32,
}

impl Bound {
    fn new(end: &End) -> Self {
        let window = Memory::of_process().window(&end.domain, true).unwrap();
        let rkey = window.key() & !0xff | 5;
        Self { window, bytes: Bytes::new(&end.domain, 64, ALL | MW_BIND), rkey }
    }

    fn bind(&self, work: &mut SendWork) {
        let (window, lkey) = (Arc::clone(&self.window), self.bytes.key());
        let bind = Bind { window, rkey: self.rkey, lkey, address: IOVA, length: 64, access: REMOTE_WRITE };
        work.bind = Some(Box::new(bind));
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        Memory::of_process().free_window(&self.window).unwrap();
    }
}

#[test]
fn bind_and_invalidate_are_executed_at_once_and_complete_in_order() {
    let link = Link::reliable();
    let bound = Bound::new(&link.a);
    let (address, rkey) = link.b.at(0);
    link.a.post_bytes(1, Operation::Write { address, rkey }, 0, 8);
    link.a.post(2, Operation::Bind, |work| bound.bind(work));
    // The peer can use the key before this side has received the response to the first request.
    assert_eq!(link.wires[REQUESTS].len(), 1);
    link.b.post_bytes(9, Operation::Write { address: IOVA, rkey: bound.rkey }, 0, 8);
    assert!(link.deliver(2) && link.deliver(3));
    assert_eq!(link.b.sent_statuses(), [(9, SUCCESS)]);
    link.a.post(3, Operation::LocalInvalidate { rkey: bound.rkey }, |_| {});
    link.a.post_bytes(4, Operation::Write { address, rkey }, 0, 8);
    assert!(link.a.sends.is_empty());
    link.settle();
    assert_eq!(link.a.sent_statuses(), [(1, SUCCESS), (2, SUCCESS), (3, SUCCESS), (4, SUCCESS)]);
}

#[test]
fn bind_is_not_repeated_after_an_rnr_nak() {
    let link = Link::with(Service::ReliableConnection, |ours| ours.rnr_retry = 7);
    let bound = Bound::new(&link.a);
    link.a.post(1, Operation::Send, |_| {});
    link.a.post(2, Operation::Bind, |work| bound.bind(work));
    link.a.post(3, Operation::LocalInvalidate { rkey: bound.rkey }, |_| {});
    link.a.post(4, Operation::Send, |_| {});
    link.settle();
    assert!(link.a.sends.is_empty());
    link.b.receive(1, &[]);
    link.b.receive(2, &[]);
    for wr_id in 1..5 {
        let sent = link.poll(&link.a.sends);
        assert_eq!((sent.wr_id, sent.status), (wr_id, SUCCESS));
    }
    assert_eq!(link.b.received_statuses(), [(1, SUCCESS), (2, SUCCESS)]);
}

#[test]
fn fenced_or_invalid_invalidate_waits_for_earlier_requests() {
    for is_fenced in [true, false] {
        let link = Link::reliable();
        let (address, rkey) = link.b.at(0);
        link.a.post_bytes(1, Operation::Write { address, rkey }, 0, 8);
        link.a.post(2, Operation::LocalInvalidate { rkey: 1 }, |work| work.is_fenced = is_fenced);
        assert!(link.a.sends.is_empty());
        link.settle();
        assert_eq!(link.a.sent_statuses(), [(1, SUCCESS), (2, Status::IBV_WC_MW_BIND_ERR)]);
    }
}
