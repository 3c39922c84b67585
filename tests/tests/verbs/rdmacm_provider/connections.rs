//! Connections and lookups: asked for, answered, refused, ended.

use std::ptr::{null, null_mut};
use std::{mem, slice};

use rdma_mummy_sys as ffi;
use rdma_mummy_sys::rdma_cm_event_type as event_type;
use rdma_mummy_sys::rdma_port_space as space;
use sideway_tests::recording::Recording;

use super::*;

#[test]
fn queue_pairs_of_identifiers_connect_and_part() {
    let recording = Recording::new();
    let channel = channel();
    let listens = listener(channel, space::RDMA_PS_TCP);
    let asks = active(channel, space::RDMA_PS_TCP, PORT);
    // SAFETY: the identifier is alive.
    unsafe {
        assert!(!(*asks).verbs.is_null() && !(*asks).pd.is_null());
        assert_eq!(((*asks).port_num, (*asks).qp_type), (1, ffi::ibv_qp_type::IBV_QPT_RC));
        assert_eq!(ffi::rdma_get_dst_port(asks), PORT.to_be());
        assert_ne!(ffi::rdma_get_src_port(asks), 0);
        assert_eq!((*asks).route.addr.__bindgen_anon_2.dst_sin.sin_addr.s_addr, u32::from_ne_bytes(LOOPBACK));
    }
    make_qp(asks).unwrap();
    assert_eq!(state(asks), ffi::ibv_qp_state::IBV_QPS_INIT);
    connect(asks, &mut parameters(b"hello")).unwrap();
    let (answers, event) = request(channel, listens);
    // SAFETY: the event is that of a connection, and the identifiers are alive.
    unsafe {
        let data = private_data(event);
        assert_eq!((&data[..5], data.len()), (&b"hello"[..], 56));
        let got = (*event).param.conn;
        assert_eq!((got.responder_resources, got.initiator_depth), (5, 3), "each side sees the other's");
        assert_eq!((got.retry_count, got.rnr_retry_count, got.qp_num), (6, 4, (*(*asks).qp).qp_num));
        assert_eq!((*answers).verbs, (*asks).verbs);
        assert_eq!(ffi::rdma_get_src_port(answers), PORT.to_be());
        assert_eq!(ffi::rdma_get_dst_port(answers), ffi::rdma_get_src_port(asks));
    }
    acknowledge(event);
    make_qp(answers).unwrap();
    accept(answers, &mut parameters(b"welcome")).unwrap();
    assert_eq!(state(answers), ffi::ibv_qp_state::IBV_QPS_RTS);
    let established = expect(channel, event_type::RDMA_CM_EVENT_ESTABLISHED, asks);
    // SAFETY: the event is that of a connection.
    unsafe {
        let data = private_data(established);
        assert_eq!((&data[..7], data.len()), (&b"welcome"[..], 196));
        assert_eq!((*established).param.conn.qp_num, (*(*answers).qp).qp_num);
    }
    acknowledge(established);
    assert_eq!(state(asks), ffi::ibv_qp_state::IBV_QPS_RTS);
    let told = recording.verbs().into_iter().filter(|&verb| verb == "set_ece").count();
    assert_eq!(told, 2, "each side's extensions to the other's queue pair");
    pass(channel, event_type::RDMA_CM_EVENT_ESTABLISHED, answers);
    assert_eq!(next(channel), NOTHING);
    disconnect(asks).unwrap();
    assert_eq!(state(asks), ffi::ibv_qp_state::IBV_QPS_ERR);
    for end in [asks, answers] {
        pass(channel, event_type::RDMA_CM_EVENT_DISCONNECTED, end);
        pass(channel, event_type::RDMA_CM_EVENT_TIMEWAIT_EXIT, end);
    }
    disconnect(answers).unwrap();
    assert_eq!(next(channel), NOTHING);
    for side in [asks, answers] {
        end_qp(side);
        end(side);
    }
    end(listens);
    end_channel(channel);
    assert_eq!(recording.live(), []);
}

