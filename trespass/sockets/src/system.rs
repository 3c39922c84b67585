//! The functions of the C library that this library replaces, and safe calls of some of them.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulong, c_void};
use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::{Duration, Instant};

use libc::{
    FILE, epoll_event, fd_set, iovec, msghdr, nfds_t, off_t, pollfd, sigset_t, size_t, sockaddr, socklen_t, ssize_t,
};
use libc::{posix_spawn_file_actions_t, timespec, timeval};

/// Declares functions with the names of those of the C library, which call them.
macro_rules! system {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {$(
        /// # Safety
        ///
        /// As for the C library's function.
        #[inline]
        pub(crate) unsafe fn $name($($argument: $type),*) -> $result {
            type Function = unsafe extern "C" fn($($type),*) -> $result;
            static NEXT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
            let function = next(&NEXT, concat!(stringify!($name), "\0"));
            if function.is_null() {
                set_errno(libc::ENOSYS);
                return -1;
            }
            // SAFETY: the C library's function of this name has this type, and the caller upholds its contract. The
            // variadic ones take the same registers.
            unsafe { mem::transmute::<*mut c_void, Function>(function)($($argument),*) }
        }
    )*};
}

system! {
    read(fd: c_int, to: *mut c_void, count: size_t) -> ssize_t;
    readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    recv(fd: c_int, to: *mut c_void, count: size_t, flags: c_int) -> ssize_t;
    recvfrom(fd: c_int, to: *mut c_void, count: size_t, flags: c_int, from: *mut sockaddr, length: *mut socklen_t) -> ssize_t;
    recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    write(fd: c_int, from: *const c_void, count: size_t) -> ssize_t;
    writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    send(fd: c_int, from: *const c_void, count: size_t, flags: c_int) -> ssize_t;
    sendto(fd: c_int, from: *const c_void, count: size_t, flags: c_int, to: *const sockaddr, length: socklen_t) -> ssize_t;
    sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    sendfile(to: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t;
    splice(from: c_int, from_at: *mut i64, to: c_int, to_at: *mut i64, count: size_t, flags: c_uint) -> ssize_t;
    listen(fd: c_int, backlog: c_int) -> c_int;
    accept4(fd: c_int, from: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int;
    connect(fd: c_int, to: *const sockaddr, length: socklen_t) -> c_int;
    shutdown(fd: c_int, how: c_int) -> c_int;
    getsockname(fd: c_int, to: *mut sockaddr, length: *mut socklen_t) -> c_int;
    getpeername(fd: c_int, to: *mut sockaddr, length: *mut socklen_t) -> c_int;
    getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, length: *mut socklen_t) -> c_int;
    setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, length: socklen_t) -> c_int;
    close(fd: c_int) -> c_int;
    close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    dup(fd: c_int) -> c_int;
    dup2(fd: c_int, number: c_int) -> c_int;
    dup3(fd: c_int, number: c_int, flags: c_int) -> c_int;
    posix_spawn_file_actions_adddup2(actions: *mut posix_spawn_file_actions_t, fd: c_int, number: c_int) -> c_int;
    fcntl(fd: c_int, command: c_int, argument: usize) -> c_int;
    ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int;
    poll(fds: *mut pollfd, count: nfds_t, time: c_int) -> c_int;
    ppoll(fds: *mut pollfd, count: nfds_t, time: *const timespec, mask: *const sigset_t) -> c_int;
    select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, time: *mut timeval) -> c_int;
    pselect(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, time: *const timespec, mask: *const sigset_t) -> c_int;
    epoll_ctl(epoll: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int;
}

/// # Safety
///
/// As for the C library's function.
pub(crate) unsafe fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
    let function = next(&NEXT, "fdopen\0");
    if function.is_null() {
        set_errno(libc::ENOSYS);
        return ptr::null_mut();
    }
    type Function = unsafe extern "C" fn(c_int, *const c_char) -> *mut FILE;
    // SAFETY: the C library's function of this name has this type, and the caller upholds its contract.
    unsafe { mem::transmute::<*mut c_void, Function>(function)(fd, mode) }
}

