//! Tests of XRC with an initiator, a target, and the shared receive queues that messages address.

use rdma_mummy_sys::ibv_wc_status as Status;

use super::*;
use crate::qp::registry::{QpRegistry, SharedEntry};

struct Xrc {
    initiator: End,
    target: End,
    completions: Arc<CompletionQueue>,
    queue: Arc<ReceiveQueue>,
    number: u32,
    bytes: Bytes,
}

impl Drop for Xrc {
    fn drop(&mut self) {
        QpRegistry::of_process().leave_shared(self.number, &self.queue);
    }
}

fn xrc(is_same_domain: bool) -> Xrc {
    let xrc_domain = Arc::new(Domain::new());
    let initiator = End::with(Service::XrcSend, |parts| parts.receive_queue = None);
    let target = End::with(Service::XrcReceive, |parts| {
        (parts.send_queue, parts.receive_queue) = (None, None);
        parts.max_send_wr = 0;
        parts.xrc_domain = Some(xrc_domain.clone());
    });
    initiator.connect(target.pair.number());
    target.connect(initiator.pair.number());
    let (domain, completions) = (Arc::new(Domain::new()), queue());
    let queue = Arc::new(ReceiveQueue::shared(domain.clone(), 8, 4, Box::new(IgnoreEvents)));
    let xrc_domain = if is_same_domain { xrc_domain } else { Arc::new(Domain::new()) };
    let entry = SharedEntry { queue: queue.clone(), completions: completions.clone(), xrc_domain };
    let number = QpRegistry::of_process().enter_shared(entry).unwrap();
    Xrc { initiator, target, completions, queue, number, bytes: Bytes::new(&domain, 64, ALL) }
}

impl Xrc {
    fn post(&self, wr_id: u64, number: u32, operation: Operation) {
        self.initiator.post(wr_id, operation, |work| {
            work.srq_number = number;
            work.pieces.push(self.initiator.bytes.piece(0, 8));
        });
    }

    fn receive(&self, wr_id: u64, length: usize) {
        let piece = self.bytes.piece(0, length);
        let fill = |work: &mut crate::srq::ReceiveWork| {
            (work.wr_id, work.pieces) = (wr_id, [piece].into());
            Ok(())
        };
        self.queue.post(fill).unwrap();
    }
}

#[test]
fn message_uses_the_queue_that_it_names() {
    let xrc = xrc(true);
    xrc.receive(1, 8);
    xrc.initiator.bytes.set(0, b"by number");
    xrc.post(1, xrc.number, Operation::Send);
    assert_eq!(xrc.initiator.sent().status, SUCCESS);
    let received = xrc.completions.pop().unwrap();
    assert_eq!((received.wr_id, received.status, received.number), (1, SUCCESS, xrc.target.pair.number()));
    assert_eq!(xrc.bytes.get(0, 8), b"by numbe");
    // The memory belongs to the protection domain of the queue.
    xrc.post(2, xrc.number, Operation::Write { address: IOVA + 32, rkey: xrc.bytes.key() });
    assert_eq!((xrc.initiator.sent().status, xrc.bytes.get(32, 8)), (SUCCESS, b"by numbe".to_vec()));
    xrc.post(3, xrc.number, Operation::FetchAdd { address: IOVA, rkey: xrc.bytes.key(), add: 1 });
    assert_eq!(xrc.initiator.sent().status, SUCCESS);
}

#[test]
fn queue_of_another_domain_or_unknown_number_is_refused() {
    for is_same_domain in [false, true] {
        let xrc = xrc(is_same_domain);
        xrc.receive(1, 8);
        xrc.post(1, xrc.number + u32::from(is_same_domain), Operation::Send);
        assert_eq!(xrc.initiator.sent().status, Status::IBV_WC_REM_INV_REQ_ERR);
        assert_eq!(xrc.target.pair.state(), State::Error);
        assert!(xrc.completions.pop().is_none());
    }
}

#[test]
fn too_small_receive_completes_on_the_shared_queues_cq() {
    let xrc = xrc(true);
    xrc.receive(1, 4);
    xrc.receive(2, 8);
    xrc.post(1, xrc.number, Operation::Send);
    assert_eq!(xrc.initiator.sent().status, Status::IBV_WC_REM_INV_REQ_ERR);
    assert_eq!(statuses(&xrc.completions), [(1, Status::IBV_WC_LOC_LEN_ERR)]);
    assert_eq!(xrc.queue.take().map(|work| work.wr_id), Some(2));
}

#[test]
fn initiator_waits_for_a_receive() {
    let xrc = xrc(true);
    xrc.post(1, xrc.number, Operation::Send);
    assert_eq!(poll(&xrc.initiator.sends).status, Status::IBV_WC_RNR_RETRY_EXC_ERR);
}
