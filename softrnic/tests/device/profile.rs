//! Devices with the limits of a NIC (`Builder::like`). Each test registers them in a process of its own.

use std::io;
use std::mem::zeroed;

use rdma_mummy_sys::*;
use softrnic::{Builder, Profile, RegisterError};

use crate::child::is_alone;
use crate::common::{Setup, Side, close, open, opened, pair};

/// Registers `soft0` as a ConnectX.
fn connect_x() -> *mut ibv_context {
    assert_eq!(Builder::new().device("soft0").like(Profile::ConnectX).register(), Ok(()));
    opened(c"soft0")
}

/// The errno of a call that returned null; 0 otherwise.
fn errno_of_null<T>(object: *mut T) -> i32 {
    if object.is_null() { io::Error::last_os_error().raw_os_error().unwrap_or(-1) } else { 0 }
}

/// The errno with which a queue pair of these capacities is refused; 0 if it is created. It is destroyed then.
fn queue_pair(side: &Side, set: impl FnOnce(&mut ibv_qp_cap)) -> i32 {
    // SAFETY: the type has only numbers and nullable pointers, and the objects of the side are alive.
    unsafe {
        let mut attr: ibv_qp_init_attr = zeroed();
        (attr.send_cq, attr.recv_cq, attr.qp_type) = (side.cq, side.cq, ibv_qp_type::IBV_QPT_RC);
        (attr.cap.max_send_wr, attr.cap.max_recv_wr) = (1, 1);
        (attr.cap.max_send_sge, attr.cap.max_recv_sge) = (1, 1);
        set(&mut attr.cap);
        let qp = ibv_create_qp(side.pd, &raw mut attr);
        if qp.is_null() { errno_of_null(qp) } else { ibv_destroy_qp(qp) }
    }
}

/// The errno with which a shared receive queue is refused, or if it is created, with which it is not resized.
fn shared_receive_queue(side: &Side, max_wr: u32, max_sge: u32) -> [i32; 2] {
    // SAFETY: the type has only numbers and nullable pointers, and the domain is alive.
    unsafe {
        let mut init: ibv_srq_init_attr = zeroed();
        (init.attr.max_wr, init.attr.max_sge) = (max_wr, max_sge);
        let srq = ibv_create_srq(side.pd, &raw mut init);
        if srq.is_null() {
            return [errno_of_null(srq), 0];
        }
        let resized = ibv_modify_srq(srq, &raw mut init.attr, ibv_srq_attr_mask::IBV_SRQ_MAX_WR.0 as i32);
        assert_eq!(ibv_destroy_srq(srq), 0);
        [0, resized]
    }
}

/// The errno with which a memory window is refused.
fn window(side: &Side) -> i32 {
    // SAFETY: the domain is alive, and the window is freed after its only use.
    unsafe {
        let window = ibv_alloc_mw(side.pd, ibv_mw_type::IBV_MW_TYPE_2);
        if window.is_null() { errno_of_null(window) } else { ibv_dealloc_mw(window) }
    }
}

/// The errno with which an extended queue pair for these operations is refused.
fn extended(side: &Side, operations: ibv_qp_create_send_ops_flags) -> i32 {
    // SAFETY: as in `queue_pair`.
    unsafe {
        let mut attr: ibv_qp_init_attr_ex = zeroed();
        (attr.send_cq, attr.recv_cq, attr.qp_type, attr.pd) = (side.cq, side.cq, ibv_qp_type::IBV_QPT_RC, side.pd);
        attr.comp_mask =
            ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_PD.0 | ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS.0;
        attr.send_ops_flags = operations.0.into();
        (attr.cap.max_send_wr, attr.cap.max_send_sge) = (1, 1);
        let qp = ibv_create_qp_ex(side.context, &raw mut attr);
        if qp.is_null() { errno_of_null(qp) } else { ibv_destroy_qp(qp) }
    }
}

/// The errno with which a queue pair refuses this number of outstanding reads.
fn reads(side: &Side, depth: u8) -> i32 {
    use ibv_qp_attr_mask as mask;
    // SAFETY: the type has only numbers, for which zero is valid.
    let mut attr: ibv_qp_attr = unsafe { zeroed() };
    attr.qp_state = ibv_qp_state::IBV_QPS_SQD;
    assert_eq!(side.modify(&mut attr, mask::IBV_QP_STATE.0), 0);
    attr.max_rd_atomic = depth;
    side.modify(&mut attr, mask::IBV_QP_STATE.0 | mask::IBV_QP_MAX_QP_RD_ATOMIC.0)
}

