//! `ibv_post_send` and `ibv_post_recv`.

use rdma_mummy_sys::{
    ibv_mw_bind, ibv_mw_bind_info, ibv_mw_type, ibv_send_flags as flag, ibv_wc_opcode, ibv_wr_opcode as opcode,
};

use super::*;
use crate::verbs::address_handle::{create_ah, destroy_ah};
use crate::verbs::memory_window::{alloc_mw, dealloc_mw};

const SIGNALED: u32 = flag::IBV_SEND_SIGNALED.0;
const SUCCESS: ibv_wc_status = ibv_wc_status::IBV_WC_SUCCESS;

/// Returns a request whose remote address is a word of the same memory.
fn remote(world: &World, wr_id: u64, operation: opcode, piece: *mut ibv_sge, word: usize) -> ibv_send_wr {
    let mut wr = request(wr_id, operation, SIGNALED);
    (wr.sg_list, wr.num_sge) = (piece, 1);
    wr.wr.rdma.remote_addr = world.address(word);
    wr.wr.rdma.rkey = world.rkey();
    wr
}

#[test]
fn send_fills_the_first_posted_receive() {
    for qp_type in [RC, UC] {
        let world = World::new();
        let [a, b] = world.two(qp_type);
        world.set(0, 0xabcdef);
        assert_eq!(world.post_receive(b, 7, 100, 2), 0);
        assert_eq!(world.post_receive(b, 8, 200, 2), 0);
        let mut piece = world.piece(0, 1);
        let mut wr = request(1, opcode::IBV_WR_SEND_WITH_IMM, SIGNALED);
        (wr.sg_list, wr.num_sge) = (&raw mut piece, 1);
        wr.__bindgen_anon_1.imm_data = 0x1234_u32.to_be();
        assert_eq!(post(a, &mut [wr]), Ok(()));
        let [first, second] = [world.wait(), world.wait()];
        let (sent, received) = if first.wr_id == 1 { (first, second) } else { (second, first) };
        assert_eq!((sent.status, sent.opcode, sent.wr_id), (SUCCESS, ibv_wc_opcode::IBV_WC_SEND, 1));
        assert_eq!((received.status, received.opcode, received.wr_id), (SUCCESS, ibv_wc_opcode::IBV_WC_RECV, 7));
        // SAFETY: the completion has immediate data, according to its flags.
        assert_eq!(unsafe { received.__bindgen_anon_1.imm_data }, 0x1234_u32.to_be());
        // SAFETY: the QPs are alive.
        unsafe { assert_eq!((received.byte_len, received.qp_num, sent.qp_num), (8, (*b).qp_num, (*a).qp_num)) };
        assert_eq!((world.word(100), world.word(200)), (0xabcdef, 0));
        destroy([a, b]);
    }
}

#[test]
fn writes_reads_and_atomics_work() {
    let world = World::new();
    let [a, b] = world.two(RC);
    world.set(0, 11);
    world.set(1, 22);
    let mut from = [world.piece(0, 1), world.piece(1, 1)];
    let mut write = remote(&world, 1, opcode::IBV_WR_RDMA_WRITE, from.as_mut_ptr(), 100);
    write.num_sge = 2;
    let mut into = world.piece(2, 2);
    let read = remote(&world, 2, opcode::IBV_WR_RDMA_READ, &raw mut into, 100);
    let mut old = [world.piece(10, 1), world.piece(11, 1)];
    let mut add = remote(&world, 3, opcode::IBV_WR_ATOMIC_FETCH_AND_ADD, &raw mut old[0], 100);
    (add.wr.atomic.rkey, add.wr.atomic.compare_add) = (world.rkey(), 5);
    let mut swap = remote(&world, 4, opcode::IBV_WR_ATOMIC_CMP_AND_SWP, &raw mut old[1], 100);
    (swap.wr.atomic.rkey, swap.wr.atomic.compare_add, swap.wr.atomic.swap) = (world.rkey(), 16, 99);
    assert_eq!(post(a, &mut [write, read, add, swap]), Ok(()));
    let done: Vec<_> = (0..4).map(|_| world.wait()).map(|wc| (wc.wr_id, wc.status, wc.opcode)).collect();
    let opcodes = [
        ibv_wc_opcode::IBV_WC_RDMA_WRITE,
        ibv_wc_opcode::IBV_WC_RDMA_READ,
        ibv_wc_opcode::IBV_WC_FETCH_ADD,
        ibv_wc_opcode::IBV_WC_COMP_SWAP,
    ];
    let expected: Vec<_> = (1..).zip(opcodes).map(|(wr_id, code)| (wr_id, SUCCESS, code)).collect();
    assert_eq!(done, expected);
    assert_eq!([100, 101, 2, 3, 10, 11].map(|word| world.word(word)), [99, 22, 11, 22, 11, 16]);
    destroy([a, b]);
}

