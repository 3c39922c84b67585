//! Tests that need a device: softrnic's, or the one that `SIDEWAY_TEST_DEVICE` names.
//!
//! The softroce and hardware rings run each module in a process of its own, with its own time limit: `device MODULE::`.
//! A test that needs its own process starts one (`sideway_tests::process::alone`).

mod addresses;
mod both_devices;
#[path = "../../../canter/tests/cores/cancel.rs"]
mod canter_cancel;
#[path = "../../../canter/tests/cores/connections.rs"]
mod canter_connections;
mod cm_addrinfo;
mod cm_blocking;
mod cm_connections;
mod cm_datagrams;
mod cm_leaks;
mod cm_multicast;
mod cm_options;
mod cm_own_queue_pair;
mod cm_threads;
#[expect(clippy::unwrap_used, reason = "tests")]
#[path = "../../../trespass/tests/transports/common.rs"]
mod common;
mod completions;
mod control;
#[path = "../../../canter/tests/cores/common.rs"]
mod cores;
mod datagrams;
mod device;
mod errors;
mod event_programs;
mod events;
mod hosts;
mod kernel_peer;
mod memory;
mod multicast;
mod operations;
mod pingpong;
mod programs;
mod programs_atomic;
mod programs_capi;
mod programs_cm;
mod programs_cm_pingpong;
mod programs_cmtime;
mod programs_errors;
mod programs_lens;
mod programs_mckey;
mod programs_rping;
mod programs_stride;
mod programs_trespass;
mod programs_unreliable;
mod programs_window;
mod roce;
mod single_threaded;
mod siw;
mod srq;
mod srq_pingpong;
mod teardown;
mod threads;
mod transitions;
#[path = "../../../trespass/tests/transports/connections.rs"]
mod trespass_connections;
#[path = "../../../trespass/tests/transports/ends.rs"]
mod trespass_ends;
#[expect(clippy::unwrap_used, reason = "tests")]
#[path = "../../../trespass/tests/transports/event_loops.rs"]
mod trespass_event_loops;
#[path = "../../../trespass/tests/transports/nonblocking.rs"]
mod trespass_nonblocking;
mod vendors;
mod windows;
mod xrc;