/// What each attempt that exceeds a limit of ConnectX returns, in the order of the assertions below.
fn attempts(context: *mut ibv_context) -> Vec<i32> {
    use ibv_qp_create_send_ops_flags as with;
    let sides = pair(context, Setup::default());
    let side = &sides[0];
    let [queue, _] = shared_receive_queue(side, 32768, 1);
    let [pieces, _] = shared_receive_queue(side, 1, 32);
    let [_, resized] = shared_receive_queue(side, 1, 1);
    let found = vec![
        queue_pair(side, |cap| cap.max_send_sge = 31),
        queue_pair(side, |cap| cap.max_recv_sge = 31),
        queue_pair(side, |cap| cap.max_send_wr = 8193),
        queue_pair(side, |cap| cap.max_inline_data = 829),
        queue,
        pieces,
        resized,
        window(side),
        extended(side, with::IBV_QP_EX_WITH_FLUSH),
        extended(side, with::IBV_QP_EX_WITH_ATOMIC_WRITE),
    ];
    close(sides);
    found
}

#[test]
fn connectx_refuses_what_exceeds_its_limits() {
    if !is_alone("profile::connectx_refuses_what_exceeds_its_limits") {
        return;
    }
    let (invalid, unsupported) = (libc::EINVAL, libc::EOPNOTSUPP);
    let mut expected = vec![invalid; 7];
    expected.extend([unsupported; 3]);
    assert_eq!(attempts(connect_x()), expected);
}

#[test]
fn soft_device_accepts_what_connectx_refuses() {
    assert!(attempts(open(c"soft0")).iter().all(|errno| *errno == 0));
}

#[test]
fn connectx_accepts_its_limits_and_reports_them() {
    if !is_alone("profile::connectx_accepts_its_limits_and_reports_them") {
        return;
    }
    let context = connect_x();
    // SAFETY: the types have only numbers, for which zero is valid, and the context is open.
    let (attr, port) = unsafe {
        let (mut attr, mut port): (ibv_device_attr, ibv_port_attr) = (zeroed(), zeroed());
        assert_eq!(ibv_query_device(context, &raw mut attr), 0);
        assert_eq!(ibv_query_port(context, 1, &raw mut port), 0);
        (attr, port)
    };
    let sides = pair(context, Setup::default());
    let side = &sides[0];
    assert_eq!(
        queue_pair(side, |cap| (cap.max_send_sge, cap.max_recv_sge) = (attr.max_sge as u32, attr.max_sge as u32)),
        0
    );
    assert_eq!(queue_pair(side, |cap| cap.max_recv_wr = attr.max_qp_wr as u32), 0);
    assert_eq!(queue_pair(side, |cap| cap.max_send_wr = 8192), 0);
    assert_eq!(queue_pair(side, |cap| cap.max_inline_data = 828), 0);
    assert_eq!(shared_receive_queue(side, attr.max_srq_wr as u32, 1)[0], 0);
    assert_eq!(shared_receive_queue(side, 1, attr.max_srq_sge as u32)[0], 0);
    assert_eq!(extended(side, ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_RDMA_WRITE), 0);
    assert_eq!((attr.max_mw, attr.max_qp_rd_atom), (0, 16));
    assert_eq!(port.active_mtu, ibv_mtu::IBV_MTU_1024);
    close(sides);
}

#[test]
fn connectx_limits_reads_and_datagrams() {
    if !is_alone("profile::connectx_limits_reads_and_datagrams") {
        return;
    }
    let context = connect_x();
    let side = Side::new(context, Setup::default());
    side.connect(side.number(), Setup::default());
    assert_eq!([reads(&side, 16), reads(&side, 17)], [0, libc::EINVAL]);
    side.close();
    let side = Side::new(context, Setup { kind: ibv_qp_type::IBV_QPT_UD, ..Setup::default() });
    side.ready_for_datagrams();
    let itself = side.address_handle(side.gid());
    side.receive(1, &mut [side.piece(0, 4096)]);
    side.send_datagram(itself, side.number(), 2, &mut [side.piece(0, 1024)]);
    let status =
        |wr_id| (0..2).map(|_| side.wait()).find(|completion| completion.wr_id == wr_id).map(|found| found.status);
    assert_eq!(status(2), Some(ibv_wc_status::IBV_WC_SUCCESS));
    side.send_datagram(itself, side.number(), 3, &mut [side.piece(0, 1025)]);
    assert_eq!(status(3), Some(ibv_wc_status::IBV_WC_LOC_LEN_ERR));
    // SAFETY: no request uses the address handle.
    assert_eq!(unsafe { ibv_destroy_ah(itself) }, 0);
    side.close();
}

#[test]
fn devices_are_registered_with_one_profile() {
    if !is_alone("profile::devices_are_registered_with_one_profile") {
        return;
    }
    connect_x();
    let registered = RegisterError::Registered { devices: vec!["soft0".to_owned()] };
    assert_eq!(Builder::new().device("soft0").register(), Err(registered));
    assert_eq!(softrnic::register(), Ok(()));
}
