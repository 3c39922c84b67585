//! `ibv_wr_start` and the extended requests.

use rdma_mummy_sys::{
    ibv_data_buf, ibv_qp_ex, ibv_qp_ex_since_v44, ibv_send_flags as flag, ibv_wc_opcode, ibv_wr_opcode as opcode,
};

use super::sharing::Shared;
use super::*;
use crate::verbs::address_handle::{create_ah, destroy_ah};
use crate::wire::operation::Service;

const SUCCESS: ibv_wc_status = ibv_wc_status::IBV_WC_SUCCESS;

fn two(world: &World, qp_type: ibv_qp_type) -> [*mut ibv_qp; 2] {
    let service = match qp_type {
        UD => Service::UnreliableDatagram,
        UC => Service::UnreliableConnection,
        _ => Service::ReliableConnection,
    };
    let both = [0; 2].map(|_| world.extended_pair(qp_type, operations::of(service)));
    connect(both);
    both
}

/// Calls a function of an extended QP.
macro_rules! call {
    ($qp:expr, $function:ident $(, $argument:expr)*) => {
        // SAFETY: the QP is alive, was created with the function, and this thread alone uses it.
        unsafe { (*$qp).$function.unwrap()($qp $(, $argument)*) }
    };
}

/// Begins a batch of signaled requests.
fn start(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    // SAFETY: the QP is alive.
    let qp = unsafe { qp_to_qp_ex(qp) };
    assert!(!qp.is_null());
    call!(qp, wr_start);
    // SAFETY: only this thread uses the QP.
    unsafe { (*qp).wr_flags = flag::IBV_SEND_SIGNALED.0 };
    qp
}

fn name(qp: *mut ibv_qp_ex, wr_id: u64) {
    // SAFETY: only this thread uses the QP.
    unsafe { (*qp).wr_id = wr_id };
}

#[test]
fn batch_supports_all_operations() {
    let world = World::new();
    let [a, b] = two(&world, RC);
    world.set(0, 11);
    world.set(1, 22);
    assert_eq!(world.post_receive(b, 50, 300, 1), 0);
    assert_eq!(world.post_receive(b, 51, 301, 1), 0);
    let pieces = [world.piece(0, 1), world.piece(1, 1)];
    let (first, second) = (1_u32, [2_u32]);
    let value = 44_u64;
    let buffers = [
        ibv_data_buf { addr: pointer(&first), length: 4 },
        ibv_data_buf { addr: ptr::null_mut(), length: 0 },
        ibv_data_buf { addr: pointer(&second), length: 4 },
    ];

    let qp = start(a);
    name(qp, 1);
    call!(qp, wr_rdma_write, world.rkey(), world.address(100));
    call!(qp, wr_set_sge_list, 2, pieces.as_ptr());
    name(qp, 2);
    call!(qp, wr_rdma_read, world.rkey(), world.address(100));
    call!(qp, wr_set_sge, world.lkey(), world.address(2), 16);
    name(qp, 3);
    call!(qp, wr_atomic_fetch_add, world.rkey(), world.address(100), 5);
    call!(qp, wr_set_sge, world.lkey(), world.address(10), 8);
    name(qp, 4);
    call!(qp, wr_atomic_cmp_swp, world.rkey(), world.address(100), 16, 99);
    call!(qp, wr_set_sge, world.lkey(), world.address(11), 8);
    name(qp, 5);
    call!(qp, wr_rdma_write, world.rkey(), world.address(110));
    call!(qp, wr_set_inline_data_list, 3, buffers.as_ptr());
    name(qp, 6);
    call!(qp, wr_atomic_write, world.rkey(), world.address(111), pointer(&value).cast_const());
    name(qp, 7);
    call!(qp, wr_send);
    call!(qp, wr_set_inline_data, pointer(&value), 8);
    name(qp, 8);
    call!(qp, wr_rdma_write_imm, world.rkey(), world.address(112), 7_u32.to_be());
    call!(qp, wr_set_sge, world.lkey(), world.address(0), 8);
    assert_eq!(world.poll().map(|wc| wc.wr_id), None, "requests are executed at the end of the batch");
    assert_eq!(call!(qp, wr_complete), 0);

    let all: Vec<_> = (0..10).map(|_| world.wait()).collect();
    assert!(all.iter().all(|wc| wc.status == SUCCESS));
    let sent: Vec<_> = all.iter().filter(|wc| wc.wr_id < 50).map(|wc| wc.wr_id).collect();
    assert_eq!(sent, [1, 2, 3, 4, 5, 6, 7, 8]);
    let received: Vec<_> = all.iter().filter(|wc| wc.wr_id >= 50).map(|wc| (wc.wr_id, wc.opcode)).collect();
    assert_eq!(received, [(50, ibv_wc_opcode::IBV_WC_RECV), (51, ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM)]);
    assert_eq!([100, 101, 2, 3, 10, 11].map(|word| world.word(word)), [99, 22, 11, 22, 11, 16]);
    assert_eq!([110, 111, 112, 300].map(|word| world.word(word)), [0x2_0000_0001, 44, 11, 44]);
    destroy([a, b]);
}

