//! Streams over softrnic's device, and others at the other end.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use rdma_mummy_sys::load::provider::ProviderId;
use rdma_mummy_sys::load::rdmacm::{Choice, choose};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sideway::rdmacm::{Connection, ConnectionParameter, Connector};

use super::hail::{Hail, Refusal};
use super::link::{Done, Link};
use super::*;
use crate::control::failure::Failure;
use crate::control::wire::Wire;

/// Long enough for a machine that has much else to do.
const LONG: Duration = Duration::from_secs(30);

/// What any stride-perf may say of itself.
const USUAL: Hail = Hail { size: 512, receives: 128 };

/// A listener over softrnic, also where the system has devices, and its address.
pub(in crate::control) fn listener() -> (Listener, SocketAddr) {
    softrnic::register().unwrap();
    choose(Choice::Provider(ProviderId::by_name("softrnic").unwrap()));
    let listener = Listener::bind(0, None, LONG).unwrap();
    let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), listener.port());
    (listener, address)
}

/// The server's end of what the client makes of it.
fn with<T>(client: impl FnOnce(SocketAddr) -> T) -> (Result<Stream, String>, T) {
    let (listener, address) = listener();
    let stop = TcpListener::bind("127.0.0.1:0").unwrap();
    thread::scope(|scope| {
        let server =
            scope.spawn(|| listener.next(&stop).unwrap().look()?.answer(LONG, || false).map_err(Option::unwrap));
        let client = client(address);
        (server.join().unwrap(), client)
    })
}

/// Both ends of a stream.
fn pair() -> (Stream, Stream) {
    let (server, client) = with(|address| dial("host", address, LONG).unwrap());
    (server.unwrap(), client)
}

/// A connection of somebody else's, who says this of himself.
fn other(address: SocketAddr, hail: &[u8]) -> (Link, Connection) {
    let resolved = Connector::new().resolve(address).unwrap();
    let link = Link::new(resolved.identifier(), resolved.device_context()).unwrap();
    let mut parameter = ConnectionParameter::default();
    let connection = resolved.connect(parameter.setup_private_data(hail)).unwrap();
    (link, connection)
}

#[test]
fn bytes_go_both_ways_and_the_end_comes_behind_them() {
    let (mut server, mut client) = pair();
    assert!(!server.has_input().unwrap());
    let bytes: Vec<u8> = (0..1_000_000_u32).map(|number| (number % 251) as u8).collect();
    thread::scope(|scope| {
        let writes = scope.spawn(|| {
            client.write_all(&bytes).unwrap();
            let mut answer = [0; 5];
            client.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"right");
            client.write_all(b"last words").unwrap();
            drop(client);
        });
        let mut all = vec![0; bytes.len()];
        server.read_exact(&mut all).unwrap();
        assert!(all == bytes);
        server.write_all(b"right").unwrap();
        writes.join().unwrap();
        let mut rest = Vec::new();
        server.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, b"last words");
        assert!(server.has_input().unwrap(), "the end is something");
        assert_eq!(server.write(b"x").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    });
}

#[test]
fn silence_and_fullness_end() {
    let (mut server, mut client) = pair();
    server.limit(Duration::from_millis(20)).unwrap();
    assert_eq!(server.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::TimedOut);
    assert!(!server.speaks(Duration::from_millis(1)).unwrap());
    client.limit(Duration::from_millis(200)).unwrap();
    let mut written = 0;
    let failed = loop {
        match client.write(&[7; 1000]) {
            Ok(count) => written += count,
            Err(error) => break error,
        }
        assert!(written < 1 << 20, "who does not read has to hold up who writes");
    };
    assert_eq!((failed.kind(), written > 0), (io::ErrorKind::TimedOut, true));
    // What was held up comes once it is read, and then there is room again.
    assert!(server.speaks(LONG).unwrap());
    server.limit(LONG).unwrap();
    let mut all = vec![0; written];
    server.read_exact(&mut all).unwrap();
    assert!(all.iter().all(|byte| *byte == 7));
    client.write_all(b"more").unwrap();
    let mut more = [0; 4];
    server.read_exact(&mut more).unwrap();
    assert_eq!(&more, b"more");
}

