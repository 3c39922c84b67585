//! What the library does with descriptors, in processes with the library preloaded: each test starts itself as one.
#![expect(clippy::unwrap_used, reason = "a test")]

#[path = "descriptors/more.rs"]
mod more;

use std::env;
use std::ffi::{c_int, c_ulong, c_void};
use std::fs::File;
use std::io::{Error, ErrorKind, Read, Seek, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;
use std::time::{Duration, Instant};

/// The name of this variable is for the program; its value has no meaning.
const IS_PROGRAM: &str = "TRESPASS_SOCKETS_TEST_PROGRAM";

/// A time limit, in milliseconds, that only a lost event reaches.
const LONG: c_int = 60_000;

/// Runs the program of a test with the library preloaded. Returns what it printed; nothing in the program.
fn preloaded(name: &str, program: impl FnOnce()) -> Option<String> {
    preloaded_on("soft0", name, program)
}

/// Runs the program of a test with devices in software.
fn preloaded_on(devices: &str, name: &str, program: impl FnOnce()) -> Option<String> {
    if env::var_os(IS_PROGRAM).is_some() {
        program();
        return None;
    }
    let own = env::current_exe().unwrap();
    let library = own.with_file_name("libtrespass_sockets.so");
    assert!(library.is_file(), "{}", library.display());
    let mut command = Command::new(&own);
    command.args(["--exact", name, "--nocapture"]).env(IS_PROGRAM, "").env("LD_PRELOAD", &library);
    let output = command.env("TRESPASS_SOCKETS_LOG", "1").env("SOFTRNIC_DEVICES", devices).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && printed.contains("1 passed"), "{name}: {printed}");
    Some(printed)
}

/// A listener at which RDMA connections arrive.
fn listen() -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    assert_eq!(poll(&listener, libc::POLLIN, 0), 0);
    listener
}

/// Returns the events of a descriptor.
fn poll(socket: &impl AsRawFd, events: i16, time: c_int) -> i16 {
    let mut fds = libc::pollfd { fd: socket.as_raw_fd(), events, revents: 0 };
    // SAFETY: one element.
    assert!(unsafe { libc::poll(&raw mut fds, 1, time) } >= 0);
    fds.revents
}

/// Both ends of a connection over RDMA.
fn pair() -> [TcpStream; 2] {
    let listener = listen();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    [client, listener.accept().unwrap().0]
}

/// A new socket.
fn socket() -> OwnedFd {
    // SAFETY: only the owner closes the descriptor.
    unsafe { OwnedFd::from_raw_fd(libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0)) }
}

/// Calls `bind` or `connect` with a port of this host.
fn call(
    function: unsafe extern "C" fn(c_int, *const libc::sockaddr, libc::socklen_t) -> c_int,
    socket: &impl AsRawFd,
    port: u16,
) {
    let address = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes([127, 0, 0, 1]) },
        sin_zero: [0; 8],
    };
    let length = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the address has its length.
    assert_eq!(unsafe { function(socket.as_raw_fd(), ptr::from_ref(&address).cast(), length) }, 0);
}

/// Checks that a connection carries bytes.
fn check([mut from, mut to]: [&TcpStream; 2]) {
    let mut bytes = [0; 5];
    from.write_all(b"bytes").unwrap();
    to.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"bytes");
}

