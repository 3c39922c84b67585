//! Single properties of TCP sockets, in a program of `std::net` and the C library. The same program runs with the kernel's
//! TCP, which is the model, and with the library preloaded.
#![expect(clippy::unwrap_used, reason = "a test")]

#[path = "calls/ends.rs"]
mod ends;
#[path = "calls/events.rs"]
mod events;

use std::env;
use std::ffi::{c_int, c_void};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The names of these variables are for the program: which property, and where a second program connects.
const PROPERTY: &str = "TRESPASS_SOCKETS_TEST_PROPERTY";
const PEER: &str = "TRESPASS_SOCKETS_TEST_PEER";
/// A time limit, in milliseconds, that only a lost event reaches.
const LONG: c_int = 60_000;
/// Longer than the default linger time of a connection.
const LATE: Duration = Duration::from_secs(11);

fn listener() -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // The first wait makes the acceptor for RDMA.
    assert_eq!(poll(&listener, libc::POLLIN, 0), 0);
    listener
}

fn pair() -> [TcpStream; 2] {
    let listener = listener();
    let first = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    [first, listener.accept().unwrap().0]
}

/// Returns the events that `poll` reports.
fn poll(socket: &impl AsRawFd, events: i16, time: c_int) -> i16 {
    let mut fds = libc::pollfd { fd: socket.as_raw_fd(), events, revents: 0 };
    // SAFETY: one element.
    assert!(unsafe { libc::poll(&raw mut fds, 1, time) } >= 0);
    fds.revents
}

fn send(socket: &impl AsRawFd, bytes: &[u8], flags: c_int) -> isize {
    // SAFETY: the bytes are a slice.
    unsafe { libc::send(socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags | libc::MSG_NOSIGNAL) }
}

fn receive(fd: c_int, bytes: &mut [u8], flags: c_int) -> isize {
    // SAFETY: the bytes are a slice.
    unsafe { libc::recv(fd, bytes.as_mut_ptr().cast(), bytes.len(), flags) }
}

fn error() -> ErrorKind {
    std::io::Error::last_os_error().kind()
}

/// Writes until nothing more fits, also not after a pause. Returns how much was written.
fn fill(socket: &TcpStream) -> usize {
    let bytes = vec![b'x'; 64 << 10];
    let mut count = 0;
    while poll(socket, libc::POLLOUT, 200) != 0 {
        while let Ok(sent) = usize::try_from(send(socket, &bytes, libc::MSG_DONTWAIT)) {
            count += sent;
        }
        assert_eq!(error(), ErrorKind::WouldBlock);
    }
    count
}

/// Starts another process, which connects.
fn second(property: &str, listener: &TcpListener) -> (Child, TcpStream) {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "program", "--ignored", "--nocapture"]).env(PROPERTY, property);
    command.env(PEER, listener.local_addr().unwrap().to_string()).stdout(Stdio::null());
    let child = command.spawn().unwrap();
    (child, listener.accept().unwrap().0)
}

fn connect() -> TcpStream {
    TcpStream::connect(env::var(PEER).unwrap()).unwrap()
}

/// A thread that runs a call, with its number in the system.
fn start<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> (JoinHandle<T>, c_int) {
    let (sender, receiver): (_, Receiver<c_int>) = mpsc::channel();
    let thread = thread::spawn(move || {
        // SAFETY: has no preconditions.
        sender.send(unsafe { libc::gettid() }).unwrap();
        call()
    });
    (thread, receiver.recv().unwrap())
}

/// Waits until a thread sleeps in a call that receives.
fn until_it_sleeps(thread: c_int) {
    let call = format!("{} ", libc::SYS_recvfrom);
    while !fs::read_to_string(format!("/proc/self/task/{thread}/syscall")).unwrap().starts_with(&call) {
        thread::yield_now();
    }
}