/// A call that must fail. Its last two arguments are too much data and too many pieces.
type WrongCall = fn(*mut ibv_qp_ex, &World, &[u8], &[ibv_sge]);

#[test]
fn first_error_is_returned_and_nothing_is_posted() {
    let world = World::new();
    let [a, b] = two(&world, RC);
    let data = [0_u8; 65];
    let pieces = [world.piece(0, 1); 3];
    let mistakes: [WrongCall; 7] = [
        |qp, _, data, _| call!(qp, wr_set_inline_data, pointer(&data[0]), 65),
        |qp, _, _, pieces| call!(qp, wr_set_sge_list, 3, pieces.as_ptr()),
        |qp, _, _, _| call!(qp, wr_set_sge_list, 1, ptr::null()),
        |qp, _, _, _| call!(qp, wr_set_inline_data_list, 1, ptr::null()),
        |qp, world, data, _| {
            call!(qp, wr_rdma_read, world.rkey(), world.address(100));
            call!(qp, wr_set_inline_data, pointer(&data[0]), 8);
        },
        |qp, world, _, _| {
            call!(qp, wr_local_inv, 1);
            call!(qp, wr_set_sge, world.lkey(), world.address(0), 8);
        },
        |qp, world, _, _| call!(qp, wr_bind_mw, ptr::null_mut(), 1, pointer(&info(world)).cast()),
    ];
    for (at, mistake) in mistakes.into_iter().enumerate() {
        let qp = start(a);
        call!(qp, wr_rdma_write, world.rkey(), world.address(100));
        call!(qp, wr_set_sge, world.lkey(), world.address(0), 8);
        call!(qp, wr_rdma_write, world.rkey(), world.address(101));
        mistake(qp, &world, &data, &pieces);
        call!(qp, wr_rdma_write, world.rkey(), world.address(102));
        for _ in 0..10 {
            call!(qp, wr_send);
        }
        assert_eq!((call!(qp, wr_complete), errno()), (libc::EINVAL, libc::EINVAL), "{at}");
        assert_eq!(world.statuses(), [], "{at}");
    }
    let qp = start(a);
    for _ in 0..9 {
        call!(qp, wr_rdma_write, world.rkey(), world.address(100));
    }
    call!(qp, wr_set_sge_list, 3, pieces.as_ptr());
    assert_eq!(call!(qp, wr_complete), libc::ENOMEM, "the first error, not the last");
    let qp = start(a);
    call!(qp, wr_set_sge, world.lkey(), world.address(0), 8);
    assert_eq!(call!(qp, wr_complete), libc::EINVAL, "no request was begun");
    assert_eq!(call!(qp, wr_complete), libc::EINVAL, "no batch was begun");

    let qp = start(a);
    name(qp, 9);
    call!(qp, wr_rdma_write, world.rkey(), world.address(100));
    assert_eq!(
        (call!(qp, wr_complete), world.wait().wr_id),
        (0, 9),
        "the QP is unchanged, and a request without data is valid"
    );
    destroy([a, b]);
}

fn info(world: &World) -> rdma_mummy_sys::ibv_mw_bind_info {
    rdma_mummy_sys::ibv_mw_bind_info { mr: world.mr, addr: world.address(0), length: 8, mw_access_flags: 0 }
}

#[test]
fn change_during_own_batch_is_refused() {
    let world = World::new();
    let [a, b] = two(&world, RC);
    let qp = start(a);
    assert_eq!(move_to(a, state::IBV_QPS_ERR), libc::EBUSY);
    call!(qp, wr_abort);
    assert_eq!(move_to(a, state::IBV_QPS_ERR), 0);
    destroy([a, b]);
}

#[test]
fn aborted_batch_posts_nothing() {
    let world = World::new();
    let [a, b] = two(&world, RC);
    for _ in 0..20 {
        let qp = start(a);
        call!(qp, wr_rdma_write, world.rkey(), world.address(100));
        call!(qp, wr_set_sge, world.lkey(), world.address(0), 8);
        call!(qp, wr_abort);
        call!(qp, wr_abort);
    }
    assert_eq!(world.statuses(), []);
    let qp = start(a);
    call!(qp, wr_rdma_write, world.rkey(), world.address(100));
    // SAFETY: this thread alone uses the QP. Destroying the QP ends its open batch.
    unsafe { assert!((*qp).wr_send_tso.is_none()) };
    destroy([a, b]);
    assert_eq!(world.statuses(), []);
}

#[test]
fn batch_in_a_wrong_state_is_refused() {
    let world = World::new();
    let qp = world.extended_pair(RC, 0x4);
    let extended = start(qp);
    call!(extended, wr_send);
    assert_eq!(call!(extended, wr_complete), libc::EINVAL);
    // SAFETY: both QPs are alive.
    unsafe {
        assert!((*extended).wr_send_imm.is_none() && (*extended).wr_set_ud_addr.is_none());
        assert!((*extended.cast::<ibv_qp_ex_since_v44>()).wr_flush.is_none());
        let plain = world.pair(RC);
        assert!(qp_to_qp_ex(plain).is_null());
        destroy([qp, plain]);
    }
}

