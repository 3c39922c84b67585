//! `ibv_modify_qp` and `ibv_query_qp`.

use rdma_mummy_sys::ibv_mig_state;

use super::*;

#[test]
fn query_returns_the_set_attributes() {
    let world = World::new();
    let [a, b] = world.two(RC);
    let (attr, init) = query(a);
    // SAFETY: the QPs are alive.
    unsafe {
        assert_eq!(
            (attr.qp_state, attr.cur_qp_state, (*a).state),
            (state::IBV_QPS_RTS, state::IBV_QPS_RTS, attr.qp_state)
        );
        assert_eq!(attr.dest_qp_num, (*b).qp_num);
        assert_eq!(attr.ah_attr.grh.dgid.raw, loopback().grh.dgid.raw);
    }
    assert_eq!((attr.path_mtu, attr.path_mig_state), (ibv_mtu::IBV_MTU_1024, ibv_mig_state::IBV_MIG_MIGRATED));
    assert_eq!((attr.rq_psn, attr.sq_psn), (0x123456, 0x123456));
    assert_eq!((attr.max_rd_atomic, attr.max_dest_rd_atomic, attr.min_rnr_timer), (4, 4, 1));
    assert_eq!((attr.timeout, attr.retry_cnt, attr.rnr_retry), (14, 3, 3));
    assert_eq!((attr.port_num, attr.pkey_index), (1, 0));
    assert_eq!(attr.qp_access_flags, ALL_ACCESS & !access::IBV_ACCESS_MW_BIND.0);
    assert_eq!((attr.ah_attr.is_global, attr.ah_attr.port_num, attr.ah_attr.grh.hop_limit), (1, 1, 64));
    assert_eq!((init.qp_type, init.qp_context.addr(), init.sq_sig_all), (RC, 0x99, 0));
    assert_eq!((init.send_cq, init.recv_cq, init.srq), (world.cq, world.cq, ptr::null_mut()));
    assert_eq!((init.cap.max_send_wr, init.cap.max_inline_data, attr.cap.max_recv_sge), (8, 64, 2));

    assert_eq!(move_to(a, state::IBV_QPS_RESET), 0);
    let (attr, _) = query(a);
    assert_eq!(
        (attr.qp_state, attr.timeout, attr.dest_qp_num, attr.ah_attr.is_global),
        (state::IBV_QPS_RESET, 0, 0, 0)
    );
    destroy([a, b]);
}

#[test]
fn refused_change_has_no_effect() {
    let world = World::new();
    let [a, b] = [world.pair(RC), world.pair(RC)];
    to_init(a);
    let (required, _) = required_masks(RC);
    let good = ibv_qp_attr { qp_state: state::IBV_QPS_RTR, ..connection(b) };
    let given = mask::IBV_QP_STATE.0 | required;
    for bit in (0..32).map(|shift| 1 << shift).filter(|bit| required & bit != 0) {
        assert_eq!(modify(a, &good, given & !bit), libc::EINVAL, "without {bit:#x}");
    }
    let more = [
        mask::IBV_QP_PORT,
        mask::IBV_QP_QKEY,
        mask::IBV_QP_SQ_PSN,
        mask::IBV_QP_TIMEOUT,
        mask::IBV_QP_CAP,
        mask::IBV_QP_RATE_LIMIT,
        mask::IBV_QP_CUR_STATE,
    ];
    for bit in more {
        assert_eq!(modify(a, &good, given | bit.0), libc::EINVAL, "with {bit:?}");
    }
    let spoiled: [fn(&mut ibv_qp_attr); 6] = [
        |attr| attr.path_mtu = ibv_mtu(0),
        |attr| attr.max_dest_rd_atomic = 129,
        |attr| attr.ah_attr.is_global = 0,
        |attr| attr.ah_attr.port_num = 2,
        |attr| attr.ah_attr.grh.sgid_index = 255,
        |attr| attr.ah_attr.grh.dgid = ibv_gid { raw: [0; 16] },
    ];
    for (at, spoil) in spoiled.into_iter().enumerate() {
        let mut attr = good;
        spoil(&mut attr);
        assert_eq!((modify(a, &attr, given), errno()), (libc::EINVAL, libc::EINVAL), "{at}");
    }
    for to in [state::IBV_QPS_RTS, state::IBV_QPS_SQD, state::IBV_QPS_SQE, state::IBV_QPS_UNKNOWN, state(1000)] {
        assert_eq!(move_to(a, to), libc::EINVAL, "{to:?}");
    }
    let (attr, _) = query(a);
    assert_eq!((attr.qp_state, attr.dest_qp_num, attr.min_rnr_timer), (state::IBV_QPS_INIT, 0, 0));
    assert_eq!(modify(a, &good, given), 0);
    destroy([a, b]);
}

#[test]
fn wrong_current_state_is_refused() {
    let world = World::new();
    let [a, b] = [world.pair(RC), world.pair(RC)];
    to_init(a);
    to_receive(a, b);
    let (_, required) = required_masks(RC);
    let given = mask::IBV_QP_STATE.0 | mask::IBV_QP_CUR_STATE.0 | required;
    let mut attr = ibv_qp_attr { qp_state: state::IBV_QPS_RTS, ..connection(b) };
    for wrong in [state::IBV_QPS_RTS, state::IBV_QPS_SQD, state::IBV_QPS_UNKNOWN, state(99)] {
        attr.cur_qp_state = wrong;
        assert_eq!(modify(a, &attr, given), libc::EINVAL, "{wrong:?}");
    }
    attr.cur_qp_state = state::IBV_QPS_RTR;
    assert_eq!(modify(a, &attr, given), 0);
    // The mask contains no target state, so the attributes change in the current state.
    let attr = ibv_qp_attr { min_rnr_timer: 9, ..attributes() };
    assert_eq!(modify(a, &attr, mask::IBV_QP_MIN_RNR_TIMER.0), 0);
    assert_eq!(query(a).0.min_rnr_timer, 9);
    destroy([a, b]);
}

#[test]
fn drained_send_queue_resumes() {
    let world = World::new();
    let [a, b] = world.two(RC);
    assert_eq!(move_to(a, state::IBV_QPS_SQD), 0);
    let (attr, _) = query(a);
    assert_eq!((attr.qp_state, attr.sq_draining, attr.en_sqd_async_notify), (state::IBV_QPS_SQD, 0, 0));
    let attr = ibv_qp_attr { timeout: 20, ..attributes() };
    assert_eq!(modify(a, &attr, mask::IBV_QP_TIMEOUT.0), 0);
    assert_eq!(move_to(a, state::IBV_QPS_RTS), 0);
    assert_eq!(query(a).0.timeout, 20);
    destroy([a, b]);
}

#[test]
fn data_order_is_not_promised() {
    // SAFETY: the function ignores the QP.
    let promised = unsafe { query_qp_data_in_order(ptr::null_mut(), ibv_wr_opcode::IBV_WR_RDMA_WRITE, 0) };
    assert_eq!(promised, 0);
}
