//! Every operation, posted through every kind of queue pair and polled from every kind of completion queue, between two queue
//! pairs of one device.

use std::io::IoSlice;

use sideway::ibverbs::completion::WorkCompletionOperationType as Operation;
use sideway::ibverbs::queue_pair::{ExtendedQueuePair, PostSendGuard};
use sideway::ibverbs::work_request::{PostErrorKind, WorkRequestFlags};
use sideway_tests::loopback::{Give, INLINE, Kind, Loopback, Named, QueueKind, REQUESTS};
use sideway_tests::{device, on_all_kinds};

const SIGNALED: WorkRequestFlags = WorkRequestFlags::Signaled;

/// Bytes that identify their position.
fn text(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8 ^ seed).collect()
}

#[test]
fn send_arrives_with_and_without_immediate_data() {
    on_all_kinds!(send);
}

fn send<Q: Kind>(queue: QueueKind) {
    let mut pair = Loopback::<Q>::new(queue);
    let data = text(5000, 1);
    pair.near.memory.write(100, &data);
    pair.far.post_receive(10, 0, 6000);
    pair.far.post_receive(11, 6000, 6000);
    let range = pair.near.range(100, 5000);

    let mut batch = pair.near.qp.start_post_send();
    batch.construct_wr(20, SIGNALED).setup_send().give(range);
    batch.construct_wr(21, SIGNALED).setup_send_imm(0xdead_beef).give(range);
    batch.post().expect("both can be posted");

    for (wr_id, imm_data, offset) in [(10, None, 0), (11, Some(0xdead_beef), 6000)] {
        let received = pair.far.success();
        assert_eq!((received.wr_id, received.opcode), (wr_id, Some(Operation::Receive)));
        assert_eq!((received.byte_len, received.imm_data), (Some(5000), imm_data));
        assert_eq!(pair.far.bytes(offset, 5001), [&data[..], &[0]].concat(), "the message was longer than sent");
    }
    for wr_id in [20, 21] {
        let sent = pair.near.success();
        assert_eq!((sent.wr_id, sent.opcode), (wr_id, Some(Operation::Send)));
    }
}

#[test]
fn write_completes_at_the_peer_only_with_immediate_data() {
    on_all_kinds!(write);
}

fn write<Q: Kind>(queue: QueueKind) {
    let mut pair = Loopback::<Q>::new(queue);
    let data = text(3000, 2);
    pair.near.memory.write(0, &data);
    pair.far.post_receive(30, 0, 0);
    let range = pair.near.range(0, 3000);
    let (rkey, addr) = pair.far.remote(8000);

    let mut batch = pair.near.qp.start_post_send();
    batch.construct_wr(31, SIGNALED).setup_write(rkey, addr).give(range);
    batch.post().expect("a write can be posted");
    let written = pair.near.success();
    assert_eq!((written.wr_id, written.opcode), (31, Some(Operation::Write)));
    assert_eq!(pair.far.bytes(7999, 3002), [&[0], &data[..], &[0]].concat());
    pair.far.silence();

    let mut batch = pair.near.qp.start_post_send();
    batch.construct_wr(32, SIGNALED).setup_write_imm(rkey, addr + 20_000, 7).give(range);
    batch.post().expect("a write with immediate data can be posted");
    assert_eq!(pair.near.success().wr_id, 32);
    let noticed = pair.far.success();
    assert_eq!((noticed.wr_id, noticed.opcode), (30, Some(Operation::ReceiveWriteWithImmediate)));
    assert_eq!((noticed.byte_len, noticed.imm_data), (Some(3000), Some(7)));
    assert_eq!(pair.far.bytes(28_000, 3000), data);
}

#[test]
fn read_fetches_the_peers_bytes() {
    on_all_kinds!(read);
}

fn read<Q: Kind>(queue: QueueKind) {
    let mut pair = Loopback::<Q>::new(queue);
    let data = text(9000, 3);
    pair.far.memory.write(500, &data);
    let range = pair.near.range(64, 9000);
    let (rkey, addr) = pair.far.remote(500);

    let mut batch = pair.near.qp.start_post_send();
    batch.construct_wr(40, SIGNALED).setup_read(rkey, addr).give(range);
    batch.post().expect("a read can be posted");
    let fetched = pair.near.success();
    assert_eq!((fetched.wr_id, fetched.opcode), (40, Some(Operation::Read)));
    assert_eq!(pair.near.bytes(63, 9002), [&[0], &data[..], &[0]].concat());
    pair.far.silence();
}

#[test]
fn atomics_change_eight_bytes_and_give_their_old_value() {
    on_all_kinds!(atomics);
}

