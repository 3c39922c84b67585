//! Which numbers of descriptors are streams and listeners.
//!
//! One byte for each number is the kind, without a lock, and stays right in a child of `fork(2)`. What the number stands for
//! belongs to one process: a child does not use the streams of its parent.
//!
//! A descriptor may be closed without this library (by `fclose`, or a system call of the program), and its number may
//! then be that of another file. So a kind also belongs to a file: each use compares it, which is a system call.

use std::ffi::{c_int, c_uint};
use std::io;
use std::process;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError};

use trespass::{Generation, PerProcess};

use crate::listener::Listener;
use crate::stream::Stream;
use crate::system;

/// Higher numbers stay with the kernel.
const BLOCK: usize = 256;
const BLOCKS: usize = 256;

const KERNEL: u8 = 0;
const STREAM: u8 = 1;
const LISTENER: u8 = 2;
/// A socket of the kernel that another file cannot replace, because an epoll watches it, a file of C has it, or another number
/// stands for it.
const HELD: u8 = 3;
/// A socket of the kernel that a stream may replace: a call connects it over RDMA.
const CONNECTING: u8 = 4;

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
    /// A stream of the parent of this process, or what this process has in its place.
    Inherited,
}

type Block = Box<[Mutex<Option<Entry>>]>;

struct Entries([OnceLock<Block>; BLOCKS]);

static KINDS: [AtomicU8; BLOCK * BLOCKS] = [const { AtomicU8::new(KERNEL) }; BLOCK * BLOCKS];
/// The sockets to which the kinds belong.
static FILES: [AtomicU64; BLOCK * BLOCKS] = [const { AtomicU64::new(0) }; BLOCK * BLOCKS];
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

fn place(fd: c_int) -> Option<(&'static AtomicU8, &'static AtomicU64)> {
    let number = usize::try_from(fd).ok()?;
    KINDS.get(number).zip(FILES.get(number))
}

/// Returns the kind of a number. For a number that is not the kernel's alone, this is a system call.
#[inline]
fn kind(fd: c_int) -> u8 {
    match place(fd) {
        Some((kind, file)) => match kind.load(Ordering::Acquire) {
            KERNEL => KERNEL,
            kind if file.load(Ordering::Relaxed) == system::socket_of(fd) => kind,
            _ => KERNEL,
        },
        None => KERNEL,
    }
}

/// Stores the kind of the socket `of` for a number.
fn store(fd: c_int, value: u8, of: c_int) {
    if let Some((kind, file)) = place(fd) {
        file.store(system::socket_of(of), Ordering::Relaxed);
        kind.store(value, Ordering::Release);
    }
}

fn slot(fd: c_int) -> Option<MutexGuard<'static, Option<Entry>>> {
    ENTRIES.get().slot(usize::try_from(fd).ok()?)
}

/// Returns what a number stands for, or `None` for a descriptor of the kernel alone.
#[inline]
pub(crate) fn find(fd: c_int) -> Option<Found> {
    match kind(fd) {
        KERNEL | HELD | CONNECTING => None,
        kind => find_entry(fd, kind),
    }
}

fn find_entry(fd: c_int, kind: u8) -> Option<Found> {
    let entry = {
        let slot = slot(fd)?;
        // Another thread may have closed the number meanwhile.
        if place(fd)?.0.load(Ordering::Relaxed) != kind {
            return None;
        }
        slot.clone()
    };
    match entry {
        Some(Entry::Stream(stream)) => Some(Found::Stream(stream)),
        Some(Entry::Listener(listener)) => Some(Found::Listener(listener)),
        None if kind == STREAM => Some(Found::Inherited),
        // The child waits for connections of its own.
        None => {
            let listener = Arc::new(Listener::new(fd)?);
            insert(fd, Entry::Listener(Arc::clone(&listener)), fd);
            Some(Found::Listener(listener))
        }
    }
}

/// Returns the listener of a number.
#[inline]
pub(crate) fn listener(fd: c_int) -> Option<Arc<Listener>> {
    // Without the system call for streams, which programs name to `epoll_ctl` often.
    if place(fd)?.0.load(Ordering::Relaxed) != LISTENER {
        return None;
    }
    match find(fd)? {
        Found::Listener(listener) => Some(listener),
        _ => None,
    }
}

/// Whether a number may stand for a stream.
pub(crate) fn fits(fd: c_int) -> bool {
    place(fd).is_some()
}

/// Notes that a number stands for a stream or a listener as long as its file is that of `of`. Returns what it stood for
/// before, to be dropped without locks.
pub(crate) fn insert(fd: c_int, entry: Entry, of: c_int) -> Option<Entry> {
    count_children();
    if is_borrowed() {
        return Some(entry);
    }
    let value = if matches!(entry, Entry::Stream(_)) { STREAM } else { LISTENER };
    let mut slot = slot(fd)?;
    let before = slot.replace(entry);
    store(fd, value, of);
    before
}

/// Notes that a number has what this process has in place of a stream of its parent.
pub(crate) fn insert_inherited(fd: c_int) {
    if !is_borrowed() {
        store(fd, STREAM, fd);
    }
}

