//! Tests of QPs in two processes.

use crate::child::is_alone;
use crate::common::{Setup, Side, open};
use crate::other_process::{Other, byte, close, connected, fill, group, holds, join, setup};
use rdma_mummy_sys::*;

#[test]
fn messages_reach_both_processes() {
    let (mut side, mut other) = connected("rc");
    for (round, length) in [1, 2, 63, 64, 1000, 4096, 16384, 16385, 100_000, 1 << 20, 4 << 20].into_iter().enumerate() {
        fill(&mut side, 0, length, round);
        other.execute(&format!("receive {round} 3 {length}"));
        side.send(ibv_wr_opcode::IBV_WR_SEND, 7, &mut [side.piece(0, length as u32)], |_| {});
        side.done(7);
        assert_eq!(other.execute("wait"), format!("{round} 0 {length} 128"));
        assert_eq!(other.execute(&format!("holds 3 {length} {round}")), "true");

        side.receive(8, &mut [side.piece(4 << 20, 4 << 20)]);
        other.execute(&format!("send {round} 3 {length}"));
        let received = side.done(8);
        assert_eq!((received.byte_len, received.opcode), (length as u32, ibv_wc_opcode::IBV_WC_RECV));
        assert!(holds(&side, 4 << 20, length, round));
        assert_eq!(other.execute("wait").split(' ').nth(1), Some("0"));
    }
    assert!(side.poll().is_none());
    close(side);
}

#[test]
fn memory_of_another_process_is_written_and_read() {
    let (mut side, mut other) = connected("rc");
    for (round, length) in [1, 8, 4095, 16384, 50_001, 1 << 20, 4 << 20].into_iter().enumerate() {
        fill(&mut side, 0, length, round);
        side.send(ibv_wr_opcode::IBV_WR_RDMA_WRITE, 1, &mut [side.piece(0, length as u32)], |wr| {
            wr.wr.rdma = other.rdma(77)
        });
        side.done(1);
        assert_eq!(other.execute(&format!("holds 77 {length} {round}")), "true");
        let into = &mut [side.piece(4 << 20, length as u32)];
        side.send(ibv_wr_opcode::IBV_WR_RDMA_READ, 2, into, |wr| wr.wr.rdma = other.rdma(77));
        assert_eq!(side.done(2).byte_len, length as u32);
        assert!(holds(&side, 4 << 20, length, round));
    }
    close(side);
}

#[test]
fn write_with_immediate_completes_a_receive() {
    let (mut side, mut other) = connected("rc");
    fill(&mut side, 0, 40_000, 3);
    other.execute("receive 5 0 0");
    side.send(ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM, 1, &mut [side.piece(0, 40_000)], |wr| {
        wr.wr.rdma = other.rdma(0);
        wr.__bindgen_anon_1.imm_data = 0x0102_0304;
    });
    side.done(1);
    assert_eq!(other.execute("wait"), "5 0 40000 129");
    assert_eq!(other.execute("holds 0 40000 3"), "true");
    close(side);
}

#[test]
fn atomics_change_a_counter_of_another_process() {
    let (side, mut other) = connected("rc");
    let place = (8 - other.address as usize % 8) % 8;
    other.execute(&format!("fill {place} 8 9"));
    let before = u64::from_ne_bytes(std::array::from_fn(|place| byte(9, place)));
    for (wr_id, added) in [(1, 0), (2, 5)] {
        side.send(ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD, wr_id, &mut [side.piece(0, 8)], |wr| {
            let (remote_addr, rkey) = (other.address + place as u64, other.rkey);
            wr.wr.atomic = ibv_send_wr__bindgen_ty_2__bindgen_ty_2 { remote_addr, compare_add: 5, swap: 0, rkey };
        });
        side.done(wr_id);
        let found = u64::from_ne_bytes(side.buffer[..8].try_into().unwrap());
        assert_eq!(found, before.wrapping_add(added));
    }
    close(side);
}

