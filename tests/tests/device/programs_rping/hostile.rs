//! Peers that violate the protocol.

use std::sync::Arc;

use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::device_context::DeviceContext;
use sideway::ibverbs::memory_region::RemoteKey;
use sideway::ibverbs::queue_pair::{GenericQueuePair, PostSendGuard, QueuePair, QueuePairBuilder};
use sideway::ibverbs::work_request::WorkRequestFlags;
use sideway::rdmacm::{Connection, ConnectionParameter, Connector, Listener};
use sideway_tests::child::{Ended, Program};
use sideway_tests::connections::{LONG, address};
use sideway_tests::loopback::{self, Give, Memory};
use sideway_tests::programs::{LIMIT, fails, port, succeeds};

use super::peers::Whose::Ours;
use super::peers::{client, server};

/// Offsets of sent messages, received messages, and texts.
const OUTGOING: usize = 0;
const INCOMING: usize = 64;
const TEXT: usize = 1024;
const MEMORY: usize = 2048;

/// The requested access.
const QP: &str = "a queue pair";

/// The text of the first ping, in 32 bytes.
const FIRST: &[u8] = b"rdma-ping-0: ABCDEFGHIJKLMNOPQR\0";

type End = loopback::End<GenericQueuePair>;

/// A side of a connection that sends arbitrary data.
#[derive(Debug)]
struct Peer {
    end: End,
    connection: Connection,
}

/// An end whose queue pair `make` creates, with a receive posted.
#[track_caller]
fn end(device: &Arc<DeviceContext>, make: impl FnOnce(&QueuePairBuilder) -> GenericQueuePair) -> End {
    let pd = device.alloc_pd().expect("a domain");
    let cq = device.create_cq_builder().build_generic().expect("a queue");
    let mut builder = pd.create_qp_builder();
    builder.setup_send_cq(&cq).setup_recv_cq(&cq);
    let access = AccessFlags::LocalWrite | AccessFlags::RemoteRead | AccessFlags::RemoteWrite;
    End { qp: make(&builder), cq, memory: Memory::new(&pd, MEMORY, access) }
}

impl Peer {
    /// Connects to a server, with this many receives posted.
    #[track_caller]
    fn of_server(port: u16, receives: u64) -> Self {
        let resolved = Connector::new().resolve((address(), port)).unwrap_or_else(|error| panic!("{error}"));
        let mut end =
            end(resolved.device_context(), |builder| resolved.identifier().create_qp_generic(builder).expect(QP));
        for number in 0..receives {
            end.post_receive(number, INCOMING, 16);
        }
        let connection = resolved.connect(&ConnectionParameter::default()).expect("a connection");
        Self { end, connection }
    }

    /// Waits for a client.
    #[track_caller]
    fn of_client(listener: &Listener, client: &Program) -> Self {
        let request = listener.accept(Some(LONG)).unwrap_or_else(|error| panic!("{error}\n{}", client.said()));
        let mut end =
            end(request.device_context(), |builder| request.identifier().create_qp_generic(builder).expect(QP));
        end.post_receive(0, INCOMING, 16);
        let connection = request.accept(&ConnectionParameter::default()).expect("a connection");
        Self { end, connection }
    }

    /// Posts a message.
    #[track_caller]
    fn say(&mut self, message: &[u8]) {
        self.end.memory.write(OUTGOING, message);
        self.end.post_send(100, OUTGOING, message.len());
    }

    /// A message that offers `size` bytes of the text, with the correct or another key.
    fn place(&self, key: u32, size: u32) -> Vec<u8> {
        let (rkey, addr) = self.end.remote(TEXT);
        [&addr.to_be_bytes()[..], &(rkey.raw() ^ key).to_be_bytes(), &size.to_be_bytes()].concat()
    }

    /// Waits until this side's message is sent and another has arrived.
    #[track_caller]
    fn hear(&mut self) {
        let mut found = [self.end.success().wr_id, self.end.success().wr_id];
        found.sort_unstable();
        assert_eq!(found[1], 100, "{found:?}");
    }