#[test]
fn select_leaves_memory_after_small_sets_alone() {
    preloaded("select_leaves_memory_after_small_sets_alone", || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let number = listener.as_raw_fd();
        // The acceptor gets a number that the program's sets have no word for.
        let between: Vec<_> = (0..200).map(|_| File::open("/dev/null").unwrap()).collect();
        assert!((number as u32) < c_ulong::BITS && between.last().unwrap().as_raw_fd() as u32 > c_ulong::BITS);
        let set = [1 << number, c_ulong::MAX, c_ulong::MAX, c_ulong::MAX, c_ulong::MAX];
        for expected in [0, 1] {
            let client = (expected == 1).then(|| TcpStream::connect(listener.local_addr().unwrap()).unwrap());
            // The second set has the listener too, which is never writable.
            let mut sets = [set; 3];
            let mut time = libc::timeval { tv_sec: 60 * expected, tv_usec: 0 };
            let [read, write, except] = sets.each_mut().map(|set| ptr::from_mut(set).cast());
            // SAFETY: the sets have bits for the descriptors.
            let count = unsafe { libc::select(number + 1, read, write, except, &raw mut time) };
            assert_eq!(i64::from(count), expected);
            assert_eq!(sets.map(|set| set[0]), [(expected as c_ulong) << number, 0, 0]);
            assert!(sets.iter().all(|found| found[1..] == set[1..]), "{sets:x?}");
            drop(client);
        }
    });
}

/// The acceptor has a number below the largest that the program asks for, and none of the program's.
#[test]
fn select_reports_only_numbers_of_the_program() {
    preloaded("select_reports_only_numbers_of_the_program", || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let number = listener.as_raw_fd();
        let wait = |count: c_int, asked: &[c_int]| {
            // A program may pass more bits than its sets have, if it has no such descriptors.
            let mut set = [0 as c_ulong; 16];
            asked.iter().for_each(|fd| set[*fd as usize / 64] |= 1 << (fd % 64));
            let mut time = libc::timeval { tv_sec: 60, tv_usec: 0 };
            // SAFETY: the set has bits for all descriptors of the process.
            let ready = unsafe {
                libc::select(count, ptr::from_mut(&mut set).cast(), ptr::null_mut(), ptr::null_mut(), &raw mut time)
            };
            let found = (0..1024).filter(|fd| set[*fd as usize / 64] >> (fd % 64) & 1 != 0).collect::<Vec<c_int>>();
            (ready, found)
        };
        // The first call makes the acceptor.
        let first = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert_eq!(wait(number + 1, &[number]), (1, vec![number]));
        let (server, _) = listener.accept().unwrap();
        let above = (0..300).map(|_| File::open("/dev/null").unwrap()).collect::<Vec<_>>();
        let last = above.last().unwrap().as_raw_fd();
        let _second = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        for count in [last + 1, 1 << 20] {
            assert_eq!(wait(count, &[number, server.as_raw_fd(), last]), (2, vec![number, last]));
        }
        drop(first);
    });
}

#[test]
fn what_a_file_of_c_holds_is_flushed() {
    preloaded("what_a_file_of_c_holds_is_flushed", || {
        let [client, server] = pair();
        let number = client.as_raw_fd();
        // SAFETY: the number is a stream, and the mode is a string.
        let file = unsafe { libc::fdopen(number, c"w".as_ptr()) };
        assert!(!file.is_null());
        // SAFETY: the file is open.
        assert_eq!(unsafe { libc::fputs(c"held".as_ptr(), file) }, 1);
        // SAFETY: as above; nothing was read, and there is no position.
        assert_eq!(unsafe { libc::fseek(file, 0, libc::SEEK_CUR) }, -1);
        let reader = std::thread::spawn(move || {
            let mut text = [0; 4];
            (&server).read_exact(&mut text).map(|()| text)
        });
        // SAFETY: all files are flushed, as at exit.
        assert_eq!(unsafe { libc::fflush(ptr::null_mut()) }, 0);
        assert_eq!(&reader.join().unwrap().unwrap(), b"held");
        std::mem::forget(client);
    });
}

