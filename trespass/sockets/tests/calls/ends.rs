//! How streams and listeners end: shutdown, failure, exit and time limits.

use std::io::{ErrorKind, Read, Write};
use std::mem::{forget, zeroed};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fs, ptr, thread};

use super::{LONG, connect, error, listener, pair, poll, receive, second, send, start};

fn accept(fd: i32) -> i32 {
    // SAFETY: without an address.
    unsafe { libc::accept(fd, ptr::null_mut(), ptr::null_mut()) }
}

pub(super) fn shut_listener_wakes_a_call() {
    pair();
    for turn in 0..300 {
        let listener = listener();
        let fd = listener.as_raw_fd();
        let (thread, _) = start(move || (accept(fd), error()));
        (0..turn * 40).for_each(|_| std::hint::spin_loop());
        // SAFETY: a call with numbers.
        assert_eq!(unsafe { libc::shutdown(fd, libc::SHUT_RDWR) }, 0);
        assert_eq!(thread.join().unwrap(), (-1, ErrorKind::InvalidInput));
    }
}

pub(super) fn failed_write_leaves_reads_alone() {
    let [mut reader, mut writer] = pair();
    reader.shutdown(Shutdown::Write).unwrap();
    assert_eq!((send(&reader, b"x", 0), error()), (-1, ErrorKind::BrokenPipe));
    let thread = thread::spawn(move || {
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).map(|_| (reader, bytes))
    });
    thread::yield_now();
    writer.write_all(b"late").unwrap();
    writer.shutdown(Shutdown::Write).unwrap();
    let (reader, bytes) = thread.join().unwrap().unwrap();
    assert_eq!(bytes, b"late");
    // Both ends are shut down.
    assert_eq!(reader.shutdown(Shutdown::Write).unwrap_err().kind(), ErrorKind::NotConnected);
    // One that waits for the descriptor sees no end either.
    let [waiter, _writer] = pair();
    waiter.set_nonblocking(true).unwrap();
    waiter.shutdown(Shutdown::Write).unwrap();
    assert_eq!((send(&waiter, b"x", 0), error()), (-1, ErrorKind::BrokenPipe));
    assert_eq!(poll(&waiter, libc::POLLIN | libc::POLLRDHUP, 0), 0);
}

pub(super) fn bytes_can_be_read_after_a_shutdown() {
    let [mut reader, mut writer] = pair();
    writer.write_all(b"early").unwrap();
    assert_eq!(poll(&reader, libc::POLLIN, LONG), libc::POLLIN);
    reader.shutdown(Shutdown::Read).unwrap();
    let mut bytes = [0; 5];
    reader.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"early");
    assert_eq!(reader.read(&mut bytes).unwrap(), 0);
    assert_eq!(poll(&reader, libc::POLLIN, 0), libc::POLLIN);
}

pub(super) fn unread_bytes_make_an_error_for_the_peer() {
    let [mut first, mut second] = pair();
    first.write_all(b"unread").unwrap();
    assert_eq!(poll(&second, libc::POLLIN, LONG), libc::POLLIN);
    second.write_all(b"answer").unwrap();
    assert_eq!(poll(&first, libc::POLLIN, LONG), libc::POLLIN);
    drop(second);
    first.read_exact(&mut [0; 6]).unwrap();
    assert_ne!(poll(&first, libc::POLLIN, LONG) & libc::POLLHUP, 0);
    assert_eq!(first.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(first.read(&mut [0]).unwrap(), 0);
    assert_eq!((send(&first, b"x", 0), error()), (-1, ErrorKind::BrokenPipe));
    // The option reports it once, too.
    let [mut first, second] = pair();
    first.write_all(b"unread").unwrap();
    assert_eq!(poll(&second, libc::POLLIN, LONG), libc::POLLIN);
    drop(second);
    assert_ne!(poll(&first, libc::POLLIN, LONG) & libc::POLLHUP, 0);
    assert_eq!(first.take_error().unwrap().unwrap().kind(), ErrorKind::ConnectionReset);
    assert!(first.take_error().unwrap().is_none());
    assert_eq!(first.read(&mut [0]).unwrap(), 0);
}

pub(super) fn peer_of_a_process_that_exits_gets_the_end() {
    let listener = listener();
    let (mut child, mut peer) = second("leave", &listener);
    let mut bytes = Vec::new();
    peer.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, b"first, last");
    assert!(child.wait().unwrap().success());
}

/// Ends without closing. A function that runs at exit still writes.
pub(super) fn leave() {
    extern "C" fn last() {
        send(&super::SOCKET.load(Ordering::Relaxed), b", last", 0);
    }
    // SAFETY: the function lives as long as the process.
    assert_eq!(unsafe { libc::atexit(last) }, 0);
    let mut socket = connect();
    socket.write_all(b"first").unwrap();
    super::SOCKET.store(socket.into_raw_fd(), Ordering::Relaxed);
    let [one, other] = pair();
    // A thread that uses a stream meanwhile does not see its end.
    thread::spawn(move || {
        loop {
            (&one).write_all(&[0; 4096]).unwrap();
            (&other).read_exact(&mut [0; 4096]).unwrap();
        }
    });
}

