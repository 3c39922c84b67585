//! Connections between two network namespaces, which simulate two hosts without RDMA hardware.

use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;

use crate::common::bytes;
use sideway_tests::hosts::Hosts;
use trespass::net::{Listener, Shutdown, Stream};
use trespass::{Handle, Options, Transport};

/// The variable that names the device for the test `host` in a child process. If its value is `any` or `rdma`, the worker
/// selects the device; with `any`, it may also use TCP.
const DEVICE: &str = "TRESPASS_TEST_HOST_DEVICE";
/// The variable with the server's address, which the client uses.
const SERVER: &str = "TRESPASS_TEST_HOST_SERVER";

/// Runs this program on one of the hosts.
fn on(hosts: &Hosts, host: usize, device: &str, server: &str) -> Running {
    on_with(hosts, host, "soft0,softiw0", device, server)
}

/// Runs this program on one of the hosts, which has these devices.
fn on_with(hosts: &Hosts, host: usize, devices: &str, device: &str, server: &str) -> Running {
    let mut command = hosts.command(host, std::env::current_exe().unwrap());
    command.env("SOFTRNIC_DEVICES", devices);
    command.args(["hosts::host", "--exact", "--nocapture"]).envs([(DEVICE, device), (SERVER, server)]);
    let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(process.stdout.take().unwrap()).lines();
    Running { process, lines }
}

/// A process, which is killed when this value is dropped.
struct Running {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Running {
    /// Waits for a line with `key`, and returns the text after it.
    fn line(&mut self, key: &str) -> Option<String> {
        self.lines.by_ref().map_while(Result::ok).find_map(|line| Some(line.split_once(key)?.1.to_owned()))
    }

    fn succeeds(mut self) -> bool {
        let _ = self.line("\0");
        self.process.wait().unwrap().success()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The process has usually exited already.
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

/// Runs in the child process: a server that echoes one stream, or its client.
#[test]
fn host() {
    let (Ok(device), Ok(server)) = (std::env::var(DEVICE), std::env::var(SERVER)) else { return };
    softrnic::register().unwrap();
    let mut options = Options::default();
    options.memory = 64 << 20;
    if device != "any" {
        options.transport = Transport::Rdma;
        options.device = Some(device).filter(|device| device != "rdma");
    }
    let handle = Handle::new(&options).unwrap();
    let mut out = std::io::stdout();
    if server.is_empty() {
        let listener = Listener::bind_on(&handle, "0.0.0.0:0").unwrap();
        writeln!(out, "\nlistens at {}:{}", Hosts::ADDRESSES[1], listener.local_addr().unwrap().port()).unwrap();
        out.flush().unwrap();
        let mut stream = listener.accept().unwrap().0;
        std::io::copy(&mut stream.try_clone().unwrap(), &mut stream).unwrap();
        return;
    }
    let stream = Stream::connect_on(&handle, server.as_str()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let sent: Vec<u8> =
        [1, 100, 5_000, 100_000, 1 << 20].into_iter().flat_map(|length| bytes(length, length)).collect();
    let received = std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut received = Vec::new();
            (&stream).read_to_end(&mut received).map(|_| received)
        });
        (&stream).write_all(&sent).unwrap();
        let path = stream.stats().unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        writeln!(out, "\nconnected by {:?} {path}", path.transport).unwrap();
        reading.join().unwrap().unwrap()
    });
    assert!(received == sent);
}

#[test]
fn two_hosts_connect_given_only_the_address() {
    let Some(hosts) = Hosts::new() else { return };
    for (device, expected) in [("any", ["Tcp ", "softiw0"]), ("softiw0", ["Rdma ", "softiw0"])] {
        let mut server = on(&hosts, 1, device, "");
        let address = server.line("listens at ").expect("the server listens");
        let mut client = on(&hosts, 0, device, &address);
        let path = client.line("connected by ");
        let ended = [client.succeeds(), server.succeeds()];
        assert_eq!(ended, [true, true], "{device}");
        let path = path.expect("the client connects");
        assert!(path.starts_with(expected[0]) && path.contains(expected[1]), "{device}: {path}");
    }
}

#[test]
fn server_accepts_connections_on_each_of_its_devices() {
    let Some(hosts) = Hosts::new() else { return };
    // The worker's own TCP listener takes the port of iWARP.
    let cases = [("softiw0,softroce0", "any", "softroce0"), ("soft0,softiw0", "rdma", "softiw0")];
    for (all, server, used) in cases {
        let mut server = on_with(&hosts, 1, all, server, "");
        let address = server.line("listens at ").expect("the server listens");
        let mut client = on_with(&hosts, 0, used, used, &address);
        let path = client.line("connected by ");
        assert!(client.succeeds(), "{all}");
        assert!(server.succeeds(), "{all}");
        assert!(path.is_some_and(|path| path.starts_with("Rdma ") && path.contains(used)), "{all}");
    }
}

/// Devices of softrnic have the same addresses, so the worker's first choice may be wrong.
#[test]
fn client_uses_the_device_of_the_route() {
    let Some(hosts) = Hosts::new() else { return };
    for (all, used) in
        [("soft0,softroce0", "softroce0"), ("softroce0,soft0", "softroce0"), ("soft0,softiw0", "softiw0")]
    {
        let mut server = on_with(&hosts, 1, all, "rdma", "");
        let address = server.line("listens at ").expect("the server listens");
        let mut client = on_with(&hosts, 0, all, "rdma", &address);
        let path = client.line("connected by ").expect("the client connects");
        assert!(path.starts_with(&format!("Rdma {used} ")), "{all}: {path}");
        assert_eq!([client.succeeds(), server.succeeds()], [true, true], "{all}");
    }
}