#[test]
fn many_requests_are_in_flight_at_once() {
    let (mut side, mut other) = connected("rc");
    fill(&mut side, 0, 64 * 32_768, 1);
    for round in 0..8 {
        for index in 0..64 {
            let piece = &mut [side.piece(index * 32_768, 32_768)];
            let opcode = ibv_wr_opcode::IBV_WR_RDMA_WRITE;
            side.send(opcode, index as u64, piece, |wr| wr.wr.rdma = other.rdma(round + index * 32_768));
        }
        for index in 0..64 {
            side.done(index);
        }
        assert_eq!(other.execute(&format!("holds {round} {} 1", 64 * 32_768)), "true");
    }
    close(side);
}

#[test]
fn unreliable_connection_carries_messages() {
    let (mut side, mut other) = connected("uc");
    for (round, length) in [1, 5000, 100_000].into_iter().enumerate() {
        fill(&mut side, 0, length, round);
        other.execute(&format!("receive {round} 0 {length}"));
        side.send(ibv_wr_opcode::IBV_WR_SEND, 7, &mut [side.piece(0, length as u32)], |_| {});
        side.done(7);
        assert_eq!(other.execute("wait"), format!("{round} 0 {length} 128"));
        assert_eq!(other.execute(&format!("holds 0 {length} {round}")), "true");
    }
    close(side);
}

#[test]
fn event_wakes_a_sleeping_process() {
    let (mut side, mut other) = connected("rc");
    for round in 0..100 {
        fill(&mut side, 0, 100, round);
        other.execute(&format!("receive {round} 0 100"));
        side.receive(9, &mut [side.piece(200, 100)]);
        other.send_command("sleep");
        // The message is sent either before or after the other process has begun to sleep.
        std::thread::sleep(std::time::Duration::from_micros(round as u64 % 10 * 200));
        side.send(ibv_wr_opcode::IBV_WR_SEND, 7, &mut [side.piece(0, 100)], |_| {});
        assert_eq!(side.sleep().wr_id, 7);
        assert_eq!(other.read_result(), format!("{round} 0 100 128"));
        other.execute(&format!("send {round} 0 100"));
        assert_eq!((side.sleep().wr_id, other.execute("sleep").split(' ').nth(1)), (9, Some("0")));
        assert!(holds(&side, 200, 100, round));
    }
    close(side);
}

#[test]
fn late_receive_of_another_process_is_waited_for() {
    let (mut side, mut other) = connected("rc");
    fill(&mut side, 0, 100_000, 4);
    for round in 0..20 {
        side.send(ibv_wr_opcode::IBV_WR_SEND, round, &mut [side.piece(0, 100_000)], |_| {});
    }
    for round in 0..20 {
        other.execute(&format!("receive {round} 0 100000"));
        assert_eq!(other.execute("wait"), format!("{round} 0 100000 128"));
        assert_eq!(other.execute("holds 0 100000 4"), "true");
        side.done(round);
    }
    close(side);
}

#[test]
fn invalid_key_is_refused() {
    let (side, other) = connected("rc");
    side.send(ibv_wr_opcode::IBV_WR_RDMA_WRITE, 1, &mut [side.piece(0, 100_000)], |wr| {
        let remote_addr = other.address;
        wr.wr.rdma = ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr, rkey: other.rkey ^ 0x5a00 };
    });
    assert_eq!(side.wait().status, ibv_wc_status::IBV_WC_REM_ACCESS_ERR);
    assert_eq!(side.state(), ibv_qp_state::IBV_QPS_ERR);
    close(side);
}