/// Notes that the socket of a number may become a stream. Returns what identifies the socket. If another call connects the
/// socket already, both use TCP.
pub(crate) fn begin(fd: c_int) -> Option<u64> {
    count_children();
    let _slot = slot(fd).filter(|_| !is_borrowed())?;
    let (place, file) = place(fd)?;
    match kind(fd) {
        KERNEL => store(fd, CONNECTING, fd),
        CONNECTING => {
            place.store(KERNEL, Ordering::Relaxed);
            return None;
        }
        _ => return None,
    }
    Some(file.load(Ordering::Relaxed))
}

/// Lets a number stand for a stream if its socket has connected since `begin` and nothing else has happened to it.
/// `replace` puts the descriptor of the stream, which is also `of`, in place of the socket.
pub(crate) fn finish(
    fd: c_int,
    socket: u64,
    entry: Entry,
    of: c_int,
    replace: impl FnOnce() -> c_int,
) -> io::Result<()> {
    let changed = || io::Error::other("the program has closed or duplicated the socket meanwhile");
    let ((place, file), mut slot) = place(fd).zip(slot(fd)).ok_or_else(changed)?;
    let is_same = file.load(Ordering::Relaxed) == socket && system::socket_of(fd) == socket;
    if place.load(Ordering::Relaxed) != CONNECTING || !is_same {
        return Err(changed());
    }
    let before = slot.replace(entry);
    // First: a call of another thread that finds the mirror must also find its stream.
    store(fd, STREAM, of);
    let mut failed = None;
    let mut left = before;
    if replace() < 0 {
        failed = Some(io::Error::last_os_error());
        place.store(KERNEL, Ordering::Relaxed);
        left = slot.take();
    }
    drop(slot);
    drop(left);
    failed.map_or(Ok(()), Err)
}

/// Notes that the socket does not become a stream. Returns whether the number is still its own.
pub(crate) fn cancel(fd: c_int, socket: u64) -> bool {
    if let Some(((kind, file), _slot)) = place(fd).zip(slot(fd))
        && kind.load(Ordering::Relaxed) == CONNECTING
        && file.load(Ordering::Relaxed) == socket
    {
        kind.store(KERNEL, Ordering::Relaxed);
    }
    system::socket_of(fd) == socket
}

/// Makes a system call that takes the numbers from `first` to `last` from their files if `has` is true for its result.
/// Another thread finds what a number stood for before it, and nothing afterwards.
pub(crate) fn release(
    first: c_uint,
    last: c_uint,
    call: impl FnOnce() -> c_int,
    has: impl FnOnce(c_int) -> bool,
) -> c_int {
    let numbers = within(first, last).filter(|_| !is_borrowed());
    let mut slots: Vec<_> = numbers.filter_map(|fd| Some((place(fd)?.0, slot(fd)?))).collect();
    let result = call();
    let number = system::errno();
    let mut entries = Vec::new();
    if has(result) {
        for (kind, slot) in &mut slots {
            kind.store(KERNEL, Ordering::Relaxed);
            entries.extend(slot.take());
        }
    }
    drop(slots);
    drop(entries);
    system::set_errno(number);
    result
}

/// The streams of this process.
pub(crate) fn streams() -> impl Iterator<Item = Arc<Stream>> {
    within(0, c_uint::MAX).filter(|_| !is_borrowed()).filter_map(|fd| match slot(fd)?.as_ref()? {
        Entry::Stream(stream) => Some(Arc::clone(stream)),
        Entry::Listener(_) => None,
    })
}

/// Returns the numbers from `first` to `last` that are not the kernel's alone.
pub(crate) fn within(first: u32, last: u32) -> impl Iterator<Item = c_int> {
    let last = last.min(KINDS.len() as u32 - 1);
    (first..=last).filter(|fd| KINDS[*fd as usize].load(Ordering::Relaxed) != KERNEL).map(|fd| fd as c_int)
}

/// Notes that an epoll watches the file of this number, or that another number stands for it.
pub(crate) fn hold(fd: c_int) {
    let is_free = || matches!(kind(fd), KERNEL | CONNECTING);
    if is_free() && system::socket_of(fd) != 0 && !is_borrowed() {
        let _slot = slot(fd);
        if is_free() {
            store(fd, HELD, fd);
        }
    }
}

/// Whether a number is that of a socket of the kernel, that the table lists.
pub(crate) fn is_held(fd: c_int) -> bool {
    matches!(kind(fd), HELD | CONNECTING)
}

/// The process to which the table belongs.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// Counts children from the first entry on.
fn count_children() {
    /// Runs in each child, on its only thread. The function must not lock or allocate.
    extern "C" fn in_child() {
        OWNER.store(process::id(), Ordering::Relaxed);
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        Generation::this();
        OWNER.store(process::id(), Ordering::Relaxed);
        system::call_in_children(in_child);
    });
}

/// Whether this is a child of `vfork(2)`, which has its own descriptors but the memory of its parent.
pub(crate) fn is_borrowed() -> bool {
    let owner = OWNER.load(Ordering::Relaxed);
    owner != 0 && owner != process::id()
}
