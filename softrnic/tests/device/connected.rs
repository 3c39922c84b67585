//! Tests of two connected QPs in one process.

use crate::common::{Setup, close, open, pair};
use rdma_mummy_sys::*;

fn fill(side: &mut crate::common::Side, from: usize, length: usize) -> Vec<u8> {
    let data: Vec<u8> = (0..length).map(|place| (place * 31 + from) as u8).collect();
    side.buffer[from..from + length].copy_from_slice(&data);
    data
}

#[test]
fn message_completes_on_both_sides() {
    let mut sides = pair(open(c"soft0"), Setup::default());
    let data = fill(&mut sides[0], 0, 5000);
    let [left, right] = &sides;
    right.receive(7, &mut [right.piece(100, 2000), right.piece(10_000, 4000)]);
    left.send(ibv_wr_opcode::IBV_WR_SEND, 8, &mut [left.piece(0, 3000), left.piece(3000, 2000)], |_| {});
    left.done(8);
    let received = right.done(7);
    assert_eq!((received.byte_len, received.opcode), (5000, ibv_wc_opcode::IBV_WC_RECV));
    assert_eq!(received.qp_num, right.number());
    assert_eq!(right.buffer[100..2100], data[..2000]);
    assert_eq!(right.buffer[10_000..13_000], data[2000..]);
    assert!(right.poll().is_none() && left.poll().is_none());
    close(sides);
}

#[test]
fn memory_is_written_and_read_by_key() {
    let mut sides = pair(open(c"soft0"), Setup::default());
    let data = fill(&mut sides[0], 0, 10_000);
    let [left, right] = &sides;
    let (remote_addr, rkey) = (right.address() + 77, right.rkey());
    left.send(ibv_wr_opcode::IBV_WR_RDMA_WRITE, 1, &mut [left.piece(0, 10_000)], |wr| {
        wr.wr.rdma = ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr, rkey };
    });
    assert_eq!(left.done(1).opcode, ibv_wc_opcode::IBV_WC_RDMA_WRITE);
    assert_eq!(right.buffer[77..10_077], data);
    left.send(ibv_wr_opcode::IBV_WR_RDMA_READ, 2, &mut [left.piece(20_000, 10_000)], |wr| {
        wr.wr.rdma = ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr, rkey };
    });
    let read = left.done(2);
    assert_eq!((read.opcode, read.byte_len), (ibv_wc_opcode::IBV_WC_RDMA_READ, 10_000));
    assert_eq!(left.buffer[20_000..30_000], data);
    assert!(right.poll().is_none(), "the peer has no completion");
    close(sides);
}

#[test]
fn atomics_change_a_counter() {
    let mut sides = pair(open(c"soft0"), Setup::default());
    // The first offset at which the address is a multiple of eight.
    let place = sides[1].buffer.as_ptr().align_offset(8);
    sides[1].buffer[place..place + 8].copy_from_slice(&5_u64.to_ne_bytes());
    let [left, right] = &sides;
    let (remote_addr, rkey) = (right.address() + place as u64, right.rkey());
    let value = |bytes: &[u8]| u64::from_ne_bytes(std::array::from_fn(|byte| bytes[byte]));
    for (wr_id, opcode, compare_add, swap, before, after) in [
        (1, ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD, 3, 0, 5, 8),
        (2, ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP, 8, 100, 8, 100),
        (3, ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP, 8, 200, 100, 100),
    ] {
        left.send(opcode, wr_id, &mut [left.piece(0, 8)], |wr| {
            wr.wr.atomic = ibv_send_wr__bindgen_ty_2__bindgen_ty_2 { remote_addr, compare_add, swap, rkey };
        });
        left.done(wr_id);
        assert_eq!(value(&left.buffer[..8]), before);
        assert_eq!(value(&right.buffer[place..place + 8]), after);
    }
    close(sides);
}

#[test]
fn invalid_key_ends_the_connection() {
    let sides = pair(open(c"soft0"), Setup::default());
    let [left, right] = &sides;
    let write = |wr_id, rkey| {
        left.send(ibv_wr_opcode::IBV_WR_RDMA_WRITE, wr_id, &mut [left.piece(0, 8)], |wr| {
            wr.wr.rdma = ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr: right.address(), rkey };
        });
    };
    write(1, right.rkey() ^ 0x5a00);
    assert_eq!(left.wait().status, ibv_wc_status::IBV_WC_REM_ACCESS_ERR);
    write(2, right.rkey());
    let flushed = left.wait();
    assert_eq!((flushed.wr_id, flushed.status), (2, ibv_wc_status::IBV_WC_WR_FLUSH_ERR));
    assert_eq!(left.state(), ibv_qp_state::IBV_QPS_ERR);
    close(sides);
}

#[test]
fn late_receive_is_waited_for() {
    let mut sides = pair(open(c"soft0"), Setup::default());
    let data = fill(&mut sides[0], 0, 64);
    let [left, right] = &sides;
    left.send(ibv_wr_opcode::IBV_WR_SEND, 1, &mut [left.piece(0, 64)], |_| {});
    assert!(left.poll().is_none(), "no receive is posted");
    right.receive(2, &mut [right.piece(0, 64)]);
    left.done(1);
    right.done(2);
    assert_eq!(right.buffer[..64], data);
    close(sides);
}

#[test]
fn missing_receive_exhausts_rnr_retries() {
    let sides = pair(open(c"soft0"), Setup { rnr_retry: 2, ..Setup::default() });
    let [left, _] = &sides;
    left.send(ibv_wr_opcode::IBV_WR_SEND, 1, &mut [left.piece(0, 64)], |_| {});
    assert_eq!(left.wait().status, ibv_wc_status::IBV_WC_RNR_RETRY_EXC_ERR);
    close(sides);
}

#[test]
fn missing_peer_exhausts_retries() {
    let context = open(c"soft0");
    let setup = Setup { retry_cnt: 1, timeout: 8, ..Setup::default() };
    let side = crate::common::Side::new(context, setup);
    side.connect(0xff_fffe, setup);
    side.send(ibv_wr_opcode::IBV_WR_SEND, 1, &mut [side.piece(0, 64)], |_| {});
    assert_eq!(side.wait().status, ibv_wc_status::IBV_WC_RETRY_EXC_ERR);
    assert_eq!(side.state(), ibv_qp_state::IBV_QPS_ERR);
    side.close();
    // SAFETY: the device has no objects left.
    assert_eq!(unsafe { ibv_close_device(context) }, 0);
}

#[test]
fn small_queue_carries_many_requests() {
    let mut sides = pair(open(c"soft0"), Setup { depth: 8, ..Setup::default() });
    for round in 0..1000_u64 {
        let data = fill(&mut sides[0], (round % 64) as usize, 128);
        let [left, right] = &sides;
        right.receive(round, &mut [right.piece(0, 128)]);
        left.send(ibv_wr_opcode::IBV_WR_SEND, round, &mut [left.piece((round % 64) as usize, 128)], |_| {});
        left.done(round);
        right.done(round);
        assert_eq!(right.buffer[..128], data);
    }
    close(sides);
}

#[test]
fn cuda_is_not_loaded() {
    let sides = pair(open(c"soft0"), Setup::default());
    // SAFETY: the name ends with a nul byte; nothing is loaded.
    let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    assert!(library.is_null());
    close(sides);
}