#[test]
fn who_listens_hears_each_message_and_the_end() {
    let (mut server, mut client) = pair();
    let (mut byte, mut word) = ([0; 1], [0; 4]);
    let is_heard = |ear: &OwnedFd, time: Duration| {
        let time = Timespec::try_from(time).unwrap();
        poll(&mut [PollFd::new(ear, PollFlags::IN)], Some(&time)).unwrap() > 0
    };
    let ear = server.ear().unwrap();
    assert!(!is_heard(&ear, Duration::ZERO));
    for _ in 0..20 {
        client.write_all(b"word").unwrap();
        assert!(is_heard(&ear, LONG) && server.has_input().unwrap());
        server.read_exact(&mut byte).unwrap();
        assert!(server.has_input().unwrap(), "there is more");
        server.read_exact(&mut word[1..]).unwrap();
        assert!(!server.has_input().unwrap() && !is_heard(&ear, Duration::ZERO), "nothing has happened since");
        // What goes out at the same time does not drown what comes in.
        server.write_all(b"answer").unwrap();
        client.read_exact(&mut [0; 6]).unwrap();
    }
    // What was taken in before, amid something else, is told of still.
    client.write_all(b"word").unwrap();
    assert!(
        server.speaks(LONG).unwrap()
            && is_heard(&ear, Duration::ZERO)
            && is_heard(&server.ear().unwrap(), Duration::ZERO)
    );
    server.read_exact(&mut word).unwrap();
    assert!(!server.has_input().unwrap() && !is_heard(&ear, Duration::ZERO));
    // What goes out is not what it listens for.
    server.write_all(b"answer").unwrap();
    client.read_exact(&mut [0; 6]).unwrap();
    assert!(!is_heard(&ear, Duration::from_millis(20)));
    drop(client);
    while !{
        assert!(is_heard(&ear, LONG));
        server.has_input().unwrap()
    } {}
    assert_eq!(server.read(&mut byte).unwrap(), 0);
}

#[test]
fn many_small_messages_do_not_wait_for_a_reader() {
    let (mut server, mut client) = pair();
    client.limit(Duration::from_secs(5)).unwrap();
    for _ in 0..1500 {
        client.write_all(b"progress").unwrap();
        // It looks whether there is something, and does not read it.
        assert!(server.speaks(LONG).unwrap());
    }
    let mut all = [0; 12_000];
    server.read_exact(&mut all).unwrap();
}

