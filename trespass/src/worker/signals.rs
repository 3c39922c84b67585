//! Threads of the library block all signals, because the program's own threads must handle them. A program that blocks a
//! signal in its threads, and waits for it with sigwait(3), would otherwise end when a thread of the library gets it.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;

/// Starts a thread that blocks all signals. A new thread inherits the signal mask of the thread that creates it.
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
    // SAFETY: `all` has space for a set, and `sigfillset` fills the set before `pthread_sigmask` reads it. `before` has
    // space for the set that the call stores.
    let result = unsafe {
        libc::sigfillset(all.as_mut_ptr());
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

    use crate::worker::{Handle, Options, Transport};

    #[test]
    #[cfg_attr(miri, ignore = "reads /proc")]
    fn thread_of_a_worker_blocks_all_signals_and_its_creator_none_more() {
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
            // SIGKILL and SIGSTOP cannot be blocked, and the C library uses two signals itself.
            assert_eq!(u64::from_str_radix(&mask, 16).unwrap() | 1 << 8 | 1 << 18 | 3 << 31, u64::MAX, "{mask}");
        }
    }
}
