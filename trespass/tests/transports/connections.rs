//! Connections between two workers of this process, over RDMA on softrnic and over TCP.

use std::io::{self, BufRead, ErrorKind, IoSlice, Read, Write};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{bytes, device, fill, has_ended, on_both, pair, worker};
use sideway_test_names::Port;
use trespass::net::{Listener, Reader, Shutdown, Stream};
use trespass::{Acceptor, Connection, Handle, Kind, Options, Transport};

/// A time limit that only a hung operation reaches.
const LONG: Duration = Duration::from_secs(60);

#[test]
fn stream_echoes_and_ends() {
    on_both(|transport| {
        let (server, client) = (worker(transport), worker(transport));
        let listener = Listener::bind_on(&server, device()).unwrap();
        let address = listener.local_addr().unwrap();
        let echo = thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            io::copy(&mut &stream, &mut &stream).unwrap()
        });
        let mut stream = Stream::connect_on(&client, address).unwrap();
        assert_eq!(stream.peer_addr().unwrap(), address);
        stream.write_all(b"hello").unwrap();
        let mut reply = [0; 5];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(&reply, b"hello");
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(stream.read(&mut reply).unwrap(), 0);
        assert_eq!(stream.write(b"more").map_err(|error| error.kind()), Err(ErrorKind::BrokenPipe));
        assert_eq!(echo.join().unwrap(), 5);
    });
}

#[test]
fn large_stream_arrives_whole_in_both_directions_at_once() {
    const LENGTH: usize = 5 << 20;
    on_both(|transport| {
        let (left, right) = pair(transport);
        let (left, right) = (Stream::from(left), Stream::from(right));
        thread::scope(|scope| {
            for (stream, seed, other) in [(&left, 1, 2), (&right, 2, 1)] {
                scope.spawn(move || {
                    (&mut &*stream).write_all(&bytes(LENGTH, seed)).unwrap();
                    stream.shutdown(Shutdown::Write).unwrap();
                });
                scope.spawn(move || {
                    let mut got = Vec::new();
                    (&mut &*stream).read_to_end(&mut got).unwrap();
                    assert!(got == bytes(LENGTH, other));
                });
            }
        });
    });
}

#[test]
fn reader_returns_all_bytes_without_a_buffer_of_its_own() {
    let lengths = [1, 100, 5_000, 70_000, 64 << 10, 1 << 20, 3, 300_000];
    on_both(|transport| {
        let (left, right) = pair(transport);
        let (mut left, mut right) = (Stream::from(left), Reader::new(Stream::from(right)));
        thread::scope(|scope| {
            scope.spawn(move || {
                for (index, &length) in lengths.iter().enumerate() {
                    left.write_all(&bytes(length, index)).unwrap();
                    left.write_all(b"\n").unwrap();
                }
                left.shutdown(Shutdown::Write).unwrap();
            });
            for (index, &length) in lengths.iter().enumerate() {
                let (expected, mut got) = (bytes(length, index), Vec::new());
                while got.len() < length {
                    let some = right.fill_buf().unwrap();
                    let count = some.len().min(length - got.len()).min(1 + got.len());
                    assert_ne!(count, 0, "the stream ends early");
                    got.extend_from_slice(&some[..count]);
                    right.consume(count);
                }
                assert!(got == expected, "{length} bytes");
                let mut rest = String::new();
                right.read_line(&mut rest).unwrap();
                assert_eq!(rest, "\n");
            }
            assert!(right.fill_buf().unwrap().is_empty() && right.buffer().is_empty());
        });
    });
}

#[test]
fn messages_keep_boundaries_and_order_at_any_length() {
    let lengths = [0, 1, 64, 4_080, 4_096, 4_097, 16 << 10, (16 << 10) + 1, 70_000, 1 << 20, 3 << 20, 5];
    on_both(|transport| {
        let (left, right) = pair(transport);
        thread::scope(|scope| {
            scope.spawn(|| {
                for (index, &length) in lengths.iter().enumerate() {
                    left.send(&bytes(length, index)).unwrap();
                    let mut message = left.alloc(length);
                    message.copy_from_slice(&bytes(length, index + 100));
                    left.send_buf(message).unwrap();
                }
                left.flush().unwrap();
                left.shutdown().unwrap();
            });
            for (index, &length) in lengths.iter().enumerate() {
                assert!(right.recv().unwrap().unwrap()[..] == bytes(length, index), "{length} bytes, copied");
                assert!(
                    right.recv().unwrap().unwrap()[..] == bytes(length, index + 100),
                    "{length} bytes, from a buffer"
                );
            }
            assert!(right.recv().unwrap().is_none());
        });
        let read = right.stats().unwrap().rendezvous_received;
        assert!(read > 0, "no message was read from the peer's memory");
    });
}