#[test]
fn inline_data_is_copied_at_once_without_key() {
    let world = World::new();
    let [a, b] = world.two(RC);
    let data = [1_u64, 2, 3];
    let mut piece = ibv_sge { addr: pointer(&data).expose_provenance() as u64, length: 24, lkey: 0xdead };
    let mut wr = remote(&world, 1, opcode::IBV_WR_RDMA_WRITE, &raw mut piece, 100);
    wr.send_flags |= flag::IBV_SEND_INLINE.0;
    assert_eq!(post(a, &mut [wr]), Ok(()));
    assert_eq!(world.wait().status, SUCCESS);
    assert_eq!([100, 101, 102].map(|word| world.word(word)), data);

    let mut read = remote(&world, 2, opcode::IBV_WR_RDMA_READ, &raw mut piece, 100);
    read.send_flags |= flag::IBV_SEND_INLINE.0;
    assert_eq!(post(a, &mut [read]), Err((libc::EINVAL, 2)));
    let mut long = wr;
    let data = [0_u8; 65];
    let mut piece = ibv_sge { addr: pointer(&data).expose_provenance() as u64, length: 65, lkey: 0 };
    (long.wr_id, long.sg_list) = (3, &raw mut piece);
    assert_eq!(post(a, &mut [long]), Err((libc::EINVAL, 3)));
    destroy([a, b]);
}

#[test]
fn atomic_write_requires_eight_bytes() {
    let world = World::new();
    let [a, b] = world.two(RC);
    world.set(0, 77);
    let mut piece = world.piece(0, 1);
    let wr = remote(&world, 1, opcode::IBV_WR_ATOMIC_WRITE, &raw mut piece, 100);
    let mut inline = remote(&world, 2, opcode::IBV_WR_ATOMIC_WRITE, &raw mut piece, 101);
    inline.send_flags |= flag::IBV_SEND_INLINE.0;
    let mut piece = world.piece(0, 2);
    let long = remote(&world, 3, opcode::IBV_WR_ATOMIC_WRITE, &raw mut piece, 102);
    assert_eq!(post(a, &mut [wr, inline, long]), Err((libc::EINVAL, 3)));
    assert_eq!(world.statuses(), [(1, SUCCESS), (2, SUCCESS)]);
    assert_eq!([100, 101, 102].map(|word| world.word(word)), [77, 77, 0]);
    destroy([a, b]);
}

/// A function that makes a request invalid.
type Invalidate = fn(&mut ibv_send_wr);

