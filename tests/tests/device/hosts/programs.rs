//! Programs of the other crates between two hosts, with no option but the address.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use sideway_test_names::Folder;
use sideway_tests::child::{self, Ended, Program};
use sideway_tests::hosts::Hosts;
use sideway_tests::programs::{LIMIT, port, succeeds};

use super::{built, is_soft, over_tcp};

/// Runs a client again until its server listens.
fn until_it_listens(server: &mut Program, client: impl Fn() -> Command) -> Ended {
    loop {
        let ended = child::run(client(), LIMIT);
        if ended.status.success() || !ended.output.contains("efused") {
            return ended;
        }
        server.wait_until("listen", |_| true);
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn echo_of_trespass_reaches_another_host() {
    let Some(echo) = is_soft().then(|| built("echo")).flatten() else { return };
    let Some(hosts) = Hosts::new() else { return };
    let mut server = Program::start(hosts.command(1, &echo), LIMIT);
    let client = || {
        let mut command = hosts.command(0, &echo);
        command.arg(Hosts::ADDRESSES[1]);
        command
    };
    succeeds(&until_it_listens(&mut server, client), &["hello over "]);
}

/// How often the device's thread in a process has been woken.
fn wake_ups(process: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).expect("the process runs");
    let read = |path: &Path, name| fs::read_to_string(path.join(name)).unwrap_or_default();
    let task = tasks
        .filter_map(|task| Some(task.ok()?.path()))
        .find(|task| read(task, "comm").trim() == "softrnic")
        .expect("the process has the device's thread");
    let status = read(&task, "status");
    let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count.and_then(|count| count.trim().parse().ok()).expect("the kernel counts the switches")
}

/// The device's thread once received each message, so that each message woke two threads.
#[test]
fn program_that_waits_for_events_receives_most_messages_itself() {
    const MESSAGES: u64 = 500;
    let Some(stride) = is_soft().then(|| built("stride-perf")).flatten() else { return };
    let port = port();
    let start = |words: String| {
        let mut command = over_tcp(Command::new(&stride));
        command.args(words.split_whitespace());
        command
    };
    let mut server = Program::start(start(format!("--port {port}")), LIMIT);
    server.wait_for_port(port);
    let mut seen = 0;
    let mut counts = Vec::new();
    // If the machine is busy, a message may arrive before the program waits again. The thread then receives it.
    while counts.iter().all(|count| *count > MESSAGES * 9 / 10) {
        assert!(counts.len() < 20, "the thread was woken {counts:?} times for {MESSAGES} messages");
        let client = format!("send lat -R -e -s 64 --warm-up 0 -n {MESSAGES} --port {port} 127.0.0.1");
        succeeds(&child::run(start(client), LIMIT), &[]);
        let now = wake_ups(server.id());
        counts.push(now - seen);
        seen = now;
    }
}

#[test]
fn kv_of_trespass_rpc_reaches_another_host() {
    let Some(kv) = is_soft().then(|| built("kv")).flatten() else { return };
    let Some(hosts) = Hosts::new() else { return };
    let mut server = Program::start(hosts.command(1, &kv), LIMIT);
    let client = || {
        let mut command = hosts.command(0, &kv);
        command.arg(format!("{}:7175", Hosts::ADDRESSES[1]));
        command
    };
    let lines = ["connected over ", "fruit/apple is green"];
    succeeds(&until_it_listens(&mut server, client), &lines);
}

fn write(folder: &Folder, name: &str, bytes: impl AsRef<[u8]>) -> std::path::PathBuf {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().expect("it has one")).expect("the folder is ours");
    fs::write(&path, bytes).expect("the folder is ours");
    path
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 + at / 251) as u8).collect()
}

#[test]
fn rdcp_copies_a_tree_to_another_host() {
    let Some(rdcp) = is_soft().then(|| built("rdcp")).flatten() else { return };
    let Some(hosts) = Hosts::new() else { return };
    let folder = Folder::new();
    for number in 0..50 {
        write(&folder, &format!("tree/d{}/f{number}", number % 3), bytes(number * 1013));
    }
    write(&folder, "tree/large", bytes(5_000_000));
    // Replaces ssh: drops the options and the host, and runs the command on the other host.
    let [here, there] = Hosts::ADDRESSES;
    let mut enter = hosts.command(1, "sh");
    enter.arg("-c");
    let enter: Vec<_> = enter.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
    let script = format!(
        "#!/bin/sh\nwhile [ \"${{1#-}}\" != \"$1\" ]; do shift; done\nshift\n\
         export SSH_CONNECTION=\"{here} 1 {there} 22\"\nexec ip {} \"$*\"\n",
        enter.join(" ")
    );
    let ssh = write(&folder, "ssh", script);
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).expect("the file is ours");
    let copy = |options: &[&str]| {
        let mut command = hosts.command(0, &rdcp);
        command.arg("--rsh").arg(&ssh).arg("--rdcp-path").arg(&rdcp).args(options);
        command.arg(folder.join("tree")).arg(format!("{there}:{}", folder.join("copy").display()));
        child::run(command, LIMIT)
    };
    succeeds(&copy(&["-r"]), &[]);
    let are_same = |one: &Path, other: &Path| Command::new("diff").arg("-r").args([one, other]).status();
    let status = are_same(&folder.join("tree"), &folder.join("copy")).expect("diff is installed");
    assert!(status.success(), "the copy differs");
    assert_eq!(fs::metadata(folder.join("copy/large")).expect("it was copied").len(), 5_000_000);
}

#[test]
fn rdsend_sends_a_file_to_another_host() {
    let (Some(rdsend), Some(rdrecv)) =
        (is_soft().then(|| built("rdsend")).flatten(), is_soft().then(|| built("rdrecv")).flatten())
    else {
        return;
    };
    let Some(hosts) = Hosts::new() else { return };
    let folder = Folder::new();
    let sent = write(&folder, "sent", bytes(3_000_000));
    let mut receive = hosts.command(1, rdrecv);
    receive.args(["7300", "key"]).arg(folder.join("received"));
    let mut receiver = Program::start(receive, LIMIT);
    let mut send = hosts.command(0, rdsend);
    send.args([Hosts::ADDRESSES[1], "7300", "key"]).arg(&sent);
    succeeds(&child::run(send, LIMIT), &[]);
    let ended = receiver.wait().unwrap_or_else(|| panic!("the receiver does not end:\n{}", receiver.said()));
    succeeds(&ended, &[]);
    assert!(fs::read(folder.join("received")).expect("it was received") == bytes(3_000_000));
}
