//! `ibv_create_qp`, `ibv_create_qp_ex` and `ibv_destroy_qp`.

use rdma_mummy_sys::{ibv_async_event, ibv_event_type, ibv_send_flags as flag, ibv_srq_init_attr, ibv_xrcd_init_attr};

use super::*;
use crate::verbs::async_event_verbs::{ack_async_event, get_async_event};
use crate::verbs::multicast::{attach_mcast, detach_mcast};
use crate::verbs::shared_receive_queue::{create_srq, destroy_srq};
use crate::verbs::xrc_domain::{close_xrcd, open_xrcd};

#[test]
fn qp_keeps_its_objects_in_use() {
    let world = World::new();
    let qp = world.pair(RC);
    // SAFETY: all objects are alive, and stay because they are in use.
    unsafe {
        assert_eq!(((*qp).context, (*qp).pd, (*qp).send_cq), (world.context, world.pd, world.cq));
        assert_eq!(((*qp).qp_type, (*qp).state, (*qp).qp_context.addr()), (RC, state::IBV_QPS_RESET, 0x99));
        assert_eq!((destroy_cq(world.cq), dealloc_pd(world.pd)), (libc::EBUSY, libc::EBUSY));
        assert_eq!((close_device(world.context), errno()), (-1, libc::EBUSY));
    }
    let other = world.pair(RC);
    // SAFETY: both QPs are alive.
    unsafe { assert_ne!((*qp).qp_num, (*other).qp_num) };
    destroy([qp, other]);
}

#[test]
fn invalid_attributes_are_refused() {
    let world = World::new();
    let other = World::new();
    let make = |change: &dyn Fn(&mut ibv_qp_init_attr)| {
        let mut init = world.init(RC);
        change(&mut init);
        // SAFETY: the domain and the objects of the attributes are alive.
        let qp = unsafe { create_qp(world.pd, &raw mut init) };
        assert!(qp.is_null());
        errno()
    };
    assert_eq!(make(&|init| init.send_cq = ptr::null_mut()), libc::EINVAL);
    assert_eq!(make(&|init| init.recv_cq = ptr::null_mut()), libc::EINVAL);
    assert_eq!(make(&|init| init.recv_cq = other.cq), libc::EINVAL);
    assert_eq!(make(&|init| init.cap.max_send_wr = u32::MAX), libc::EINVAL);
    assert_eq!(make(&|init| init.cap.max_inline_data = 1 << 20), libc::EINVAL);
    assert_eq!(make(&|init| init.qp_type = ibv_qp_type::IBV_QPT_XRC_RECV), libc::EINVAL);
    assert_eq!(make(&|init| init.qp_type = ibv_qp_type::IBV_QPT_RAW_PACKET), libc::EOPNOTSUPP);

    let make = |change: &dyn Fn(&mut ibv_qp_init_attr_ex)| {
        // SAFETY: zeros are valid for the attributes; the context and the objects of the attributes are alive.
        unsafe {
            let mut init: ibv_qp_init_attr_ex = zeroed();
            (init.send_cq, init.recv_cq, init.pd, init.qp_type) = (world.cq, world.cq, world.pd, UD);
            init.comp_mask = init_mask::IBV_QP_INIT_ATTR_PD.0;
            change(&mut init);
            assert!(create_qp_ex(world.context, &raw mut init).is_null());
            errno()
        }
    };
    assert_eq!(make(&|init| init.comp_mask = 0), libc::EINVAL);
    assert_eq!(make(&|init| init.pd = other.pd), libc::EINVAL);
    assert_eq!(make(&|init| init.comp_mask |= init_mask::IBV_QP_INIT_ATTR_MAX_TSO_HEADER.0), libc::EOPNOTSUPP);
    assert_eq!(make(&|init| init.comp_mask |= 1 << 30), libc::EOPNOTSUPP);
    assert_eq!(
        make(&|init| {
            init.comp_mask |= init_mask::IBV_QP_INIT_ATTR_CREATE_FLAGS.0;
            init.create_flags = 2;
        }),
        libc::EOPNOTSUPP
    );
    assert_eq!(
        make(&|init| {
            init.comp_mask |= init_mask::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS.0;
            init.send_ops_flags = 1;
        }),
        libc::EOPNOTSUPP
    );
    assert_eq!(make(&|init| init.qp_type = ibv_qp_type::IBV_QPT_XRC_RECV), libc::EINVAL);
}

#[test]
fn qp_with_srq_has_no_receives_of_its_own() {
    let world = World::new();
    // SAFETY: zeros are valid for the attributes; the domain and the objects of the attributes are alive.
    unsafe {
        let mut shared: ibv_srq_init_attr = zeroed();
        (shared.attr.max_wr, shared.attr.max_sge) = (4, 1);
        let srq = create_srq(world.pd, &raw mut shared);
        let mut init = ibv_qp_init_attr { srq, ..world.init(RC) };
        let qp = create_qp(world.pd, &raw mut init);
        assert_eq!(((*qp).srq, init.cap.max_recv_wr, init.cap.max_send_wr), (srq, 0, 8));
        assert_eq!(destroy_srq(srq), libc::EBUSY);
        to_init(qp);
        assert_eq!(world.post_receive(qp, 1, 0, 1), libc::EINVAL);
        destroy([qp]);
        init.qp_type = UC;
        assert!(create_qp(world.pd, &raw mut init).is_null());
        assert_eq!(destroy_srq(srq), 0);
    }
}