#[test]
fn requests_before_a_refused_one_are_executed() {
    let world = World::new();
    let [a, b] = world.two(RC);
    world.set(0, 5);
    let faults: [(Invalidate, c_int); 6] = [
        (|wr| wr.opcode = opcode(99), libc::EINVAL),
        (|wr| wr.opcode = opcode::IBV_WR_TSO, libc::EOPNOTSUPP),
        (|wr| wr.opcode = opcode::IBV_WR_FLUSH, libc::EINVAL),
        (|wr| wr.num_sge = 3, libc::EINVAL),
        (|wr| wr.num_sge = -1, libc::EINVAL),
        (|wr| wr.send_flags |= flag::IBV_SEND_IP_CSUM.0, libc::EINVAL),
    ];
    for (at, (spoil, code)) in (0..).zip(faults) {
        let mut pieces = [world.piece(0, 1); 3];
        let good = remote(&world, 1, opcode::IBV_WR_RDMA_WRITE, &raw mut pieces[0], 100 + at);
        let mut bad = remote(&world, 2, opcode::IBV_WR_RDMA_WRITE, &raw mut pieces[0], 200 + at);
        spoil(&mut bad);
        let after = remote(&world, 3, opcode::IBV_WR_RDMA_WRITE, &raw mut pieces[0], 300 + at);
        assert_eq!(post(a, &mut [good, bad, after]), Err((code, 2)), "{at}");
        assert_eq!(world.statuses(), [(1, SUCCESS)], "{at}");
        assert_eq!([100, 200, 300].map(|word| world.word(word + at)), [5, 0, 0], "{at}");
    }
    destroy([a, b]);
}

#[test]
fn unsupported_operation_is_refused() {
    let world = World::new();
    let [a, b] = world.two(UC);
    let mut piece = world.piece(0, 1);
    let read = remote(&world, 1, opcode::IBV_WR_RDMA_READ, &raw mut piece, 100);
    assert_eq!(post(a, &mut [read]), Err((libc::EINVAL, 1)));
    let write = remote(&world, 2, opcode::IBV_WR_RDMA_WRITE, &raw mut piece, 100);
    assert_eq!(post(a, &mut [write]), Ok(()));
    assert_eq!(world.wait().status, SUCCESS);
    destroy([a, b]);
}

#[test]
fn full_send_queue_refuses_until_a_completion_is_polled() {
    let world = World::new();
    let [a, b] = world.two(RC);
    let mut piece = world.piece(0, 1);
    let mut requests = [remote(&world, 0, opcode::IBV_WR_RDMA_WRITE, &raw mut piece, 100); 9];
    for (wr_id, wr) in (0..).zip(&mut requests) {
        (wr.wr_id, wr.send_flags) = (wr_id, if wr_id == 7 { SIGNALED } else { 0 });
    }
    assert_eq!(post(a, &mut requests), Err((libc::ENOMEM, 8)));
    assert_eq!(post(a, &mut requests[8..]), Err((libc::ENOMEM, 8)));
    assert_eq!(world.wait().wr_id, 7);
    assert_eq!(post(a, &mut requests[..8]), Ok(()));
    destroy([a, b]);
}

#[test]
fn posts_depend_on_the_state() {
    let world = World::new();
    let [a, b] = [world.pair(RC), world.pair(RC)];
    let send = || post(a, &mut [request(1, opcode::IBV_WR_SEND, 0)]);
    assert_eq!((send(), world.post_receive(a, 1, 0, 1)), (Err((libc::EINVAL, 1)), libc::EINVAL));
    to_init(a);
    assert_eq!((send(), world.post_receive(a, 2, 0, 1)), (Err((libc::EINVAL, 1)), 0));
    to_receive(a, b);
    assert_eq!(send(), Err((libc::EINVAL, 1)));
    to_send(a, b);
    assert_eq!(move_to(a, state::IBV_QPS_ERR), 0);
    assert_eq!((send(), world.post_receive(a, 3, 0, 1)), (Ok(()), 0));
    let flushed = ibv_wc_status::IBV_WC_WR_FLUSH_ERR;
    assert_eq!(world.statuses(), [(2, flushed), (1, flushed), (3, flushed)]);
    destroy([a, b]);
}