    /// Waits for the peer to disconnect.
    #[track_caller]
    fn wait(&self) {
        self.connection.wait(Some(LONG)).unwrap_or_else(|error| panic!("{error}"));
    }
}

/// The options, with a time-out that suffices for a slow machine.
fn patient(options: &str) -> String {
    if options.contains("--timeout") { options.into() } else { format!("--timeout 60 {options}") }
}

/// The outcome of one of our servers when `talk` is its client.
#[track_caller]
fn server_hears(options: &str, receives: u64, talk: impl FnOnce(&mut Peer)) -> Ended {
    let port = port();
    let mut server = Program::start(server(Ours, port, &patient(options)), LIMIT);
    server.wait_for_cm_port(port);
    let mut peer = Peer::of_server(port, receives);
    talk(&mut peer);
    server.wait().unwrap_or_else(|| panic!("the program does not exit:\n{}", server.said()))
}

/// The outcome of one of our clients when `talk` is its server, to which it has offered a text.
#[track_caller]
fn client_hears(options: &str, talk: impl FnOnce(&mut Peer, [u8; 16])) -> Ended {
    let port = port();
    let listener = Listener::bind((address(), port)).expect("a listener");
    let mut client = Program::start(client(Ours, port, &format!("-C 2 {}", patient(options))), LIMIT);
    let mut peer = Peer::of_client(&listener, &client);
    peer.end.success();
    let mut offer = [0; 16];
    peer.end.memory.read(INCOMING, &mut offer);
    talk(&mut peer, offer);
    client.wait().unwrap_or_else(|| panic!("the program does not exit:\n{}", client.said()))
}

#[test]
fn malformed_message_is_reported_by_the_server() {
    for length in [1, 15] {
        let ended = server_hears("", 1, |peer| peer.say(&vec![0; length]));
        fails(&ended, &[&format!("a message of {length} bytes, expected 16")]);
    }
    fails(&server_hears("", 1, |peer| peer.say(&[0; 17])), &["receiving a message failed", "may exceed 16 bytes"]);
    for (size, words) in [
        (0, "offers 0 bytes"),
        (22, "offers 22 bytes"),
        (65, "65 bytes, above the server's limit of 64"),
        (u32::MAX, "4294967295"),
    ] {
        let ended = server_hears("", 1, |peer| {
            let place = peer.place(0, size);
            peer.say(&place);
            peer.wait();
        });
        fails(&ended, &[words]);
    }
}

#[test]
fn unoffered_memory_is_reported_by_the_server() {
    // The client offers a wrong key, or more bytes than the memory has.
    for (key, size) in [(0x5500, 64), (0, 60_000)] {
        let ended = server_hears("-S 65535", 1, |peer| {
            let place = peer.place(key, size);
            peer.say(&place);
            peer.wait();
        });
        fails(
            &ended,
            &["reading the client's text failed", "the address, length or key that the client offered is invalid"],
        );
    }
    let ended = server_hears("", 1, |peer| {
        let place = peer.place(0, 64);
        peer.say(&place);
        peer.hear();
        peer.end.memory.write(TEXT, FIRST);
        let place = peer.place(0, 0);
        peer.say(&place);
        peer.wait();
    });
    fails(&ended, &["ping 0 has 1 bytes, and the client's buffer for the reply 0 bytes"]);
}

#[test]
fn silent_or_flooding_client_is_reported() {
    fails(&server_hears("--timeout 10", 1, |peer| peer.wait()), &["the client did not offer ping 0 within 10 s"]);
    fails(&server_hears("", 1, |peer| drop(peer.connection.disconnect(Some(LONG)))), &["before its first ping"]);
    // This client never polls a receive, so all messages after the first must wait.
    let ended = server_hears("--timeout 10", 0, |peer| {
        let place = peer.place(0, 64);
        peer.say(&place);
        peer.say(&place);
        peer.wait();
    });
    fails(&ended, &["the client did not ", "within 10 s (--timeout)"]);
    let ended = server_hears("", 0, |peer| {
        let place = peer.place(0, 64);
        for _ in 0..4 {
            peer.say(&place);
        }
        peer.wait();
    });
    fails(&ended, &["the peer sends out of turn"]);
}

