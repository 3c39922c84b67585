//! Tests of faults. Each runs in a process of its own, because a fault applies to a device of the process.

#[expect(dead_code, reason = "each test program uses a part")]
#[path = "../common/child.rs"]
mod child;
#[path = "../common/mod.rs"]
mod common;

mod faults;
mod port;
mod removal;

use std::mem::zeroed;

use rdma_mummy_sys::*;
use softrnic::control::Command;

const OK: ibv_wc_status = ibv_wc_status::IBV_WC_SUCCESS;
const FLUSHED: ibv_wc_status = ibv_wc_status::IBV_WC_WR_FLUSH_ERR;
const SEND: ibv_wr_opcode = ibv_wr_opcode::IBV_WR_SEND;

/// Executes a command.
fn command(text: &str) {
    let command: Command = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(command.run(), Ok(String::new()), "{text}");
}

/// Takes the next asynchronous event of a context.
fn event(context: *mut ibv_context) -> ibv_event_type {
    // SAFETY: the context is open, and the event is writable and acknowledged once.
    unsafe {
        let mut poll = libc::pollfd { fd: (*context).async_fd, events: libc::POLLIN, revents: 0 };
        assert_eq!(libc::poll(&raw mut poll, 1, 60_000), 1, "timed out waiting for an event");
        let mut event: ibv_async_event = zeroed();
        assert_eq!(ibv_get_async_event(context, &raw mut event), 0);
        ibv_ack_async_event(&raw mut event);
        event.event_type
    }
}

fn port_of(context: *mut ibv_context) -> (ibv_port_state, u8) {
    // SAFETY: the context is open, and the attributes are numbers.
    unsafe {
        let mut port: ibv_port_attr = zeroed();
        assert_eq!(ibv_query_port(context, 1, &raw mut port), 0);
        (port.state, port.phys_state)
    }
}
