//! What `poll`, `epoll` and signals show, and what calls refuse.

use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::atomic::Ordering;
use std::thread;

use super::{LONG, SIGNALS, error, listener, pair, poll, receive};

pub(super) fn look_at_nothing_shows_nothing() {
    let [reader, mut writer] = pair();
    reader.set_nonblocking(true).unwrap();
    let look = || (receive(reader.as_raw_fd(), &mut [0], libc::MSG_PEEK), error());
    assert_eq!(look(), (-1, ErrorKind::WouldBlock));
    assert_eq!(poll(&reader, libc::POLLIN, 0), 0);
    writer.write_all(b"x").unwrap();
    assert_eq!(poll(&reader, libc::POLLIN, LONG), libc::POLLIN);
    assert_eq!(look().0, 1);
    assert_eq!(poll(&reader, libc::POLLIN, 0), libc::POLLIN);
}

pub(super) fn arrival_after_a_part_was_read_makes_an_edge() {
    let [reader, mut writer] = pair();
    reader.set_nonblocking(true).unwrap();
    writer.set_nodelay(true).unwrap();
    let mut event = libc::epoll_event { events: (libc::EPOLLIN | libc::EPOLLET) as u32, u64: 0 };
    // SAFETY: the event is a variable, and the descriptors are open.
    unsafe {
        let epoll = libc::epoll_create1(libc::EPOLL_CLOEXEC);
        assert_eq!(libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, reader.as_raw_fd(), &raw mut event), 0);
        for turn in 0..1000 {
            writer.write_all(b"0123456789").unwrap();
            assert_eq!(libc::epoll_wait(epoll, &raw mut event, 1, LONG), 1, "an edge is lost");
            // The peer may send a part of a hundred messages ahead.
            let mut bytes = [0; 1000];
            let most = if turn % 16 == 0 { 1000 } else { 4 };
            assert!(receive(reader.as_raw_fd(), &mut bytes[..most], 0) >= 4);
            // A call that reads nothing takes no edge either.
            while libc::epoll_wait(epoll, &raw mut event, 1, 0) != 0 {}
        }
    }
}

pub(super) fn arrival_sends_a_signal() {
    extern "C" fn handle(_: i32) {
        SIGNALS.fetch_add(1, Ordering::Relaxed);
    }
    let [reader, mut writer] = pair();
    // SAFETY: the handler counts, and the other calls take numbers.
    unsafe {
        libc::signal(libc::SIGIO, handle as extern "C" fn(i32) as usize);
        assert_eq!(libc::fcntl(reader.as_raw_fd(), libc::F_SETOWN, libc::getpid()), 0);
        assert_eq!(libc::fcntl(reader.as_raw_fd(), libc::F_SETFL, libc::O_ASYNC), 0);
    }
    writer.write_all(b"x").unwrap();
    while SIGNALS.load(Ordering::Relaxed) == 0 {
        thread::yield_now();
    }
}

pub(super) fn lists_are_checked() {
    let [first, second] = pair();
    let fd = first.as_raw_fd();
    let mut byte = *b"x";
    let part = |base: *mut u8, length| libc::iovec { iov_base: base.cast(), iov_len: length };
    let number = || std::io::Error::last_os_error().raw_os_error().unwrap();
    // SAFETY: the system refuses the lists that are wrong.
    unsafe {
        let parts = [part(ptr::null_mut(), 0), part(byte.as_mut_ptr(), 1)];
        assert_eq!(libc::writev(fd, parts.as_ptr(), 2), 1);
        assert_eq!(libc::readv(second.as_raw_fd(), parts.as_ptr(), 2), 1);
        let wrong = [part(byte.as_mut_ptr(), usize::MAX)];
        assert_eq!((libc::writev(fd, wrong.as_ptr(), 1), number()), (-1, libc::EINVAL));
        assert_eq!((libc::readv(fd, wrong.as_ptr(), 1), number()), (-1, libc::EINVAL));
        assert_eq!((libc::writev(fd, parts.as_ptr(), -1), number()), (-1, libc::EINVAL));
        assert_eq!((libc::writev(fd, ptr::null(), 1), number()), (-1, libc::EFAULT));
        let wrong = [part(ptr::null_mut(), 1)];
        assert_eq!((libc::writev(fd, wrong.as_ptr(), 1), number()), (-1, libc::EFAULT));
        let mut many = vec![part(byte.as_mut_ptr(), 1); 1025];
        let mut message: libc::msghdr = std::mem::zeroed();
        (message.msg_iov, message.msg_iovlen) = (many.as_mut_ptr(), many.len());
        assert_eq!((libc::sendmsg(fd, &raw const message, 0), number()), (-1, libc::EMSGSIZE));
        let mut fds = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        assert_eq!((libc::poll(&raw mut fds, libc::nfds_t::MAX, 0), number()), (-1, libc::EINVAL));
        let listener = listener();
        let accepted = libc::accept4(listener.as_raw_fd(), ptr::null_mut(), ptr::null_mut(), 1);
        assert_eq!((accepted, number()), (-1, libc::EINVAL));
    }
}

pub(super) fn any_address_is_that_of_this_host() {
    let listener = listener();
    let port = listener.local_addr().unwrap().port();
    let client = TcpStream::connect(("0.0.0.0", port)).unwrap();
    assert_eq!(client.peer_addr().unwrap(), listener.local_addr().unwrap());
    // The request returns the address of an interface.
    // SAFETY: zeros are a valid value, the name fits, and the request stores an address.
    unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[..2].copy_from_slice(&[b'l' as i8, b'o' as i8]);
        assert_eq!(libc::ioctl(client.as_raw_fd(), libc::SIOCGIFADDR as _, &raw mut request), 0);
    }
}