#[test]
fn receive_with_too_many_pieces_is_refused() {
    let world = World::new();
    let [a, b] = world.two(RC);
    let mut pieces = [world.piece(0, 1); 3];
    let sg_list = pieces.as_mut_ptr();
    let mut wrs = [2, 3].map(|num_sge| ibv_recv_wr { wr_id: num_sge, next: ptr::null_mut(), sg_list, num_sge: 0 });
    (wrs[0].num_sge, wrs[1].num_sge) = (2, 3);
    wrs[0].next = &raw mut wrs[1];
    let mut bad = ptr::null_mut();
    // SAFETY: the QP and the requests are alive.
    unsafe {
        assert_eq!(post_recv(a, &raw mut wrs[0], &raw mut bad), libc::EINVAL);
        assert_eq!((*bad).wr_id, 3);
        // A receive whose list is null although it has pieces is refused, as such a send is.
        let mut null_list = ibv_recv_wr { wr_id: 4, next: ptr::null_mut(), sg_list: ptr::null_mut(), num_sge: 1 };
        assert_eq!(post_recv(a, &raw mut null_list, &raw mut bad), libc::EINVAL);
        assert_eq!((*bad).wr_id, 4);
    }
    assert_eq!(post(b, &mut [request(9, opcode::IBV_WR_SEND, SIGNALED)]), Ok(()));
    let mut both = [world.wait(), world.wait()].map(|wc| (wc.wr_id, wc.status));
    both.sort_by_key(|(wr_id, _)| *wr_id);
    assert_eq!(both, [(2, SUCCESS), (9, SUCCESS)]);
    destroy([a, b]);
}

#[test]
fn datagram_goes_to_its_address_handle() {
    let world = World::new();
    let [a, b] = world.two(UD);
    world.set(0, 0x55);
    assert_eq!(world.post_receive(b, 7, 100, 6), 0);
    // SAFETY: the domain is alive, and the attributes are readable.
    let (ah, other) = unsafe { (create_ah(world.pd, &mut loopback()), alloc_pd(world.context)) };
    // SAFETY: as above.
    let foreign = unsafe { create_ah(other, &mut loopback()) };
    let mut piece = world.piece(0, 1);
    let mut wr = request(1, opcode::IBV_WR_SEND, SIGNALED);
    (wr.sg_list, wr.num_sge) = (&raw mut piece, 1);
    // SAFETY: the QP is alive.
    (wr.wr.ud.remote_qpn, wr.wr.ud.remote_qkey) = (unsafe { (*b).qp_num }, QKEY);
    assert_eq!(post(a, &mut [wr]), Err((libc::EINVAL, 1)), "without a handle");
    wr.wr.ud.ah = foreign;
    assert_eq!(post(a, &mut [wr]), Err((libc::EINVAL, 1)), "of another domain");
    wr.wr.ud.ah = ah;
    assert_eq!(post(a, &mut [wr]), Ok(()));
    let [first, second] = [world.wait(), world.wait()];
    let received = if first.wr_id == 7 { first } else { second };
    // SAFETY: the QP is alive.
    assert_eq!((received.byte_len, received.src_qp), (48, unsafe { (*a).qp_num }));
    assert_eq!(world.word(105), 0x55);
    destroy([a, b]);
    // SAFETY: the objects are alive, and not used again.
    unsafe { assert_eq!((destroy_ah(ah), destroy_ah(foreign), dealloc_pd(other)), (0, 0, 0)) };
}

