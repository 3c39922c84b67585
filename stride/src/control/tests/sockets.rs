//! Tests of a server over real sockets.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};

use sideway_test_names::Port;

use super::super::greeting::MAX_PENDING;
use super::*;
use crate::endpoint::Role;
use crate::endpoint::fake::Stage;
use crate::plan::{Measure, Memory, PortSelector, Queues, Semantics, SideConfig};

#[test]
fn clients_are_served_one_after_another() {
    let server = Running::usual();
    for queue_pairs in [1, 2, 500] {
        let request = request(|plan| (plan.queues.queue_pairs, plan.workload.sizes) = (queue_pairs, vec![64, 128]));
        assert_eq!(server.measure(&request, &mut ()).unwrap().steps.len(), 2);
    }
    server.stop.stop();
    server.end().unwrap();
}

#[test]
fn one_off_server_ends_after_one_test() {
    let server = Running::start(Fake::default(), Host::default(), LONG, true);
    // A one-off server keeps running if a client connects but requests no test.
    drop(TcpStream::connect(server.address).unwrap());
    assert!(server.failure().contains("closed the connection"));
    server.measure(&request(|_| ()), &mut ()).unwrap();
    server.end().unwrap();

    let fake = Fake { fails: Some((Role::Server, Stage::Connect)), waits: None, ..Fake::default() };
    let server = Running::start(fake, Host::default(), LONG, true);
    let failure = server.measure(&request(|_| ()), &mut ()).unwrap_err();
    assert_eq!(failure.to_string(), "the server: fake0 fails at Connect, as configured");
    assert_eq!(server.end().unwrap_err().to_string(), "fake0 fails at Connect, as configured");
}

#[test]
fn second_client_gets_a_busy_error() {
    let server = Running::usual();
    let first = connect("127.0.0.1", &server.contact(), None).unwrap();
    let Err(Failure::Busy(text)) = connect("127.0.0.1", &server.contact(), None) else { panic!() };
    assert!(text.starts_with("the server is busy with a test for 127.0.0.1"), "{text}");
    let waiting = server.contact();
    let second = thread::spawn(move || connect("127.0.0.1", &waiting, Some(LONG)).map(|met| met.version));
    measure(first.connection, first.near, &Fake::default(), &request(|_| ()), &mut ()).unwrap();
    assert_eq!(second.join().unwrap().unwrap(), env!("CARGO_PKG_VERSION"));
}

#[test]
fn silent_connection_ends_after_the_timeout() {
    let server = Running::start(Fake::default(), Host::default(), Duration::from_millis(200), false);
    let mut silent = TcpStream::connect(server.address).unwrap();
    assert!(server.failure().starts_with("the client was silent for 200ms"));
    silent.read_to_end(&mut Vec::new()).unwrap();
}

#[test]
fn idle_connections_stay_open_while_a_client_is_served() {
    let server = Running::usual();
    let idle = [(); 40].map(|()| TcpStream::connect(server.address).unwrap());
    let mut partial = TcpStream::connect(server.address).unwrap();
    partial.write_all(b"\x93stri").unwrap();
    server.measure(&request(|_| ()), &mut ()).unwrap();
    for stream in idle.iter().chain([&partial]) {
        stream.set_nonblocking(true).unwrap();
        assert_eq!(stream.peek(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    }
}

#[test]
fn connections_without_a_hello_are_limited_in_number_and_bytes() {
    let server = Running::usual();
    let mut idle: Vec<_> = (0..MAX_PENDING + 5).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    server.measure(&request(|_| ()), &mut ()).unwrap();
    for stream in &mut idle[..5] {
        assert!(stream.read_to_end(&mut Vec::new()).unwrap_or(0) == 0);
    }
    let mut long = TcpStream::connect(server.address).unwrap();
    long.write_all(b"\x93stride\n\0\x04\0\x01\0\0\x10\x01").unwrap();
    assert!(server.failure().contains("announced a message of 4097 bytes, above the limit"));
}

#[test]
fn server_with_silent_connections_stops() {
    let server = Running::usual();
    let mut silent = [(); 3].map(|()| TcpStream::connect(server.address).unwrap());
    server.measure(&request(|_| ()), &mut ()).unwrap();
    server.stop.stop();
    server.end().unwrap();
    for stream in &mut silent {
        assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap_or(0), 0);
    }
}

#[test]
fn silent_connections_during_a_test_do_not_delay_a_refusal() {
    let server = Running::usual();
    let _first = connect("127.0.0.1", &server.contact(), None).unwrap();
    let _silent = [(); 20].map(|()| TcpStream::connect(server.address).unwrap());
    let contact = ControlOptions { timeout: LONG, ..server.contact() };
    let Err(Failure::Busy(_)) = connect("127.0.0.1", &contact, None) else { panic!() };
}

#[test]
fn briefly_busy_server_is_retried() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let contact = ControlOptions { port: listener.local_addr().unwrap().port(), family: None, timeout: LONG };
    let server = thread::spawn(move || {
        for busy in [Some("busy".to_owned()), None] {
            let (mut stream, _) = listener.accept().unwrap();
            let hello = Message::Hello(Hello { version: "9".to_owned(), busy });
            connection::write(&mut stream, &hello, LONG).unwrap();
            let _ = stream.shutdown(Shutdown::Write);
            let _ = stream.read_to_end(&mut Vec::new());
        }
    });
    assert_eq!(connect("127.0.0.1", &contact, None).unwrap().version, "9");
    server.join().unwrap();
}

