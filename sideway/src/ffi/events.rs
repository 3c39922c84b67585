//! Waiting for events on a non-blocking file descriptor.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::{Duration, Instant};

use libc::{c_int, pollfd};
use rdma_mummy_sys::ibv_comp_channel;
use rdma_mummy_sys::load::provider;

use super::{clear_errno, last_errno};
use crate::error::{Errno, VerbError};

/// Sets a descriptor to non-blocking mode.
pub(crate) fn set_nonblocking(fd: RawFd) -> Result<(), VerbError> {
    // Miri does not support fcntl; its tests use descriptors that are already non-blocking.
    if cfg!(miri) {
        return Ok(());
    }
    // SAFETY: both calls accept any descriptor, and their other arguments are plain flags.
    let ret = unsafe {
        match libc::fcntl(fd, libc::F_GETFL) {
            -1 => -1,
            flags => libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK),
        }
    };
    if ret == -1 { Err(VerbError::new("fcntl", last_errno())) } else { Ok(()) }
}

/// Whether a descriptor is in blocking mode.
fn is_blocking(fd: RawFd) -> bool {
    if cfg!(miri) {
        return false;
    }
    // SAFETY: the call accepts any descriptor.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    flags != -1 && flags & libc::O_NONBLOCK == 0
}

/// Takes an event with a call that returns 0, or -1 with errno set. Returns `false` if no event is pending or the
/// descriptor is dead; [`check_alive`] and [`wait_for`] distinguish these.
///
/// Safe code can set the descriptor to blocking mode, and the call would then wait. So this function makes the call
/// only if an event is pending. The caller must ensure that no other thread takes events from the descriptor at the
/// same time.
pub(crate) fn take_event(verb: &'static str, fd: RawFd, mut call: impl FnMut() -> c_int) -> Result<bool, VerbError> {
    if is_blocking(fd) && poll(fd)? == Readiness::NotYet {
        return Ok(false);
    }
    loop {
        // The library also reports a failure at end of file, but then it leaves errno unchanged.
        clear_errno();
        if call() == 0 {
            return Ok(true);
        }
        let errno = last_errno();
        match errno.raw() {
            libc::EINTR => {}
            libc::EAGAIN => return Ok(false),
            libc::EIO | libc::ENODEV => return Err(gone(verb, errno)),
            _ => return Err(VerbError::new(verb, errno)),
        }
    }
}

/// Checks whether the descriptor can still deliver events. After device removal the kernel also returns `EAGAIN`, and
/// only poll(2) reports the removal; without this check, callers would retry forever.
pub(crate) fn check_alive(verb: &'static str, fd: RawFd) -> Result<(), VerbError> {
    match poll(fd)? {
        Readiness::Broken => Err(gone(verb, Errno::EIO)),
        Readiness::Readable | Readiness::NotYet => Ok(()),
    }
}

/// Waits until `take` returns a value. Calls `take` each time that `fd` becomes readable. There is no time limit if
/// `timeout` is `None` or exceeds the clock's range. `channel` is the completion channel of the descriptor, or null; the
/// wait may serve its device.
///
/// # Safety
///
/// The channel is live.
pub(crate) unsafe fn wait_for<T>(
    verb: &'static str,
    what: &str,
    (channel, fd): (*mut ibv_comp_channel, RawFd),
    timeout: Option<Duration>,
    mut take: impl FnMut() -> Result<Option<T>, VerbError>,
) -> Result<T, VerbError> {
    // Call `take` before reading the clock, because on some machines reading it costs as much as a short system call.
    if let Some(taken) = take()? {
        return Ok(taken);
    }
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let mut poll = [pollfd { fd, events: libc::POLLIN, revents: 0 }];
        // SAFETY: the caller upholds the contract.
        if unsafe { poll_on(channel, &mut poll, left)? } && Readiness::of(&poll[0]) == Readiness::Broken {
            return Err(gone(verb, Errno::EIO));
        }
        // The clock is read before the attempt. The descriptor may stay readable while other threads take every event
        // first. The wait must end even then.
        let is_last = deadline.is_some_and(|deadline| deadline <= Instant::now());
        if let Some(taken) = take()? {
            return Ok(taken);
        }
        if is_last {
            return Err(VerbError::new(verb, Errno::ETIMEDOUT).with_hint(format!("no {what} arrived in time")));
        }
    }
}

