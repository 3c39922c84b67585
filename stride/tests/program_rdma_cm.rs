//! The program where the sides talk over rdma_cm (-z): a server and its clients as processes, on softrnic's device.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test, also outside of a function marked as one")]

mod support;

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rdma_mummy_sys::load::provider::ProviderId;
use rdma_mummy_sys::load::rdmacm::{Choice, choose};
use rustix::process::{Pid, Signal, kill_process};
use sideway::rdmacm::{ConnectionParameter, Connector};
use stride_perf::control::{self, Cause, ControlOptions, Failure, Host, Met, Request};
use stride_perf::endpoint::fake::Fake;
use stride_perf::endpoint::{Endpoint, EndpointFactory, Role};
use stride_perf::plan::{Given, Plan, SideConfig};

use self::support::ends;

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);

fn program(words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stride-perf"));
    command.args(words.split_whitespace()).env("NO_COLOR", "1").env("RDMA_MUMMY_RDMACM", "softrnic");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A server, which is killed in the end, with what it says.
struct Server {
    child: Child,
    says: BufReader<ChildStderr>,
    port: u16,
}

impl Server {
    fn start(words: &str) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut child = program(&format!("{words} -p {port}")).stdout(Stdio::null()).spawn().unwrap();
        let says = BufReader::new(child.stderr.take().unwrap());
        let mut server = Self { child, says, port };
        server.says("waiting for clients on TCP and rdma_cm port");
        server
    }

    /// Waits for a line with this in it.
    fn says(&mut self, part: &str) {
        let mut line = String::new();
        while !line.contains(part) {
            line.clear();
            assert_ne!(self.says.read_line(&mut line).unwrap(), 0, "it has ended, and said no {part}");
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn client(&self, words: &str) -> Command {
        program(&format!("{words} -d soft0 -p {} 127.0.0.1", self.port))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for the end of a program, with what it has said.
fn await_end(mut child: Child) -> Output {
    let end = Instant::now() + LONG;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > end {
            let _ = child.kill();
            panic!("it does not end");
        }
        thread::sleep(Duration::from_millis(20));
    }
    child.wait_with_output().unwrap()
}

#[test]
fn one_server_without_options_serves_over_both() {
    let server = Server::start("");
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("by_rdma_cm.json").display().to_string();
    for words in [
        "write bw -n 300 -z",
        "send lat -n 50 -z",
        "write bw -n 300",
        "write bw -n 300 -q 3 --threads 2 -z -R",
        "send lat -n 50 -z -R",
        "send lat -n 50 -R",
        "send bw -n 300 -b -e --validate -z",
        "send bw -n 300 -c ud -s 64,1K --comm-rdma-cm -R",
        "read bw -n 20 -q 300 -s 64 -z",
        "write bw -D 600ms --warm-up 0 --reversed -z",
    ] {
        let (out, err) = ends(&server.client(&format!("{words} --json {file}")).output().unwrap(), 0);
        let document: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        let over = if words.contains("-z") || words.contains("--comm") { "rdma_cm" } else { "tcp" };
        assert_eq!(document["environment"]["exchange"], over, "{words}: {out}\n{err}");
        assert_eq!(document["environment"]["plan"]["uses_rdma_cm"], words.contains("-R"), "{words}");
        assert!(!document["rows"].as_array().unwrap().is_empty(), "{words}: {out}\n{err}");
    }
    let words = format!("write bw --loopback -z -n 100 -d soft0 --json {file}");
    let (_, err) = ends(&program(&words).output().unwrap(), 0);
    assert!(err.contains("--comm-rdma-cm does nothing for --loopback"), "{err}");
    assert!(std::fs::read_to_string(&file).unwrap().contains(r#""exchange": "process""#));
}

#[test]
fn a_server_that_ends_is_told_of_within_the_time_out() {
    for signal in [Signal::KILL, Signal::STOP] {
        let mut server = Server::start("");
        let client = server.client("write bw -D 60s -z --timeout 4").spawn().unwrap();
        server.says("on soft0 port 1");
        thread::sleep(Duration::from_millis(300));
        let begin = Instant::now();
        server.signal(signal);
        let output = await_end(client);
        assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
        let err = String::from_utf8(output.stderr).unwrap();
        // Which of both is seen first depends on the moment: the end of the talk, or that of the queue pairs.
        match output.status.code() {
            Some(4) if signal == Signal::KILL => {
                assert!(err.contains("the server has gone away: it ended, or was stopped"), "{err}");
            }
            Some(4) => assert!(err.contains("the server says nothing since 4s"), "{err}"),
            Some(5) => assert!(err.contains("error: "), "{err}"),
            other => panic!("{other:?}: {err}"),
        }
    }
}

/// Connections by address of this process are softrnic's.
fn choose_softrnic() {
    softrnic::register().unwrap();
    choose(Choice::Provider(ProviderId::by_name("softrnic").unwrap()));
}

fn contact(port: u16, timeout: Duration) -> ControlOptions {
    choose_softrnic();
    ControlOptions { by_rdma_cm: true, port, family: None, timeout }
}

/// The rest of a test that a client has begun, of which no queue pair is there.
fn rest(met: Met) -> Failure {
    let request = Request { plan: Plan::default(), given: Given::default() };
    control::measure(met.connection, met.near, &Fake::default(), &request, &mut ()).unwrap_err()
}

const SILENT: &str = "says nothing since 2s: it hangs, or the network between lets nothing through";
const GONE: &str = "has gone away: it ended, or was stopped";

#[test]
fn a_server_that_ends_is_told_of_where_there_is_no_queue_pair_that_could_fail() {
    for (signal, said) in [(Signal::KILL, GONE), (Signal::STOP, SILENT)] {
        let server = Server::start("");
        let met = control::connect("127.0.0.1", &contact(server.port, Duration::from_secs(2)), None).unwrap();
        server.signal(signal);
        let failure = rest(met);
        assert_eq!((failure.to_string(), failure.cause()), (format!("the server {said}"), Cause::Contact));
    }
}

#[test]
fn a_client_that_ends_is_told_of_where_there_is_no_queue_pair_that_could_fail() {
    let mut server = Server::start("--timeout 2");
    let contact = contact(server.port, LONG);
    drop(control::connect("127.0.0.1", &contact, None).unwrap());
    server.says(&format!("error: the client {GONE}"));
    let _silent = control::connect("127.0.0.1", &contact, Some(LONG)).unwrap();
    server.says(&format!("error: the client {SILENT}"));
}

/// A server's devices that are never open: it goes, or is silent for so long.
struct Never(Option<Duration>);

impl EndpointFactory for Never {
    fn open(&self, _: &Plan, _: &SideConfig, _: Role) -> anyhow::Result<Box<dyn Endpoint>> {
        match self.0 {
            Some(time) => thread::sleep(time),
            // A panic that says nothing: the server's end of the connection goes without a word.
            None => std::panic::resume_unwind(Box::new("gone")),
        }
        Err(anyhow::anyhow!("nobody hears this"))
    }
}

#[test]
fn a_client_whose_server_ends_has_the_status_of_that() {
    for (silence, said) in [(None, GONE), (Some(Duration::from_secs(4)), SILENT)] {
        let reception = control::listen(&contact(0, LONG)).unwrap();
        let port = reception.local_address().unwrap().port();
        let server = thread::spawn(move || {
            control::serve(&reception, &Never(silence), &Host::default(), LONG, true, &mut |_| ())
        });
        let output = program(&format!("write bw -d soft0 -z --timeout 2 -p {port} 127.0.0.1")).output().unwrap();
        let (_, err) = ends(&output, 4);
        assert!(err.lines().any(|line| line == format!("error: the server {said}")), "{err}");
        assert!(!matches!(server.join(), Ok(Ok(()))));
    }
}

#[test]
fn a_server_of_softrnic_alone_says_so_and_with_z_what_is_missing() {
    for (words, warns) in [("-p 0", false), ("-z -p 0", true)] {
        let mut command = program(words);
        command.env_remove("RDMA_MUMMY_RDMACM").env("RDMA_MUMMY_LIBRDMACM", "/nowhere/librdmacm.so.1");
        let mut server = command.spawn().unwrap();
        let mut lines = BufReader::new(server.stderr.take().unwrap()).lines().map(Result::unwrap);
        let first = lines.next().unwrap();
        let waits = if warns { lines.next().unwrap() } else { first.clone() };
        let _ = server.kill();
        let _ = server.wait();
        assert_eq!(first.starts_with("warning: -z: softrnic serves rdma_cm"), warns, "{first}");
        assert_eq!(first.contains("/nowhere/librdmacm.so.1"), warns, "{first}");
        assert!(waits.starts_with("waiting for clients on TCP and rdma_cm port "), "{waits}");
        assert!(waits.contains("rdma_cm of softrnic: of this host alone"), "{waits}");
    }
}

#[test]
fn a_server_outlives_clients_that_are_killed_or_say_what_they_must_not() {
    let mut server = Server::start("");
    for _ in 0..2 {
        let mut client = server.client("write bw -D 30s -z").spawn().unwrap();
        server.says("on soft0 port 1");
        client.kill().unwrap();
        client.wait().unwrap();
        server.says("error: ");
    }
    // Somebody else's program, which the server does not even connect with.
    choose_softrnic();
    let resolved = Connector::new().resolve(("127.0.0.1", server.port)).unwrap();
    let mut parameter = ConnectionParameter::default();
    parameter.setup_qp_number(7).setup_private_data(b"GET / HTTP/1.1");
    let error = resolved.connect_with(&parameter, |_, _| Ok::<_, std::fmt::Error>(())).unwrap_err();
    assert!(error.rejection().is_some(), "{error}");
    server.says("connects by rdma_cm, and is no stride-perf");
    ends(&server.client("write bw -n 100 -z").output().unwrap(), 0);
    // A signal ends the wait for clients over rdma_cm too.
    server.signal(Signal::INT);
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
}

#[test]
fn what_is_not_there_is_told() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (_, err) = ends(&program(&format!("write bw -d soft0 -z -p {port} 127.0.0.1")).output().unwrap(), 4);
    assert!(err.contains(&format!("nobody listens at 127.0.0.1, rdma_cm port {port}")), "{err}");
    let (_, err) = ends(&program("write bw -z 198.51.100.7").output().unwrap(), 4);
    assert!(
        err.contains(
            "-z: 198.51.100.7 is not reached: softrnic serves rdma_cm here, and reaches the programs of this host alone"
        ),
        "{err}"
    );
    // Where there is no device there is no rdma_cm: a server is one of TCP, unless it was told to have both.
    let (_, err) = ends(&program("-z -p 0").env("SOFTRNIC_DEVICES", "0").output().unwrap(), 1);
    assert!(err.contains("error: -z: port ") && err.contains("without -z clients come over TCP alone"), "{err}");
    let mut server = program("-p 0").env("SOFTRNIC_DEVICES", "0").spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
    let _ = server.kill();
    let _ = server.wait();
    assert!(line.starts_with("waiting for clients on TCP port "), "{line}");
}

#[test]
fn a_server_that_was_told_to_have_both_is_waited_for() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let client = program(&format!("send lat -n 50 -z -d soft0 -p {port} --wait-server 30 127.0.0.1")).spawn().unwrap();
    thread::sleep(Duration::from_millis(300));
    let mut server = program(&format!("send lat -z -n 50 -p {port} --one-off")).spawn().unwrap();
    ends(&await_end(client), 0);
    let mut said = String::new();
    server.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(server.wait().unwrap().code(), Some(0), "{said}");
    assert!(!said.contains("does nothing"), "{said}");
}