#[test]
fn server_that_closes_before_its_hello_is_tried_again_while_the_client_waits() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let contact = ControlOptions { port: listener.local_addr().unwrap().port(), family: None, timeout: LONG };
    let server = thread::spawn(move || {
        // The second connection is closed after its hello has been read, so the client receives an end of file instead
        // of a reset.
        drop(listener.accept().unwrap());
        let (mut stream, _) = listener.accept().unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
        let (mut stream, _) = listener.accept().unwrap();
        let hello = Message::Hello(Hello { version: "9".to_owned(), busy: None });
        connection::write(&mut stream, &hello, LONG).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let mut reported = None;
    let met = connect_reporting("127.0.0.1", &contact, Some(LONG), |why| reported = Some(why.to_owned())).unwrap();
    assert_eq!(met.version, "9");
    assert_eq!(reported.unwrap(), "the peer closed the connection before its hello");
    drop(met);
    server.join().unwrap();
}

#[test]
fn refused_client_reads_the_report_however_late_its_hello_is() {
    let server = Running::usual();
    let _first = connect("127.0.0.1", &server.contact(), None).unwrap();
    let mut late = TcpStream::connect(server.address).unwrap();
    // The server accepts connections in order, so it has accepted `late` when it rejects this client.
    let Err(Failure::Busy(_)) = connect("127.0.0.1", &server.contact(), None) else { panic!() };
    let hello = Message::Hello(Hello { version: "9".to_owned(), busy: None });
    connection::write(&mut late, &hello, LONG).unwrap();
    let Err(Failure::Busy(text)) = Connection::handshake(late, Role::Client, LONG).map(drop) else { panic!() };
    assert!(text.starts_with("the server is busy with a test for"), "{text}");
}

#[test]
fn late_server_is_found_with_wait() {
    let reserved = Port::reserve();
    let contact = ControlOptions { port: reserved.number(), family: Some(Family::V4), timeout: LONG };
    let asking = contact.clone();
    let client = thread::spawn(move || {
        let met = connect("localhost", &asking, Some(LONG))?;
        measure(met.connection, met.near, &Fake::default(), &request(|_| ()), &mut ())
    });
    let listener = listen(&contact).unwrap();
    serve(&listener, &Fake::default(), &Host::default(), LONG, true, &mut |_| ()).unwrap();
    assert_eq!(client.join().unwrap().unwrap().steps.len(), 1);
}

#[test]
fn server_accepts_both_address_families() {
    let contact = ControlOptions { port: 0, family: None, timeout: LONG };
    let listener = listen(&contact).unwrap();
    let address = listener.local_addr().unwrap();
    let is_six = address.is_ipv6() && TcpListener::bind("[::1]:0").is_ok();
    let contact = ControlOptions { port: address.port(), ..contact };
    let stop = Stop::new(&listener).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| serve(&listener, &Fake::default(), &Host::default(), LONG, false, &mut |_| ()));
        for host in ["127.0.0.1", "::1"].into_iter().take(1 + usize::from(is_six)) {
            let met = connect(host, &contact, Some(LONG)).unwrap();
            measure(met.connection, met.near, &Fake::default(), &request(|_| ()), &mut ()).unwrap();
        }
        stop.stop();
    });
}

#[derive(Default)]
struct Notes(Vec<String>);

impl Watch for Notes {
    fn note(&mut self, text: &str) {
        self.0.push(text.to_owned());
    }
}

#[test]
fn differing_server_options_are_reported_on_both_sides() {
    let given: Given = [String::from("--qp-count")].into_iter().collect();
    let config = SideConfig { device: Some("fake1".to_owned()), ..SideConfig::default() };
    let host = Host {
        config,
        test: Some((Plan { queues: Queues { queue_pairs: 9, ..Queues::default() }, ..Plan::default() }, given)),
    };
    let server = Running::start(Fake::default(), host, LONG, false);
    let mut notes = Notes::default();
    let outcome = server.measure(&request(|_| ()), &mut notes).unwrap();
    assert_eq!(notes.0, ["--qp-count of the server is 9; the client's 1 (not given there) applies"]);
    assert_eq!(outcome.server.device, "fake1");
    let asked = request(|plan| plan.placement.server.device = Some("fake2".to_owned()));
    let outcome = server.measure(&asked, &mut notes).unwrap();
    assert!(notes.0[1].starts_with("the server was started with --device fake1; the client's --device fake2 applies"));
    assert_eq!(outcome.server.device, "fake2");
    let reported: Vec<Event> = server.events.try_iter().collect();
    assert!(reported.contains(&Event::Note(notes.0[1].clone())));
}