#[test]
fn datagrams_require_an_address() {
    let world = World::new();
    let [a, b] = two(&world, UD);
    // SAFETY: the domain and the QP are alive, and the attributes are readable.
    let (ah, number) = unsafe { (create_ah(world.pd, &mut loopback()), (*b).qp_num) };
    let qp = start(a);
    call!(qp, wr_send);
    call!(qp, wr_send);
    call!(qp, wr_set_ud_addr, ah, number, QKEY);
    assert_eq!(call!(qp, wr_complete), libc::EINVAL, "the first datagram has no address");
    let qp = start(a);
    call!(qp, wr_send);
    call!(qp, wr_set_ud_addr, ptr::null_mut(), number, QKEY);
    assert_eq!(call!(qp, wr_complete), libc::EINVAL);

    assert_eq!(world.post_receive(b, 7, 100, 6), 0);
    world.set(0, 6);
    let qp = start(a);
    call!(qp, wr_send_imm, 5_u32.to_be());
    call!(qp, wr_set_ud_addr, ah, number, QKEY);
    call!(qp, wr_set_sge, world.lkey(), world.address(0), 8);
    assert_eq!(call!(qp, wr_complete), 0);
    assert_eq!([world.wait().status, world.wait().status], [SUCCESS; 2]);
    assert_eq!(world.word(105), 6);
    destroy([a, b]);
    // SAFETY: the handle is alive, and not used again.
    assert_eq!(unsafe { destroy_ah(ah) }, 0);
}

#[test]
fn flush_and_posted_lists_work_with_batches() {
    let world = World::new();
    let [a, b] = two(&world, RC);
    let qp = start(a);
    let flush = {
        // SAFETY: the QP is alive, and was created with flush.
        unsafe { (*qp.cast::<ibv_qp_ex_since_v44>()).wr_flush.unwrap() }
    };
    name(qp, 1);
    // SAFETY: this thread alone uses the QP.
    unsafe { flush(qp, world.rkey(), world.address(100), 8, 1, 0) };
    assert_eq!(call!(qp, wr_complete), 0);
    let flushed = world.wait();
    assert_eq!((flushed.wr_id, flushed.status, flushed.opcode), (1, SUCCESS, ibv_wc_opcode::IBV_WC_FLUSH));
    let mut wr = request(2, opcode::IBV_WR_RDMA_WRITE, flag::IBV_SEND_SIGNALED.0);
    (wr.wr.rdma.remote_addr, wr.wr.rdma.rkey) = (world.address(100), world.rkey());
    assert_eq!(post(a, &mut [wr]), Ok(()));
    assert_eq!(world.wait().wr_id, 2);
    destroy([a, b]);
}

#[test]
fn unfinished_batch_fails_and_blocks_no_other_thread() {
    let world = World::new();
    let [a, b] = two(&world, RC);
    let qp = start(a);
    call!(qp, wr_rdma_write, world.rkey(), world.address(100));
    call!(qp, wr_set_sge, world.lkey(), world.address(0), 8);
    assert_eq!(move_to(a, state::IBV_QPS_SQD), libc::EBUSY, "a batch of this thread is open");
    let shared = Shared(a);
    let both = [state::IBV_QPS_SQD, state::IBV_QPS_RTS];
    let moved = std::thread::spawn(move || both.map(|to| move_to(shared.get(), to))).join().unwrap();
    assert_eq!(moved, [0, 0]);
    let mut piece = world.piece(0, 1);
    let mut wr = request(7, opcode::IBV_WR_SEND, flag::IBV_SEND_SIGNALED.0);
    (wr.sg_list, wr.num_sge) = (&raw mut piece, 1);
    assert_eq!(world.post_receive(b, 50, 300, 1), 0);
    assert_eq!(post(a, &mut [wr]), Ok(()));
    let mut done = [world.wait(), world.wait()].map(|wc| wc.wr_id);
    done.sort_unstable();
    assert_eq!(done, [7, 50]);
    // This thread begins a second batch before the end of the first one, so both batches fail when they end.
    let qp = start(a);
    name(qp, 2);
    call!(qp, wr_rdma_write, world.rkey(), world.address(102));
    call!(qp, wr_set_sge, world.lkey(), world.address(0), 8);
    assert_eq!(call!(qp, wr_complete), libc::EBUSY);
    let qp = start(a);
    name(qp, 3);
    call!(qp, wr_rdma_write, world.rkey(), world.address(103));
    call!(qp, wr_set_sge, world.lkey(), world.address(0), 8);
    assert_eq!(call!(qp, wr_complete), 0);
    assert_eq!(world.wait().wr_id, 3);
    assert!(world.poll().is_none());
    // A batch that was not begun cannot end.
    assert_eq!(call!(qp, wr_complete), libc::EINVAL);
    destroy([a, b]);
}
