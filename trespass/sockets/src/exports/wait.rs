//! Functions that wait for descriptors. The kernel waits; these functions only tell streams that the program waits for
//! them, and add the acceptors of listeners.

use std::ffi::{c_int, c_ulong};
use std::sync::Arc;

use libc::{epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};
use trespass::Acceptor;

use crate::system;
use crate::table::{self, Found};

/// The program waits for a descriptor. Returns the other descriptor that becomes readable for it, if there is one, with
/// the acceptor that keeps it open.
fn watch(fd: c_int) -> Option<(Arc<Acceptor>, c_int)> {
    match table::find(fd)? {
        Found::Stream(stream) => {
            stream.watch(fd);
            None
        }
        Found::Listener(listener) => listener.readiness(),
        Found::Inherited => None,
    }
}

/// Waits with a list that also has the acceptors.
///
/// # Safety
///
/// `fds` has `count` elements.
unsafe fn wait(fds: *mut pollfd, count: nfds_t, wait: impl FnOnce(*mut pollfd, nfds_t) -> c_int) -> c_int {
    // The system refuses more than the process may have descriptors.
    if fds.is_null() || count == 0 || count > 1024 && count > system::limit_of_numbers() {
        return wait(fds, count);
    }
    // SAFETY: guaranteed by the caller.
    let list = unsafe { std::slice::from_raw_parts_mut(fds, count as usize) };
    let (mut added, mut acceptors) = (Vec::new(), Vec::new());
    for (at, entry) in list.iter().enumerate() {
        if let Some((acceptor, fd)) = watch(entry.fd).filter(|_| entry.events & (libc::POLLIN | libc::POLLRDNORM) != 0)
        {
            added.push((at, pollfd { fd, events: libc::POLLIN, revents: 0 }));
            acceptors.push(acceptor);
        }
    }
    if added.is_empty() {
        return wait(fds, count);
    }
    let mut all: Vec<pollfd> = list.iter().copied().chain(added.iter().map(|(_, added)| *added)).collect();
    let result = wait(all.as_mut_ptr(), all.len() as nfds_t);
    if result < 0 {
        return result;
    }
    for (to, from) in list.iter_mut().zip(&all) {
        to.revents = from.revents;
    }
    for ((at, _), from) in added.iter().zip(&all[list.len()..]) {
        if from.revents != 0 {
            list[*at].revents |= list[*at].events & (libc::POLLIN | libc::POLLRDNORM);
        }
    }
    list.iter().filter(|entry| entry.revents != 0).count() as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn poll(fds: *mut pollfd, count: nfds_t, time: c_int) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { wait(fds, count, |fds, count| system::poll(fds, count, time)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __poll_chk(fds: *mut pollfd, count: nfds_t, time: c_int, _space: size_t) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { poll(fds, count, time) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ppoll(fds: *mut pollfd, count: nfds_t, time: *const timespec, mask: *const sigset_t) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { wait(fds, count, |fds, count| system::ppoll(fds, count, time, mask)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __ppoll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    time: *const timespec,
    mask: *const sigset_t,
    _space: size_t,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { ppoll(fds, count, time, mask) }
}

const BITS: usize = c_ulong::BITS as usize;

/// The words of a set of descriptors.
///
/// # Safety
///
/// `set` is null or has bits for `count` descriptors, and no other reference to it exists.
unsafe fn words<'s>(set: *mut fd_set, count: usize) -> &'s mut [c_ulong] {
    if set.is_null() {
        return &mut [];
    }
    // SAFETY: guaranteed by the caller. A set consists of words.
    unsafe { std::slice::from_raw_parts_mut(set.cast(), count.div_ceil(BITS)) }
}

fn has(words: &[c_ulong], fd: usize) -> bool {
    words.get(fd / BITS).is_some_and(|word| word >> (fd % BITS) & 1 != 0)
}

/// Waits with sets of which the one for reading also has the acceptors.
///
/// # Safety
///
/// The sets are null or have bits for `count` descriptors.
unsafe fn choose(count: c_int, sets: [*mut fd_set; 3], wait: impl FnOnce(c_int, [*mut fd_set; 3]) -> c_int) -> c_int {
    let mut size = usize::try_from(count).unwrap_or(0);
    if size > libc::FD_SETSIZE {
        // The system looks at no more bits than that either, so the sets may be shorter than `count`.
        size = size.min(system::most_numbers());
    }
    let (mut added, mut acceptors) = (Vec::new(), Vec::new());
    for (at, set) in sets.into_iter().enumerate() {
        // SAFETY: guaranteed by the caller.
        let words = unsafe { words(set, size) };
        for fd in (0..size).filter(|fd| has(words, *fd)) {
            if let Some((acceptor, other)) = watch(fd as c_int).filter(|_| at == 0) {
                added.push((fd, other as usize));
                acceptors.push(acceptor);
            }
        }
    }
    let Some(last) = added.iter().map(|(_, other)| *other + 1).max() else { return wait(count, sets) };
    // The system reads and writes all sets up to the last acceptor; the program's may be too small for it.
    let length = last.max(size).max(libc::FD_SETSIZE).div_ceil(BITS);
    let mut all = sets.map(|set| {
        // SAFETY: guaranteed by the caller.
        let words = unsafe { words(set, size) };
        let mut all = words.to_vec();
        all.resize(length, 0);
        // The program asks for no others.
        (size..words.len() * BITS).for_each(|fd| all[fd / BITS] &= !(1 << (fd % BITS)));
        all
    });
    for (_, other) in &added {
        all[0][other / BITS] |= 1 << (other % BITS);
    }
    let mut places = sets;
    for (place, all) in places.iter_mut().zip(&mut all).filter(|(place, _)| !place.is_null()) {
        *place = all.as_mut_ptr().cast();
    }
    let result = wait(last.max(size) as c_int, places);
    if result < 0 {
        return result;
    }
    let ready: Vec<usize> = added.iter().filter(|(_, other)| has(&all[0], *other)).map(|(fd, _)| *fd).collect();
    // The numbers of the acceptors are this library's.
    for (_, other) in &added {
        all[0][other / BITS] &= !(1 << (other % BITS));
    }
    for fd in ready {
        all[0][fd / BITS] |= 1 << (fd % BITS);
    }
    let mut ready = 0;
    for (set, all) in sets.into_iter().zip(&all) {
        // SAFETY: guaranteed by the caller.
        unsafe { words(set, size) }.iter_mut().zip(all).for_each(|(to, from)| *to = *from);
        ready += (0..size).filter(|fd| !set.is_null() && has(all, *fd)).count();
    }
    ready as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    time: *mut timeval,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    let wait = |count, [read, write, except]: [_; 3]| unsafe { system::select(count, read, write, except, time) };
    // SAFETY: guaranteed by the caller.
    unsafe { choose(count, [read, write, except], wait) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    time: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    let wait =
        |count, [read, write, except]: [_; 3]| unsafe { system::pselect(count, read, write, except, time, mask) };
    // SAFETY: guaranteed by the caller.
    unsafe { choose(count, [read, write, except], wait) }
}

/// The events of a listener's acceptor are those of the listener.
#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_ctl(epoll: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
    if operation == libc::EPOLL_CTL_ADD {
        watch(fd);
    }
    // SAFETY: guaranteed by the caller.
    let has_edges = unsafe { event.as_ref() }.is_some_and(|event| event.events & libc::EPOLLET as u32 != 0);
    if has_edges
        && operation != libc::EPOLL_CTL_DEL
        && let Some(Found::Stream(stream)) = table::find(fd)
    {
        stream.watch_edges();
    }
    // SAFETY: guaranteed by the caller.
    let result = unsafe { system::epoll_ctl(epoll, operation, fd, event) };
    if result != 0 {
        return result;
    }
    if operation == libc::EPOLL_CTL_ADD {
        table::hold(fd);
    }
    if let Some(listener) = table::listener(fd) {
        // SAFETY: guaranteed by the caller.
        listener.follow(epoll, operation, unsafe { event.as_ref() }.copied());
    }
    0
}