fn late_reader_gets_all_bytes_after_a_close_and_an_exit() {
    let listener = listener();
    let [writer, mut first] = pair();
    let (mut child, mut second) = second("exit", &listener);
    let written = fill(&writer);
    drop(writer);
    thread::sleep(LATE);
    let mut bytes = Vec::new();
    first.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes.len(), written);
    bytes.clear();
    second.read_to_end(&mut bytes).unwrap();
    // The writer ends with how much it wrote.
    let (bytes, count) = bytes.split_at(bytes.len() - 8);
    assert_eq!(bytes.len() as u64, u64::from_ne_bytes(count.try_into().unwrap()));
    assert!(child.wait().unwrap().success());
}

fn exit() {
    let mut socket = connect();
    // Some room is left for the number.
    let bytes = vec![b'x'; 64 << 10];
    let mut count = 0_u64;
    while poll(&socket, libc::POLLOUT, 200) != 0 && count < 3 << 20 {
        count += u64::try_from(send(&socket, &bytes, libc::MSG_DONTWAIT)).unwrap();
    }
    socket.write_all(&count.to_ne_bytes()).unwrap();
}

fn number_of_a_closed_stream_is_left_alone() {
    let [reader, mut writer] = pair();
    let [own, mut other] = <[UnixStream; 2]>::from(UnixStream::pair().unwrap());
    other.write_all(b"precious").unwrap();
    let fd = reader.into_raw_fd();
    let (thread, number) = start(move || receive(fd, &mut [0; 10], 0));
    until_it_sleeps(number);
    // SAFETY: the thread closes the number at the end of this test, which is then that of another socket.
    unsafe {
        assert_eq!(libc::close(fd), 0);
        assert_eq!(libc::dup2(own.as_raw_fd(), fd), fd);
    }
    writer.write_all(b"z").unwrap();
    assert_eq!(thread.join().unwrap(), 1);
    assert_eq!(receive(fd, &mut [0; 20], libc::MSG_DONTWAIT), 8);
}

fn writable_stream_has_room() {
    let [writer, _reader] = pair();
    while poll(&writer, libc::POLLOUT, 200) != 0 {
        assert!(send(&writer, &[0; 4096], libc::MSG_DONTWAIT) > 0, "{}", error());
    }
}

fn end_and_failure_are_shown_to_a_program_that_only_waits() {
    let [waiter, ender] = pair();
    assert_eq!(poll(&waiter, libc::POLLRDHUP, 0), 0);
    ender.shutdown(Shutdown::Write).unwrap();
    assert_eq!(poll(&waiter, libc::POLLRDHUP, LONG), libc::POLLRDHUP);
    // A read of the last bytes shows the end too.
    let [mut reader, mut ender] = pair();
    ender.write_all(b"last").unwrap();
    ender.shutdown(Shutdown::Write).unwrap();
    assert_ne!(poll(&reader, libc::POLLIN, LONG), 0);
    reader.read_exact(&mut [0; 4]).unwrap();
    assert_eq!(poll(&reader, libc::POLLRDHUP, LONG), libc::POLLRDHUP);
    // A process that is killed sends no end of its own.
    let listener = listener();
    let (mut child, waiter) = second("wait", &listener);
    assert_eq!(poll(&waiter, libc::POLLRDHUP, 0), 0);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_ne!(poll(&waiter, libc::POLLRDHUP, LONG), 0);
}

fn wait() {
    assert_eq!(connect().read(&mut [0]).unwrap(), 0);
}