#[test]
fn a_number_that_was_closed_elsewhere_is_not_the_stream() {
    preloaded("a_number_that_was_closed_elsewhere_is_not_the_stream", || {
        let [client, server] = pair();
        let number = client.into_raw_fd();
        // SAFETY: nothing else closes the descriptor.
        unsafe { libc::syscall(libc::SYS_close, number) };
        // SAFETY: only the owners close the descriptors.
        let open = || unsafe { File::from_raw_fd(libc::memfd_create(c"file".as_ptr(), 0)) };
        let files: Vec<_> = (0..=number).map(|_| open()).collect();
        let mut file = files.into_iter().find(|file| file.as_raw_fd() == number).unwrap();
        file.write_all(b"secret").unwrap();
        file.rewind().unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "secret");
        drop(file);
        server.set_read_timeout(Some(Duration::from_millis(LONG as u64))).unwrap();
        assert_eq!((&server).read(&mut [0; 9]).unwrap(), 0, "the end");
    });
}

#[test]
fn a_child_that_borrows_the_memory_leaves_the_numbers_alone() {
    /// What the child does: `dup2` with two numbers.
    extern "C" fn child(numbers: *mut c_void) -> c_int {
        // SAFETY: the parent passes an array.
        let [from, to] = unsafe { *numbers.cast::<[c_int; 2]>() };
        // SAFETY: both are descriptors of the child.
        unsafe { libc::_exit(c_int::from(libc::dup2(from, to) != to)) }
    }
    preloaded("a_child_that_borrows_the_memory_leaves_the_numbers_alone", || {
        let [client, server] = pair();
        let mut zero = File::open("/dev/zero").unwrap();
        let mut numbers = [client.as_raw_fd(), zero.as_raw_fd()];
        let mut stack = vec![0_u128; 8192];
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        // SAFETY: the child ends before the stack, whose upper end it gets.
        unsafe {
            let top = stack.as_mut_ptr_range().end.cast();
            let id = libc::clone(child, top, flags, ptr::from_mut(&mut numbers).cast());
            let mut status = -1;
            assert_eq!((libc::waitpid(id, &raw mut status, 0), status), (id, 0));
        }
        (&server).write_all(b"bytes").unwrap();
        let mut bytes = [1; 5];
        zero.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes, [0; 5]);
        check([&client, &server]);
    });
}

#[test]
fn children_cannot_write_to_a_stream() {
    preloaded("children_cannot_write_to_a_stream", || {
        let [client, mut server] = pair();
        let number = client.as_raw_fd();
        let fails = |command: &mut Command| assert!(!command.status().unwrap().success(), "{command:?}");
        // The C library duplicates.
        fails(Command::new("sh").args(["-c", "echo lost"]).stdout(OwnedFd::from(client.try_clone().unwrap())));
        let child = |text: &str, before: fn(c_int)| {
            let mut command = Command::new("sh");
            command.args(["-c", text]);
            let prepare = move || {
                before(number);
                Ok(())
            };
            // SAFETY: the calls are allowed between fork and exec.
            unsafe { command.pre_exec(prepare) };
            command
        };
        // SAFETY: a call with numbers.
        fails(&mut child("echo lost", |number| assert!(unsafe { libc::dup2(number, 1) } == 1)));
        // SAFETY: calls with numbers.
        fails(&mut child(&format!("test -e /proc/self/fd/{number}"), |number| unsafe {
            libc::ioctl(number, libc::FIONCLEX);
            libc::fcntl(number, libc::F_SETFD, 0);
        }));
        // SAFETY: calls with numbers, and the bytes are an array.
        let mut child = child("true", |number| unsafe {
            for copy in [libc::dup(number), libc::fcntl(number, libc::F_DUPFD, 0), number] {
                assert!(copy >= 0 && libc::write(copy, [0; 4].as_ptr().cast(), 4) == -1);
                assert_eq!(Error::last_os_error().raw_os_error(), Some(libc::EIO));
            }
        });
        assert!(child.status().unwrap().success());
        check([&client, &server]);
        drop(client);
        assert_eq!(server.read(&mut [0; 9]).unwrap(), 0, "the end");
    });
}

