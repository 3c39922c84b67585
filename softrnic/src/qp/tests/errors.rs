//! Tests of errors and of their effects on both sides.

use rdma_mummy_sys::ibv_wc_status as Status;

use super::wire::Wire;
use super::*;

/// Posts receives and two requests on the requester's side, and checks that the first request fails with `status`.
fn fails(a: &End, status: Status, operation: Operation, fill: impl FnOnce(&mut SendWork)) {
    a.receive_bytes(11, 0, 64);
    a.receive_bytes(12, 0, 64);
    let mut batch = a.pair.batch();
    let work = batch.push().unwrap();
    (work.wr_id, work.operation) = (2, operation);
    fill(work);
    let work = batch.push().unwrap();
    (work.wr_id, work.operation) = (3, Operation::Send);
    batch.complete();
    assert_eq!(a.sent_statuses(), [(2, status), (3, FLUSHED)], "{operation:?}");
    assert_eq!(a.received_statuses(), [(11, FLUSHED), (12, FLUSHED)]);
    assert_eq!(a.pair.state(), State::Error);
    // Requests that are posted later are flushed too.
    a.post(4, Operation::Send, |_| {});
    a.receive_bytes(13, 0, 64);
    assert_eq!((a.sent_statuses(), a.received_statuses()), (vec![(4, FLUSHED)], vec![(13, FLUSHED)]));
}

/// Posts a request that the peer refuses, and checks the peer's event.
fn refused(
    status: Status,
    event: PairEvent,
    change: impl FnOnce(&mut Attributes),
    operation: impl FnOnce(&End) -> Operation,
) {
    let (a, b) = (End::new(Service::ReliableConnection), End::new(Service::ReliableConnection));
    a.connect(b.pair.number());
    let mut theirs = attributes(a.pair.number());
    change(&mut theirs);
    b.ready(&theirs);
    b.receive_bytes(21, 0, 64);
    let operation = operation(&b);
    fails(&a, status, operation, |work| work.pieces.push(a.bytes.piece(0, 8)));
    assert_eq!(b.pair.state(), State::Error, "{operation:?}");
    assert_eq!(b.log.events(), [event]);
    assert_eq!(b.received_statuses(), [(21, FLUSHED)]);
}

#[test]
fn invalid_local_memory_is_refused() {
    let pieces: [fn(&End) -> Piece; 3] = [
        |a| Piece { lkey: a.bytes.key() ^ 1, ..a.bytes.piece(0, 8) },
        |a| a.bytes.piece(LENGTH - 4, 8),
        |a| Piece { address: u64::MAX - 3, ..a.bytes.piece(0, 8) },
    ];
    for piece in pieces {
        let (a, b) = reliable();
        b.receive_bytes(21, 0, 64);
        fails(&a, Status::IBV_WC_LOC_PROT_ERR, Operation::Send, |work| {
            work.pieces.extend([a.bytes.piece(0, 8), piece(&a)]);
        });
        // Nothing was sent to the peer.
        assert_eq!((b.pair.state(), b.received_statuses()), (State::ReadyToSend, vec![]));
    }
    // A read requires that local memory can be written.
    let (a, b) = reliable();
    let (address, rkey) = b.at(0);
    let read_only = Bytes::new(&a.domain, 64, 0);
    fails(&a, Status::IBV_WC_LOC_PROT_ERR, Operation::Read { address, rkey }, |work| {
        work.pieces.push(read_only.piece(0, 8));
    });
    let others = Bytes::new(&b.domain, 64, ALL);
    let (a, _b) = reliable();
    fails(&a, Status::IBV_WC_LOC_PROT_ERR, Operation::Send, |work| work.pieces.push(others.piece(0, 8)));
}

