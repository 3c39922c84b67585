//! The descriptors of non-blocking streams.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use crate::common::{on_both, pair};
use trespass::Transport;
use trespass::net::{Shutdown, Stream};

/// A time limit that only a hung operation reaches.
const LONG: Duration = Duration::from_secs(60);

/// Whether the stream's descriptor is readable within this time, in seconds.
fn is_signalled(stream: &Stream, seconds: i64) -> bool {
    let mut fds = [rustix::event::PollFd::new(stream, rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut fds, Some(&rustix::event::Timespec { tv_sec: seconds, tv_nsec: 0 }))
        .is_ok_and(|count| count == 1)
}

/// A stream that was written to, and the other end, which is non-blocking and waits to read the byte.
fn written(transport: Transport) -> (Stream, Stream) {
    let (left, right) = pair(transport);
    let (left, right) = (Stream::from(left), Stream::from(right));
    right.set_nonblocking(true).expect("a descriptor is free");
    assert_eq!((&right).read(&mut [0]).map_err(|error| error.kind()), Err(ErrorKind::WouldBlock));
    (&left).write_all(b"x").expect("the stream is open");
    (left, right)
}

/// Reads the byte when the descriptor signals it.
fn read_signalled(mut stream: &Stream) {
    let (mut byte, deadline) = ([0], Instant::now() + LONG);
    loop {
        assert!(is_signalled(stream, 60), "no signal");
        match stream.read(&mut byte) {
            Ok(count) => return assert_eq!((count, byte[0]), (1, b'x')),
            Err(error) => assert_eq!((error.kind(), Instant::now() < deadline), (ErrorKind::WouldBlock, true)),
        }
    }
}

#[test]
fn nonblocking_stream_signals_its_descriptor() {
    on_both(|transport| {
        let (_left, right) = written(transport);
        read_signalled(&right);
        assert!(right.as_fd().try_clone_to_owned().is_ok());
    });
}

/// A write that was not waited for does not hide that a read is due.
#[test]
fn write_of_a_nonblocking_stream_keeps_the_signal_of_a_read() {
    on_both(|transport| {
        let (_left, right) = written(transport);
        assert!(is_signalled(&right, 60));
        assert_eq!((&right).write(b"y").unwrap(), 1);
        assert!(is_signalled(&right, 0), "the read is due");
        read_signalled(&right);
        assert!(!is_signalled(&right, 0));
    });
}

/// A program may read a part, or wait before its first read, as with a socket.
#[test]
fn descriptor_of_a_nonblocking_stream_is_readable_while_bytes_are_left() {
    on_both(|transport| {
        let (left, right) = pair(transport);
        let (left, right) = (Stream::from(left), Stream::from(right));
        (&left).write_all(b"xyz").unwrap();
        left.flush_all().unwrap();
        right.set_nonblocking(true).unwrap();
        for expected in b"xyz" {
            let (mut byte, deadline) = ([0], Instant::now() + LONG);
            while (&right).read(&mut byte).is_err() {
                assert!(is_signalled(&right, 60) && Instant::now() < deadline, "no signal");
            }
            assert_eq!(byte[0], *expected);
            assert_eq!(is_signalled(&right, 0), *expected != b'z');
        }
        left.shutdown(Shutdown::Write).unwrap();
        assert!(is_signalled(&right, 60), "the end");
        assert_eq!((&right).read(&mut [0]).unwrap(), 0);
        // A write that fails leaves nothing to wait for.
        left.set_nonblocking(true).unwrap();
        assert_eq!((&left).read(&mut [0]).map_err(|error| error.kind()), Err(ErrorKind::WouldBlock));
        assert_eq!((&left).write(b"x").map_err(|error| error.kind()), Err(ErrorKind::BrokenPipe));
        assert!(!is_signalled(&left, 0));
        (&right).write_all(b"y").unwrap();
        assert!(is_signalled(&left, 60), "a byte");
    });
}