#[test]
fn a_listener_that_an_epoll_watches_before_it_listens_gets_events() {
    preloaded("a_listener_that_an_epoll_watches_before_it_listens_gets_events", || {
        let listener = socket();
        call(libc::bind, &listener, 0);
        let listener = TcpListener::from(listener);
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        // SAFETY: only the owner closes the epoll, and the events are variables.
        unsafe {
            let epoll = OwnedFd::from_raw_fd(libc::epoll_create1(libc::EPOLL_CLOEXEC));
            let add = libc::EPOLL_CTL_ADD;
            assert_eq!(libc::epoll_ctl(epoll.as_raw_fd(), add, listener.as_raw_fd(), &raw mut event), 0);
            assert_eq!(libc::listen(listener.as_raw_fd(), 5), 0);
            listener.set_nonblocking(true).unwrap();
            assert!(listener.accept().is_err());
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            assert_eq!(libc::epoll_wait(epoll.as_raw_fd(), &raw mut event, 1, LONG), 1);
            let (server, _) = listener.accept().unwrap();
            server.set_nonblocking(false).unwrap();
            check([&client, &server]);
        }
    });
}

#[test]
fn both_numbers_of_a_socket_are_connected() {
    preloaded("both_numbers_of_a_socket_are_connected", || {
        let listener = listen();
        let address = listener.local_addr().unwrap();
        let first = socket();
        let second = first.try_clone().unwrap();
        call(libc::connect, &first, address.port());
        let [first, second] = [first, second].map(TcpStream::from);
        let (server, _) = listener.accept().unwrap();
        check([&first, &server]);
        check([&second, &server]);
    });
}

/// Whether a connection uses RDMA: its descriptor is not a TCP socket for the system.
fn is_rdma(socket: &impl AsRawFd) -> bool {
    let (mut value, mut length) = (0, size_of::<c_int>());
    let (place, space) = (ptr::from_mut::<c_int>(&mut value), ptr::from_mut(&mut length));
    // SAFETY: the value has space for the length.
    let call = unsafe {
        libc::syscall(libc::SYS_getsockopt, socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_DOMAIN, place, space)
    };
    call == 0 && value == libc::AF_UNIX
}

#[test]
fn a_listener_that_was_shut_down_refuses() {
    preloaded("a_listener_that_was_shut_down_refuses", || {
        let listener = listen();
        let address = listener.local_addr().unwrap();
        // SAFETY: a call with numbers.
        assert_eq!(unsafe { libc::shutdown(listener.as_raw_fd(), libc::SHUT_RDWR) }, 0);
        assert_eq!(TcpStream::connect(address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        assert!(listener.accept().is_err());
    });
}

#[test]
fn a_connection_waits_until_there_are_descriptors() {
    preloaded("a_connection_waits_until_there_are_descriptors", || {
        let listener = listen();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert_eq!(poll(&listener, libc::POLLIN, LONG), libc::POLLIN);
        let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the limits are variables.
        let error = unsafe {
            assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut before), 0);
            let none = libc::rlimit { rlim_cur: 3, ..before };
            assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const none), 0);
            let error = listener.accept().unwrap_err();
            assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const before), 0);
            error
        };
        assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
        let (server, _) = listener.accept().unwrap();
        assert!(is_rdma(&client) && is_rdma(&server));
        check([&client, &server]);
    });
}

/// Two listeners at one port.
fn reuse() -> [TcpListener; 2] {
    let mut port = 0;
    [(), ()].map(|()| {
        let socket = socket();
        let one: c_int = 1;
        let value = ptr::from_ref(&one).cast();
        let length = size_of::<c_int>() as libc::socklen_t;
        // SAFETY: the value has its length.
        unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_REUSEPORT, value, length) };
        call(libc::bind, &socket, port);
        // SAFETY: a call with numbers.
        assert_eq!(unsafe { libc::listen(socket.as_raw_fd(), 5) }, 0);
        let listener = TcpListener::from(socket);
        port = listener.local_addr().unwrap().port();
        listener
    })
}