fn atomics<Q: Kind>(queue: QueueKind) {
    let mut pair = Loopback::<Q>::new(queue);
    pair.far.memory.write(64, &1000_u64.to_ne_bytes());
    let (rkey, addr) = pair.far.remote(64);
    let old = pair.near.range(8, 8);
    let value = |bytes: Vec<u8>| u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));

    let mut done = 0;
    // The contents of the far memory before and after: add, swap, and a swap with a failed comparison.
    for (before, after) in [(1000, 1042), (1042, 7), (7, 7)] {
        let mut batch = pair.near.qp.start_post_send();
        let request = batch.construct_wr(50 + done, SIGNALED);
        match done {
            0 => request.setup_atomic_fetch_add(rkey, addr, 42).give(old),
            1 => request.setup_atomic_compare_swap(rkey, addr, 1042, 7).give(old),
            _ => request.setup_atomic_compare_swap(rkey, addr, 1042, 99).give(old),
        }
        batch.post().expect("an atomic can be posted");
        let completion = pair.near.success();
        let operation = if done == 0 { Operation::AtomicFetchAndAdd } else { Operation::AtomicCompareAndSwap };
        assert_eq!((completion.wr_id, completion.opcode), (50 + done, Some(operation)));
        assert_eq!(value(pair.near.bytes(8, 8)), before, "the old value, step {done}");
        assert_eq!(value(pair.far.bytes(64, 8)), after, "the new value, step {done}");
        done += 1;
    }
    assert_eq!(done, 3);
}

#[test]
fn inline_data_may_change_after_the_setter() {
    on_all_kinds!(inline);
}

fn inline<Q: Kind>(queue: QueueKind) {
    let mut pair = Loopback::<Q>::new(queue);
    let (rkey, addr) = pair.far.remote(1000);
    pair.far.post_receive(60, 0, 100);
    pair.far.post_receive(61, 100, 100);
    pair.far.post_receive(62, 200, 100);
    let longest = text(INLINE as usize, 4);

    let mut batch = pair.near.qp.start_post_send();
    {
        let mut short = b"one piece".to_vec();
        batch.construct_wr(63, SIGNALED).setup_send().setup_inline_data(&short);
        short.fill(b'x');
    }
    let pieces: [&[u8]; 4] = [b"several ", b"", b"pieces, ", b"joined"];
    batch.construct_wr(64, SIGNALED).setup_send_imm(5).setup_inline_data_list(&pieces.map(IoSlice::new));
    batch.construct_wr(65, SIGNALED).setup_write(rkey, addr).setup_inline_data(&longest);
    batch
        .construct_wr(66, SIGNALED)
        .setup_write_imm(rkey, addr + 100, 6)
        .setup_inline_data_list(&[IoSlice::new(b"written")]);
    batch.post().expect("inline data can be posted");

    let received = [pair.far.success(), pair.far.success(), pair.far.success()];
    assert_eq!(received.map(|completion| completion.wr_id), [60, 61, 62]);
    assert_eq!(received.map(|completion| completion.byte_len), [Some(9), Some(22), Some(7)]);
    assert_eq!(received.map(|completion| completion.imm_data), [None, Some(5), Some(6)]);
    assert_eq!(pair.far.bytes(0, 9), b"one piece");
    assert_eq!(pair.far.bytes(100, 22), b"several pieces, joined");
    assert_eq!(pair.far.bytes(1000, INLINE as usize), longest);
    assert_eq!(pair.far.bytes(1100, 7), b"written");
    assert_eq!([63, 64, 65, 66], [(); 4].map(|()| pair.near.success().wr_id));
}

#[test]
fn lists_are_gathered_and_scattered() {
    on_all_kinds!(equal_lists);
    on_all_kinds!(unequal_lists);
}

fn equal_lists<Q: Kind>(queue: QueueKind) {
    let mut pair = Loopback::<Q>::new(queue);
    let data = text(300, 5);
    pair.near.memory.write(0, &data);
    let ranges = [pair.near.range(200, 100), pair.near.range(0, 100), pair.near.range(100, 100)];
    let scattered = [pair.far.range(1000, 50), pair.far.range(0, 200), pair.far.range(5000, 100)];
    let mut receive = pair.far.qp.start_post_recv();
    receive.construct_wr(70).give_list(&scattered);
    receive.post().expect("a list can be received into");

    let mut batch = pair.near.qp.start_post_send();
    batch.construct_wr(71, SIGNALED).setup_send().give_list(&ranges);
    batch.post().expect("a list of equal lengths can be posted");
    assert_eq!(pair.far.success().byte_len, Some(300));
    assert_eq!(pair.near.success().wr_id, 71);
    let expected = [&data[200..], &data[..200]].concat();
    assert_eq!(pair.far.bytes(1000, 51), [&expected[..50], &[0]].concat());
    assert_eq!(pair.far.bytes(0, 201), [&expected[50..250], &[0]].concat());
    assert_eq!(pair.far.bytes(5000, 51), [&expected[250..], &[0]].concat());
}