#[test]
fn read_times_out_and_the_stream_continues() {
    on_both(|transport| {
        let (left, right) = pair(transport);
        let (left, right) = (Stream::from(left), Stream::from(right));
        right.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        let mut byte = [0];
        let error = (&right).read(&mut byte).unwrap_err();
        assert_eq!((error.kind(), has_ended(&error)), (ErrorKind::TimedOut, false));
        right.set_read_timeout(Some(LONG)).unwrap();
        (&left).write_all(b"x").unwrap();
        assert_eq!((&right).read(&mut byte).unwrap(), 1);
        assert!(right.set_read_timeout(Some(Duration::ZERO)).is_err());
    });
}

#[test]
fn write_to_a_peer_that_does_not_read_times_out_and_loses_nothing() {
    on_both(|transport| {
        let (left, right) = pair(transport);
        let (left, right) = (Stream::from(left), Stream::from(right));
        left.set_write_timeout(Some(Duration::from_millis(20))).unwrap();
        let mut written = 0;
        let kind = loop {
            match (&left).write(&bytes(10_000, written)) {
                Ok(count) => written += count,
                Err(error) => break error.kind(),
            }
        };
        assert_eq!(kind, ErrorKind::TimedOut);
        drop(thread::spawn(move || drop(left)));
        let mut got = Vec::new();
        (&right).read_to_end(&mut got).unwrap();
        assert_eq!(got.len(), written);
    });
}

#[test]
fn send_buf_to_a_peer_that_does_not_read_times_out() {
    on_both(|transport| {
        let (writer, reader) = pair(transport);
        fill(&writer);
        let refused = writer.send_buf_until(writer.alloc(100_000), Some(Instant::now() + Duration::from_millis(50)));
        assert_eq!(refused.map_err(|error| error.kind()), Err(ErrorKind::TimedOut));
        // When the peer reads again, the next message is sent.
        thread::scope(|scope| {
            scope.spawn(|| while reader.recv().unwrap().is_some_and(|message| message.len() != 7) {});
            writer.send_buf_until(writer.alloc(7), Some(Instant::now() + LONG)).unwrap();
        });
    });
}

/// Times that the system's clocks do not reach are no limit.
#[test]
fn try_send_buf_returns_the_buffer_if_the_peer_does_not_read() {
    on_both(|transport| {
        let (left, right) = pair(transport);
        let message = |byte: u8| {
            let mut buffer = left.alloc(1_000);
            buffer.fill(byte);
            buffer
        };
        let mut sent = 0_usize;
        let (error, buffer) = loop {
            match left.try_send_buf(message(sent as u8)) {
                Ok(()) => sent += 1,
                Err(refused) => break refused,
            }
        };
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        assert!(buffer.len() == 1_000 && buffer.iter().all(|&byte| byte == sent as u8));
        for number in 0..sent {
            assert_eq!(right.recv().unwrap().unwrap()[..], [number as u8; 1_000]);
        }
        left.send_buf(buffer).unwrap();
        assert_eq!(right.recv().unwrap().unwrap()[..], [sent as u8; 1_000]);
    });
}

#[test]
fn longest_times_are_no_limit() {
    // In milliseconds, the second time is the largest number.
    for time in [Duration::MAX, Duration::from_millis(u64::MAX)] {
        on_both(|transport| {
            let mut options = Options::default();
            (options.transport, options.spin) = (transport, Duration::MAX);
            (options.linger, options.keepalive) = (time, time);
            let (server, client) = (Handle::new(&options).unwrap(), Handle::new(&options).unwrap());
            let acceptor = Acceptor::bind_on(&server, device()).unwrap();
            let left = Connection::connect_on(&client, acceptor.local_addr(), Some(time)).unwrap();
            let (left, right) = (Stream::from(left), Stream::from(acceptor.accept().unwrap()));
            right.set_read_timeout(Some(time)).unwrap();
            (&left).write_all(b"x").unwrap();
            assert_eq!((&right).read(&mut [0]).unwrap(), 1);
            (&left).write_all(&[7; 1 << 20]).unwrap();
            let reading = thread::spawn(move || (&right).read_to_end(&mut Vec::new()).unwrap());
            drop(left);
            assert_eq!(reading.join().unwrap(), 1 << 20);
        });
    }
}