#[test]
fn server_with_ports_serves_tests_with_as_many_or_one() {
    let devices = |names: &[&str]| {
        let spot = |name: &&str| PortSelector { device: Some((*name).to_owned()), ..PortSelector::default() };
        SideConfig::default().at(names.iter().map(spot).collect())
    };
    let gids = |indices: &[u32]| {
        let spot = |index: &u32| PortSelector { gid_index: Some(*index), ..PortSelector::default() };
        SideConfig::default().at(indices.iter().map(spot).collect())
    };
    let serve = |given: SideConfig, asked: SideConfig| {
        let server = Running::start(Fake::default(), Host { config: given, test: None }, LONG, false);
        let request = request(|plan| {
            (plan.queues.queue_pairs, plan.queues.threads) = (asked.count() as u32, asked.count() as u32);
            (plan.placement.client, plan.placement.server) =
                (plan.placement.client.clone().spread(asked.count()), asked);
        });
        let mut notes = Notes::default();
        let outcome = server.measure(&request, &mut notes).map_err(|failure| failure.to_string());
        let names =
            |outcome: Outcome| outcome.server.all().map(|port| port.device.clone()).collect::<Vec<_>>().join(",");
        (outcome.map(names), notes.0)
    };
    let of = |given: &[&str], asked| serve(devices(given), asked);
    let open = |count| SideConfig::default().spread(count);
    assert_eq!(of(&["a", "b"], open(2)), (Ok("a,b".to_owned()), Vec::new()));
    let (there, notes) = of(&["a"], open(2));
    assert_eq!(there.as_deref(), Ok("a,a"));
    let counts = "the server was started with --device a, which applies to all 2 ports of the test";
    let way = "so all of them use one port; to use several, start the server with -d mlx5_0,mlx5_1, or give the client \
     --remote-device";
    assert_eq!(notes, [format!("{counts}, {way}")]);
    let both = |port| PortSelector { port: Some(port), ..PortSelector::default() };
    let (_, notes) = of(&["a"], SideConfig::default().at(vec![both(1), both(2)]));
    assert_eq!(notes, [counts], "those are two");
    let (there, notes) = of(&["a", "b"], open(1));
    assert_eq!(there.as_deref(), Ok("a"));
    assert_eq!(notes, ["the server was started with --device a,b, and the test uses one port: the first one"]);
    let (_, notes) = serve(gids(&[2, 3]), open(1));
    assert_eq!(notes, ["the server was started with --gid-index 2,3, and the test uses one port: the first one"]);
    let (refused, _) = of(&["a", "b"], open(3));
    let text = "the server: it was started with --device a,b, and the test uses 3 ports; start it with 3, ";
    assert!(refused.clone().unwrap_err().starts_with(text), "{refused:?}");
    // The client's list of devices applies, including its length.
    let (there, notes) = of(&["a", "b"], devices(&["c", "d", "c"]));
    assert_eq!(there.as_deref(), Ok("c,d,c"));
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert_eq!(of(&["a"], devices(&["a", "a"])), (Ok("a,a".to_owned()), Vec::new()));
}

#[test]
fn server_gpu_is_checked_against_the_plan() {
    let config = SideConfig { memory: Some(Memory::Cuda("0".to_owned())), ..SideConfig::default() };
    let server = Running::start(Fake::default(), Host { config, test: None }, LONG, false);
    let request =
        request(|plan| (plan.workload.measure, plan.queues.tx_depth) = (Measure::Latency(Semantics::Oneway), 1));
    let failure = server.measure(&request, &mut ()).unwrap_err().to_string();
    let expected = "the server: it was started with --use-cuda 0, which conflicts with this test: --latency oneway of a plain write";
    assert!(failure.starts_with(expected), "{failure}");
}

#[test]
fn server_gid_index_has_no_effect_with_rdma_cm() {
    let config = SideConfig { gid_index: Some(3), ..SideConfig::default() };
    let server = Running::start(Fake::default(), Host { config, test: None }, LONG, false);
    let mut notes = Notes::default();
    server.measure(&request(|plan| plan.attributes.uses_rdma_cm = true), &mut notes).unwrap();
    assert_eq!(notes.0, ["the server's --gid-index has no effect with --rdma-cm, which selects the GID by address"]);
}

#[test]
fn server_survives_a_thousand_malformed_handshakes() {
    let server = Running::start(Fake::default(), Host::default(), LONG, false);
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let good = b"\x93stride\n\0\x01\0\x01\0\0\0\x0f{\"version\":\"9\"}";
    for _ in 0..1000 {
        let mut bytes = good.to_vec();
        for _ in 0..=random() % 4 {
            let at = random() as usize % bytes.len();
            bytes[at] = random() as u8;
        }
        bytes.truncate(1 + random() as usize % bytes.len());
        let mut stream = TcpStream::connect(server.address).unwrap();
        // The server may already have closed the connection. The read returns end of file, or a reset if the server has
        // unread data; in both cases the server has finished with this client.
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
        assert!(!server.failure().contains("busy"));
    }
    server.measure(&request(|_| ()), &mut ()).unwrap();
}
