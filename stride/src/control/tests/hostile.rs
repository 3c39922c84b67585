//! Tests with peers that violate the protocol.

use std::io::{self, Cursor, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use proptest::prelude::*;

use super::super::frame::{Frame, MAGIC};
use super::super::keepalive::Keepalive;
use super::super::wire::Deadline;
use super::*;
use crate::endpoint::{EndpointFactory, Role};
use crate::plan::{Direction, PortSelector, SideConfig};
use crate::stats::{Interval, Seen};

/// A peer that sends prepared data and then stays silent.
struct Script(Cursor<Vec<u8>>);

impl Read for Script {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

impl Write for Script {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Wire for Script {
    fn limit(&mut self, _: Duration) -> io::Result<()> {
        Ok(())
    }

    fn has_input(&mut self) -> io::Result<bool> {
        Ok(true)
    }
}

fn bytes(kind: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(PROTOCOL.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend((body.len() as u32).to_be_bytes());
    bytes.extend(body);
    bytes
}

fn hello() -> Vec<u8> {
    bytes(1, br#"{"version":"9"}"#)
}

fn message(message: &Message) -> Vec<u8> {
    bytes(message.kind(), &message.pack().unwrap())
}

/// Returns an encoded message with the addresses of `count` queue pairs.
fn ends(count: usize) -> Vec<u8> {
    let end = crate::endpoint::QpAddress { number: 1, psn: 2, address: 3, rkey: 4, intake: None };
    message(&Message::PeerInfo(crate::endpoint::PeerInfo {
        lid: 0,
        gid: Some("::1".to_owned()),
        reads: 16,
        queue_pairs: vec![end; count],
        inline: 0,
        listening: None,
        others: Vec::new(),
    }))
}

/// Returns an encoded message with the addresses of queue pairs on two ports.
fn ends_of(counts: [usize; 2]) -> Vec<u8> {
    let end = crate::endpoint::QpAddress { number: 1, psn: 2, address: 3, rkey: 4, intake: None };
    let of = |count, others| crate::endpoint::PeerInfo {
        lid: 0,
        gid: Some("::1".to_owned()),
        reads: 16,
        queue_pairs: vec![end; count],
        inline: 0,
        listening: None,
        others,
    };
    message(&Message::PeerInfo(of(counts[0], vec![of(counts[1], Vec::new())])))
}

/// Changes a plan to use two ports.
fn wide(plan: &mut Plan) {
    (plan.queues.queue_pairs, plan.queues.threads) = (2, 2);
    (plan.placement.client, plan.placement.server) = (SideConfig::default().spread(2), SideConfig::default().spread(2));
}

/// Returns an encoded path with these GID indexes for the server's ports.
fn ways(indices: [u32; 2]) -> Vec<u8> {
    let [first, second] = indices.map(|index| crate::endpoint::Path {
        client_gid: Some(3),
        server_gid: Some(index),
        mtu: 1024,
        others: Vec::new(),
    });
    message(&Message::Path(crate::endpoint::Path { others: vec![second], ..first }))
}

/// Returns the result of a server whose client sends this data.
fn server(script: Vec<u8>) -> Result<(), Failure> {
    let (connection, _) = Connection::handshake(Script(Cursor::new(script)), Role::Server, LONG)?;
    serve_one(connection, &Fake::default(), &Host::default(), &mut |_| ())
}

/// Returns the result of a client whose server sends this data.
fn client(script: Vec<u8>) -> Result<(), Failure> {
    let (connection, _) = Connection::handshake(Script(Cursor::new(script)), Role::Client, LONG)?;
    measure(connection, Near::default(), &Fake::default(), &request(|_| ()), &mut ()).map(drop)
}

#[test]
fn incompatible_peers_are_identified() {
    let other = [&MAGIC[..], &[0, 9, 0, 1, 0, 0, 0, 15], br#"{"version":"9"}"#].concat();
    for (script, part) in [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), "a web server"),
        (b"6.06\0\0\0\0\0\0\0\0\0\0\0\0".to_vec(), "perftest 6.06"),
        (other, "stride-perf 9 with protocol 9"),
        (b"\xff\xfe\xfd".to_vec(), r#"begins with "\xff\xfe\xfd""#),
    ] {
        for failure in [server(script.clone()), client(script.clone())] {
            let Err(Failure::Incompatible(text)) = failure else { panic!("{script:?}: {failure:?}") };
            assert!(text.contains(part), "{text}");
        }
    }
    for script in [Vec::new(), MAGIC[..3].to_vec()] {
        for failure in [server(script.clone()), client(script.clone())] {
            let Err(Failure::Unreachable(text)) = failure else { panic!("{script:?}: {failure:?}") };
            assert!(text.contains("closed the connection before its hello"), "{text}");
        }
    }
}

#[test]
fn protocol_violations_are_named() {
    let requests = |change: fn(&mut Plan)| [hello(), message(&Message::Request(Box::new(request(change))))].concat();
    let path = |index| {
        message(&Message::Path(crate::endpoint::Path {
            client_gid: Some(3),
            server_gid: Some(index),
            mtu: 1024,
            others: Vec::new(),
        }))
    };
    for (script, error) in [
        (hello(), "the client disconnected: it ended or was stopped"),
        ([hello(), message(&Message::Go)].concat(), "the client sent `go`, expected `request`"),
        ([hello(), bytes(99, b"")].concat(), "the client sent a message of unknown kind 99"),
        ([hello(), bytes(2, b"{}")].concat(), "the client sent a malformed `request`: missing field `plan`"),
        ([hello(), b"GET /".to_vec()].concat(), "the client sent malformed data: \"GET /\""),
        (requests(|plan| plan.queues.queue_pairs = u32::MAX), "--qp-count is 4294967295; it can be 1 to 16384"),
        (
            requests(|plan| plan.workload.sizes = vec![u64::MAX]),
            "--msg-size is 18446744073709551615; it can be 1 to 2147483648",
        ),
        ([requests(|_| ()), path(77)].concat(), "the client requests GID 77 of the server, which does not exist"),
        ([requests(|_| ()), path(3), ends(0)].concat(), "the client sent 0 queue pairs, expected 1"),
        (
            requests(|plan| plan.placement.client.others = vec![PortSelector::default(); 1000]),
            "the client has 1001 ports and the server 1; give as many --remote-device and --remote-ib-port as \
             --device and --ib-port, or one for all",
        ),
        ([requests(wide), path(3)].concat(), "the client names 1 paths for the server's 2 ports"),
        ([requests(wide), ways([3, 77])].concat(), "the client requests GID 77 of the server, which does not exist"),
        ([requests(wide), ways([3, 3]), ends(1)].concat(), "the client sent queue pairs of 1 ports, expected 2"),
        ([requests(wide), ways([3, 3]), ends_of([1, 2])].concat(), "the client sent 2 queue pairs, expected 1"),
        (
            [requests(|_| ()), message(&Message::Error(Reason { text: "enough".to_owned(), is_rdma: false }))].concat(),
            "the client: enough",
        ),
    ] {
        assert_eq!(server(script).unwrap_err().to_string(), error);
    }
    let error = client([hello(), message(&Message::Figures(None))].concat()).unwrap_err().to_string();
    assert_eq!(error, "the server sent `figures`, expected `offer`");
}

#[test]
fn server_survives_malicious_clients() {
    let short = Duration::from_millis(200);
    let server = Running::start(
        Fake { fails: None, waits: Some(Role::Server), ..Fake::default() },
        Host::default(),
        short,
        false,
    );
    let send = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(server.address).unwrap();
        // Ignores the error, because the server may have closed the connection after an earlier byte.
        let _ = stream.write_all(bytes);
        stream
    };
    drop(send(b""));
    assert!(server.failure().contains("closed the connection"));
    let web = send(b"GET / HTTP/1.1\r\n\r\n");
    assert!(server.failure().contains("a web client"));
    drop(web);
    let silent = send(b"");
    assert!(server.failure().contains("was silent for"));
    drop(silent);
    let mute = send(&hello());
    assert!(server.failure().contains("silent for"));
    drop(mute);
    drop(send(&[hello(), message(&Message::Request(Box::new(request(|_| ()))))].concat()));
    assert!(server.failure().starts_with("the client"));
    let long = send(&[&hello()[..], &MAGIC, &[0, 1, 0, 2, 255, 255, 255, 255]].concat());
    assert!(server.failure().contains("above the limit"));
    drop(long);
    // In the middle of a step, the peer becomes silent in the first round and disconnects in the second.
    for is_silent in [true, false] {
        let mut stream = send(&hello());
        let mut wire = stream.try_clone().unwrap();
        let mut await_kind = |kind| loop {
            let frame = Frame::read(&mut wire, Deadline::after(LONG)).unwrap();
            if frame.kind == kind {
                break frame;
            }
        };
        stream.write_all(&message(&Message::Request(Box::new(request(|_| ()))))).unwrap();
        let path = Message::Path(crate::endpoint::Path {
            client_gid: Some(3),
            server_gid: Some(3),
            mtu: 1024,
            others: Vec::new(),
        });
        stream.write_all(&message(&path)).unwrap();
        stream.write_all(&ends(1)).unwrap();
        await_kind(5);
        stream.write_all(&message(&Message::Connected)).unwrap();
        stream.write_all(&message(&Message::Size(64 << 10))).unwrap();
        await_kind(8);
        stream.write_all(&message(&Message::Go)).unwrap();
        if !is_silent {
            drop((wire, stream));
            assert!(server.failure().contains("disconnected"));
        } else {
            assert!(server.failure().contains("silent for"));
        }
    }
    server.measure(&request(|_| ()), &mut ()).unwrap();
}

#[test]
fn client_detects_a_server_that_exits() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let contact = ControlOptions { port: listener.local_addr().unwrap().port(), family: None, timeout: LONG };
    let server = thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let (connection, _) = Connection::handshake(stream, Role::Server, LONG).unwrap();
        let leaves = |event| {
            // Closes the socket, as the system does when a process is killed.
            if matches!(event, Event::Met(..)) {
                std::panic::resume_unwind(Box::new("gone"));
            }
        };
        let _ = serve_one(connection, &Fake::default(), &Host::default(), &mut { leaves });
    });
    let met = connect("127.0.0.1", &contact, None).unwrap();
    let waits = Fake { fails: None, waits: Some(Role::Client), ..Fake::default() };
    let failure = measure(met.connection, met.near, &waits, &request(|_| ()), &mut ()).unwrap_err();
    assert_eq!(failure.to_string(), "the server disconnected: it ended or was stopped");
    assert!(server.join().is_err());
}

#[test]
fn client_detects_a_server_that_hangs() {
    struct StopSoon(Instant);
    impl Watch for StopSoon {
        fn progress(&mut self, _: u64, _: f64) -> bool {
            self.0.elapsed() < LONG
        }
    }
    let (ours, theirs) = UnixStream::pair().unwrap();
    let server = thread::spawn(move || {
        let (mut connection, _) = Connection::handshake(theirs, Role::Server, LONG).unwrap();
        let side = Fake::default().open(&Plan::default(), &SideConfig::default(), Role::Server).unwrap();
        let mut exchange = |message| connection.send(&message).and_then(|()| connection.receive()).unwrap();
        let offer = Offer { port_info: side.port_info().clone(), gid_index: None, other_gid_indices: Vec::new() };
        assert!(matches!(exchange(Message::Note("it begins".to_owned())), Message::Request(_)));
        assert!(matches!(exchange(Message::Offer(Box::new(offer))), Message::Path(_)));
        let Message::PeerInfo(ends) = exchange(Message::Note("it is connected".to_owned())) else { panic!("no ends") };
        assert_eq!(exchange(Message::PeerInfo(ends)), Message::Connected);
        assert!(matches!(exchange(Message::Connected), Message::Size(_)));
        assert_eq!(exchange(Message::Ready), Message::Go);
        // From here on, the peer receives everything but sends nothing.
        while connection.receive().is_ok() {}
    });
    let (connection, _) = Connection::handshake(ours, Role::Client, LONG).unwrap();
    let connection = connection.with_timeout(Duration::from_secs(1));
    // The client only receives, and no message arrives, so its run ends only when it is stopped.
    let waits = Fake { waits: Some(Role::Client), ..Fake::default() };
    let mut watch = StopSoon(Instant::now());
    let failure = measure(connection, Near::default(), &waits, &request(|_| ()), &mut watch).unwrap_err();
    let error = "the server was silent for 1s during the measurement; it may be hung or stopped";
    assert_eq!(failure.to_string(), error);
    server.join().unwrap();
}

#[test]
fn server_with_wrong_port_count_is_rejected() {
    let offered = |count, change: fn(&mut Plan)| {
        let config = SideConfig::default().spread(count);
        let side = Fake::default().open(&Plan::default(), &config, Role::Server).unwrap();
        let offer = Offer { port_info: side.port_info().clone(), gid_index: None, other_gid_indices: Vec::new() };
        let script = [hello(), message(&Message::Offer(Box::new(offer))), ends(1)].concat();
        let (connection, _) = Connection::handshake(Script(Cursor::new(script)), Role::Client, LONG).unwrap();
        let done = measure(connection, Near::default(), &Fake::default(), &request(change), &mut ());
        done.unwrap_err().to_string()
    };
    assert_eq!(offered(2, |_| ()), "the server sent 2 ports, expected 1");
    assert_eq!(offered(1, wide), "the server sent 1 ports, expected 2");
    assert_eq!(offered(2, wide), "the server sent queue pairs of 1 ports, expected 2");
}

/// Returns the messages of a server that sends alone, up to the start of its step, followed by `messages`.
fn scripted(messages: &[Message]) -> Vec<u8> {
    let side = Fake::default().open(&Plan::default(), &SideConfig::default(), Role::Server).unwrap();
    let offer = Message::Offer(Box::new(Offer {
        port_info: side.port_info().clone(),
        gid_index: None,
        other_gid_indices: Vec::new(),
    }));
    let before = [hello(), message(&offer), ends(1), message(&Message::Connected), message(&Message::Ready)].concat();
    messages.iter().fold(before, |all, next| [all, message(next)].concat())
}

fn interval(start: f64, end: f64) -> Message {
    Message::Interval(Interval { start, end, seen: Seen::Bandwidth { messages: 7 } })
}

#[test]
fn invalid_intervals_are_rejected() {
    struct Count(usize);
    impl Watch for Count {
        fn interval(&mut self, _: u64, _: &Interval) {
            self.0 += 1;
        }
    }
    // The message arrives during the client's run in the first round, and after the end of that run in the second.
    for waits in [Some(Role::Client), None] {
        let factory = Fake { waits, ..Fake::default() };
        let client = |messages: &[Message]| {
            let mut count = Count(0);
            let (connection, _) =
                Connection::handshake(Script(Cursor::new(scripted(messages))), Role::Client, LONG).unwrap();
            let request = request(|plan| plan.workload.direction = Direction::Reversed);
            let done = measure(connection, Near::default(), &factory, &request, &mut count);
            (done.map(drop).map_err(|failure| failure.to_string()), count.0)
        };
        let figures = Message::Figures(None);
        assert_eq!(client(&[interval(0.0, 1.0), interval(1.0, 2.0), figures.clone()]), (Ok(()), 2));
        let times = Seen::Latency { samples: 1, min: 1.0, mean: 1.0, max: 1.0 };
        let times = Message::Interval(Interval { start: 1.0, end: 2.0, seen: times });
        for (wrong, error) in [
            (times, "the server reported times, expected message counts"),
            (interval(0.5, 1.0), "the server reported an interval from 0.5 s to 1 s after one that ended at 1 s"),
        ] {
            let (done, count) = client(&[interval(0.0, 1.0), wrong, figures.clone()]);
            assert_eq!((done.unwrap_err().as_str(), count), (error, 1), "{waits:?}");
        }
    }
}

#[test]
fn interval_flood_does_not_delay_other_messages() {
    let mut flood: Vec<_> = (0..500).map(|at| interval(at.into(), (at + 1).into())).collect();
    flood.extend([Message::Progress(0.5), Message::Figures(None), Message::Counted(None)]);
    let script = flood.iter().fold(hello(), |all, next| [all, message(next)].concat());
    let (mut connection, _) = Connection::handshake(Script(Cursor::new(script)), Role::Client, LONG).unwrap();
    let received = Keepalive::new().beat(&mut connection, 0.0).unwrap();
    assert_eq!((received.len(), received.last()), (501, Some(&Message::Figures(None))));
    // The call of `beat` stopped after the figures, so this call receives the next message.
    assert_eq!(connection.receive().unwrap(), Message::Counted(None));
}

/// Generates any message that a client can send. Some of these messages are invalid for a server.
fn any_message() -> impl Strategy<Value = Vec<u8>> {
    let part = crate::endpoint::Path { client_gid: Some(3), server_gid: Some(3), mtu: 1024, others: Vec::new() };
    prop_oneof![
        Just(message(&Message::Request(Box::new(request(|_| ()))))),
        Just(message(&Message::Path(part))),
        Just(ends(1)),
        Just(message(&Message::Connected)),
        Just(message(&Message::Size(64 << 10))),
        Just(message(&Message::Go)),
        Just(message(&Message::Done(Done { is_whole: true }))),
        Just(message(&Message::Progress(0.5))),
        Just(message(&Message::End)),
        any::<u64>().prop_map(|size| message(&Message::Size(size))),
        (0_u16..20, prop::collection::vec(any::<u8>(), 0..60)).prop_map(|(kind, body)| bytes(kind, &body)),
        prop::collection::vec(any::<u8>(), 0..60),
    ]
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_not_panic(script in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = server(script.clone());
        let _ = client(script.clone());
        let _ = server([hello(), script.clone()].concat());
        let _ = client([hello(), script].concat());
    }

    #[test]
    fn arbitrary_message_order_does_not_panic(messages in prop::collection::vec(any_message(), 0..12)) {
        let _ = server([hello(), messages.concat()].concat());
    }

    #[test]
    fn corrupted_exchange_does_not_panic(at in 0_usize..4000, with in any::<u8>()) {
        let mut script = hello();
        script.extend(message(&Message::Request(Box::new(request(|_| ())))));
        script.extend(message(&Message::End));
        let at = at % script.len();
        script[at] = with;
        let _ = server(script);
    }
}
