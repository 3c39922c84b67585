//! What this process has for itself: values that a child of `fork(2)` does not share with its parent, and threads that do
//! not handle the signals of the program. It is for the crates of this workspace.

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// The number of forks between the first process and this process.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Starts to count generations. Each child process that is forked after this call is a new generation.
pub fn watch() {
    /// Runs in each child, on its only thread. The function must not lock or allocate.
    extern "C" fn in_child() {
        GENERATION.fetch_add(1, Ordering::Relaxed);
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if !cfg!(miri) {
            // SAFETY: the handler only writes to an atomic, which is allowed between fork and exec. If the registration
            // fails for lack of memory, children are not counted.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        }
    });
}

/// Returns the generation of this process, which is zero unless the process was forked after [`watch`].
#[inline]
pub fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// A value of which each process has its own instance. A child creates a new instance and ignores the one of its
/// parent, because at the fork another thread of the parent may have held its lock, or may have been in the middle of a
/// change.
pub struct PerProcess<T: 'static> {
    first: T,
    later: AtomicPtr<Later<T>>,
    make: fn() -> Box<T>,
}

struct Later<T> {
    generation: u32,
    value: Box<T>,
}

impl<T> PerProcess<T> {
    /// Creates the value. `first` is the instance of this process, and `make` creates the instance of a child.
    pub const fn new(first: T, make: fn() -> Box<T>) -> Self {
        Self { first, later: AtomicPtr::new(ptr::null_mut()), make }
    }

    /// Returns the instance of this process.
    #[inline]
    pub fn get(&'static self) -> &'static T {
        match generation() {
            0 => &self.first,
            generation => self.of(generation),
        }
    }

    #[cold]
    fn of(&'static self, generation: u32) -> &'static T {
        let mut known = self.later.load(Ordering::Acquire);
        loop {
            // SAFETY: `known` is null, or came from `Box::into_raw` below and is never freed.
            if let Some(later) = unsafe { known.as_ref() }
                && later.generation == generation
            {
                return &later.value;
            }
            let new = Box::into_raw(Box::new(Later { generation, value: (self.make)() }));
            match self.later.compare_exchange(known, new, Ordering::AcqRel, Ordering::Acquire) {
                // SAFETY: `new` is on the heap and never freed.
                Ok(_) => return unsafe { &(*new).value },
                Err(other) => {
                    known = other;
                    // SAFETY: `new` was created above and never published.
                    drop(unsafe { Box::from_raw(new) });
                }
            }
        }
    }
}

impl<T> fmt::Debug for PerProcess<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerProcess").finish_non_exhaustive()
    }
}

/// Synchronous signals. A thread's own instructions raise these signals. If a thread blocked them, the system would end
/// the process without the program's handler, which may print the cause, such as a stack overflow.
pub const SYNCHRONOUS: [libc::c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// What a new thread maps: its stack, and what the standard library maps on the thread itself before it runs. Without
/// memory for the latter, that library ends the process, so such a thread must not be started.
const THREAD: usize = (2 << 20) + (256 << 10);

fn check_memory_of_thread() -> io::Result<()> {
    // SAFETY: a new mapping at an address of the kernel's choice touches no memory that is in use, and nothing refers to
    // it when it is unmapped.
    unsafe {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let first = libc::mmap(ptr::null_mut(), THREAD, access, kind, -1, 0);
        if first == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        libc::munmap(first, THREAD);
    }
    Ok(())
}

/// Starts a thread that blocks all signals except the synchronous ones, because the program's own threads must handle
/// them. A program that blocks a signal in its threads, and waits for it with sigwait(3), would otherwise end when this
/// thread gets it. A new thread inherits the signal mask of the thread that creates it.
///
/// # Errors
///
/// The error of `start`; or there is no memory for a thread.
pub fn without_signals<T>(start: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    // Miri does not support signals.
    if cfg!(miri) {
        return start();
    }
    check_memory_of_thread()?;
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
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn each_generation_has_its_own_instance() {
        static NUMBERS: PerProcess<Mutex<u32>> = PerProcess::new(Mutex::new(1), || Box::new(Mutex::new(2)));
        assert!(ptr::eq(NUMBERS.get(), &raw const NUMBERS.first));
        let held = NUMBERS.get().lock().unwrap();
        let later = NUMBERS.of(1);
        assert!(ptr::eq(later, NUMBERS.of(1)));
        assert_eq!((*held, *later.lock().unwrap()), (1, 2));
        let held = later.lock().unwrap();
        assert_eq!(*NUMBERS.of(2).lock().unwrap(), 2, "the previous instance is locked");
        drop(held);
    }
}
