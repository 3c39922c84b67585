//! Which numbers of descriptors are streams and listeners.
//!
//! One byte for each number is the kind, without a lock, and stays right in a child of `fork(2)`. What the number stands for
//! belongs to one process: a child does not use the streams of its parent.

use std::ffi::c_int;
use std::process;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use trespass::{Generation, PerProcess};

use crate::listener::Listener;
use crate::stream::Stream;

/// Higher numbers stay with the kernel.
const BLOCK: usize = 256;
const BLOCKS: usize = 256;

const KERNEL: u8 = 0;
const STREAM: u8 = 1;
const LISTENER: u8 = 2;
/// A descriptor of the kernel that an epoll watches.
const WATCHED: u8 = 3;

#[derive(Clone, Debug)]
pub(crate) enum Entry {
    Stream(Arc<Stream>),
    Listener(Arc<Listener>),
}

/// What a number stands for.
#[derive(Debug)]
pub(crate) enum Found {
    Stream(Arc<Stream>),
    Listener(Arc<Listener>),
    /// A stream of the parent of this process.
    Inherited,
}

type Block = Box<[Mutex<Option<Entry>>]>;

struct Entries([OnceLock<Block>; BLOCKS]);

static KINDS: [AtomicU8; BLOCK * BLOCKS] = [const { AtomicU8::new(KERNEL) }; BLOCK * BLOCKS];
static ENTRIES: PerProcess<Entries> = PerProcess::new(Entries::new(), || Box::new(Entries::new()));

impl Entries {
    const fn new() -> Self {
        Self([const { OnceLock::new() }; BLOCKS])
    }

    fn slot(&self, number: usize) -> Option<MutexGuard<'_, Option<Entry>>> {
        let block = self.0.get(number / BLOCK)?.get_or_init(|| (0..BLOCK).map(|_| Mutex::new(None)).collect());
        block.get(number % BLOCK).map(|slot| slot.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn kind(fd: c_int) -> Option<&'static AtomicU8> {
    KINDS.get(usize::try_from(fd).ok()?)
}

fn slot(fd: c_int) -> Option<MutexGuard<'static, Option<Entry>>> {
    ENTRIES.get().slot(usize::try_from(fd).ok()?)
}

/// Returns what a number stands for, or `None` for a descriptor of the kernel alone.
#[inline]
pub(crate) fn find(fd: c_int) -> Option<Found> {
    match kind(fd)?.load(Ordering::Relaxed) {
        KERNEL | WATCHED => None,
        kind => find_entry(fd, kind),
    }
}

fn find_entry(fd: c_int, kind: u8) -> Option<Found> {
    let entry = slot(fd)?.clone();
    match entry {
        Some(Entry::Stream(stream)) => Some(Found::Stream(stream)),
        Some(Entry::Listener(listener)) => Some(Found::Listener(listener)),
        None if kind == STREAM => Some(Found::Inherited),
        // The child waits for connections of its own.
        None => {
            let listener = Arc::new(Listener::new(fd)?);
            insert(fd, Entry::Listener(Arc::clone(&listener)));
            Some(Found::Listener(listener))
        }
    }
}

/// Returns the listener of a number.
#[inline]
pub(crate) fn listener(fd: c_int) -> Option<Arc<Listener>> {
    match kind(fd)?.load(Ordering::Relaxed) {
        LISTENER => match find_entry(fd, LISTENER) {
            Some(Found::Listener(listener)) => Some(listener),
            _ => None,
        },
        _ => None,
    }
}

/// Whether a number may stand for a stream.
pub(crate) fn fits(fd: c_int) -> bool {
    kind(fd).is_some()
}

/// Notes that a number stands for a stream or a listener. Returns what it stood for before, to be dropped without locks.
pub(crate) fn insert(fd: c_int, entry: Entry) -> Option<Entry> {
    // Children are counted from the first entry on.
    Generation::this();
    is_borrowed();
    let value = if matches!(entry, Entry::Stream(_)) { STREAM } else { LISTENER };
    let before = slot(fd)?.replace(entry);
    kind(fd)?.store(value, Ordering::Relaxed);
    before
}

/// Notes that the number is about to be closed. Returns what it stood for.
pub(crate) fn remove(fd: c_int) -> Option<Entry> {
    let kind = kind(fd)?;
    if kind.load(Ordering::Relaxed) == KERNEL || is_borrowed() {
        return None;
    }
    kind.store(KERNEL, Ordering::Relaxed);
    slot(fd)?.take()
}

/// Returns the numbers from `first` to `last` that are not the kernel's alone.
pub(crate) fn within(first: u32, last: u32) -> impl Iterator<Item = c_int> {
    let last = last.min(KINDS.len() as u32 - 1);
    (first..=last).filter(|fd| KINDS[*fd as usize].load(Ordering::Relaxed) != KERNEL).map(|fd| fd as c_int)
}

/// Notes that an epoll watches the file of this number.
pub(crate) fn mark_watched(fd: c_int) {
    if let Some(kind) = kind(fd) {
        _ = kind.compare_exchange(KERNEL, WATCHED, Ordering::Relaxed, Ordering::Relaxed);
    }
}

pub(crate) fn is_watched(fd: c_int) -> bool {
    kind(fd).is_some_and(|kind| kind.load(Ordering::Relaxed) == WATCHED)
}

/// Whether this is a child of `vfork(2)`, which closes its own descriptors but has the memory of its parent.
fn is_borrowed() -> bool {
    static OWNER: PerProcess<OnceLock<u32>> = PerProcess::new(OnceLock::new(), Box::default);
    let this = process::id();
    *OWNER.get().get_or_init(|| this) != this
}