#[test]
fn identifiers_without_queue_pairs_establish_by_themselves() {
    let recording = Recording::new();
    let channel = channel();
    let listens = listener(channel, space::RDMA_PS_TCP);
    let asks = active(channel, space::RDMA_PS_TCP, PORT);
    // SAFETY: the identifier is alive.
    assert_eq!(check(unsafe { ffi::rdma_connect(asks, null_mut()) }), Err(libc::EINVAL));
    assert_eq!(establish(asks), Err(libc::EINVAL), "nobody has answered");
    connect(asks, &mut parameters(&[])).unwrap();
    let (answers, event) = request(channel, listens);
    acknowledge(event);
    accept(answers, &mut parameters(&[])).unwrap();
    pass(channel, event_type::RDMA_CM_EVENT_CONNECT_RESPONSE, asks);
    assert_eq!(next(channel), NOTHING);
    // What a queue pair of the program's own needs, and no more than the library writes.
    // SAFETY: a struct of integers; the identifier is alive.
    unsafe {
        let mut attr: ffi::ibv_qp_attr = mem::zeroed();
        (attr.qp_state, attr.rate_limit) = (ffi::ibv_qp_state::IBV_QPS_RTR, 4711);
        let mut mask = 0;
        check(ffi::rdma_init_qp_attr(asks, &mut attr, &mut mask)).unwrap();
        assert_eq!((attr.qp_state, attr.rate_limit), (ffi::ibv_qp_state::IBV_QPS_RTR, 4711));
        assert_eq!((attr.dest_qp_num, attr.max_dest_rd_atomic), (77, 3));
        assert_ne!(mask as u32 & ffi::ibv_qp_attr_mask::IBV_QP_AV.0, 0);
    }
    establish(asks).unwrap();
    pass(channel, event_type::RDMA_CM_EVENT_ESTABLISHED, answers);
    // An end that goes is an end that parts.
    end(answers);
    pass(channel, event_type::RDMA_CM_EVENT_DISCONNECTED, asks);
    pass(channel, event_type::RDMA_CM_EVENT_TIMEWAIT_EXIT, asks);
    end(asks);
    end(listens);
    end_channel(channel);
    assert_eq!(recording.live(), []);
}

#[test]
fn a_request_can_be_refused_or_meet_nobody() {
    let recording = Recording::new();
    let channel = channel();
    let nobody = active(channel, space::RDMA_PS_TCP, PORT);
    connect(nobody, &mut parameters(&[])).unwrap();
    let event = expect(channel, event_type::RDMA_CM_EVENT_REJECTED, nobody);
    // SAFETY: the event was taken just now.
    assert_eq!(unsafe { (*event).status }, 8);
    acknowledge(event);
    end(nobody);
    let listens = listener(channel, space::RDMA_PS_TCP);
    let asks = active(channel, space::RDMA_PS_TCP, PORT);
    connect(asks, &mut parameters(&[])).unwrap();
    let (answers, event) = request(channel, listens);
    acknowledge(event);
    // SAFETY: the identifier is alive.
    check(unsafe { ffi::rdma_reject(answers, b"no".as_ptr().cast(), 2) }).unwrap();
    let event = expect(channel, event_type::RDMA_CM_EVENT_REJECTED, asks);
    // SAFETY: the event is one of a connection.
    unsafe {
        assert_eq!((*event).status, 28);
        assert_eq!((&private_data(event)[..2], private_data(event).len()), (&b"no"[..], 148));
    }
    acknowledge(event);
    end(answers);
    end(asks);
    // A request that nobody has read goes with the one it was for, and one whose sender has gone is refused by time.
    let asks = active(channel, space::RDMA_PS_TCP, PORT);
    connect(asks, &mut parameters(&[])).unwrap();
    end(asks);
    let (answers, event) = request(channel, listens);
    acknowledge(event);
    pass(channel, event_type::RDMA_CM_EVENT_REJECTED, answers);
    end(answers);
    let asks = active(channel, space::RDMA_PS_TCP, PORT);
    connect(asks, &mut parameters(&[])).unwrap();
    end(listens);
    pass(channel, event_type::RDMA_CM_EVENT_REJECTED, asks);
    end(asks);
    end_channel(channel);
    assert_eq!(recording.live(), []);
}

#[test]
fn datagrams_find_their_service() {
    let recording = Recording::new();
    let channel = channel();
    let listens = listener(channel, space::RDMA_PS_UDP);
    let asks = active(channel, space::RDMA_PS_UDP, PORT);
    make_qp(asks).unwrap();
    assert_eq!(state(asks), ffi::ibv_qp_state::IBV_QPS_RTS);
    connect(asks, &mut parameters(b"who")).unwrap();
    let (answers, event) = request(channel, listens);
    // SAFETY: the event is one of datagrams.
    unsafe {
        let ud = (*event).param.ud;
        assert_eq!((ud.private_data_len, ud.qp_num), (180, 0));
        assert_eq!(slice::from_raw_parts(ud.private_data.cast::<u8>(), 3), b"who");
    }
    acknowledge(event);
    accept(answers, &mut parameters(&[])).unwrap();
    let event = expect(channel, event_type::RDMA_CM_EVENT_ESTABLISHED, asks);
    // SAFETY: the event is one of datagrams.
    unsafe {
        let ud = (*event).param.ud;
        assert_eq!((ud.qp_num, ud.qkey, ud.ah_attr.is_global, ud.private_data_len), (77, 0x0123_4567, 1, 136));
    }
    acknowledge(event);
    assert_eq!(next(channel), NOTHING);
    let nobody = active(channel, space::RDMA_PS_UDP, PORT + 1);
    connect(nobody, &mut parameters(&[])).unwrap();
    pass(channel, event_type::RDMA_CM_EVENT_UNREACHABLE, nobody);
    end_qp(asks);
    for id in [asks, answers, nobody, listens] {
        end(id);
    }
    end_channel(channel);
    assert_eq!(recording.live(), []);
}