#[test]
fn a_listener_gets_its_port_when_another_ends() {
    preloaded("a_listener_gets_its_port_when_another_ends", || {
        let [first, second] = reuse();
        assert_eq!(poll(&first, libc::POLLIN, 0), 0);
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        // SAFETY: only the owner closes the epoll.
        let epoll = unsafe { OwnedFd::from_raw_fd(libc::epoll_create1(libc::EPOLL_CLOEXEC)) };
        let add = libc::EPOLL_CTL_ADD;
        // SAFETY: the event is a variable.
        assert_eq!(unsafe { libc::epoll_ctl(epoll.as_raw_fd(), add, second.as_raw_fd(), &raw mut event) }, 0);
        drop(first);
        let begin = Instant::now();
        loop {
            let client = TcpStream::connect(second.local_addr().unwrap()).unwrap();
            // SAFETY: there is space for one event.
            assert_eq!(unsafe { libc::epoll_wait(epoll.as_raw_fd(), &raw mut event, 1, LONG) }, 1);
            let (server, _) = second.accept().unwrap();
            check([&client, &server]);
            if is_rdma(&client) {
                return;
            }
            assert!(begin.elapsed().as_millis() < LONG as u128, "TCP only");
        }
    });
}

#[test]
fn a_server_of_tcp_is_asked_once() {
    let printed = preloaded("a_server_of_tcp_is_asked_once", || {
        // Nothing waits for connections, so there is no acceptor.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        for _ in 0..2 {
            assert!(!is_rdma(&TcpStream::connect(listener.local_addr().unwrap()).unwrap()));
        }
    });
    assert!(printed.is_none_or(|printed| printed.contains("over TCP: the server used TCP only before")));
}

#[test]
fn sockets_of_a_device_use_tcp() {
    preloaded("sockets_of_a_device_use_tcp", || {
        let listener = listen();
        let client = socket();
        let (name, length) = (c"lo", 3);
        // SAFETY: the name has its length.
        let bound = unsafe {
            let option = libc::SO_BINDTODEVICE;
            libc::setsockopt(client.as_raw_fd(), libc::SOL_SOCKET, option, name.as_ptr().cast(), length)
        };
        assert_eq!(bound, 0);
        call(libc::connect, &client, listener.local_addr().unwrap().port());
        assert!(!is_rdma(&client));
    });
}

#[test]
fn iwarp_does_not_call_at_ports_of_tcp() {
    for devices in ["softiw0", "softiw0,soft0"] {
        let printed = preloaded_on(devices, "iwarp_does_not_call_at_ports_of_tcp", || {
            let listener = listen();
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (server, _) = listener.accept().unwrap();
            check([&client, &server]);
        });
        let has_iwarp = |printed: &String| printed.contains("softiw0 port");
        assert!(
            printed.is_none_or(
                |printed| !has_iwarp(&printed) && printed.contains("iWARP") != printed.contains("over soft0")
            )
        );
    }
}

#[test]
fn files_of_c_read_and_write_streams() {
    preloaded("files_of_c_read_and_write_streams", || {
        let [client, mut server] = pair();
        server.write_all(b"a line\n").unwrap();
        let mut line = [0; 8];
        // SAFETY: the file owns the descriptor, and the texts are long enough.
        unsafe {
            let file = libc::fdopen(client.into_raw_fd(), c"r+".as_ptr());
            assert!(!libc::fgets(line.as_mut_ptr().cast(), 8, file).is_null());
            assert!(libc::fputs(c"another".as_ptr(), file) >= 0);
            assert_eq!(libc::fclose(file), 0);
        }
        assert_eq!(&line, b"a line\n\0");
        let mut text = String::new();
        server.read_to_string(&mut text).unwrap();
        assert_eq!(text, "another");
        // A file that exists before would not notice the stream.
        let (listener, client) = (listen(), socket());
        // SAFETY: nothing else uses the file.
        assert!(unsafe { !libc::fdopen(client.as_raw_fd(), c"r".as_ptr()).is_null() });
        call(libc::connect, &client, listener.local_addr().unwrap().port());
        assert!(!is_rdma(&client));
    });
}