/// Returns the function of the C library; `name` ends with a zero.
fn next(cache: &AtomicPtr<c_void>, name: &str) -> *mut c_void {
    let known = cache.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    let Ok(name) = CStr::from_bytes_with_nul(name.as_bytes()) else { return ptr::null_mut() };
    // SAFETY: the name is a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr().cast::<c_char>()) };
    cache.store(found, Ordering::Relaxed);
    found
}

pub(crate) fn set_errno(number: c_int) {
    // SAFETY: the variable of this thread.
    unsafe { *libc::__errno_location() = number };
}

/// The error of the call before.
pub(crate) fn errno() -> c_int {
    // SAFETY: the variable of this thread.
    unsafe { *libc::__errno_location() }
}

/// Sends bytes to a socket, without a signal.
pub(crate) fn put(fd: c_int, bytes: &[u8], flags: c_int) -> io::Result<usize> {
    // SAFETY: the bytes are a slice.
    let sent = unsafe { send(fd, bytes.as_ptr().cast(), bytes.len(), flags | libc::MSG_NOSIGNAL) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Receives bytes from a socket.
pub(crate) fn take(fd: c_int, bytes: &mut [u8], flags: c_int) -> io::Result<usize> {
    // SAFETY: the bytes are a slice.
    let received = unsafe { recv(fd, bytes.as_mut_ptr().cast(), bytes.len(), flags) };
    usize::try_from(received).map_err(|_| io::Error::last_os_error())
}

/// Shuts down a socket of this library.
pub(crate) fn shut(socket: BorrowedFd<'_>, how: c_int) {
    // SAFETY: the descriptor is open. A second call has no effect.
    unsafe { shutdown(socket.as_raw_fd(), how) };
}

/// Returns a pair of connected Unix sockets. The number of the second is none of the standard ones.
pub(crate) fn pair() -> io::Result<[OwnedFd; 2]> {
    let mut fds = [-1; 2];
    // SAFETY: the array has space for two descriptors, and only their owners below close them.
    let [first, second] = unsafe {
        if libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0, fds.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        fds.map(|fd| OwnedFd::from_raw_fd(fd))
    };
    let second = if second.as_raw_fd() < 3 { duplicate(second.as_raw_fd())? } else { second };
    Ok([first, second])
}

/// Returns a socket of which each use fails: the other end is gone, with a byte that it has not read.
pub(crate) fn dead() -> io::Result<OwnedFd> {
    let [dead, other] = pair()?;
    put(dead.as_raw_fd(), &[0], libc::MSG_DONTWAIT)?;
    drop(other);
    Ok(dead)
}

/// Returns a number that belongs to the socket of this descriptor, or 0 if it is not a socket.
pub(crate) fn socket_of(fd: c_int) -> u64 {
    // SAFETY: zeros are a valid value, and the call stores another.
    unsafe {
        let mut status: libc::stat = mem::zeroed();
        match libc::fstat(fd, &raw mut status) {
            0 if status.st_mode & libc::S_IFMT == libc::S_IFSOCK => status.st_ino,
            _ => 0,
        }
    }
}

/// Whether a call that reads from a descriptor would not wait.
pub(crate) fn is_readable(fd: c_int) -> bool {
    let mut place = pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one element.
    unsafe { poll(&raw mut place, 1, 0) == 1 }
}

/// Adds a descriptor to an epoll, or changes or removes it. An operation without an event removes.
pub(crate) fn change_epoll(epoll: c_int, operation: c_int, fd: BorrowedFd<'_>, event: Option<epoll_event>) {
    let mut event = event;
    let place = event.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
    // SAFETY: the event is a variable; without one, the system refuses what needs one.
    unsafe { epoll_ctl(epoll, operation, fd.as_raw_fd(), place) };
}

/// Registers a function that runs in each child of `fork(2)`, on its only thread. It must not lock or allocate.
pub(crate) fn call_in_children(function: extern "C" fn()) {
    // SAFETY: `function` only does what is allowed between fork and exec.
    unsafe { libc::pthread_atfork(None, None, Some(function)) };
}

/// Returns a new TCP socket.
pub(crate) fn tcp(family: c_int) -> io::Result<OwnedFd> {
    // SAFETY: only the owner closes the descriptor.
    unsafe {
        match libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

/// Calls `fcntl` with a command that takes a number.
pub(crate) fn control(fd: c_int, command: c_int, argument: c_int) -> io::Result<c_int> {
    // SAFETY: the caller's commands take no pointers.
    match unsafe { fcntl(fd, command, argument as usize) } {
        -1 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}

/// Returns the number of descriptors for which the system has room now.
pub(crate) fn most_numbers() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let size = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
    size.and_then(|size| size.trim().parse().ok()).unwrap_or(libc::FD_SETSIZE)
}

/// Duplicates a descriptor. The new number is none of the standard ones.
pub(crate) fn duplicate(fd: c_int) -> io::Result<OwnedFd> {
    // SAFETY: only the owner closes the new descriptor.
    control(fd, libc::F_DUPFD_CLOEXEC, 3).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes descriptors whose numbers are none of the standard ones: the program may have closed those, and use them later.
pub(crate) fn above_standard<T>(make: impl FnOnce() -> T) -> T {
    let is_closed = |fd| control(fd, libc::F_GETFD, 0).is_err();
    let mut fillers = Vec::new();
    while (0..3).any(is_closed)
        && let Ok(file) = File::open("/dev/null")
    {
        fillers.push(file);
    }
    make()
}

/// Reads an option that is a number.
pub(crate) fn option(fd: c_int, level: c_int, name: c_int) -> Option<c_int> {
    let (mut value, mut length): (c_int, _) = (0, size_of::<c_int>() as socklen_t);
    // SAFETY: the value has space for the length.
    let result = unsafe { getsockopt(fd, level, name, (&raw mut value).cast(), &raw mut length) };
    (result == 0).then_some(value)
}

pub(crate) fn set_option<T>(fd: c_int, level: c_int, name: c_int, value: &T) {
    let length = size_of::<T>() as socklen_t;
    // SAFETY: the value has the length.
    unsafe { setsockopt(fd, level, name, ptr::from_ref(value).cast(), length) };
}

/// How long a socket lets a call wait.
pub(crate) fn time_limit(fd: c_int, name: c_int) -> Option<Duration> {
    Some(copy_time(fd, fd, name)).filter(|limit| !limit.is_zero())
}

/// Copies a time-out of one socket to another, and returns it. Zero stands for none.
pub(crate) fn copy_time(from: c_int, to: c_int, name: c_int) -> Duration {
    let mut value = timeval { tv_sec: 0, tv_usec: 0 };
    let mut length = size_of::<timeval>() as socklen_t;
    // SAFETY: the value has space for the length.
    let result = unsafe { getsockopt(from, libc::SOL_SOCKET, name, (&raw mut value).cast(), &raw mut length) };
    if result != 0 || (value.tv_sec, value.tv_usec) == (0, 0) {
        return Duration::ZERO;
    }
    if from != to {
        set_option(to, libc::SOL_SOCKET, name, &value);
    }
    Duration::from_secs(value.tv_sec.unsigned_abs()) + Duration::from_micros(value.tv_usec.unsigned_abs())
}

/// How many descriptors the process may have.
pub(crate) fn limit_of_numbers() -> nfds_t {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit is a variable.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    limit.rlim_cur
}

/// Waits for descriptors, at most until the deadline. Returns how many are ready, or the error number.
pub(crate) fn wait(fds: &mut [pollfd], deadline: Option<Instant>) -> Result<c_int, c_int> {
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    let left = left.map(|left| timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() });
    let time = left.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the list has its length, and the time is null or a variable.
    match unsafe { ppoll(fds.as_mut_ptr(), fds.len() as nfds_t, time, ptr::null()) } {
        -1 => Err(errno()),
        count => Ok(count),
    }
}

/// Whether all signal handlers of the program let the system restart calls. The system does not say which one has run.
pub(crate) fn restarts_calls() -> bool {
    // Nothing sends these to a thread that sleeps.
    let is_fault = |signal: &c_int| {
        [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGABRT].contains(signal)
    };
    (1..=libc::SIGRTMAX()).filter(|signal| !is_fault(signal)).all(|signal| {
        // SAFETY: zeros are a valid value, and the call stores another if the signal exists.
        let action = unsafe {
            let mut action: libc::sigaction = mem::zeroed();
            libc::sigaction(signal, ptr::null(), &raw mut action);
            action
        };
        matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN) || action.sa_flags & libc::SA_RESTART != 0
    })
}