#[test]
fn killed_peer_exhausts_retries() {
    let (side, mut other) = connected("rc");
    side.send(ibv_wr_opcode::IBV_WR_RDMA_WRITE, 1, &mut [side.piece(0, 4096)], |wr| wr.wr.rdma = other.rdma(0));
    side.done(1);
    for index in 0..32 {
        let piece = &mut [side.piece(0, 4 << 20)];
        side.send(ibv_wr_opcode::IBV_WR_RDMA_WRITE, index, piece, |wr| wr.wr.rdma = other.rdma(0));
        if index == 16 {
            other.kill();
        }
    }
    let mut wc = side.wait();
    while wc.status == ibv_wc_status::IBV_WC_SUCCESS {
        wc = side.wait();
    }
    assert_eq!(wc.status, ibv_wc_status::IBV_WC_RETRY_EXC_ERR);
    for _ in wc.wr_id + 1..32 {
        assert_eq!(side.wait().status, ibv_wc_status::IBV_WC_WR_FLUSH_ERR);
    }
    close(side);
}

#[test]
fn datagrams_reach_qps_and_groups() {
    let mut others = [Other::start("ud"), Other::start("ud")];
    let mut side = Side::new(open(c"soft0"), setup(ibv_qp_type::IBV_QPT_UD));
    side.ready_for_datagrams();
    fill(&mut side, 0, 4096, 1);
    let address_handle = side.address_handle(side.gid());
    for (round, length) in [0, 1, 1000, 4096].into_iter().enumerate() {
        for other in &mut others {
            other.execute(&format!("receive {round} 0 8192"));
            side.send_datagram(address_handle, other.number, 3, &mut [side.piece(0, length as u32)]);
            side.done(3);
            // The data follows the header of 40 bytes.
            assert_eq!(other.execute("wait"), format!("{round} 0 {} 128", length + 40));
            assert_eq!(other.execute(&format!("holds 40 {length} 1")), "true");
        }
    }

    let to_all = side.address_handle(group(&side, 1));
    join(&side, 1, true);
    for other in &mut others {
        other.execute("join 1");
        other.execute("receive 50 0 8192");
    }
    side.receive(51, &mut [side.piece(8192, 8192)]);
    // Other processes find the new members only after a short time.
    std::thread::sleep(std::time::Duration::from_millis(200));
    side.send_datagram(to_all, 0xff_ffff, 4, &mut [side.piece(0, 500)]);
    let mut own = [side.wait(), side.wait()].map(|wc| (wc.wr_id, wc.status.0));
    own.sort_unstable();
    assert_eq!(own, [(4, 0), (51, 0)]);
    assert!(holds(&side, 8192 + 40, 500, 1));
    for other in &mut others {
        assert_eq!(other.execute("wait"), "50 0 540 128");
        assert_eq!(other.execute("holds 40 500 1"), "true");
    }

    // Processes that have left the group or ended receive nothing.
    join(&side, 1, false);
    others[0].kill();
    let [_, other] = &mut others;
    other.execute("receive 60 0 8192");
    for number in 0..4 {
        side.send_datagram(to_all, 0xff_ffff, number, &mut [side.piece(0, 100)]);
        side.done(number);
    }
    assert_eq!(other.execute("wait"), "60 0 140 128");
    other.execute("leave 1");
    // SAFETY: the handles are no longer used.
    unsafe { assert_eq!((ibv_destroy_ah(address_handle), ibv_destroy_ah(to_all)), (0, 0)) };
    close(side);
}

/// UCX unmaps the memory of receives before it destroys their QP.
#[test]
fn destroyed_qp_fetches_no_datagrams() {
    let mut other = Other::start("ud");
    // Sometimes another thread of this process receives the datagram first, and sometimes for about a second each one.
    let is_dropped = (0..10_000).any(|_| {
        let side = Side::new(open(c"soft0"), setup(ibv_qp_type::IBV_QPT_UD));
        side.ready_for_datagrams();
        side.receive(1, &mut [side.piece(0, 64)]);
        assert!(side.poll().is_none());
        other.execute(&format!("datagram {} 0 8", side.number()));
        // SAFETY: the QP is destroyed once; its queue and the rest of the side stay.
        assert_eq!(unsafe { ibv_destroy_qp(side.qp) }, 0);
        let is_dropped = side.poll().is_none();
        // SAFETY: the side is not used again.
        unsafe {
            assert_eq!((ibv_dereg_mr(side.mr), ibv_destroy_cq(side.cq)), (0, 0));
            assert_eq!((ibv_destroy_comp_channel(side.channel), ibv_dealloc_pd(side.pd)), (0, 0));
            assert_eq!(ibv_close_device(side.context), 0);
        }
        is_dropped
    });
    assert!(is_dropped);
}

