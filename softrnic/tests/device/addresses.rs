//! Tests changes of the host's addresses while a device is open. The test runs in a network namespace of its own.

use std::env;
use std::mem::zeroed;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::open;
use rdma_mummy_sys::*;

/// Name of the environment variable that is set in the child process of the test below.
const ROLE: &str = "SOFTRNIC_TEST_ADDRESSES";
const LONG: Duration = Duration::from_secs(60);

/// Sets the address or flags of an interface.
fn configure(interface: &str, change: impl FnOnce(&mut libc::ifreq) -> libc::Ioctl) {
    // SAFETY: zeros are valid for the request, whose name ends with a zero byte; this function owns the socket.
    unsafe {
        let mut request: libc::ifreq = zeroed();
        for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
            *to = from as _;
        }
        let number = change(&mut request);
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        let result = libc::ioctl(socket, number, &raw mut request);
        assert_eq!(result, 0, "{interface}: {}", std::io::Error::last_os_error());
        libc::close(socket);
    }
}

fn set_up(interface: &str, is_up: bool) {
    configure(interface, |request| {
        request.ifr_ifru.ifru_flags = if is_up { libc::IFF_UP as i16 } else { 0 };
        libc::SIOCSIFFLAGS
    });
}

fn set_address(interface: &str, address: [u8; 4]) {
    configure(interface, |request| {
        // SAFETY: zeros are valid, and the struct fits into the union.
        unsafe {
            let mut socket: libc::sockaddr_in = zeroed();
            socket.sin_family = libc::AF_INET as u16;
            socket.sin_addr.s_addr = u32::from_ne_bytes(address);
            (&raw mut request.ifr_ifru.ifru_addr).cast::<libc::sockaddr_in>().write(socket);
        }
        libc::SIOCSIFADDR
    });
}

fn is_readable(context: *mut ibv_context, milliseconds: i32) -> bool {
    // SAFETY: the context is open, and there is one descriptor.
    unsafe {
        let mut poll = libc::pollfd { fd: (*context).async_fd, events: libc::POLLIN, revents: 0 };
        libc::poll(&raw mut poll, 1, milliseconds) == 1
    }
}

/// Takes an event that reports a change of the GIDs. Returns whether there was one.
fn take(context: *mut ibv_context) -> bool {
    // SAFETY: the context is open, and the event is writable.
    unsafe {
        let mut event: ibv_async_event = zeroed();
        if ibv_get_async_event(context, &raw mut event) != 0 {
            assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EAGAIN));
            return false;
        }
        assert_eq!((event.event_type, event.element.port_num), (ibv_event_type::IBV_EVENT_GID_CHANGE, 1));
        ibv_ack_async_event(&raw mut event);
        true
    }
}

fn has(context: *mut ibv_context, address: [u8; 4]) -> bool {
    // SAFETY: the context is open, and the entries are writable.
    unsafe {
        let mut entries: [ibv_gid_entry; 256] = zeroed();
        let count = ibv_query_gid_table(context, entries.as_mut_ptr(), entries.len(), 0);
        entries[..count as usize].iter().any(|entry| entry.gid.raw[10..] == [&[0xff, 0xff], &address[..]].concat())
    }
}

/// Waits for events until the table contains the address. If `is_there` is not set, waits until the table no longer
/// contains it.
fn until(context: *mut ibv_context, address: [u8; 4], is_there: bool) {
    let started = Instant::now();
    loop {
        assert!(started.elapsed() < LONG && is_readable(context, LONG.as_millis() as i32), "no event");
        take(context);
        if has(context, address) == is_there {
            return;
        }
    }
}

#[test]
fn address_change_raises_an_event() {
    if env::var_os(ROLE).is_none() {
        let mut command = Command::new(env::current_exe().expect("this program has a path"));
        command.args(["--exact", "addresses::address_change_raises_an_event", "--nocapture"]).env(ROLE, "1");
        // SAFETY: `getuid` has no preconditions.
        let map = format!("0 {} 1", unsafe { libc::getuid() });
        // SAFETY: the closure makes only system calls.
        unsafe {
            command.pre_exec(move || {
                // Without privileges, a process can create a network namespace only in a new user namespace.
                if libc::unshare(libc::CLONE_NEWNET) == 0 {
                    return Ok(());
                }
                if libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET) != 0 {
                    return Err(std::io::Error::last_os_error());
                }
                let file = libc::open(c"/proc/self/uid_map".as_ptr(), libc::O_WRONLY);
                match libc::write(file, map.as_ptr().cast(), map.len()) {
                    ..0 => Err(std::io::Error::last_os_error()),
                    _ => Ok(()),
                }
            })
        };
        match command.status() {
            Ok(status) => assert!(status.success(), "{status}"),
            Err(error) => println!("DID NOT RUN: cannot create a network namespace: {error}"),
        }
        return;
    }
    let contexts = [open(c"soft0"), open(c"soft0")];
    let context = contexts[0];
    for context in contexts {
        // SAFETY: the context is open.
        assert_eq!(unsafe { libc::fcntl((*context).async_fd, libc::F_SETFL, libc::O_NONBLOCK) }, 0);
    }
    const OWN: [u8; 4] = [10, 77, 0, 1];
    assert!(!is_readable(context, 0) && !take(context));
    assert!(!has(context, OWN));
    set_up("lo", true);
    set_address("lo:1", OWN);
    until(context, OWN, true);
    assert!(take(contexts[1]), "every context has an event");
    set_up("lo:1", false);
    until(context, OWN, false);
    while take(context) {}
    assert!(!is_readable(context, 0));
    for context in contexts {
        // SAFETY: the context has no objects.
        assert_eq!(unsafe { ibv_close_device(context) }, 0);
    }
}