#[test]
fn what_is_no_part_of_a_stream_is_refused() {
    for garbage in [&b""[..], b"\0\0\0", b"\0\x01\0\0", b"\xff\xff\0\0x", b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\x01abc"] {
        let (server, (mut link, connection)) = with(|address| other(address, &USUAL.bytes()));
        let mut server = server.unwrap();
        server.limit(LONG).unwrap();
        link.send(0, [garbage, &[]]).unwrap();
        for _ in 0..2 {
            let error = server.read(&mut [0]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{garbage:?}: {error}");
        }
        assert!(server.write(b"x").is_err() && server.has_input().is_err());
        drop((server, connection));
    }
}

#[test]
fn who_floods_a_side_that_does_not_look_does_not_hang_it() {
    let (server, (mut link, _connection)) = with(|address| other(address, &USUAL.bytes()));
    let mut server = server.unwrap();
    for place in 0..link.places() {
        link.send(place, [&[0; 4], &[]]).unwrap();
    }
    server.limit(Duration::from_millis(50)).unwrap();
    assert_eq!(server.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::TimedOut);
    // It takes what is within a stream from anybody, and no more than there are receives for at a time.
    let (mut sent, end) = (0, Instant::now() + LONG);
    while sent < link.places() {
        link.poll(|done| sent += u16::from(matches!(done, Done::Sent(_)))).unwrap();
        assert!(Instant::now() < end, "{sent} of {} were sent", link.places());
        thread::yield_now();
    }
    for place in 0..link.places() {
        link.send(place, [&[0; 4], b"byte"]).unwrap();
    }
    server.limit(LONG).unwrap();
    let mut all = vec![0; 4 * usize::from(link.places())];
    server.read_exact(&mut all).unwrap();
}

#[test]
fn others_are_told_apart_before_they_are_connected() {
    let newer = {
        let mut bytes = USUAL.bytes();
        bytes[7] = 9;
        bytes
    };
    let stranger = "this is stride-perf, and who connects is not";
    for (said, part, told) in [
        (&b""[..], "is no stride-perf", stranger),
        (b"cm_pingpong", "is no stride-perf", stranger),
        (
            &newer,
            "whose messages over rdma_cm are of version 9",
            "its messages over rdma_cm are of version 1, and those of the client of 9: use the same stride-perf on both",
        ),
        (
            &Hail { size: 1, receives: 1 }.bytes(),
            "is a stride-perf that takes in 1 messages of 1 bytes",
            "a client takes in 4 messages of 64 bytes at the least, and not 1 of 1",
        ),
    ] {
        let (server, error) = with(|address| {
            let resolved = Connector::new().resolve(address).unwrap();
            let _link = Link::new(resolved.identifier(), resolved.device_context()).unwrap();
            let mut parameter = ConnectionParameter::default();
            resolved.connect(parameter.setup_private_data(said)).unwrap_err()
        });
        let text = server.unwrap_err();
        assert!(text.starts_with("127.0.0.1 connects by rdma_cm, and ") && text.contains(part), "{text}");
        let Some(Refusal::No(heard)) = Refusal::read(error.rejection().unwrap().private_data()) else { panic!() };
        assert_eq!(heard, told, "{error}");
    }
}

#[test]
fn a_server_of_another_kind_is_named() {
    let (_, address) = listener();
    let Err(Failure::Unreachable(text)) = dial("host", address, LONG) else { panic!() };
    assert!(text.starts_with(&format!("nobody listens at host, rdma_cm port {}", address.port())), "{text}");

    for says in [&b""[..], b"cm_pingpong"] {
        let listener = sideway::rdmacm::Listener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_address();
        thread::scope(|scope| {
            scope.spawn(|| {
                let request = listener.accept(Some(LONG)).unwrap();
                let link = Link::new(request.identifier(), request.device_context()).unwrap();
                let connection = request.accept(ConnectionParameter::default().setup_private_data(says)).unwrap();
                connection.wait(Some(LONG)).unwrap();
                drop(link);
            });
            let Err(Failure::Stranger(text)) = dial("host", address, LONG) else { panic!() };
            assert!(text.ends_with("is no stride-perf: is the port the right one?"), "{text}");
        });
    }

    let elsewhere = SocketAddr::new([198, 51, 100, 7].into(), address.port());
    let Err(Failure::Unreachable(text)) = dial("host", elsewhere, LONG) else { panic!() };
    let start = match is_softrnic() {
        true => {
            "-z: host is not reached: softrnic serves rdma_cm here, and reaches the programs of this host alone: leave out -z"
        }
        false => "-z: host is not reached over an RDMA device: ",
    };
    assert!(text.starts_with(start), "{text}");
}

#[test]
fn a_server_that_ends_takes_nobody_in_who_waits() {
    let (listener, address) = listener();
    let stop = TcpListener::bind("127.0.0.1:0").unwrap();
    thread::scope(|scope| {
        let client = scope.spawn(|| dial("host", address, Duration::from_secs(4)).map(drop));
        let client_too = scope.spawn(|| dial("host", address, Duration::from_secs(4)).map(drop));
        // One was let in, and the server ends before it is connected.
        let one = listener.next(&stop).unwrap().look().unwrap();
        assert!(matches!(one.answer(LONG, || true), Err(None)));
        thread::sleep(Duration::from_millis(300));
        socket2::SockRef::from(&stop).shutdown(std::net::Shutdown::Both).unwrap();
        assert!(listener.next(&stop).is_none(), "the other is there, and is not let in");
        drop(listener);
        let others = [client.join().unwrap(), client_too.join().unwrap()];
        assert!(others.iter().any(Result::is_err), "{others:?}");
    });
}
