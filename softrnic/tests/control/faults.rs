//! Faults of queue pairs, slow devices, and a limit of registered memory.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, process};

use rdma_mummy_sys::*;
use sideway_test_names::Folder;
use softrnic::control;

use crate::child::is_alone;
use crate::common::{Setup, close, open, pair};
use crate::{FLUSHED, SEND, command, event};

#[test]
fn request_completes_with_the_chosen_status() {
    let statuses = [
        ("retry_exc", ibv_wc_status::IBV_WC_RETRY_EXC_ERR),
        ("rnr_retry_exc", ibv_wc_status::IBV_WC_RNR_RETRY_EXC_ERR),
        ("loc_prot", ibv_wc_status::IBV_WC_LOC_PROT_ERR),
    ];
    for (word, status) in statuses {
        let sides = pair(open(c"soft0"), Setup::default());
        sides[1].receive(1, &mut [sides[1].piece(0, 8)]);
        sides[0].send(SEND, 2, &mut [sides[0].piece(0, 8)], |_| {});
        sides[0].done(2);
        command(&format!("qp {} fail {word}", sides[0].number()));
        sides[0].receive(3, &mut [sides[0].piece(0, 8)]);
        sides[0].send(SEND, 4, &mut [sides[0].piece(0, 8)], |_| {});
        let mut statuses = [sides[0].wait(), sides[0].wait()].map(|wc| (wc.wr_id, wc.status));
        statuses.sort_unstable_by_key(|wc| wc.0);
        assert_eq!(statuses, [(3, FLUSHED), (4, status)]);
        assert_eq!(sides[0].state(), ibv_qp_state::IBV_QPS_ERR);
        close(sides);
    }
}

#[test]
fn refusal_fails_both_queue_pairs() {
    let refusals = [
        ("access", ibv_wc_status::IBV_WC_REM_ACCESS_ERR, ibv_event_type::IBV_EVENT_QP_ACCESS_ERR),
        ("invalid", ibv_wc_status::IBV_WC_REM_INV_REQ_ERR, ibv_event_type::IBV_EVENT_QP_REQ_ERR),
        ("operation", ibv_wc_status::IBV_WC_REM_OP_ERR, ibv_event_type::IBV_EVENT_QP_ACCESS_ERR),
    ];
    for (word, status, kind) in refusals {
        let context = open(c"soft0");
        let sides = pair(context, Setup::default());
        sides[1].receive(1, &mut [sides[1].piece(0, 8)]);
        command(&format!("qp {} refuse {word}", sides[1].number()));
        sides[0].send(SEND, 2, &mut [sides[0].piece(0, 8)], |_| {});
        assert_eq!((sides[0].wait().status, sides[1].wait().status), (status, FLUSHED));
        assert_eq!(event(context), kind);
        assert_eq!([sides[0].state(), sides[1].state()], [ibv_qp_state::IBV_QPS_ERR; 2]);
        close(sides);
    }
}

#[test]
fn fatal_error_flushes_the_queue_pair() {
    let context = open(c"soft0");
    let sides = pair(context, Setup::default());
    sides[0].receive(1, &mut [sides[0].piece(0, 8)]);
    command(&format!("qp {} fatal", sides[0].number()));
    assert_eq!(event(context), ibv_event_type::IBV_EVENT_QP_FATAL);
    assert_eq!(sides[0].wait().status, FLUSHED);
    let number = sides[0].number();
    close(sides);
    assert!(matches!(control::QueuePair::numbered(number), Err(control::Error::NoQueuePair { .. })));
}

#[test]
fn device_of_a_command_must_have_the_queue_pair() {
    if !is_alone("faults::device_of_a_command_must_have_the_queue_pair") {
        return;
    }
    assert_eq!(softrnic::Builder::new().device("soft0").device("soft1").register(), Ok(()));
    let sides = pair(crate::common::opened(c"soft0"), Setup::default());
    let number = sides[0].number();
    let run = |text: String| text.parse::<control::Command>().unwrap_or_else(|error| panic!("{error}")).run();
    for what in ["fatal", "fail rem_op", "refuse access"] {
        let error = control::Error::OtherDevice { number, name: "soft1".to_owned() };
        assert_eq!(run(format!("qp {number} {what} on soft1")), Err(error));
        assert!(matches!(run(format!("qp {number} {what} on soft2")), Err(control::Error::Unknown { .. })));
    }
    assert_eq!(sides[0].state(), ibv_qp_state::IBV_QPS_RTS);
    assert_eq!(run(format!("qp {number} fatal on soft0")), Ok(String::new()));
    assert_eq!(sides[0].state(), ibv_qp_state::IBV_QPS_ERR);
    close(sides);
}