#[test]
fn a_side_that_has_received_is_connected() {
    let recording = Recording::new();
    let channel = channel();
    let listens = listener(channel, space::RDMA_PS_TCP);
    let asks = active(channel, space::RDMA_PS_TCP, PORT);
    connect(asks, &mut parameters(&[])).unwrap();
    let (answers, event) = request(channel, listens);
    acknowledge(event);
    let notify = |id: Id, event| {
        // SAFETY: the identifier is alive.
        check(unsafe { ffi::rdma_notify(id, event) })
    };
    assert_eq!(notify(answers, ffi::ibv_event_type::IBV_EVENT_COMM_EST), Err(libc::EINVAL));
    accept(answers, &mut parameters(&[])).unwrap();
    pass(channel, event_type::RDMA_CM_EVENT_CONNECT_RESPONSE, asks);
    notify(answers, ffi::ibv_event_type::IBV_EVENT_COMM_EST).unwrap();
    pass(channel, event_type::RDMA_CM_EVENT_ESTABLISHED, answers);
    assert_eq!(notify(answers, ffi::ibv_event_type::IBV_EVENT_PATH_MIG), Err(libc::EINVAL));
    establish(asks).unwrap();
    assert_eq!(next(channel), NOTHING, "it was told once");
    for id in [asks, answers, listens] {
        end(id);
    }
    end_channel(channel);
    assert_eq!(recording.live(), []);
}

#[test]
fn extensions_are_told_to_the_other_side() {
    let recording = Recording::new();
    let channel = channel();
    let listens = listener(channel, space::RDMA_PS_TCP);
    let asks = active(channel, space::RDMA_PS_TCP, PORT);
    let mut ece = ffi::ibv_ece { vendor_id: 0x15b3, options: 6, comp_mask: 0 };
    let mut remote = ffi::ibv_ece { vendor_id: 0, options: 0, comp_mask: 1 };
    // SAFETY: the identifier and the structs are alive.
    check(unsafe { ffi::rdma_set_local_ece(asks, &mut ece) }).unwrap();
    connect(asks, &mut parameters(&[])).unwrap();
    let (answers, event) = request(channel, listens);
    acknowledge(event);
    // SAFETY: as above.
    unsafe {
        check(ffi::rdma_get_remote_ece(answers, &mut remote)).unwrap();
        assert_eq!((remote.vendor_id, remote.options, remote.comp_mask), (0x15b3, 6, 0));
        ece.comp_mask = 1;
        assert_eq!(check(ffi::rdma_set_local_ece(answers, &mut ece)), Err(libc::EINVAL));
        check(ffi::rdma_reject_ece(answers, null(), 0)).unwrap();
    }
    let event = expect(channel, event_type::RDMA_CM_EVENT_REJECTED, asks);
    // SAFETY: the event was taken just now.
    assert_eq!(unsafe { (*event).status }, 35);
    acknowledge(event);
    for id in [asks, answers, listens] {
        end(id);
    }
    end_channel(channel);
    assert_eq!(recording.live(), []);
}

#[test]
fn private_data_has_its_limits() {
    let recording = Recording::new();
    let channel = channel();
    let listens = listener(channel, space::RDMA_PS_TCP);
    let asks = active(channel, space::RDMA_PS_TCP, PORT);
    assert_eq!(connect(asks, &mut parameters(&[1; 57])), Err(libc::EINVAL));
    connect(asks, &mut parameters(&[1; 56])).unwrap();
    let (answers, event) = request(channel, listens);
    // SAFETY: the event is one of a connection.
    assert_eq!(unsafe { private_data(event) }, [1; 56]);
    acknowledge(event);
    // SAFETY: the identifier and the data are alive.
    assert_eq!(check(unsafe { ffi::rdma_reject(answers, [0; 149].as_ptr().cast(), 149) }), Err(libc::EINVAL));
    assert_eq!(accept(answers, &mut parameters(&[2; 197])), Err(libc::EINVAL));
    for id in [asks, answers, listens] {
        end(id);
    }
    end_channel(channel);
    drop(recording);
    // What a list brings is sent before what the call has, and the library counts neither.
    let recording = Recording::new();
    let found = list(false, space::RDMA_PS_TCP);
    let mut data = [3_u8; 200];
    // SAFETY: the list and the data are alive.
    unsafe { ((*found).ai_connect, (*found).ai_connect_len) = (data.as_mut_ptr().cast(), data.len()) };
    let asks = endpoint(found).unwrap();
    assert_eq!(connect(asks, &mut parameters(&[3; 56])), Err(libc::EINVAL));
    assert_eq!(recording.violations(), ["rdma_connect with more private data than the library has room for"]);
    // SAFETY: the test gives it up.
    unsafe { ffi::rdma_destroy_ep(asks) };
    assert_eq!(recording.live(), []);
}