/// Waits until at least one of the descriptors is readable, hung up or in error, or until the time has passed. Returns for
/// each descriptor whether it is. A signal may end the wait early. `channel` is as for [`wait_for`].
///
/// # Safety
///
/// The channel is live.
pub(crate) unsafe fn wait_readable<const N: usize>(
    channel: *mut ibv_comp_channel,
    descriptors: [BorrowedFd<'_>; N],
    timeout: Option<Duration>,
) -> Result<[bool; N], VerbError> {
    let mut polls = descriptors.map(|it| pollfd { fd: it.as_raw_fd(), events: libc::POLLIN, revents: 0 });
    // SAFETY: the caller upholds the contract.
    let is_any = unsafe { poll_on(channel, &mut polls, timeout)? };
    Ok(polls.map(|poll| is_any && Readiness::of(&poll) != Readiness::NotYet))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Readiness {
    Readable,
    /// The time-out expired, or a signal interrupted the wait.
    NotYet,
    /// The descriptor is hung up, in error or closed: no more events will come.
    Broken,
}

impl Readiness {
    fn of(poll: &pollfd) -> Self {
        match poll.revents {
            0 => Self::NotYet,
            found if found & libc::POLLIN == 0 => Self::Broken,
            _ => Self::Readable,
        }
    }
}

/// Checks a descriptor without waiting.
fn poll(fd: RawFd) -> Result<Readiness, VerbError> {
    let mut poll = [pollfd { fd, events: libc::POLLIN, revents: 0 }];
    // SAFETY: there is no channel.
    unsafe { poll_on(std::ptr::null_mut(), &mut poll, Some(Duration::ZERO))? };
    Ok(Readiness::of(&poll[0]))
}

/// Waits like ppoll(2). Returns whether a descriptor is ready. If not, the time-out expired or a signal arrived.
///
/// # Safety
///
/// The channel is null or live.
unsafe fn poll_on(
    channel: *mut ibv_comp_channel,
    polls: &mut [pollfd],
    timeout: Option<Duration>,
) -> Result<bool, VerbError> {
    // Miri has no poll(2): the caller retries until the deadline.
    if cfg!(miri) {
        std::thread::yield_now();
        polls.iter_mut().for_each(|poll| poll.revents = libc::POLLIN);
        return Ok(true);
    }
    // SAFETY: the caller upholds the contract.
    match unsafe { provider::wait(channel, polls, timeout) } {
        -1 if last_errno().raw() == libc::EINTR => Ok(false),
        -1 => Err(VerbError::new("poll", last_errno())),
        count => Ok(count != 0),
    }
}

#[cold]
fn gone(verb: &'static str, errno: Errno) -> VerbError {
    VerbError::new(verb, errno)
        .with_hint("the device was removed, or its descriptor was closed; no more events will arrive")
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsRawFd;

    use super::*;

    const LONG: Option<Duration> = Some(Duration::from_secs(60));
    const SHORT: Option<Duration> = Some(Duration::from_millis(20));

    fn wait<T>(
        fd: RawFd,
        timeout: Option<Duration>,
        take: impl FnMut() -> Result<Option<T>, VerbError>,
    ) -> Result<T, VerbError> {
        // SAFETY: there is no channel.
        unsafe { wait_for("read", "byte", (std::ptr::null_mut(), fd), timeout, take) }
    }

    fn read_byte(fd: RawFd) -> impl FnMut() -> c_int {
        move || {
            let mut byte = 0_u8;
            // SAFETY: the call may write one byte, which is live.
            let read = unsafe { libc::read(fd, (&raw mut byte).cast(), 1) };
            if read == 1 { 0 } else { -1 }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn take_and_wait_distinguish_event_none_and_dead() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let fd = reader.as_raw_fd();
        set_nonblocking(fd).unwrap();
        assert!(!take_event("read", fd, read_byte(fd)).unwrap());
        check_alive("read", fd).unwrap();
        writer.write_all(&[1, 2]).unwrap();
        assert!(take_event("read", fd, read_byte(fd)).unwrap());
        drop(writer);
        // Bytes written before the end are still delivered.
        check_alive("read", fd).unwrap();
        assert!(take_event("read", fd, read_byte(fd)).unwrap());
        // End of file: read(2) returns 0 and leaves errno unset.
        let error = take_event("read", fd, read_byte(fd)).unwrap_err();
        assert_eq!(error.errno().raw(), libc::EIO, "{error}");
        let error = wait::<()>(fd, LONG, || Ok(None)).unwrap_err();
        assert_eq!(error.errno().raw(), libc::EIO, "{error}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn broken_descriptor_with_eagain_returns_error() {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(writer);
        let again = || {
            // SAFETY: this writes the errno of this thread.
            unsafe { *libc::__errno_location() = libc::EAGAIN };
            -1
        };
        assert!(!take_event("read", reader.as_raw_fd(), again).unwrap());
        let error = check_alive("read", reader.as_raw_fd()).unwrap_err();
        assert_eq!(error.errno().raw(), libc::EIO, "{error}");
        assert!(error.hint().unwrap().contains("the device was removed"), "{error}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn always_readable_empty_descriptor_times_out() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(&[1]).unwrap();
        let error = wait::<()>(reader.as_raw_fd(), SHORT, || Ok(None)).unwrap_err();
        assert_eq!(error.to_string(), "read: ETIMEDOUT (Connection timed out): no byte arrived in time");
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn blocking_descriptor_wait_times_out() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let fd = reader.as_raw_fd();
        let take = || Ok(take_event("read", fd, read_byte(fd))?.then_some(()));
        let error = wait(fd, SHORT, take).unwrap_err();
        assert_eq!(error.errno().raw(), libc::ETIMEDOUT, "{error}");
        writer.write_all(&[1]).unwrap();
        wait(fd, LONG, take).unwrap();
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn closed_descriptor_returns_error() {
        assert_eq!(set_nonblocking(-1).unwrap_err().errno().raw(), libc::EBADF);
    }
}