#[test]
fn wrong_message_length_is_refused() {
    let (a, b) = reliable();
    let (address, rkey) = b.at(0);
    fails(&a, Status::IBV_WC_LOC_LEN_ERR, Operation::FetchAdd { address, rkey, add: 1 }, |work| {
        work.pieces.push(a.bytes.piece(0, 4));
    });
    let (a, _b) = reliable();
    fails(&a, Status::IBV_WC_LOC_LEN_ERR, Operation::Send, |work| {
        let piece = Piece { length: 1 << 31, ..a.bytes.piece(0, 0) };
        work.pieces.extend([piece, a.bytes.piece(0, 1)]);
    });
}

#[test]
fn read_without_max_rd_atomic_is_refused() {
    let (a, b) = (End::new(Service::ReliableConnection), End::new(Service::ReliableConnection));
    a.ready(&Attributes { max_rd_atomic: 0, ..attributes(b.pair.number()) });
    b.connect(a.pair.number());
    let (address, rkey) = b.at(0);
    fails(&a, Status::IBV_WC_LOC_QP_OP_ERR, Operation::Read { address, rkey }, |_| {});
    refused(
        Status::IBV_WC_REM_INV_REQ_ERR,
        PairEvent::RequestError,
        |theirs| theirs.max_dest_rd_atomic = 0,
        |_| Operation::Read { address, rkey },
    );
}

#[test]
fn operation_without_qp_access_is_refused() {
    for (access, operation) in operations() {
        let without = |theirs: &mut Attributes| theirs.access = ALL & !access;
        refused(Status::IBV_WC_REM_INV_REQ_ERR, PairEvent::RequestError, without, |b| {
            let (address, rkey) = b.at(0);
            operation(address, rkey)
        });
    }
}

#[test]
fn operation_without_memory_access_is_refused() {
    for (access, operation) in operations() {
        let mut kept = None;
        refused(
            Status::IBV_WC_REM_ACCESS_ERR,
            PairEvent::AccessError,
            |_| {},
            |b| {
                let bytes = Bytes::new(&b.domain, 64, ALL & !access);
                operation(IOVA, kept.insert(bytes).key())
            },
        );
        refused(
            Status::IBV_WC_REM_ACCESS_ERR,
            PairEvent::AccessError,
            |_| {},
            |b| {
                let (address, rkey) = b.at(0);
                operation(address, rkey.wrapping_add(1))
            },
        );
        refused(
            Status::IBV_WC_REM_ACCESS_ERR,
            PairEvent::AccessError,
            |_| {},
            |b| {
                let (address, rkey) = b.at(LENGTH);
                operation(address, rkey)
            },
        );
        let elsewhere = Bytes::new(&Arc::new(Domain::new()), 64, ALL);
        refused(Status::IBV_WC_REM_ACCESS_ERR, PairEvent::AccessError, |_| {}, |_| operation(IOVA, elsewhere.key()));
    }
}

type Make = fn(u64, u32) -> Operation;

fn operations() -> [(Access, Make); 6] {
    [
        (REMOTE_WRITE, |address, rkey| Operation::Write { address, rkey }),
        (REMOTE_WRITE, |address, rkey| Operation::WriteImmediate { address, rkey, immediate: 0 }),
        (REMOTE_READ, |address, rkey| Operation::Read { address, rkey }),
        (REMOTE_ATOMIC, |address, rkey| Operation::FetchAdd { address, rkey, add: 1 }),
        (REMOTE_ATOMIC, |address, rkey| Operation::CompareSwap { address, rkey, compare: 0, swap: 1 }),
        (REMOTE_WRITE, |address, rkey| Operation::AtomicWrite { address, rkey }),
    ]
}

#[test]
fn unaligned_atomic_is_refused() {
    refused(
        Status::IBV_WC_REM_INV_REQ_ERR,
        PairEvent::RequestError,
        |_| {},
        |b| {
            let (address, rkey) = b.at(4);
            Operation::FetchAdd { address, rkey, add: 1 }
        },
    );
}