pub(super) fn connection_leaves_a_closed_number_alone() {
    let listener = listener();
    let (mut child, peer) = second("stop", &listener);
    drop(peer);
    assert!(child.wait().unwrap().success());
}

/// Closes a number whose connection waits for the parent, and uses it for a file.
pub(super) fn stop() {
    let address = connect().peer_addr().unwrap();
    // SAFETY: calls with numbers, and an address with its length.
    unsafe {
        let parent = libc::getppid();
        let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0);
        libc::kill(parent, libc::SIGSTOP);
        let (thread, number) = start(move || {
            let mut to: libc::sockaddr_in = zeroed();
            (to.sin_family, to.sin_port) = (libc::AF_INET as u16, address.port().to_be());
            to.sin_addr.s_addr = u32::from_ne_bytes([127, 0, 0, 1]);
            libc::connect(fd, (&raw const to).cast(), size_of_val(&to) as u32)
        });
        let call = || fs::read_to_string(format!("/proc/self/task/{number}/syscall"));
        while call().is_ok_and(|call| call.starts_with("running")) {
            thread::yield_now();
        }
        libc::close(fd);
        let file = libc::memfd_create(c"file".as_ptr(), 0);
        libc::dup2(file, fd);
        libc::kill(parent, libc::SIGCONT);
        thread.join().unwrap();
        assert_eq!(libc::write(fd, b"secret".as_ptr().cast(), 6), 6);
        let mut bytes = [0; 6];
        assert_eq!(libc::pread(file, bytes.as_mut_ptr().cast(), 6, 0), 6);
        assert_eq!(&bytes, b"secret");
    }
}

pub(super) fn call_of_a_closed_number_gets_no_other_bytes() {
    for turn in 0..300 {
        let [reader, mut writer] = pair();
        reader.set_nonblocking(true).unwrap();
        let fd = reader.into_raw_fd();
        let (thread, _) = start(move || {
            let mut bytes = [b'A'; 64];
            loop {
                match receive(fd, &mut bytes, 0) {
                    -1 if error() == ErrorKind::WouldBlock => {}
                    0 | -1 => return,
                    count => assert!(bytes[..count as usize].iter().all(|byte| *byte == b'A'), "{bytes:?}"),
                }
            }
        });
        let closer = thread::spawn(move || {
            (0..turn * 40).for_each(|_| std::hint::spin_loop());
            // SAFETY: the number is the thread's.
            unsafe { libc::close(fd) };
        });
        while !closer.is_finished() {
            _ = writer.write(&[b'A'; 16]);
        }
        thread.join().unwrap();
    }
}

pub(super) fn time_limit_is_that_of_the_whole_call() {
    let listener = listener();
    let limit = libc::timeval { tv_sec: 0, tv_usec: 300_000 };
    let length = size_of_val(&limit) as u32;
    // SAFETY: the value has its length.
    let set = unsafe {
        let name = libc::SO_RCVTIMEO;
        libc::setsockopt(listener.as_raw_fd(), libc::SOL_SOCKET, name, (&raw const limit).cast(), length)
    };
    assert_eq!(set, 0);
    let mut writer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    // The connection gets the listener's.
    let reader = listener.accept().unwrap().0;
    assert_eq!(reader.read_timeout().unwrap(), Some(Duration::from_millis(300)));
    let is_over = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&is_over);
    let thread = thread::spawn(move || {
        while !ended.load(Ordering::Relaxed) {
            writer.write_all(b"x").unwrap();
            thread::sleep(Duration::from_millis(50));
        }
        writer
    });
    let count = receive(reader.as_raw_fd(), &mut [0; 1000], libc::MSG_WAITALL);
    assert!((1..1000).contains(&count), "{count}");
    is_over.store(true, Ordering::Relaxed);
    forget(thread.join().unwrap());
    assert!((&reader).read_to_end(&mut Vec::new()).is_err_and(|error| error.kind() == ErrorKind::WouldBlock));
}

pub(super) fn signal_restarts_accept() {
    extern "C" fn handle(_: i32) {
        super::SIGNALS.fetch_add(1, Ordering::Relaxed);
    }
    let listener = listener();
    let address = listener.local_addr().unwrap();
    // SAFETY: the handler counts. A handler of `signal` restarts calls.
    unsafe { libc::signal(libc::SIGALRM, handle as extern "C" fn(i32) as usize) };
    let fd = listener.as_raw_fd();
    let (thread, number) = start(move || accept(fd));
    let call = || fs::read_to_string(format!("/proc/self/task/{number}/syscall"));
    while call().is_ok_and(|call| call.starts_with("running")) {
        thread::yield_now();
    }
    // SAFETY: the thread runs.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), number, libc::SIGALRM) };
    while super::SIGNALS.load(Ordering::Relaxed) == 0 {
        thread::yield_now();
    }
    let client = TcpStream::connect(address).unwrap();
    assert!(thread.join().unwrap() > 0);
    drop(client);
}