#[test]
fn port_without_listener_is_refused() {
    on_both(|transport| {
        let port = Port::reserve();
        let address = device().replace(":0", &format!(":{}", port.number()));
        let refused = Connection::connect_on(&worker(transport), address, Some(LONG)).map(drop);
        assert_eq!(refused.map_err(|error| error.kind()), Err(ErrorKind::ConnectionRefused));
    });
}

#[test]
fn client_falls_back_to_tcp_with_the_reason() {
    let server = worker(Transport::Tcp);
    let acceptor = Acceptor::bind_on(&server, device()).unwrap();
    let connection = Connection::connect_on(&worker(Transport::Any), acceptor.local_addr(), Some(LONG)).unwrap();
    let stats = connection.stats().unwrap();
    assert_eq!(stats.transport, Kind::Tcp);
    assert!(stats.fallback.is_some_and(|reason| !reason.is_empty()));
}

#[test]
fn client_whose_device_does_not_lead_to_the_address_falls_back_to_tcp() {
    device();
    let (server, client) = (worker(Transport::Tcp), worker(Transport::Any));
    let acceptor = Acceptor::bind_on(&server, "127.0.0.2:0").unwrap();
    // The worker opens the device for this address, and uses it from then on.
    _ = Connection::connect_on(&client, device().replace(":0", ":1"), Some(LONG)).map(drop);
    let connection = Connection::connect_on(&client, acceptor.local_addr(), Some(LONG)).unwrap();
    assert_eq!(connection.stats().unwrap().transport, Kind::Tcp);
}

#[test]
fn any_transport_uses_rdma_if_both_sides_have_it() {
    let (server, client) = (worker(Transport::Any), worker(Transport::Any));
    let acceptor = Acceptor::bind_on(&server, device()).unwrap();
    let connection = Connection::connect_on(&client, acceptor.local_addr(), Some(LONG)).unwrap();
    let accepted = acceptor.accept_until(Some(Instant::now() + LONG)).unwrap();
    for end in [connection, accepted] {
        let stats = end.stats().unwrap();
        assert_eq!((stats.transport, stats.fallback), (Kind::Rdma, None));
    }
}

#[test]
fn threads_share_a_worker() {
    on_both(|transport| {
        let (server, client) = (worker(transport), worker(transport));
        let listener = Listener::bind_on(&server, device()).unwrap();
        let address = listener.local_addr().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                for stream in listener.incoming().take(8) {
                    let stream = stream.unwrap();
                    scope.spawn(move || io::copy(&mut &stream, &mut &stream).unwrap());
                }
            });
            for thread in 0..8 {
                let client = &client;
                scope.spawn(move || {
                    let mut stream = Stream::connect_on(client, address).unwrap();
                    for round in 0..50 {
                        let sent = bytes(1 + round * 37, thread);
                        stream.write_all(&sent).unwrap();
                        let mut got = vec![0; sent.len()];
                        stream.read_exact(&mut got).unwrap();
                        assert_eq!(got, sent);
                    }
                });
            }
        });
    });
}

#[test]
fn a_pair_connects_a_worker_with_itself() {
    device();
    for transport in [Transport::Any, Transport::Tcp] {
        let (first, second) = Connection::pair_on(&worker(transport)).unwrap();
        assert_eq!(first.stats().unwrap().transport, second.stats().unwrap().transport);
        for (from, to) in [(&first, &second), (&second, &first)] {
            let sent = bytes(100_000, 1);
            from.send(&sent).unwrap();
            assert_eq!(to.recv().unwrap().unwrap()[..], sent);
        }
        first.close(7, "done").unwrap();
        assert!(second.recv().unwrap().is_none());
        assert_eq!(second.peer_close(), Some((7, "done".to_owned())));
    }
}

#[test]
fn acceptor_gives_up_at_its_deadline() {
    let acceptor = Acceptor::bind_on(&worker(Transport::Tcp), device()).unwrap();
    let result = acceptor.accept_until(Some(Instant::now() + Duration::from_millis(5))).map(drop);
    assert_eq!(result.map_err(|error| error.kind()), Err(ErrorKind::TimedOut));
    assert_eq!(acceptor.try_accept().map(drop).map_err(|error| error.kind()), Err(ErrorKind::WouldBlock));
}

