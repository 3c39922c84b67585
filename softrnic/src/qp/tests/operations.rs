//! Tests of operations that succeed.

use rdma_mummy_sys::{IBV_FLUSH_GLOBAL, IBV_FLUSH_MR, IBV_FLUSH_RANGE, ibv_wc_flags, ibv_wc_opcode};

use super::*;
use crate::mem::Bind;

#[test]
fn send_fills_the_oldest_receive() {
    let (a, b) = reliable();
    a.bytes.set(0, b"from here on and on");
    b.receive(7, &[b.bytes.piece(100, 5), b.bytes.piece(0, 0), b.bytes.piece(200, 100)]);
    b.receive_bytes(8, 300, 10);
    a.post(1, Operation::Send, |work| {
        work.pieces.extend([a.bytes.piece(0, 4), a.bytes.piece(9, 0), a.bytes.piece(5, 5)]);
    });
    let sent = a.sent();
    assert_eq!((sent.wr_id, sent.status, sent.opcode), (1, SUCCESS, ibv_wc_opcode::IBV_WC_SEND));
    assert_eq!(sent.number, a.pair.number());
    let received = b.received();
    assert_eq!((received.wr_id, received.status, received.byte_len), (7, SUCCESS, 9));
    assert_eq!((received.opcode, received.flags), (ibv_wc_opcode::IBV_WC_RECV, 0));
    assert_eq!(received.number, b.pair.number());
    assert_eq!((b.bytes.get(100, 5), b.bytes.get(200, 5)), (b"fromh".to_vec(), b"ere \0".to_vec()));
    assert!(b.receives.pop().is_none());
}

#[test]
fn inline_data_is_copied_by_the_post() {
    let (a, b) = reliable();
    b.receive_bytes(7, 0, 64);
    a.post(1, Operation::SendImmediate { immediate: 0x0102_0304 }, |work| {
        work.is_inline = true;
        work.inline.extend_from_slice(b"inline");
    });
    assert_eq!(a.sent().status, SUCCESS);
    let received = b.received();
    assert_eq!((received.byte_len, received.immediate), (6, 0x0102_0304));
    assert_eq!(received.flags, ibv_wc_flags::IBV_WC_WITH_IMM.0);
    assert_eq!(b.bytes.get(0, 7), b"inline\0");
}

#[test]
fn empty_send_consumes_a_receive() {
    let (a, b) = reliable();
    b.receive(7, &[]);
    a.post(1, Operation::Send, |_| {});
    assert_eq!(a.sent().status, SUCCESS);
    assert_eq!(b.received().byte_len, 0);
}

#[test]
fn only_write_with_immediate_consumes_a_receive() {
    let (a, b) = reliable();
    let (address, rkey) = b.at(64);
    a.bytes.set(0, b"written");
    a.post_bytes(1, Operation::Write { address, rkey }, 0, 7);
    let sent = a.sent();
    assert_eq!((sent.status, sent.opcode), (SUCCESS, ibv_wc_opcode::IBV_WC_RDMA_WRITE));
    assert_eq!(b.bytes.get(64, 8), b"written\0");
    assert!(b.receives.pop().is_none());

    b.receive(7, &[]);
    a.post_bytes(2, Operation::WriteImmediate { address: address + 100, rkey, immediate: 5 }, 0, 3);
    assert_eq!(a.sent().status, SUCCESS);
    let received = b.received();
    assert_eq!((received.wr_id, received.byte_len, received.immediate), (7, 3, 5));
    assert_eq!(received.opcode, ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM);
    assert_eq!(b.bytes.get(164, 4), b"wri\0");
}

#[test]
fn read_returns_the_peers_bytes() {
    let (a, b) = reliable();
    let (address, rkey) = b.at(10);
    b.bytes.set(10, b"to be read");
    a.post(1, Operation::Read { address, rkey }, |work| {
        work.pieces.extend([a.bytes.piece(0, 3), a.bytes.piece(100, 7)]);
    });
    let sent = a.sent();
    assert_eq!((sent.status, sent.opcode, sent.byte_len), (SUCCESS, ibv_wc_opcode::IBV_WC_RDMA_READ, 10));
    assert_eq!((a.bytes.get(0, 4), a.bytes.get(100, 7)), (b"to \0".to_vec(), b"be read".to_vec()));
}

#[test]
fn empty_reads_and_writes_require_no_key() {
    let (a, b) = reliable();
    a.post(1, Operation::Read { address: 1, rkey: 0 }, |_| {});
    a.post(2, Operation::Write { address: 1, rkey: 0 }, |_| {});
    assert_eq!(a.sent_statuses(), [(1, SUCCESS), (2, SUCCESS)]);
    assert_eq!(b.log.events(), []);
}

