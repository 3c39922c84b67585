//! The port of a device goes down and up.

use rdma_mummy_sys::*;

use crate::child::is_alone;
use crate::common::{Setup, Side, close, open, opened, pair};
use crate::{FLUSHED, OK, SEND, command, event, port_of};

/// Time-outs of 67 ms.
const SLOW: Setup = setup(14);

const fn setup(timeout: u8) -> Setup {
    let access = crate::common::ACCESS;
    let kind = ibv_qp_type::IBV_QPT_RC;
    Setup { kind, depth: 64, bytes: 65536, access, rnr_retry: 7, retry_cnt: 7, timeout, min_rnr_timer: 1 }
}

#[test]
fn open_contexts_are_notified() {
    if !is_alone("port::open_contexts_are_notified") {
        return;
    }
    let contexts = [open(c"soft0"), open(c"soft0")];
    command("port down on soft0");
    command("port down");
    for context in contexts {
        assert_eq!(event(context), ibv_event_type::IBV_EVENT_PORT_ERR);
        assert_eq!(port_of(context), (ibv_port_state::IBV_PORT_DOWN, 3));
    }
    command("port up");
    for context in contexts {
        assert_eq!(event(context), ibv_event_type::IBV_EVENT_PORT_ACTIVE, "each change has one event");
        assert_eq!(port_of(context), (ibv_port_state::IBV_PORT_ACTIVE, 5));
    }
}

#[test]
fn requests_fail_after_their_retries() {
    if !is_alone("port::requests_fail_after_their_retries") {
        return;
    }
    let context = open(c"soft0");
    let sides = pair(context, Setup { retry_cnt: 1, ..setup(8) });
    sides[1].receive(1, &mut [sides[1].piece(0, 8)]);
    sides[0].send(SEND, 2, &mut [sides[0].piece(0, 8)], |_| {});
    assert_eq!((sides[0].done(2).status, sides[1].done(1).status), (OK, OK), "the peer is cached");
    command("port down");
    sides[0].send(SEND, 3, &mut [sides[0].piece(0, 8)], |_| {});
    sides[0].send(SEND, 4, &mut [sides[0].piece(0, 8)], |_| {});
    let statuses = [sides[0].wait(), sides[0].wait()].map(|wc| (wc.wr_id, wc.status));
    assert_eq!(statuses, [(3, ibv_wc_status::IBV_WC_RETRY_EXC_ERR), (4, FLUSHED)]);
    assert_eq!(sides[0].state(), ibv_qp_state::IBV_QPS_ERR);
    assert_eq!(sides[1].state(), ibv_qp_state::IBV_QPS_RTS, "the peer notices nothing");
    close(sides);
}

#[test]
fn request_that_is_retried_continues() {
    if !is_alone("port::request_that_is_retried_continues") {
        return;
    }
    let context = open(c"soft0");
    let sides = pair(context, SLOW);
    command("port down");
    sides[1].receive(1, &mut [sides[1].piece(0, 8)]);
    sides[0].send(SEND, 2, &mut [sides[0].piece(0, 8)], |_| {});
    assert!(sides[0].poll().is_none() && sides[1].poll().is_none());
    command("port up");
    assert_eq!((sides[0].done(2).status, sides[1].done(1).status), (OK, OK));
    // The gate is open again.
    sides[1].receive(3, &mut [sides[1].piece(0, 8)]);
    sides[0].send(SEND, 4, &mut [sides[0].piece(0, 8)], |_| {});
    assert_eq!((sides[0].done(4).status, sides[1].done(3).status), (OK, OK));
    close(sides);
}

#[test]
fn long_message_of_a_connection_continues() {
    if !is_alone("port::long_message_of_a_connection_continues") {
        return;
    }
    assert_eq!(softrnic::Builder::new().device("softroce0").register(), Ok(()));
    const BYTES: u32 = 16 << 20;
    let mut sides = pair(opened(c"softroce0"), Setup { bytes: BYTES as usize, ..SLOW });
    sides[0].buffer.fill(7);
    let (remote_addr, rkey) = (sides[1].address(), sides[1].rkey());
    // Only a part of the message has space in the connection.
    sides[0].send(ibv_wr_opcode::IBV_WR_RDMA_WRITE, 1, &mut [sides[0].piece(0, BYTES)], |wr| {
        wr.wr.rdma = ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr, rkey };
    });
    command("port down");
    assert!(sides[0].poll().is_none());
    command("port up");
    assert_eq!(sides[0].done(1).status, OK);
    assert!(sides[1].buffer.iter().all(|byte| *byte == 7));
    close(sides);
}

#[test]
fn new_queue_pair_finds_the_port_down() {
    if !is_alone("port::new_queue_pair_finds_the_port_down") {
        return;
    }
    let context = open(c"soft0");
    command("port down");
    let sides = pair(context, Setup { retry_cnt: 0, ..setup(8) });
    sides[1].receive(1, &mut [sides[1].piece(0, 8)]);
    sides[0].send(SEND, 2, &mut [sides[0].piece(0, 8)], |_| {});
    assert_eq!(sides[0].wait().status, ibv_wc_status::IBV_WC_RETRY_EXC_ERR);
    close(sides);
}

#[test]
fn unreliable_messages_are_lost() {
    if !is_alone("port::unreliable_messages_are_lost") {
        return;
    }
    let context = open(c"soft0");
    let uc = pair(context, Setup { kind: ibv_qp_type::IBV_QPT_UC, ..SLOW });
    let datagrams = Setup { kind: ibv_qp_type::IBV_QPT_UD, ..SLOW };
    let ud = [Side::new(context, datagrams), Side::new(context, datagrams)];
    ud.iter().for_each(Side::ready_for_datagrams);
    let handle = ud[0].address_handle(ud[0].gid());
    for (round, text) in ["port down", "port up"].into_iter().enumerate() {
        command(text);
        let is_up = round == 1;
        if !is_up {
            uc[1].receive(1, &mut [uc[1].piece(0, 8)]);
            ud[1].receive(1, &mut [ud[1].piece(0, 64)]);
        }
        uc[0].send(SEND, 2, &mut [uc[0].piece(0, 8)], |_| {});
        ud[0].send_datagram(handle, ud[1].number(), 2, &mut [ud[0].piece(0, 8)]);
        assert_eq!((uc[0].done(2).status, ud[0].done(2).status), (OK, OK));
        assert_eq!((uc[1].poll().is_some(), ud[1].poll().is_some()), (is_up, is_up), "{text}");
    }
    // SAFETY: the handle is no longer used.
    assert_eq!(unsafe { ibv_destroy_ah(handle) }, 0);
    ud.into_iter().for_each(Side::close);
    close(uc);
}