#[test]
fn srq_receives_messages_of_another_process() {
    let (mut side, mut other) = connected("shared");
    for (round, length) in [1, 5000, 100_000].into_iter().enumerate() {
        fill(&mut side, 0, length, round);
        other.execute(&format!("receive {round} 0 {length}"));
        side.send(ibv_wr_opcode::IBV_WR_SEND, 7, &mut [side.piece(0, length as u32)], |_| {});
        side.done(7);
        assert_eq!(other.execute("wait"), format!("{round} 0 {length} 128"));
        assert_eq!(other.execute(&format!("holds 0 {length} {round}")), "true");
    }
    close(side);
}

#[test]
fn xrc_message_reaches_its_shared_queue() {
    let (mut side, mut other) = connected("xrc");
    for (round, length) in [1, 5000, 100_000].into_iter().enumerate() {
        fill(&mut side, 0, length, round);
        other.execute(&format!("receive {round} 0 {length}"));
        let piece = &mut [side.piece(0, length as u32)];
        let shared = other.shared;
        side.send(ibv_wr_opcode::IBV_WR_SEND, 7, piece, |wr| wr.qp_type.xrc.remote_srqn = shared);
        side.done(7);
        assert_eq!(other.execute("wait"), format!("{round} 0 {length} 128"));
        assert_eq!(other.execute(&format!("holds 0 {length} {round}")), "true");

        fill(&mut side, 0, length, round + 9);
        let memory = other.rdma(77);
        side.send(ibv_wr_opcode::IBV_WR_RDMA_WRITE, 8, &mut [side.piece(0, length as u32)], |wr| {
            wr.wr.rdma = memory;
            wr.qp_type.xrc.remote_srqn = shared;
        });
        side.done(8);
        assert_eq!(other.execute(&format!("holds 77 {length} {}", round + 9)), "true");
        side.send(ibv_wr_opcode::IBV_WR_RDMA_READ, 9, &mut [side.piece(4 << 20, length as u32)], |wr| {
            wr.wr.rdma = memory;
            wr.qp_type.xrc.remote_srqn = shared;
        });
        side.done(9);
        assert!(holds(&side, 4 << 20, length, round + 9));
    }
    // No queue has this number.
    side.send(ibv_wr_opcode::IBV_WR_SEND, 10, &mut [side.piece(0, 8)], |wr| wr.qp_type.xrc.remote_srqn = 0xff_fff0);
    assert_eq!(side.wait().status, ibv_wc_status::IBV_WC_REM_INV_REQ_ERR);
    close(side);
}

/// The port of the peer goes down, which only the failed requests show.
#[test]
fn port_of_the_peer_is_down() {
    let (side, mut other) = connected("rc");
    assert_eq!(other.execute("receive 1 0 8"), "done");
    side.send(ibv_wr_opcode::IBV_WR_SEND, 2, &mut [side.piece(0, 8)], |_| {});
    side.done(2);
    assert_eq!(other.execute("control port down"), "done");
    assert_eq!(other.execute("receive 3 0 8"), "done");
    side.send(ibv_wr_opcode::IBV_WR_SEND, 4, &mut [side.piece(0, 8)], |_| {});
    side.send(ibv_wr_opcode::IBV_WR_SEND, 5, &mut [side.piece(0, 8)], |_| {});
    let statuses = [side.wait(), side.wait()].map(|wc| (wc.wr_id, wc.status));
    assert_eq!(statuses, [(4, ibv_wc_status::IBV_WC_RETRY_EXC_ERR), (5, ibv_wc_status::IBV_WC_WR_FLUSH_ERR)]);
    close(side);
}