#[test]
fn atomics_return_the_previous_value() {
    let (a, b) = reliable();
    let (address, rkey) = b.at(8);
    b.bytes.set(8, &40_u64.to_ne_bytes());
    a.post_bytes(1, Operation::FetchAdd { address, rkey, add: 2 }, 16, 8);
    let sent = a.sent();
    assert_eq!((sent.status, sent.opcode, sent.byte_len), (SUCCESS, ibv_wc_opcode::IBV_WC_FETCH_ADD, 8));
    assert_eq!(a.bytes.get(16, 8), 40_u64.to_ne_bytes());
    assert_eq!(b.bytes.get(8, 8), 42_u64.to_ne_bytes());

    for (wr_id, compare, found, left) in [(2, 41, 42, 42), (3, 42, 42, 7)] {
        a.post_bytes(wr_id, Operation::CompareSwap { address, rkey, compare, swap: 7 }, 24, 8);
        let sent = a.sent();
        assert_eq!((sent.wr_id, sent.status, sent.opcode), (wr_id, SUCCESS, ibv_wc_opcode::IBV_WC_COMP_SWAP));
        assert_eq!(a.bytes.get(24, 8), u64::to_ne_bytes(found));
        assert_eq!(b.bytes.get(8, 8), u64::to_ne_bytes(left));
    }

    a.post(4, Operation::AtomicWrite { address, rkey }, |work| {
        work.is_inline = true;
        work.inline.extend_from_slice(&0x0807_0605_0403_0201_u64.to_ne_bytes());
    });
    let sent = a.sent();
    assert_eq!((sent.status, sent.opcode), (SUCCESS, ibv_wc_opcode::IBV_WC_ATOMIC_WRITE));
    assert_eq!(b.bytes.get(8, 8), 0x0807_0605_0403_0201_u64.to_ne_bytes());
}

#[test]
fn flush_requires_access() {
    let (a, b) = reliable();
    let (address, rkey) = b.at(0);
    for (level, length) in [(IBV_FLUSH_RANGE, LENGTH as u64), (IBV_FLUSH_MR, 0)] {
        a.post(1, Operation::Flush { address, rkey, length, placement: IBV_FLUSH_GLOBAL, level }, |_| {});
        let sent = a.sent();
        assert_eq!((sent.status, sent.opcode), (SUCCESS, ibv_wc_opcode::IBV_WC_FLUSH));
    }
    // Each request takes one PSN, whatever its length is.
    assert_eq!(a.pair.attributes().sq_psn, 0xff_fff2);
    a.post(
        1,
        Operation::Flush { address, rkey: rkey ^ 1, length: 0, placement: IBV_FLUSH_GLOBAL, level: IBV_FLUSH_MR },
        |_| {},
    );
    assert_eq!(a.sent().status, ibv_wc_status::IBV_WC_REM_ACCESS_ERR);
}

#[test]
fn windows_are_bound_and_invalidated_by_both_sides() {
    let bind_rights = ibv_access_flags::IBV_ACCESS_MW_BIND.0;
    let (a, b) = reliable();
    let bytes = Bytes::new(&b.domain, 64, ALL | bind_rights);
    let window = Memory::of_process().window(&b.domain, true).unwrap();
    let bind = |wr_id, low: u8| {
        let rkey = window.key() & !0xff | u32::from(low);
        b.post(wr_id, Operation::Bind, |work| {
            let bind = Bind {
                window: window.clone(),
                rkey,
                lkey: bytes.key(),
                address: IOVA,
                length: 64,
                access: REMOTE_WRITE,
            };
            work.bind = Some(Box::new(bind));
        });
        let sent = b.sent();
        assert_eq!((sent.status, sent.opcode), (SUCCESS, ibv_wc_opcode::IBV_WC_BIND_MW));
        rkey
    };
    let rkey = bind(1, 5);
    a.post_bytes(1, Operation::Write { address: IOVA, rkey }, 0, 8);
    assert_eq!(a.sent().status, SUCCESS);

    b.receive(2, &[]);
    a.post(2, Operation::SendInvalidate { rkey }, |_| {});
    assert_eq!(a.sent().status, SUCCESS);
    let received = b.received();
    assert_eq!((received.flags, received.immediate), (ibv_wc_flags::IBV_WC_WITH_INV.0, rkey));

    let rkey = bind(3, 6);
    b.post(4, Operation::LocalInvalidate { rkey }, |_| {});
    let sent = b.sent();
    assert_eq!((sent.status, sent.opcode), (SUCCESS, ibv_wc_opcode::IBV_WC_LOCAL_INV));
    a.post_bytes(5, Operation::Write { address: IOVA, rkey }, 0, 8);
    assert_eq!(a.sent().status, ibv_wc_status::IBV_WC_REM_ACCESS_ERR);
    Memory::of_process().free_window(&window).unwrap();
}

#[test]
fn qp_can_be_connected_to_itself() {
    let a = End::new(Service::ReliableConnection);
    a.connect(a.pair.number());
    a.bytes.set(0, b"to myself");
    a.receive_bytes(1, 100, 9);
    a.post_bytes(2, Operation::Send, 0, 9);
    assert_eq!((a.sent().status, a.received().status), (SUCCESS, SUCCESS));
    assert_eq!(a.bytes.get(100, 9), b"to myself");
    // An error of the responder flushes the requester of the same QP, whose lock is held.
    let (address, rkey) = a.at(0);
    let mut batch = a.pair.batch();
    for wr_id in [3, 4] {
        let work = batch.push().unwrap();
        work.wr_id = wr_id;
        work.operation = Operation::Write { address, rkey: rkey ^ 1 };
        work.pieces.push(a.bytes.piece(0, 1));
    }
    batch.complete();
    assert_eq!(a.sent_statuses(), [(3, ibv_wc_status::IBV_WC_REM_ACCESS_ERR), (4, FLUSHED)]);
    assert_eq!(a.pair.state(), State::Error);
}

