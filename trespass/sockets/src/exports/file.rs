//! Functions for descriptors of any kind.

use std::ffi::{c_char, c_int, c_uint, c_ulong, c_void};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::OnceLock;

use libc::{FILE, posix_spawn_file_actions_t, size_t, ssize_t};
use trespass::PerProcess;

use super::{exit, fail, number};
use crate::system;
use crate::table::{self, Entry, Found};

/// The first request that concerns what a socket or an interface has.
const SIOCATMARK: c_ulong = 0x8905;

#[unsafe(no_mangle)]
unsafe extern "C" fn close(fd: c_int) -> c_int {
    // After an error, too, the number is that of no file.
    // SAFETY: guaranteed by the caller.
    table::release(fd.cast_unsigned(), fd.cast_unsigned(), || unsafe { system::close(fd) }, |_| true)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    // SAFETY: guaranteed by the caller.
    let call = || unsafe { system::close_range(first, last, flags) };
    match flags as c_uint & libc::CLOSE_RANGE_CLOEXEC {
        0 => table::release(first, last, call, |result| result == 0),
        _ => call(),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn closefrom(first: c_int) {
    let first = first.max(0);
    // SAFETY: guaranteed by the caller.
    unsafe {
        if close_range(first.cast_unsigned(), c_uint::MAX, 0) != 0 {
            // A system without this call.
            (first..system::most_numbers() as c_int).for_each(|fd| _ = close(fd));
        }
    }
}

/// Lets a new number stand for what another stands for.
fn share(fd: c_int, new: c_int) -> c_int {
    if new < 0 {
        return new;
    }
    let entry = match table::find(fd) {
        Some(Found::Stream(stream)) if !table::is_borrowed() => Entry::Stream(stream),
        Some(Found::Listener(listener)) => Entry::Listener(listener),
        Some(Found::Stream(_) | Found::Inherited) => return bury(new),
        None => {
            table::hold(fd);
            table::hold(new);
            return new;
        }
    };
    if !table::fits(new) {
        // SAFETY: the program does not get this number.
        unsafe { system::close(new) };
        return fail(libc::EMFILE);
    }
    if matches!(entry, Entry::Stream(_)) {
        // A program that is executed would find no stream for the number.
        _ = system::control(new, libc::F_SETFD, libc::FD_CLOEXEC);
    }
    drop(table::insert(new, entry, new));
    new
}

/// Puts a socket of which each use fails in place of a new number for a stream of the parent. A program that this process
/// executes would not notice that the mirror carries no bytes.
fn bury(new: c_int) -> c_int {
    let flags = system::control(new, libc::F_GETFD, 0).unwrap_or(0);
    let flags = if flags & libc::FD_CLOEXEC == 0 { 0 } else { libc::O_CLOEXEC };
    // SAFETY: both descriptors are open, and the program gets another file for this number.
    if system::dead().is_ok_and(|dead| unsafe { system::dup3(dead.as_raw_fd(), new, flags) } == new) {
        table::insert_inherited(new);
        return new;
    }
    // SAFETY: the program does not get this number.
    unsafe { system::close(new) };
    fail(libc::EMFILE)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dup(fd: c_int) -> c_int {
    // SAFETY: guaranteed by the caller.
    share(fd, unsafe { system::dup(fd) })
}

/// Lets a number that may be in use stand for what another stands for.
fn replace_number(fd: c_int, number: c_int, duplicate: impl FnOnce() -> c_int) -> c_int {
    share(fd, table::release(number.cast_unsigned(), number.cast_unsigned(), duplicate, |new| new >= 0))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dup2(fd: c_int, number: c_int) -> c_int {
    if fd == number {
        // SAFETY: guaranteed by the caller.
        return unsafe { system::dup2(fd, number) };
    }
    // SAFETY: guaranteed by the caller.
    replace_number(fd, number, || unsafe { system::dup2(fd, number) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dup3(fd: c_int, number: c_int, flags: c_int) -> c_int {
    if fd == number {
        // SAFETY: guaranteed by the caller.
        return unsafe { system::dup3(fd, number, flags) };
    }
    // SAFETY: guaranteed by the caller.
    replace_number(fd, number, || unsafe { system::dup3(fd, number, flags) })
}

/// The C library duplicates the descriptor later, in the new process and without this library.
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawn_file_actions_adddup2(
    actions: *mut posix_spawn_file_actions_t,
    fd: c_int,
    number: c_int,
) -> c_int {
    static DEAD: PerProcess<OnceLock<Option<OwnedFd>>> = PerProcess::new(OnceLock::new(), Box::default);
    let fd = match table::find(fd) {
        Some(Found::Stream(_) | Found::Inherited) => match DEAD.get().get_or_init(|| system::dead().ok()) {
            Some(dead) => dead.as_raw_fd(),
            None => return libc::EMFILE,
        },
        _ => fd,
    };
    // SAFETY: guaranteed by the caller.
    unsafe { system::posix_spawn_file_actions_adddup2(actions, fd, number) }
}

/// How the C library reads and writes a file of the program: `cookie_io_functions_t`.
#[repr(C)]
struct Calls {
    read: unsafe extern "C" fn(*mut c_void, *mut c_void, size_t) -> ssize_t,
    write: unsafe extern "C" fn(*mut c_void, *const c_void, size_t) -> ssize_t,
    seek: Option<unsafe extern "C" fn(*mut c_void, *mut i64, c_int) -> c_int>,
    close: unsafe extern "C" fn(*mut c_void) -> c_int,
}

unsafe extern "C" {
    // Those of this library.
    fn read(fd: c_int, to: *mut c_void, count: size_t) -> ssize_t;
    fn write(fd: c_int, from: *const c_void, count: size_t) -> ssize_t;
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, calls: Calls) -> *mut FILE;
}

unsafe extern "C" fn read_file(cookie: *mut c_void, to: *mut c_void, count: size_t) -> ssize_t {
    // SAFETY: guaranteed by the caller.
    unsafe { read(cookie as c_int, to, count) }
}

unsafe extern "C" fn write_file(cookie: *mut c_void, from: *const c_void, count: size_t) -> ssize_t {
    // The C library takes a short count for an error.
    let mut done = 0;
    while done < count {
        // SAFETY: guaranteed by the caller.
        match unsafe { write(cookie as c_int, from.byte_add(done), count - done) } {
            written @ 1.. => done += written as size_t,
            _ => break,
        }
    }
    done as ssize_t
}

/// A stream has no position: `fflush` of a file that reads expects this error.
unsafe extern "C" fn seek_file(_: *mut c_void, _: *mut i64, _: c_int) -> c_int {
    fail(libc::ESPIPE)
}

unsafe extern "C" fn close_file(cookie: *mut c_void) -> c_int {
    // SAFETY: the file owns the descriptor.
    unsafe { close(cookie as c_int) }
}

/// The C library's files call the system without this library. The file of a stream calls this library.
#[unsafe(no_mangle)]
unsafe extern "C" fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    match table::find(fd) {
        Some(Found::Stream(_) | Found::Inherited) => {
            let calls = Calls { read: read_file, write: write_file, seek: Some(seek_file), close: close_file };
            exit::flush_files();
            // SAFETY: guaranteed by the caller. The cookie is the number.
            unsafe { fopencookie(fd as usize as *mut c_void, mode, calls) }
        }
        _ => {
            table::hold(fd);
            // SAFETY: guaranteed by the caller.
            unsafe { system::fdopen(fd, mode) }
        }
    }
}

/// The C library's function takes any number of arguments; this one gets the registers of the first three.
#[unsafe(no_mangle)]
unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
        // SAFETY: guaranteed by the caller.
        return share(fd, unsafe { system::fcntl(fd, command, argument) });
    }
    // SAFETY: guaranteed by the caller.
    let Some(found) = table::find(fd) else { return unsafe { system::fcntl(fd, command, argument) } };
    match (command, found) {
        // The mirror stays closed for programs that are executed.
        (libc::F_SETFD, Found::Stream(_) | Found::Inherited) => 0,
        (libc::F_SETFL, Found::Stream(stream)) => {
            // SAFETY: guaranteed by the caller.
            let result = unsafe { system::fcntl(fd, command, argument) };
            if result == 0 {
                stream.set_nonblocking(fd, argument as c_int & libc::O_NONBLOCK != 0);
                if argument as c_int & libc::O_ASYNC != 0 {
                    stream.watch(fd);
                }
            }
            result
        }
        // SAFETY: guaranteed by the caller.
        _ => unsafe { system::fcntl(fd, command, argument) },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { fcntl(fd, command, argument) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int {
    let stream = match table::find(fd) {
        Some(Found::Stream(stream)) => stream,
        Some(Found::Inherited) => return fail(libc::EIO),
        // SAFETY: guaranteed by the caller.
        _ => return unsafe { system::ioctl(fd, request, argument) },
    };
    match request {
        // As with `F_SETFD`.
        libc::FIONCLEX | libc::FIOCLEX => 0,
        libc::FIONREAD if argument != 0 => {
            let count = c_int::try_from(stream.readable(fd)).unwrap_or(c_int::MAX);
            // SAFETY: guaranteed by the caller.
            unsafe { *(argument as *mut c_int) = count };
            0
        }
        libc::FIONBIO if argument != 0 => {
            // SAFETY: guaranteed by the caller.
            let result = unsafe { system::ioctl(fd, request, argument) };
            if result == 0 {
                // SAFETY: guaranteed by the caller.
                stream.set_nonblocking(fd, unsafe { *(argument as *const c_int) } != 0);
            }
            result
        }
        // Those of sockets and interfaces, but not the receiver of signals.
        libc::TIOCOUTQ | SIOCATMARK..=0x89ff => match stream.options() {
            // SAFETY: guaranteed by the caller.
            Ok(options) => unsafe { system::ioctl(options, request, argument) },
            Err(error) => fail(number(&error)),
        },
        _ => {
            if request == libc::FIOASYNC {
                stream.watch(fd);
            }
            // SAFETY: guaranteed by the caller.
            unsafe { system::ioctl(fd, request, argument) }
        }
    }
}