/// Messages of many parts are in flight when the port goes down, and arrive once when it is up again.
#[test]
fn messages_in_flight_survive_a_port_that_is_down_for_a_moment() {
    const LENGTH: usize = 1 << 20;
    if !is_alone("peers::messages_in_flight_survive_a_port_that_is_down_for_a_moment") {
        return;
    }
    let mut other = Other::start("rc");
    let setup = Setup { timeout: 14, retry_cnt: 7, ..setup(ibv_qp_type::IBV_QPT_RC) };
    let mut side = Side::new(open(c"soft0"), setup);
    side.connect(other.number, setup);
    assert_eq!(other.execute(&format!("connect {}", side.number())), "done");
    fill(&mut side, 0, LENGTH, 7);
    for round in 0..8 {
        assert_eq!(other.execute(&format!("receive {round} 0 {LENGTH}")), "done");
        side.send(ibv_wr_opcode::IBV_WR_SEND, round, &mut [side.piece(0, LENGTH as u32)], |_| {});
        for command in ["port down", "port up"] {
            match round % 2 {
                0 => assert_eq!(other.execute(&format!("control {command}")), "done"),
                _ => assert_eq!(command.parse::<softrnic::control::Command>().unwrap().run(), Ok(String::new())),
            }
        }
    }
    for round in 0..8 {
        side.done(round);
        assert_eq!(other.execute("wait"), format!("{round} 0 {LENGTH} {}", ibv_wc_opcode::IBV_WC_RECV.0));
    }
    assert_eq!(other.execute(&format!("holds 0 {LENGTH} 7")), "true");
    close(side);
}

/// A fault at the responder fails both ends.
#[test]
fn refusal_reaches_the_other_process() {
    let (side, mut other) = connected("rc");
    assert_eq!(other.execute("receive 1 0 8"), "done");
    assert_eq!(other.execute(&format!("control qp {} refuse access", other.number)), "done");
    side.send(ibv_wr_opcode::IBV_WR_SEND, 2, &mut [side.piece(0, 8)], |_| {});
    assert_eq!(side.wait().status, ibv_wc_status::IBV_WC_REM_ACCESS_ERR);
    assert!(other.execute("wait").starts_with(&format!("1 {} ", ibv_wc_status::IBV_WC_WR_FLUSH_ERR.0)));
    close(side);
}

/// The device of the peer is removed.
#[test]
fn requests_to_a_removed_device_fail() {
    let (side, mut other) = connected("rc");
    assert_eq!(other.execute("receive 1 0 8"), "done");
    assert_eq!(other.execute("control device remove"), "done");
    side.send(ibv_wr_opcode::IBV_WR_SEND, 2, &mut [side.piece(0, 8)], |_| {});
    assert_eq!(side.wait().status, ibv_wc_status::IBV_WC_RETRY_EXC_ERR);
    close(side);
}

/// The delay of each message does not change the order or the number of messages.
#[test]
fn slow_device_sends_all_messages_in_order() {
    if !is_alone("peers::slow_device_sends_all_messages_in_order") {
        return;
    }
    let (side, mut other) = connected("rc");
    for text in ["delay 2ms", "rate 100000000"] {
        assert_eq!(text.parse::<softrnic::control::Command>().unwrap().run(), Ok(String::new()));
    }
    for id in 0..16 {
        assert_eq!(other.execute(&format!("receive {id} 0 100000")), "done");
        side.send(ibv_wr_opcode::IBV_WR_SEND, id, &mut [side.piece(0, 100_000)], |_| {});
    }
    for id in 0..16 {
        side.done(id);
        assert_eq!(other.execute("wait"), format!("{id} 0 100000 {}", ibv_wc_opcode::IBV_WC_RECV.0));
    }
    close(side);
}