#[test]
fn shared_memory_is_neither_cut_nor_corrupted() {
    crate::common::register();
    for text in ["cut 1s", "corrupt on soft0"] {
        let command: control::Command = text.parse().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(command.run(), Err(control::Error::NotIwarp { name: "soft0".to_owned() }));
    }
}

/// The delays of messages overlap, and the bandwidth is shared.
#[test]
fn slow_device_delays_messages() {
    if !is_alone("faults::slow_device_delays_messages") {
        return;
    }
    let delay = Duration::from_millis(50);
    let sides = pair(open(c"soft0"), Setup::default());
    for (text, count, at_least) in [("delay 50ms", 8, delay), ("rate 1000000", 2, 2 * delay)] {
        command(text);
        let start = Instant::now();
        for id in 0..count {
            sides[1].receive(id, &mut [sides[1].piece(0, 50_000)]);
            sides[0].send(SEND, id, &mut [sides[0].piece(0, 50_000)], |_| {});
        }
        for id in 0..count {
            sides[0].done(id);
            sides[1].done(id);
        }
        assert!(start.elapsed() >= at_least, "{text}: {:?}", start.elapsed());
        command("delay 0s");
        command("rate unlimited");
    }
    sides[1].receive(1, &mut [sides[1].piece(0, 8)]);
    sides[0].send(SEND, 2, &mut [sides[0].piece(0, 8)], |_| {});
    assert!(sides[0].poll().is_some(), "messages are sent at once again");
    sides[1].done(1);
    close(sides);
}

#[test]
fn registered_memory_is_limited() {
    if !is_alone("faults::registered_memory_is_limited") {
        return;
    }
    let context = open(c"soft0");
    command("memory 8192");
    // SAFETY: all objects are destroyed in order, and the memory outlives its regions.
    unsafe {
        let pd = ibv_alloc_pd(context);
        let mut memory = vec![0_u8; 8192];
        let mut register = |length| ibv_reg_mr(pd, memory.as_mut_ptr().cast(), length, 0);
        let first = register(4096);
        assert!(!first.is_null());
        assert!(register(4097).is_null());
        assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::ENOMEM));
        let second = register(4096);
        assert!(!second.is_null() && register(1).is_null());
        assert_eq!(ibv_dereg_mr(first), 0);
        let third = register(1);
        assert!(!third.is_null(), "deregistered memory does not count");
        for region in [second, third] {
            assert_eq!(ibv_dereg_mr(region), 0);
        }
        assert_eq!((ibv_dealloc_pd(pd), ibv_close_device(context)), (0, 0));
    }
}

/// Name of the environment variable that makes `serve` wait for a command.
const ROLE: &str = "SOFTRNIC_TEST_SERVES";

/// This is not a test. It runs in the process that is controlled.
#[test]
fn serve() {
    if env::var_os(ROLE).is_some() {
        let context = open(c"soft0");
        println!("OPEN");
        assert_eq!(event(context), ibv_event_type::IBV_EVENT_PORT_ERR);
        // Until the reply has arrived.
        io::stdin().read_line(&mut String::new()).unwrap();
        process::exit(7);
    }
}

#[test]
fn other_process_sends_commands() {
    let parent = Folder::new();
    let folder = parent.path().join("control");
    let mut child = Command::new(env::current_exe().unwrap());
    child.args(["--exact", "faults::serve", "--nocapture"]).env(ROLE, "1").env("SOFTRNIC_CONTROL", &folder);
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().ends_with("OPEN")));
    assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    let mut socket = UnixStream::connect(folder.join(child.id().to_string())).unwrap();
    let mut replies = BufReader::new(socket.try_clone().unwrap()).lines();
    let mut ask = |text: &str| {
        socket.write_all(text.as_bytes()).unwrap();
        replies.next().unwrap().unwrap()
    };
    assert_eq!(ask("port sideways\n"), "error: invalid command: unexpected word \"sideways\"; expected down, up");
    assert!(ask("port down on soft9\n").starts_with("error: no soft device is named \"soft9\""));
    assert_eq!(ask("port down on soft0\n"), "ok");
    assert_eq!(child.wait().unwrap().code(), Some(7));
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "the socket of a process that exits");
}