#[test]
fn malformed_input_ends_only_its_own_connection() {
    let server = worker(Transport::Tcp);
    let acceptor = Acceptor::bind_on(&server, device()).unwrap();
    let connection = Connection::connect_on(&worker(Transport::Tcp), acceptor.local_addr(), Some(LONG)).unwrap();
    let accepted = acceptor.accept_until(Some(Instant::now() + LONG)).unwrap();
    // These are the cases: no handshake, a handshake that is too short, a handshake without a hello, and a hello with
    // an unknown version.
    let mut version = [vec![1, 56], b"trsp".to_vec(), vec![9, 9], vec![0; 50]].concat();
    version[20] = 1;
    let inputs: [&[u8]; 4] =
        [b"GET / HTTP/1.1\r\n\r\n", &[1, 3, 0, 0, 0], &[[1, 56].as_slice(), &[7; 56]].concat(), &version];
    for input in inputs {
        let mut socket = std::net::TcpStream::connect(acceptor.local_addr()).unwrap();
        socket.set_read_timeout(Some(LONG)).unwrap();
        socket.write_all(input).unwrap();
        let mut answer = Vec::new();
        // The connection is refused with a reason, or reset.
        match socket.read_to_end(&mut answer) {
            Ok(_) => assert!(answer.is_empty() || answer[0] == 2, "{answer:?}"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
    }
    connection.send(b"still here").unwrap();
    assert_eq!(&accepted.recv().unwrap().unwrap()[..], b"still here");
}

#[test]
fn recv_into_copies_messages_and_keeps_those_that_are_too_long() {
    on_both(|transport| {
        let (left, right) = pair(transport);
        let mut memory = vec![0; 100_000];
        for length in [0, 1, 64, 5_000, 30_000, 100_000] {
            let sent = bytes(length, length);
            left.send(&sent).unwrap();
            if length > 0 {
                let short = right.recv_into(&mut memory[..length - 1]).map_err(|error| error.kind());
                assert_eq!(short, Err(ErrorKind::InvalidInput), "{length}");
            }
            assert_eq!(right.recv_into(&mut memory).unwrap(), Some(length));
            assert!(memory[..length] == sent[..]);
        }
        left.shutdown().unwrap();
        assert_eq!(right.recv_into(&mut memory).unwrap(), None);
    });
}

#[test]
fn vectored_write_returns_a_prefix_of_its_parts() {
    on_both(|transport| {
        let (left, right) = pair(transport);
        let (left, mut right) = (Stream::from(left), Stream::from(right));
        // The first part is longer than a single write accepts.
        let (long, short) = (bytes(3 << 20, 1), bytes(100, 2));
        let parts = [IoSlice::new(&[]), IoSlice::new(&long), IoSlice::new(&short)];
        let count = (&left).write_vectored(&parts).unwrap();
        assert!(0 < count && count < long.len(), "{count}");
        left.shutdown(Shutdown::Write).unwrap();
        let mut got = Vec::new();
        right.read_to_end(&mut got).unwrap();
        assert!(got == long[..count], "{} of {count} bytes arrived, or their contents differ", got.len());
    });
}

/// Tests a connection whose two ends belong to the same worker. Over RDMA, its messages use no socket, because softrnic
/// copies them from one queue pair to the other.
#[test]
fn both_ends_of_a_connection_share_a_process_and_a_worker() {
    on_both(|transport| {
        let worker = worker(transport);
        let acceptor = Acceptor::bind_on(&worker, device()).unwrap();
        let client = Connection::connect_on(&worker, acceptor.local_addr(), None).unwrap();
        let server = acceptor.accept_until(Some(Instant::now() + LONG)).unwrap();
        let long = bytes(1 << 20, 3);
        client.send(b"short").unwrap();
        server.send(&long).unwrap();
        assert_eq!(&server.recv().unwrap().unwrap()[..], b"short");
        assert!(client.recv().unwrap().unwrap()[..] == long[..]);
        let expected = if transport == Transport::Rdma { Kind::Rdma } else { Kind::Tcp };
        assert_eq!(client.stats().unwrap().transport, expected);
        let reader = thread::spawn(move || server.recv().unwrap().is_none());
        client.close(0, "").unwrap();
        assert!(reader.join().unwrap());
    });
}