#[test]
fn flush_without_access_is_refused() {
    let flush = |address, rkey, placement, level| Operation::Flush { address, rkey, length: 8, placement, level };
    refused(
        Status::IBV_WC_REM_INV_REQ_ERR,
        PairEvent::RequestError,
        |theirs| theirs.access = 0,
        |b| {
            let (address, rkey) = b.at(0);
            flush(address, rkey, 1, 0)
        },
    );
    for (placement, level) in [(0, 0), (4, 0), (1, 2)] {
        refused(
            Status::IBV_WC_REM_INV_REQ_ERR,
            PairEvent::RequestError,
            |_| {},
            |b| {
                let (address, rkey) = b.at(0);
                flush(address, rkey, placement, level)
            },
        );
    }
    refused(
        Status::IBV_WC_REM_ACCESS_ERR,
        PairEvent::AccessError,
        |_| {},
        |b| {
            let (address, rkey) = b.at(LENGTH - 4);
            flush(address, rkey, 1, 0)
        },
    );
}

#[test]
fn too_small_receive_ends_both_qps() {
    let (a, b) = reliable();
    b.receive(21, &[b.bytes.piece(0, 4), b.bytes.piece(8, 3)]);
    b.receive_bytes(22, 0, 64);
    fails(&a, Status::IBV_WC_REM_INV_REQ_ERR, Operation::Send, |work| work.pieces.push(a.bytes.piece(0, 8)));
    assert_eq!(b.received_statuses(), [(21, Status::IBV_WC_LOC_LEN_ERR), (22, FLUSHED)]);
    assert_eq!((b.pair.state(), b.log.events()), (State::Error, vec![]));
}

#[test]
fn receive_with_invalid_memory_ends_both_qps() {
    let (a, b) = reliable();
    b.receive(21, &[Piece { lkey: b.bytes.key() ^ 1, ..b.bytes.piece(0, 8) }]);
    b.receive_bytes(22, 0, 64);
    // The requests of the peer are flushed too.
    fails(&a, Status::IBV_WC_REM_OP_ERR, Operation::Send, |work| work.pieces.push(a.bytes.piece(0, 8)));
    assert_eq!(b.received_statuses(), [(21, Status::IBV_WC_LOC_PROT_ERR), (22, FLUSHED)]);
    assert_eq!(b.pair.state(), State::Error);
}

#[test]
fn failed_invalidation_ends_both_qps() {
    let (a, b) = reliable();
    b.receive_bytes(21, 0, 64);
    // The key of a region registered by a verb cannot be invalidated.
    let rkey = b.bytes.key();
    fails(&a, Status::IBV_WC_REM_ACCESS_ERR, Operation::SendInvalidate { rkey }, |_| {});
    assert_eq!(b.received_statuses(), [(21, Status::IBV_WC_REM_INV_REQ_ERR)]);
    let (a, _b) = reliable();
    fails(&a, Status::IBV_WC_MW_BIND_ERR, Operation::LocalInvalidate { rkey: 1 }, |_| {});
    let (a, _b) = reliable();
    fails(&a, Status::IBV_WC_MW_BIND_ERR, Operation::Bind, |_| {});
}

#[test]
fn responder_error_flushes_waiting_requests() {
    let (a, b) = (End::new(Service::ReliableConnection), End::new(Service::ReliableConnection));
    a.connect(b.pair.number());
    b.ready(&Attributes { rnr_retry: 7, ..attributes(a.pair.number()) });
    // No receive is posted, so the request waits, however slow the machine is.
    b.post(1, Operation::Send, |_| {});
    assert!(b.sends.pop().is_none());
    let (address, rkey) = b.at(0);
    a.post_bytes(1, Operation::Write { address, rkey: rkey ^ 1 }, 0, 8);
    assert_eq!(a.sent().status, Status::IBV_WC_REM_ACCESS_ERR);
    // The request is flushed by this thread, or by the thread of softrnic if this thread is just retrying the request.
    let flushed = poll(&b.sends);
    assert_eq!((flushed.wr_id, flushed.status), (1, FLUSHED));
}

