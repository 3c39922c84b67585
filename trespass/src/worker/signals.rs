//! Threads of the library block signals, because the program's own threads must handle them. A program that blocks a
//! signal in its threads, and waits for it with sigwait(3), would otherwise end when a thread of the library gets it.
//!
//! They do not block the signals that a thread's own instructions raise. The system would end the process without the
//! program's handler, which may print the cause, such as a stack overflow in a waker or in the handler of a call.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;

/// The signals that a thread's own instructions raise.
const SYNCHRONOUS: [libc::c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// Starts a thread that blocks all signals except the synchronous ones. A new thread inherits the signal mask of the
/// thread that creates it.
///
/// # Errors
///
/// The error of `start`.
pub fn without_signals<T>(start: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    // Miri does not support signals.
    if cfg!(miri) {
        return start();
    }
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `all` has space for a set, and `sigfillset` fills the set before the other calls read it. `before` has
    // space for the set that the last call stores.
    let result = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        SYNCHRONOUS.iter().for_each(|signal| _ = libc::sigdelset(all.as_mut_ptr(), *signal));
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr())
    };
    if result != 0 {
        return Err(io::Error::from_raw_os_error(result));
    }
    let started = start();
    // SAFETY: the successful call has stored the mask in `before`, and no old mask is requested.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    started
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::{Duration, Instant};

    use super::SYNCHRONOUS;
    use crate::worker::{Handle, Options, Transport};

    #[test]
    #[cfg_attr(miri, ignore = "reads /proc")]
    fn thread_of_a_worker_blocks_asynchronous_signals_and_its_creator_none_more() {
        let mask = |task: &str| {
            let status = fs::read_to_string(format!("{task}/status")).unwrap_or_default();
            status.lines().find_map(|line| Some(line.strip_prefix("SigBlk:")?.trim().to_owned()))
        };
        let before = mask("/proc/thread-self");
        let _handle = Handle::new(&Options { transport: Transport::Tcp, ..Options::default() }).unwrap();
        assert_eq!(mask("/proc/thread-self"), before);
        // Threads of other tests may end at any time.
        let find = || -> Vec<String> {
            let tasks = fs::read_dir("/proc/self/task").unwrap().map(|entry| entry.unwrap().path());
            let own = tasks.filter(|task| fs::read_to_string(task.join("comm")).is_ok_and(|name| name == "trespass\n"));
            own.filter_map(|task| mask(&task.display().to_string())).collect()
        };
        let begun = Instant::now();
        let own = loop {
            // A new thread sets its name itself.
            let own = find();
            if !own.is_empty() {
                break own;
            }
            assert!(begun.elapsed() < Duration::from_secs(60));
        };
        for mask in own {
            let blocked = u64::from_str_radix(&mask, 16).unwrap();
            let synchronous = SYNCHRONOUS.iter().fold(0, |set, signal| set | 1 << (signal - 1));
            assert_eq!(blocked & synchronous, 0, "{mask}");
            // SIGKILL and SIGSTOP cannot be blocked, and the C library uses two signals itself.
            assert_eq!(blocked | synchronous | 1 << 8 | 1 << 18 | 3 << 31, u64::MAX, "{mask}");
        }
    }
}