#[test]
fn unreliable_connection_sends_and_writes() {
    let (a, b) = connected(Service::UnreliableConnection);
    let (address, rkey) = b.at(0);
    a.bytes.set(0, b"data");
    b.receive_bytes(1, 100, 4);
    a.post_bytes(1, Operation::Send, 0, 4);
    a.post_bytes(2, Operation::Write { address, rkey }, 0, 4);
    // If no receive is posted, the send is lost. A write without access rights is lost too.
    a.post_bytes(3, Operation::Send, 0, 4);
    a.post_bytes(4, Operation::Write { address, rkey: rkey ^ 1 }, 0, 4);
    assert_eq!(a.sent_statuses(), [(1, SUCCESS), (2, SUCCESS), (3, SUCCESS), (4, SUCCESS)]);
    assert_eq!(b.received_statuses(), [(1, SUCCESS)]);
    assert_eq!((b.bytes.get(0, 4), b.bytes.get(100, 4)), (b"data".to_vec(), b"data".to_vec()));
    assert_eq!((a.pair.state(), b.pair.state()), (State::ReadyToSend, State::ReadyToSend));
    assert_eq!(b.log.events(), []);
}

#[test]
fn unreliable_connection_resumes_at_any_psn() {
    let (a, b) = (End::new(Service::UnreliableConnection), End::new(Service::UnreliableConnection));
    a.connect(b.pair.number());
    b.ready(&Attributes { rq_psn: 5, ..attributes(a.pair.number()) });
    b.receive_bytes(1, 0, 2048);
    a.post_bytes(1, Operation::Send, 0, 1025);
    assert_eq!(b.received_statuses(), [(1, SUCCESS)]);
    assert_eq!(b.pair.attributes().rq_psn, a.pair.attributes().sq_psn);
    assert_eq!(a.pair.attributes().sq_psn, 0xff_fff2);
}

#[test]
fn psn_advances_by_path_mtu() {
    let (a, b) = reliable();
    let (address, rkey) = b.at(0);
    a.post_bytes(1, Operation::Write { address, rkey }, 0, 8192);
    a.post_bytes(2, Operation::Read { address, rkey }, 0, 1025);
    a.post_bytes(3, Operation::FetchAdd { address, rkey, add: 0 }, 0, 8);
    assert_eq!(a.sent_statuses(), [(1, SUCCESS), (2, SUCCESS), (3, SUCCESS)]);
    let next = (0xff_fff0 + 8 + 2 + 1) & 0xff_ffff;
    assert_eq!((a.pair.attributes().sq_psn, b.pair.attributes().rq_psn), (next, next));
    assert_eq!((b.pair.attributes().sq_psn, a.pair.attributes().rq_psn), (0xff_fff0, 0xff_fff0));
}

#[test]
fn polled_completion_releases_slots() {
    let (a, b) = reliable();
    let (address, rkey) = b.at(0);
    let write = |wr_id, is_signaled| {
        let mut batch = a.pair.batch();
        let work = batch.push()?;
        work.wr_id = wr_id;
        work.operation = Operation::Write { address, rkey };
        work.is_signaled = is_signaled;
        batch.complete();
        Ok(())
    };
    for round in 0..3 {
        for index in 1..=SLOTS {
            assert_eq!(write(u64::from(index), index == SLOTS / 2), Ok(()), "{round}");
        }
        assert_eq!(write(0, true), Err(Errno::NO_MEMORY));
        assert_eq!(a.sent_statuses(), [(u64::from(SLOTS / 2), SUCCESS)]);
        // The slots of the second half are released only when a later completion is polled.
        for index in 1..=SLOTS / 2 {
            assert_eq!(write(u64::from(index), index == SLOTS / 2), Ok(()));
        }
        assert_eq!(write(0, true), Err(Errno::NO_MEMORY));
        assert_eq!(a.sent_statuses(), [(u64::from(SLOTS / 2), SUCCESS)]);
    }
}

#[test]
fn dropped_batch_posts_nothing() {
    let (a, b) = reliable();
    let (address, rkey) = b.at(0);
    let mut batch = a.pair.batch();
    for _ in 0..SLOTS {
        batch.push().unwrap().operation = Operation::Write { address, rkey };
    }
    assert!(batch.push().is_err());
    drop(batch);
    let mut batch = a.pair.batch();
    batch.pop();
    for wr_id in 0..3 {
        let work = batch.push().unwrap();
        (work.wr_id, work.operation, work.is_signaled) = (wr_id, Operation::Write { address, rkey }, true);
    }
    batch.pop();
    batch.complete();
    assert_eq!(a.sent_statuses(), [(0, SUCCESS), (1, SUCCESS)]);
}