fn several_messages_and_vectors_arrive() {
    let [first, second] = pair();
    let mut bytes = [*b"some", *b"more"];
    let mut parts = bytes.each_mut().map(|bytes| libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: 4 });
    // SAFETY: zeros are a valid message.
    let mut list: [libc::mmsghdr; 2] = unsafe { std::mem::zeroed() };
    for (message, part) in list.iter_mut().zip(&mut parts) {
        (message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen) = (part, 1);
    }
    let lengths = |list: &[libc::mmsghdr; 2]| list.each_ref().map(|message| message.msg_len);
    // SAFETY: the messages have one part each, and the lists have two elements.
    unsafe {
        assert_eq!(libc::sendmmsg(first.as_raw_fd(), list.as_mut_ptr(), 2, 0), 2);
        assert_eq!(lengths(&list), [4, 4]);
        assert_eq!(libc::pwritev2(first.as_raw_fd(), parts.as_ptr(), 2, -1, 0), 8);
        assert_eq!(libc::pwritev2(first.as_raw_fd(), parts.as_ptr(), 2, 0, 0), -1);
    }
    assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::ESPIPE));
    bytes = [[0; 4]; 2];
    // SAFETY: as above.
    unsafe {
        assert_eq!(libc::recvmmsg(second.as_raw_fd(), list.as_mut_ptr(), 2, 0, ptr::null_mut()), 2);
    }
    assert_eq!((bytes, lengths(&list)), ([*b"some", *b"more"], [4, 4]));
    bytes = [[0; 4]; 2];
    // SAFETY: as above.
    assert_eq!(unsafe { libc::preadv2(second.as_raw_fd(), parts.as_ptr(), 2, -1, 0) }, 8);
    assert_eq!(bytes, [*b"some", *b"more"]);
    // SAFETY: as above.
    unsafe {
        let count = libc::recvmmsg(second.as_raw_fd(), list.as_mut_ptr(), 2, libc::MSG_DONTWAIT, ptr::null_mut());
        assert_eq!((count, error()), (-1, ErrorKind::WouldBlock));
    }
}

fn looks_wait_for_all_bytes_and_others_are_discarded() {
    let [reader, mut writer] = pair();
    let fd = reader.as_raw_fd();
    writer.write_all(b"abc").unwrap();
    let look = move || {
        let mut bytes = [0; 6];
        (receive(fd, &mut bytes, libc::MSG_PEEK | libc::MSG_WAITALL), bytes)
    };
    let (thread, number) = start(look);
    until_it_sleeps(number);
    writer.write_all(b"def").unwrap();
    assert_eq!(thread.join().unwrap(), (6, *b"abcdef"));
    // SAFETY: with this flag, the buffer is not used.
    let discarded = unsafe { libc::recv(fd, ptr::null_mut::<c_void>(), 4, libc::MSG_TRUNC) };
    assert_eq!(discarded, 4);
    // The end, and a time limit, end the wait.
    reader.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    assert_eq!(look(), (2, *b"ef\0\0\0\0"));
    assert_eq!(poll(&reader, libc::POLLIN, 0), libc::POLLIN);
    reader.set_read_timeout(None).unwrap();
    writer.shutdown(Shutdown::Write).unwrap();
    assert_eq!(look(), (2, *b"ef\0\0\0\0"));
    assert_eq!(receive(fd, &mut [0; 9], libc::MSG_WAITALL), 2);
    assert_eq!(look().0, 0);
}

fn closed_stream_reports_no_event() {
    let [writer, mut reader] = pair();
    // SAFETY: the event is a variable, and the descriptors are open.
    let epoll = unsafe {
        let epoll = libc::epoll_create1(libc::EPOLL_CLOEXEC);
        let mut event = libc::epoll_event { events: (libc::EPOLLIN | libc::EPOLLOUT) as u32, u64: 0 };
        assert_eq!(libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, writer.as_raw_fd(), &raw mut event), 0);
        epoll
    };
    let written = fill(&writer);
    // The connection lasts until the peer has read the bytes.
    drop(writer);
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes.len(), written);
    let mut event = libc::epoll_event { events: 0, u64: 0 };
    // SAFETY: there is space for one event.
    assert_eq!(unsafe { libc::epoll_wait(epoll, &raw mut event, 1, 0) }, 0);
}

static SIGNALS: AtomicU32 = AtomicU32::new(0);
static SOCKET: AtomicI32 = AtomicI32::new(0);