fn unequal_lists<Q: Kind>(queue: QueueKind) {
    let mut pair = Loopback::<Q>::new(queue);
    let data = text(1000, 6);
    pair.near.memory.write(0, &data);
    let (rkey, addr) = pair.far.remote(2000);
    let ranges = [pair.near.range(0, 1), pair.near.range(1, 600), pair.near.range(601, 399)];
    let single = pair.near.range(0, 10);

    let mut batch = pair.near.qp.start_post_send();
    batch.construct_wr(72, SIGNALED).setup_write(rkey, addr).give_list(&ranges);
    let posted = batch.post();
    if Q::NAME == <ExtendedQueuePair>::NAME && device::is_soft_roce(&pair.context) {
        // rdma-core's driver would send this list incorrectly.
        let error = posted.expect_err("soft-RoCE's extended queue pairs refuse it");
        assert_eq!(error.kind(), PostErrorKind::InvalidWorkRequest, "{error}");
        assert_eq!(error.failed_request().map(|failed| failed.wr_id), Some(72));
        assert_eq!(error.posted(), Some(0));
        assert!(
            error.to_string().contains("different lengths") && error.to_string().contains("build_generic"),
            "{error}"
        );
        pair.near.silence();
        // The queue pair still works.
        let mut batch = pair.near.qp.start_post_send();
        batch.construct_wr(73, SIGNALED).setup_write(rkey, addr).give(single);
        batch.post().expect("one range can be posted");
        assert_eq!(pair.near.success().wr_id, 73);
        assert_eq!(pair.far.bytes(2000, 11), [&data[..10], &[0]].concat());
    } else {
        posted.expect("a list of unequal lengths can be posted");
        assert_eq!(pair.near.success().wr_id, 72);
        assert_eq!(pair.far.bytes(2000, 1001), [&data[..], &[0]].concat());
    }
}

#[test]
fn messages_of_length_zero_arrive() {
    on_all_kinds!(nothing);
}

fn nothing<Q: Kind>(queue: QueueKind) {
    let mut pair = Loopback::<Q>::new(queue);
    let (rkey, addr) = pair.far.remote(0);
    let mut receive = pair.far.qp.start_post_recv();
    receive.construct_wr(80).setup_no_data();
    receive.construct_wr(81).setup_no_data();
    receive.construct_wr(82).setup_no_data();
    receive.post().expect("a receive without memory can be posted");

    let mut batch = pair.near.qp.start_post_send();
    batch.construct_wr(83, SIGNALED).setup_send().setup_no_data();
    batch.construct_wr(84, SIGNALED).setup_send_imm(9).setup_inline_data(&[]);
    batch.construct_wr(85, SIGNALED).setup_write(rkey, addr).setup_no_data();
    batch.construct_wr(86, SIGNALED).setup_write_imm(rkey, addr, 8).give_list(&[]);
    batch.construct_wr(87, SIGNALED).setup_read(rkey, addr).setup_no_data();
    batch.post().expect("nothing can be posted");

    let received = [pair.far.success(), pair.far.success(), pair.far.success()];
    assert_eq!(received.map(|completion| completion.wr_id), [80, 81, 82]);
    assert_eq!(received.map(|completion| completion.byte_len), [Some(0); 3]);
    assert_eq!(received.map(|completion| completion.imm_data), [None, Some(9), Some(8)]);
    assert_eq!([83, 84, 85, 86, 87], [(); 5].map(|()| pair.near.success().wr_id));
    assert_eq!(pair.far.bytes(0, 64), [0; 64]);
}

#[test]
fn thousands_of_messages_keep_their_order() {
    on_all_kinds!(many);
}

fn many<Q: Kind>(queue: QueueKind) {
    const ROUNDS: u64 = 100;
    let mut pair = Loopback::<Q>::new(queue);
    let mut arrived = 0;
    for round in 0..ROUNDS {
        let number = |at: u64| round * u64::from(REQUESTS) + at;
        let ranges = |end: &sideway_tests::loopback::End<Q>| -> Vec<_> {
            (0..REQUESTS as usize).map(|at| end.range(8 * at, 8)).collect()
        };
        let (from, into) = (ranges(&pair.near), ranges(&pair.far));
        let mut receive = pair.far.qp.start_post_recv();
        for (at, range) in (0..).zip(into) {
            receive.construct_wr(number(at)).give(range);
        }
        receive.post().expect("a full batch of receives can be posted");
        for at in 0..u64::from(REQUESTS) {
            pair.near.memory.write(8 * at as usize, &number(at).to_ne_bytes());
        }
        let mut batch = pair.near.qp.start_post_send();
        for (at, range) in (0..).zip(from) {
            // Only the last one is signaled.
            let flags = if at + 1 == u64::from(REQUESTS) { SIGNALED } else { WorkRequestFlags::empty() };
            batch.construct_wr(number(at), flags).setup_send_imm(number(at) as u32).give(range);
        }
        batch.post().expect("a full batch of sends can be posted");
        for at in 0..u64::from(REQUESTS) {
            let received = pair.far.success();
            assert_eq!((received.wr_id, received.imm_data), (number(at), Some(number(at) as u32)));
            assert_eq!(pair.far.bytes(8 * at as usize, 8), number(at).to_ne_bytes());
            arrived += 1;
        }
        assert_eq!(pair.near.success().wr_id, number(u64::from(REQUESTS) - 1));
    }
    assert_eq!(arrived, ROUNDS * u64::from(REQUESTS));
    assert_eq!((pair.near.drain(), pair.far.drain()), (0, 0));
}
