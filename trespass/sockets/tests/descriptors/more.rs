//! Numbers that the program closes or duplicates, and options that the library refuses.

use std::fs;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Instant;
use std::{io, ptr};

use super::{LONG, check, is_rdma, listen, pair, preloaded, reuse};

/// The error number of a call, which must fail.
fn failure(result: isize) -> Option<i32> {
    assert_eq!(result, -1);
    io::Error::last_os_error().raw_os_error()
}

#[test]
fn what_a_stream_cannot_do_is_refused() {
    preloaded("more::what_a_stream_cannot_do_is_refused", || {
        let [client, server] = pair();
        let fd = client.as_raw_fd();
        let one = 1_i32;
        let (value, length) = (ptr::from_ref(&one).cast(), size_of::<i32>() as u32);
        // SAFETY: the values have their lengths.
        unsafe {
            let sent = libc::send(fd, b"!".as_ptr().cast(), 1, libc::MSG_OOB);
            assert_eq!(failure(sent), Some(libc::EOPNOTSUPP));
            for name in [libc::SO_ZEROCOPY, libc::SO_TIMESTAMPING] {
                let set = libc::setsockopt(fd, libc::SOL_SOCKET, name, value, length);
                assert_eq!(failure(set as isize), Some(libc::EOPNOTSUPP));
            }
        }
        check([&client, &server]);
        // A socket that has such an option before uses TCP.
        let (listener, client) = (listen(), super::socket());
        // SAFETY: as above.
        let set = unsafe { libc::setsockopt(client.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ZEROCOPY, value, length) };
        assert_eq!(set, 0);
        super::call(libc::connect, &client, listener.local_addr().unwrap().port());
        assert!(!is_rdma(&client));
    });
}

#[test]
fn an_epoll_that_was_closed_gets_no_listener() {
    preloaded("more::an_epoll_that_was_closed_gets_no_listener", || {
        let [first, second] = reuse();
        assert_eq!(super::poll(&first, libc::POLLIN, 0), 0);
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        // SAFETY: only the owners close the epolls, and the events are variables.
        let epoll = unsafe {
            let closed = OwnedFd::from_raw_fd(libc::epoll_create1(libc::EPOLL_CLOEXEC));
            let (add, number) = (libc::EPOLL_CTL_ADD, closed.as_raw_fd());
            assert_eq!(libc::epoll_ctl(number, add, second.as_raw_fd(), &raw mut event), 0);
            drop(closed);
            let epoll = OwnedFd::from_raw_fd(libc::epoll_create1(libc::EPOLL_CLOEXEC));
            // The number is that of another epoll.
            assert_eq!(epoll.as_raw_fd(), number);
            epoll
        };
        drop(first);
        let begin = Instant::now();
        loop {
            let client = TcpStream::connect(second.local_addr().unwrap()).unwrap();
            assert_eq!(super::poll(&second, libc::POLLIN, LONG), libc::POLLIN);
            if is_rdma(&client) {
                break;
            }
            second.accept().unwrap();
            assert!(begin.elapsed().as_millis() < LONG as u128, "TCP only");
        }
        // SAFETY: there is space for one event.
        assert_eq!(unsafe { libc::epoll_wait(epoll.as_raw_fd(), &raw mut event, 1, 0) }, 0);
    });
}

#[test]
fn standard_numbers_are_the_programs() {
    preloaded("more::standard_numbers_are_the_programs", || {
        // SAFETY: the numbers get their files back below.
        let kept = [0, 1].map(|fd| unsafe { (fd, libc::fcntl(fd, libc::F_DUPFD, 3), libc::close(fd)) });
        let [client, server] = pair();
        check([&client, &server]);
        let link = |fd: i32| fs::read_link(format!("/proc/self/fd/{fd}"));
        let numbers = [client.as_raw_fd(), server.as_raw_fd()];
        let found = [0, 1].map(|fd| link(fd).ok().filter(|_| !numbers.contains(&fd)));
        drop([client, server]);
        for (fd, copy, _) in kept {
            // SAFETY: calls with numbers.
            assert_eq!(unsafe { libc::dup2(copy, fd) }, fd);
        }
        assert_eq!(found, [None, None]);
    });
}