extern "C" fn handle(_: c_int) {
    SIGNALS.fetch_add(1, Ordering::Relaxed);
    let fd = SOCKET.load(Ordering::Relaxed);
    // SAFETY: sends a byte. The program sees no other error number than that of its own call.
    unsafe {
        let before = *libc::__errno_location();
        libc::send(fd, b"s".as_ptr().cast(), 1, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
        *libc::__errno_location() = before;
    }
}

fn signal_handler_may_use_a_stream() {
    let [writer, reader] = pair();
    SOCKET.store(writer.as_raw_fd(), Ordering::Relaxed);
    // SAFETY: the handler's calls hold no locks of the program.
    unsafe { libc::signal(libc::SIGALRM, handle as extern "C" fn(c_int) as usize) };
    // SAFETY: has no preconditions.
    let this = unsafe { libc::pthread_self() };
    let thread = thread::spawn(move || {
        while SIGNALS.load(Ordering::Relaxed) < 3000 {
            // SAFETY: the thread waits for this one.
            assert_eq!(unsafe { libc::pthread_kill(this, libc::SIGALRM) }, 0);
            thread::yield_now();
        }
    });
    while !thread.is_finished() {
        send(&writer, b"m", libc::MSG_DONTWAIT);
        receive(reader.as_raw_fd(), &mut [0; 4096], libc::MSG_DONTWAIT);
    }
    thread.join().unwrap();
}

/// The program, if this process is it.
#[test]
#[ignore = "the other tests run it in processes of its own"]
fn program() {
    match env::var(PROPERTY).unwrap().as_str() {
        "late" => late_reader_gets_all_bytes_after_a_close_and_an_exit(),
        "exit" => exit(),
        "number" => number_of_a_closed_stream_is_left_alone(),
        "room" => writable_stream_has_room(),
        "end" => end_and_failure_are_shown_to_a_program_that_only_waits(),
        "wait" => wait(),
        "several" => several_messages_and_vectors_arrive(),
        "look" => looks_wait_for_all_bytes_and_others_are_discarded(),
        "close" => closed_stream_reports_no_event(),
        "signal" => signal_handler_may_use_a_stream(),
        "listener" => ends::shut_listener_wakes_a_call(),
        "half" => ends::failed_write_leaves_reads_alone(),
        "shut" => ends::bytes_can_be_read_after_a_shutdown(),
        "unread" => ends::unread_bytes_make_an_error_for_the_peer(),
        "leaving" => ends::peer_of_a_process_that_exits_gets_the_end(),
        "leave" => ends::leave(),
        "stopped" => ends::connection_leaves_a_closed_number_alone(),
        "stop" => ends::stop(),
        "window" => ends::call_of_a_closed_number_gets_no_other_bytes(),
        "limit" => ends::time_limit_is_that_of_the_whole_call(),
        "restart" => ends::signal_restarts_accept(),
        "peek" => events::look_at_nothing_shows_nothing(),
        "edge" => events::arrival_after_a_part_was_read_makes_an_edge(),
        "async" => events::arrival_sends_a_signal(),
        "lists" => events::lists_are_checked(),
        "any" => events::any_address_is_that_of_this_host(),
        other => panic!("{other}"),
    }
}

fn run(property: &str) {
    let own = env::current_exe().unwrap();
    let library = own.with_file_name("libtrespass_sockets.so");
    assert!(library.is_file(), "{}", library.display());
    for is_preloaded in [false, true] {
        // A call that hangs fails the test.
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", "120"]).arg(&own).args(["--exact", "program", "--ignored", "--nocapture"]);
        command.env(PROPERTY, property).env("TRESPASS_SOCKETS_LOG", "1").env("SOFTRNIC_DEVICES", "soft0");
        if is_preloaded {
            command.env("LD_PRELOAD", &library);
        }
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{property} preloaded: {is_preloaded}\n{said}");
        assert_eq!(said.contains("over soft0"), is_preloaded, "{said}");
    }
}

macro_rules! properties {
    ($($name:ident: $property:literal;)*) => {$(
        #[test]
        fn $name() {
            run($property);
        }
    )*};
}

properties! {
    late_reader: "late";
    number_of_a_closed_stream: "number";
    writable_stream: "room";
    end_and_failure: "end";
    several_messages: "several";
    looks: "look";
    closed_stream: "close";
    signal_handler: "signal";
    shut_listener: "listener";
    failed_write: "half";
    shut_reader: "shut";
    unread_bytes: "unread";
    process_that_exits: "leaving";
    number_of_a_connection: "stopped";
    number_that_is_closed: "window";
    time_limit: "limit";
    signal_restarts: "restart";
    look_at_nothing: "peek";
    arrival_after_a_part: "edge";
    arrival_sends_a_signal: "async";
    lists: "lists";
    any_address: "any";
}