#[test]
fn texts_are_checked_on_request_and_printed_escaped() {
    let ping = |peer: &mut Peer, text: &[u8]| {
        peer.end.memory.write(TEXT, text);
        let size = u32::try_from(text.len()).unwrap();
        let place = peer.place(0, size);
        peer.say(&place);
        peer.hear();
        peer.end.memory.write(TEXT, &[b'.'; 128]);
        peer.say(&place);
        peer.hear();
        peer.connection.disconnect(Some(LONG)).unwrap();
    };
    let mut back = Vec::new();
    let ended = server_hears("-v -V", 2, |peer| {
        ping(peer, FIRST);
        back = peer.end.bytes(TEXT, 64);
    });
    succeeds(&ended, &["server ping data: rdma-ping-0: ABCDEFGHIJKLMNOPQR"]);
    assert_eq!(back, [FIRST, &[b'.'; 32]].concat());
    // Without a zero byte, no more bytes return than were sent.
    let ended = server_hears("-v", 2, |peer| {
        ping(peer, b"\x1b[2Jwithout end, and not a zero");
        back = peer.end.bytes(TEXT, 64);
    });
    succeeds(&ended, &["server ping data: \\x1b[2Jwithout end, and not a zero\n"]);
    assert_eq!(back, [&b"\x1b[2Jwithout end, and not a zero"[..], &[b'.'; 33]].concat());
    let ended = server_hears("-V", 2, |peer| {
        peer.end.memory.write(TEXT, &FIRST.to_ascii_lowercase());
        let place = peer.place(0, 32);
        peer.say(&place);
        peer.wait();
    });
    fails(&ended, &["the text of ping 0 is wrong: byte 13 of 32 is 0x61, expected 0x41"]);
}

#[test]
fn server_with_another_protocol_is_reported() {
    let ended = client_hears("", |peer, _| {
        peer.say(&[0; 8]);
        peer.wait();
    });
    fails(&ended, &["a message of 8 bytes, expected 16"]);
    let ended = client_hears("--timeout 10", |peer, _| peer.wait());
    fails(&ended, &["the server did not read ping 0 within 10 s"]);
    // The server reports that it has returned the text, but it has not.
    let ended = client_hears("-V", |peer, _| {
        peer.end.post_receive(1, INCOMING, 16);
        peer.say(&[0; 16]);
        peer.hear();
        peer.say(&[0; 16]);
        peer.wait();
    });
    fails(&ended, &["the server wrote wrong data: the text of ping 0", "byte 0 of 64 is 0x00, expected 0x72"]);
    // The server reads more than it was offered.
    let ended = client_hears("", |peer, offer| {
        let addr = u64::from_be_bytes(offer[..8].try_into().unwrap());
        let rkey = u32::from_be_bytes(offer[8..12].try_into().unwrap());
        let range = peer.end.range(TEXT, 65);
        let mut batch = peer.end.qp.start_post_send();
        let rkey = RemoteKey::from_raw(rkey);
        batch.construct_wr(7, WorkRequestFlags::Signaled).setup_read(rkey, addr).give(range);
        batch.post().unwrap();
        peer.wait();
    });
    fails(&ended, &["the device stopped the connection"]);
}

#[test]
fn rejecting_server_is_reported() {
    let port = port();
    let listener = Listener::bind((address(), port)).unwrap();
    let mut client = Program::start(client(Ours, port, "-C 1"), LIMIT);
    listener.accept(Some(LONG)).unwrap().reject(b"busy").unwrap();
    let ended = client.wait().unwrap();
    fails(&ended, &["rejected: the program there declined the request"]);
}