#[test]
fn windows_are_bound_by_verb_and_by_request() {
    let world = World::new();
    let [a, b] = world.two(RC);
    world.set(0, 3);
    let info = ibv_mw_bind_info {
        mr: world.mr,
        addr: world.address(100),
        length: 8,
        // Only the region determines local access. As in mlx5, the flag is accepted and has no effect.
        mw_access_flags: access::IBV_ACCESS_REMOTE_WRITE.0 | access::IBV_ACCESS_LOCAL_WRITE.0,
    };
    // SAFETY: the domain is alive; so are the windows, the region and the QPs.
    unsafe {
        let one = alloc_mw(world.pd, ibv_mw_type::IBV_MW_TYPE_1);
        let before = (*one).rkey;
        let mut binding = ibv_mw_bind { wr_id: 5, send_flags: SIGNALED, bind_info: info };
        assert_eq!(bind_mw(b, one, &raw mut binding), 0);
        assert_eq!((*one).rkey, rdma_mummy_sys::ibv_inc_rkey(before));
        let bound = world.wait();
        assert_eq!((bound.wr_id, bound.status, bound.opcode), (5, SUCCESS, ibv_wc_opcode::IBV_WC_BIND_MW));

        let two = alloc_mw(world.pd, ibv_mw_type::IBV_MW_TYPE_2);
        assert_eq!(bind_mw(b, two, &raw mut binding), libc::EINVAL, "not of type 1");
        let rkey = rdma_mummy_sys::ibv_inc_rkey((*two).rkey);
        let mut wr = request(6, opcode::IBV_WR_BIND_MW, SIGNALED);
        let bind = &mut wr.__bindgen_anon_2.bind_mw;
        (bind.mw, bind.rkey, bind.bind_info) = (two, rkey, info);
        assert_eq!(post(b, &mut [wr]), Ok(()));
        assert_eq!((world.wait().status), SUCCESS);

        for (key, value) in [((*one).rkey, 31), (rkey, 32)] {
            world.set(0, value);
            let mut piece = world.piece(0, 1);
            let mut write = remote(&world, 7, opcode::IBV_WR_RDMA_WRITE, &raw mut piece, 100);
            write.wr.rdma.rkey = key;
            assert_eq!(post(a, &mut [write]), Ok(()));
            assert_eq!((world.wait().status, world.word(100)), (SUCCESS, value));
        }
        let mut invalidate = request(8, opcode::IBV_WR_LOCAL_INV, SIGNALED);
        invalidate.__bindgen_anon_1.invalidate_rkey = rkey;
        assert_eq!(post(b, &mut [invalidate]), Ok(()));
        assert_eq!(world.wait().status, SUCCESS);
        let mut piece = world.piece(0, 1);
        let mut write = remote(&world, 9, opcode::IBV_WR_RDMA_WRITE, &raw mut piece, 100);
        write.wr.rdma.rkey = rkey;
        assert_eq!(post(a, &mut [write]), Ok(()));
        assert_eq!(world.wait().status, ibv_wc_status::IBV_WC_REM_ACCESS_ERR);
        destroy([a, b]);
        assert_eq!((dealloc_mw(one), dealloc_mw(two)), (0, 0));
    }
}

#[test]
fn invalid_binds_are_refused() {
    let world = World::new();
    let [a, b] = world.two(RC);
    let info = ibv_mw_bind_info { mr: world.mr, addr: world.address(0), length: 8, mw_access_flags: 0 };
    // SAFETY: the domain is alive; so are the window, the region and the QPs.
    unsafe {
        let mw = alloc_mw(world.pd, ibv_mw_type::IBV_MW_TYPE_2);
        let bind = |mw, bind_info| {
            let mut wr = request(6, opcode::IBV_WR_BIND_MW, SIGNALED);
            let bind = &mut wr.__bindgen_anon_2.bind_mw;
            (bind.mw, bind.rkey, bind.bind_info) = (mw, 0, bind_info);
            post(a, &mut [wr])
        };
        let refused = Err((libc::EINVAL, 6));
        assert_eq!(bind(ptr::null_mut(), info), refused);
        assert_eq!(bind(mw, ibv_mw_bind_info { mr: ptr::null_mut(), ..info }), refused);
        assert_eq!(bind(mw, ibv_mw_bind_info { mw_access_flags: 1 << 4, ..info }), refused);
        destroy([a, b]);
        assert_eq!(dealloc_mw(mw), 0);
    }
}