#[test]
fn shared_queue_keeps_its_receives_and_raises_last_wqe_reached() {
    let domain = Arc::new(Domain::new());
    let shared = Arc::new(ReceiveQueue::shared(domain.clone(), 8, 4, Box::new(IgnoreEvents)));
    let a = End::new(Service::ReliableConnection);
    let b = End::with(Service::ReliableConnection, |parts| {
        (parts.receives, parts.is_shared) = (shared.clone(), true);
    });
    a.connect(b.pair.number());
    b.connect(a.pair.number());
    // The memory belongs to the domain of the queue itself.
    let bytes = Bytes::new(&domain, 64, LOCAL_WRITE);
    b.receive(1, &[bytes.piece(0, 8)]);
    b.receive(2, &[bytes.piece(0, 8)]);
    a.bytes.set(0, b"for all");
    a.post_bytes(1, Operation::Send, 0, 8);
    assert_eq!((a.sent().status, bytes.get(0, 7)), (SUCCESS, b"for all".to_vec()));
    b.pair.change(State::ReadyToSend, State::Error, b.pair.attributes()).unwrap();
    assert_eq!(b.log.events(), [PairEvent::LastReceiveReached]);
    assert_eq!(b.received_statuses(), [(1, SUCCESS)]);
    assert_eq!(shared.take().map(|work| work.wr_id), Some(2));
    b.pair.change(State::Error, State::Error, b.pair.attributes()).unwrap();
    assert_eq!(b.log.events(), []);
}

#[test]
fn unreliable_requester_error_keeps_the_receive_side_working() {
    let (a, b) = connected(Service::UnreliableConnection);
    let (address, rkey) = b.at(0);
    a.receive_bytes(11, 0, 64);
    for (wr_id, operation) in [(1, Operation::Read { address, rkey }), (2, Operation::Send)] {
        a.post_bytes(wr_id, operation, 0, 8);
    }
    assert_eq!(a.sent_statuses(), [(1, Status::IBV_WC_LOC_QP_OP_ERR), (2, FLUSHED)]);
    assert_eq!(a.pair.state(), State::SendQueueError);
    b.post_bytes(1, Operation::Send, 0, 8);
    assert_eq!(a.received_statuses(), [(11, SUCCESS)]);
    a.pair.change(State::SendQueueError, State::ReadyToSend, a.pair.attributes()).unwrap();
    b.receive_bytes(21, 0, 64);
    a.post_bytes(3, Operation::Send, 0, 8);
    assert_eq!((a.sent_statuses(), b.received_statuses()), (vec![(3, SUCCESS)], vec![(21, SUCCESS)]));
}

/// RoCE has no packet for this operation on this service. Processes of one host need none.
#[test]
fn unreliable_connection_to_another_host_invalidates_no_keys() {
    let end = End::with(Service::UnreliableConnection, |parts| parts.reach = Reach::Connection);
    end.pair.set_connection(Wire::new()).unwrap();
    end.ready(&attributes(9));
    end.post_bytes(1, Operation::SendInvalidate { rkey: end.bytes.key() }, 0, 8);
    assert_eq!(end.sent_statuses(), [(1, Status::IBV_WC_LOC_QP_OP_ERR)]);
}

#[test]
fn too_large_unreliable_message_is_lost_and_the_receive_stays() {
    let (a, b) = connected(Service::UnreliableConnection);
    b.receive_bytes(21, 0, 4);
    a.post_bytes(1, Operation::Send, 0, 8);
    a.post_bytes(2, Operation::Send, 0, 4);
    assert_eq!(a.sent_statuses(), [(1, SUCCESS), (2, SUCCESS)]);
    let received = b.received();
    assert_eq!((received.wr_id, received.status, received.byte_len), (21, SUCCESS, 4));
    // If the memory of a receive is invalid, this is an error of the program.
    b.receive(22, &[Piece { lkey: 0, ..b.bytes.piece(0, 8) }]);
    b.receive_bytes(23, 0, 8);
    a.post_bytes(3, Operation::Send, 0, 4);
    assert_eq!(a.sent_statuses(), [(3, SUCCESS)]);
    assert_eq!(b.received_statuses(), [(22, Status::IBV_WC_LOC_PROT_ERR), (23, FLUSHED)]);
    assert_eq!(b.pair.state(), State::Error);
}