#[test]
fn xrc_target_requires_only_its_xrc_domain() {
    let world = World::new();
    // SAFETY: zeros are valid for the attributes; the context and the objects of the attributes are alive.
    unsafe {
        let xrcd = open_xrcd(world.context, &mut ibv_xrcd_init_attr { comp_mask: 3, fd: -1, oflags: libc::O_CREAT });
        let mut init: ibv_qp_init_attr_ex = zeroed();
        (init.qp_type, init.xrcd) = (ibv_qp_type::IBV_QPT_XRC_RECV, xrcd);
        init.comp_mask = init_mask::IBV_QP_INIT_ATTR_XRCD.0;
        init.cap = world.init(RC).cap;
        let qp = create_qp_ex(world.context, &raw mut init);
        assert!(!qp.is_null());
        assert!((*qp).pd.is_null() && (*qp).send_cq.is_null() && (*qp).recv_cq.is_null());
        assert_eq!((init.cap.max_send_wr, init.cap.max_recv_wr), (0, 0));
        assert_eq!(close_xrcd(xrcd), libc::EBUSY);
        to_init(qp);
        assert_eq!(world.post_receive(qp, 1, 0, 1), libc::EINVAL);
        assert_eq!(post(qp, &mut [request(1, ibv_wr_opcode::IBV_WR_SEND, 0)]), Err((libc::EINVAL, 1)));
        destroy([qp]);
        assert_eq!(close_xrcd(xrcd), 0);
    }
    let mut init = world.init(ibv_qp_type::IBV_QPT_XRC_SEND);
    init.recv_cq = ptr::null_mut();
    // SAFETY: the domain and the objects of the attributes are alive.
    let qp = unsafe { create_qp(world.pd, &raw mut init) };
    assert!(!qp.is_null());
    assert_eq!((init.cap.max_send_wr, init.cap.max_recv_wr), (8, 0));
    destroy([qp]);
}

#[test]
fn attached_qp_is_not_destroyed() {
    let world = World::new();
    let qp = world.pair(UD);
    to_init(qp);
    let mut group = [0; 16];
    (group[0], group[1], group[15]) = (0xff, 0x0e, 1);
    let group = ibv_gid { raw: group };
    // SAFETY: the QP is alive, and the group is readable.
    unsafe {
        assert_eq!(attach_mcast(qp, &raw const group, 0), 0);
        assert_eq!(destroy_qp(qp), libc::EBUSY);
        assert_eq!(detach_mcast(qp, &raw const group, 0), 0);
    }
    destroy([qp]);
}

/// Makes `b` raise an event. Its peer writes to memory without the access right for this.
fn raise(world: &World, a: *mut ibv_qp) {
    let mut piece = world.piece(0, 1);
    let mut wr = request(1, ibv_wr_opcode::IBV_WR_RDMA_WRITE, flag::IBV_SEND_SIGNALED.0);
    (wr.sg_list, wr.num_sge) = (&raw mut piece, 1);
    (wr.wr.rdma.remote_addr, wr.wr.rdma.rkey) = (world.address(0), !world.rkey());
    assert_eq!(post(a, &mut [wr]), Ok(()));
    assert_eq!(world.wait().status, ibv_wc_status::IBV_WC_REM_ACCESS_ERR);
}

#[test]
fn destruction_waits_for_taken_events() {
    let world = World::new();
    let [a, b] = world.two(RC);
    raise(&world, a);
    let mut event = MaybeUninit::<ibv_async_event>::uninit();
    // SAFETY: the context is alive, and the event is writable, and written by the successful call.
    let mut event = unsafe {
        assert_eq!(get_async_event(world.context, event.as_mut_ptr()), 0);
        event.assume_init()
    };
    assert_eq!(event.event_type, ibv_event_type::IBV_EVENT_QP_ACCESS_ERR);
    // SAFETY: `event` is an event of a QP.
    assert_eq!(unsafe { event.element.qp }, b);
    assert_eq!(query(b).0.qp_state, state::IBV_QPS_ERR);
    std::thread::scope(|scope| {
        let b = b.expose_provenance();
        let destroyer = scope.spawn(move || destroy([ptr::with_exposed_provenance_mut(b)]));
        // SAFETY: the event was not acknowledged, so its QP is alive.
        unsafe { ack_async_event(&raw mut event) };
        assert!(destroyer.join().is_ok());
    });
    destroy([a]);
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no O_NONBLOCK for an eventfd")]
fn destroyed_qp_removes_its_unread_events() {
    let world = World::new();
    // SAFETY: the descriptor is open.
    unsafe { libc::fcntl((*world.context).async_fd, libc::F_SETFL, libc::O_NONBLOCK) };
    let [a, b] = world.two(RC);
    raise(&world, a);
    destroy([a, b]);
    let mut event = MaybeUninit::<ibv_async_event>::uninit();
    // SAFETY: the context is alive, and the event is writable.
    unsafe { assert_eq!((get_async_event(world.context, event.as_mut_ptr()), errno()), (-1, libc::EAGAIN)) };
}
