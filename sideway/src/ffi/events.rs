//! Waiting for events on a descriptor in non-blocking mode.

use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use libc::c_int;

use super::{clear_errno, last_errno};
use crate::error::{Errno, VerbError};

/// Puts the open file behind a descriptor into non-blocking mode.
pub(crate) fn set_nonblocking(fd: RawFd) -> Result<(), VerbError> {
    // Miri cannot: the descriptors that its tests have are in this mode from the start.
    if cfg!(miri) {
        return Ok(());
    }
    // SAFETY: both calls take any descriptor, and plain flags.
    let ret = unsafe {
        match libc::fcntl(fd, libc::F_GETFL) {
            -1 => -1,
            flags => libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK),
        }
    };
    if ret == -1 { Err(VerbError::new("fcntl", last_errno())) } else { Ok(()) }
}

/// Whether somebody has put the open file behind a descriptor into blocking mode.
fn is_blocking(fd: RawFd) -> bool {
    if cfg!(miri) {
        return false;
    }
    // SAFETY: the call takes any descriptor.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    flags != -1 && flags & libc::O_NONBLOCK == 0
}

/// Takes an event by a call that returns 0, or -1 with errno set; `false` when there is none now, or never again:
/// [`check_alive`] tells, and so does waiting.
///
/// Safe code can put the descriptor into blocking mode, in which the call would wait: it is made only if there is something then. So
/// the caller sees to it that no other thread takes events of the descriptor meanwhile.
pub(crate) fn take_event(verb: &'static str, fd: RawFd, mut call: impl FnMut() -> c_int) -> Result<bool, VerbError> {
    if is_blocking(fd) && poll(fd, 0)? == Readiness::NotYet {
        return Ok(false);
    }
    loop {
        // The library reports the end of the file as a failure too, and leaves errno as it was.
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

/// Where there was no event: whether one can come. The kernel says `EAGAIN` as well when the device is gone, and only poll(2)
/// tells: who asks again would do so for ever.
pub(crate) fn check_alive(verb: &'static str, fd: RawFd) -> Result<(), VerbError> {
    match poll(fd, 0)? {
        Readiness::Broken => Err(gone(verb, Errno::EIO)),
        Readiness::Readable | Readiness::NotYet => Ok(()),
    }
}

/// Waits until `take` gives something, which it may when `fd` is readable; without limit where `timeout` is `None` or
/// longer than a clock can count.
pub(crate) fn wait_for<T>(
    verb: &'static str,
    what: &str,
    fd: RawFd,
    timeout: Option<Duration>,
    mut take: impl FnMut() -> Result<Option<T>, VerbError>,
) -> Result<T, VerbError> {
    // Without a look at the clock, which costs as much as a short system call on some machines.
    if let Some(taken) = take()? {
        return Ok(taken);
    }
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    loop {
        if poll(fd, milliseconds_until(deadline))? == Readiness::Broken {
            return Err(gone(verb, Errno::EIO));
        }
        // Looked at before the attempt: a descriptor that others keep readable and empty does not hold the end up.
        let is_last = deadline.is_some_and(|deadline| deadline <= Instant::now());
        if let Some(taken) = take()? {
            return Ok(taken);
        }
        if is_last {
            return Err(
                VerbError::new(verb, Errno::ETIMEDOUT).with_hint(format!("no {what} came within the time given"))
            );
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Readiness {
    Readable,
    /// The time has passed, or a signal came.
    NotYet,
    /// Hung up, in error or closed: no event will ever come.
    Broken,
}

fn poll(fd: RawFd, milliseconds: c_int) -> Result<Readiness, VerbError> {
    // Miri has no poll(2): who waits tries again until the time is over.
    if cfg!(miri) {
        std::thread::yield_now();
        return Ok(Readiness::Readable);
    }
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one live pollfd.
    match unsafe { libc::poll(&mut poll, 1, milliseconds) } {
        0 => Ok(Readiness::NotYet),
        -1 if last_errno().raw() == libc::EINTR => Ok(Readiness::NotYet),
        -1 => Err(VerbError::new("poll", last_errno())),
        _ if poll.revents & libc::POLLIN == 0 => Ok(Readiness::Broken),
        _ => Ok(Readiness::Readable),
    }
}

/// For poll(2): -1 is without limit.
fn milliseconds_until(deadline: Option<Instant>) -> c_int {
    let Some(deadline) = deadline else { return -1 };
    let left = deadline.saturating_duration_since(Instant::now());
    // Rounded up, so that the last wait does not spin.
    c_int::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX)
}

#[cold]
fn gone(verb: &'static str, errno: Errno) -> VerbError {
    VerbError::new(verb, errno)
        .with_hint("the device is gone, or its descriptor is closed: no event will come any more")
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsRawFd;

    use super::*;

    const LONG: Option<Duration> = Some(Duration::from_secs(20));

    fn read_byte(fd: RawFd) -> impl FnMut() -> c_int {
        move || {
            let mut byte = 0_u8;
            // SAFETY: one live byte.
            let read = unsafe { libc::read(fd, (&raw mut byte).cast(), 1) };
            if read == 1 { 0 } else { -1 }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn something_nothing_and_never_again_are_told_apart() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let fd = reader.as_raw_fd();
        set_nonblocking(fd).unwrap();
        assert!(!take_event("read", fd, read_byte(fd)).unwrap());
        check_alive("read", fd).unwrap();
        writer.write_all(&[1, 2]).unwrap();
        assert!(take_event("read", fd, read_byte(fd)).unwrap());
        drop(writer);
        // What came before the end is still given.
        check_alive("read", fd).unwrap();
        assert!(take_event("read", fd, read_byte(fd)).unwrap());
        // The end: read(2) returns 0 and sets no errno.
        let error = take_event("read", fd, read_byte(fd)).unwrap_err();
        assert_eq!(error.errno().raw(), libc::EIO, "{error}");
        let error = wait_for::<()>("read", "byte", fd, LONG, || Ok(None)).unwrap_err();
        assert_eq!(error.errno().raw(), libc::EIO, "{error}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn that_a_broken_descriptor_says_try_again_is_an_error() {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(writer);
        let again = || {
            // SAFETY: this thread's errno.
            unsafe { *libc::__errno_location() = libc::EAGAIN };
            -1
        };
        assert!(!take_event("read", reader.as_raw_fd(), again).unwrap());
        let error = check_alive("read", reader.as_raw_fd()).unwrap_err();
        assert_eq!(error.errno().raw(), libc::EIO, "{error}");
        assert!(error.hint().unwrap().contains("the device is gone"), "{error}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn a_descriptor_that_stays_readable_and_gives_nothing_does_not_hold_the_end_up() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(&[1]).unwrap();
        let wait = Some(Duration::from_millis(20));
        let error = wait_for::<()>("read", "byte", reader.as_raw_fd(), wait, || Ok(None)).unwrap_err();
        assert_eq!(error.to_string(), "read: ETIMEDOUT (Connection timed out): no byte came within the time given");
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn a_wait_on_a_descriptor_in_blocking_mode_ends_with_its_time() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let fd = reader.as_raw_fd();
        let wait = Some(Duration::from_millis(20));
        let take = || Ok(take_event("read", fd, read_byte(fd))?.then_some(()));
        let error = wait_for("read", "byte", fd, wait, take).unwrap_err();
        assert_eq!(error.errno().raw(), libc::ETIMEDOUT, "{error}");
        writer.write_all(&[1]).unwrap();
        wait_for("read", "byte", fd, LONG, take).unwrap();
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn a_descriptor_that_is_not_open_is_refused() {
        assert_eq!(set_nonblocking(-1).unwrap_err().errno().raw(), libc::EBADF);
    }
}
