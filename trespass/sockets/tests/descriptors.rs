//! What the library does with descriptors, in processes with the library preloaded: each test starts itself as one.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::env;
use std::ffi::{c_int, c_ulong};
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::ptr;

/// The name of this variable is for the program; its value has no meaning.
const IS_PROGRAM: &str = "TRESPASS_SOCKETS_TEST_PROGRAM";

/// Runs the program of a test with the library preloaded.
fn preloaded(name: &str, program: impl FnOnce()) {
    if env::var_os(IS_PROGRAM).is_some() {
        return program();
    }
    let own = env::current_exe().unwrap();
    let library = own.with_file_name("libtrespass_sockets.so");
    assert!(library.is_file(), "{}", library.display());
    let mut command = Command::new(&own);
    command.args(["--exact", name, "--nocapture"]).env(IS_PROGRAM, "").env("LD_PRELOAD", &library);
    let output = command.env("TRESPASS_SOCKETS_LOG", "1").env("SOFTRNIC_DEVICES", "soft0").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
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

#[test]
fn select_leaves_memory_behind_small_sets_alone() {
    preloaded("select_leaves_memory_behind_small_sets_alone", || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let number = listener.as_raw_fd();
        // The acceptor gets a number that the program's sets have no word for.
        let between: Vec<_> = (0..200).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
        assert!((number as u32) < c_ulong::BITS && between.last().unwrap().as_raw_fd() as u32 > c_ulong::BITS);
        let set = [1 << number, c_ulong::MAX, c_ulong::MAX, c_ulong::MAX, c_ulong::MAX];
        for expected in [0, 1] {
            let client = (expected == 1).then(|| std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap());
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
