//! The state of a recording device, under one lock.

use std::cell::UnsafeCell;
use std::collections::{BTreeMap, VecDeque};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use libc::c_int;
use rdma_mummy_sys as ffi;

use super::async_events::AsyncEvents;
use super::calls::{Call, Completion, Kind, Posted};
use super::domain::Allocator;
use super::failure::Failure;
use super::script::{Facts, Script};
use super::spoil::Spoil;
use super::srq::Shared;
use super::xrc::ReceivePair;

/// A device with its log. The device and its objects live until the process ends, so a use of a destroyed object is
/// logged as a violation, and never accesses freed memory.
#[repr(C)]
pub(super) struct Device {
    /// In a cell, because the mark of the provider is written to it.
    pub(super) device: UnsafeCell<ffi::ibv_device>,
    pub(super) state: State,
}

impl Device {
    /// The pointer for C objects, with provenance for the whole device.
    pub(super) fn as_c(&'static self) -> *mut ffi::ibv_device {
        ptr::from_ref(self).cast_mut().cast()
    }
}

#[derive(Default)]
pub(super) struct State {
    inner: Mutex<Inner>,
    /// Whether calls are not logged.
    pub(super) quiet: AtomicBool,
    /// Calls on closed contexts, which are violations.
    pub(super) late: AtomicU32,
    /// Notified when an event was acknowledged.
    pub(super) acknowledged: Condvar,
}

#[derive(Default)]
pub(super) struct Inner {
    pub(super) calls: Vec<Call>,
    /// Calls that could have failed.
    pub(super) failable: u32,
    pub(super) posted: Vec<Posted>,
    pub(super) violations: Vec<String>,
    pub(super) script: Script,
    pub(super) facts: Facts,
    pub(super) spoil: Spoil,
    live: BTreeMap<usize, Object>,
    pub(super) queues: BTreeMap<usize, Queue>,
    pub(super) pairs: BTreeMap<usize, Pair>,
    pub(super) shared: BTreeMap<usize, Shared>,
    pub(super) receive_pairs: BTreeMap<usize, ReceivePair>,
    pub(super) channels: BTreeMap<usize, Channel>,
    pub(super) async_events: AsyncEvents,
    /// By the address of the parent domain.
    pub(super) allocators: BTreeMap<usize, Allocator>,
    /// Memory from an allocator, by the address of the completion queue.
    pub(super) memory: BTreeMap<usize, (Allocator, usize)>,
    /// The two numbers, by the address of the counter.
    pub(super) counters: BTreeMap<usize, [u64; 2]>,
    /// Queue pairs in multicast groups: the queue pair, both halves of the GID, the LID.
    pub(super) groups: BTreeMap<(usize, u64, u64, u16), usize>,
    pub(super) bytes: Vec<Vec<u8>>,
    pub(super) qp_attr: Option<ffi::ibv_qp_attr>,
    handles: u32,
}

struct Object {
    kind: Kind,
    parents: Vec<usize>,
}

/// A completion queue.
#[derive(Default)]
pub(super) struct Queue {
    pub(super) completions: VecDeque<Completion>,
    pub(super) current: Option<Completion>,
    pub(super) polling: bool,
    /// Whether a failed resize has freed the queue's memory.
    pub(super) is_lost: bool,
    pub(super) armed: bool,
    pub(super) channel: usize,
    /// Events that were read and not acknowledged.
    pub(super) unacknowledged: u32,
}

/// A queue pair.
pub(super) struct Pair {
    pub(super) cap: ffi::ibv_qp_cap,
    pub(super) signal_all: bool,
    pub(super) receives: VecDeque<Posted>,
    /// The shared receive queue, or zero.
    pub(super) srq: usize,
    /// The batch between `wr_start` and `wr_complete`.
    pub(super) batch: Option<Vec<Posted>>,
    /// An old batch, for its memory.
    pub(super) spare: Vec<Posted>,
    /// Whether the last request of the batch still needs its data.
    pub(super) without_data: bool,
    /// Whether the last request still needs its address (datagrams and XRC).
    pub(super) without_address: bool,
    pub(super) error: c_int,
    /// Whether the driver copies inline data of any length.
    pub(super) copies_any_length: bool,
    /// Whether the driver reads the first entry of an empty list.
    pub(super) reads_first: bool,
}

impl Pair {
    /// Whether the driver copies inline data for which it has no space.
    pub(super) fn overruns(&self, length: usize) -> bool {
        self.copies_any_length && length > self.cap.max_inline_data as usize
    }
}

/// A completion channel.
pub(super) struct Channel {
    pub(super) fd: c_int,
    /// Queues with new completions.
    pub(super) events: VecDeque<usize>,
}

// SAFETY: the pointers in it are never dereferenced (of `Facts`), or point to C objects that are never freed.
unsafe impl Send for Inner {}

impl State {
    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panicking test holds the lock only in its own closures, which leave the state consistent.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.quiet.load(Ordering::Relaxed)
    }

    /// Logs a call that cannot fail.
    pub(super) fn note(&self, verb: &'static str, arguments: &[(&'static str, u64)]) -> MutexGuard<'_, Inner> {
        let mut inner = self.lock();
        if !self.is_quiet() {
            inner.calls.push(Call { verb, arguments: arguments.to_vec(), failed: None });
        }
        inner
    }

    /// Logs a call that can fail, and returns whether it must.
    pub(super) fn enter(
        &self,
        verb: &'static str,
        arguments: &[(&'static str, u64)],
    ) -> (MutexGuard<'_, Inner>, Option<Failure>) {
        let mut inner = self.note(verb, arguments);
        inner.failable += 1;
        let failure = inner.script.next(verb);
        if let Some(failure) = failure {
            inner.failed(failure.errno());
        }
        (inner, failure)
    }
}

impl Inner {
    /// Marks the last call as failed.
    pub(super) fn failed(&mut self, errno: c_int) {
        if let Some(call) = self.calls.last_mut() {
            call.failed = Some(errno);
        }
    }

    pub(super) fn violation(&mut self, what: impl Into<String>) {
        self.violations.push(what.into());
    }

    /// A number for a new object.
    pub(super) fn handle(&mut self) -> u32 {
        self.handles += 1;
        self.handles
    }

    /// Adds a new object, with the objects that it keeps alive.
    pub(super) fn made<T>(&mut self, kind: Kind, object: *mut T, parents: &[usize]) {
        self.live.insert(object.addr(), Object { kind, parents: parents.to_vec() });
    }

    /// Records that an object keeps another alive.
    pub(super) fn depends(&mut self, object: usize, parent: usize) {
        if let Some(object) = self.live.get_mut(&object) {
            object.parents.push(parent);
        }
    }

    /// Destroys an object, or returns why that is impossible.
    pub(super) fn destroy(&mut self, kind: Kind, object: usize) -> Result<(), c_int> {
        if self.live.get(&object).is_none_or(|found| found.kind != kind) {
            self.violation(format!("a {kind:?} that does not exist was destroyed"));
            self.failed(libc::EINVAL);
            return Err(libc::EINVAL);
        }
        if self.live.values().any(|other| other.parents.contains(&object)) {
            self.failed(libc::EBUSY);
            return Err(libc::EBUSY);
        }
        self.live.remove(&object);
        Ok(())
    }

    /// Whether the object exists; otherwise it is a violation.
    pub(super) fn exists(&mut self, object: usize, verb: &str) -> bool {
        let exists = self.live.contains_key(&object);
        if !exists {
            self.violation(format!("{verb} on an object that does not exist"));
        }
        exists
    }

    /// The kinds of all live objects.
    pub(super) fn kinds(&self) -> Vec<Kind> {
        let mut kinds: Vec<_> = self.live.values().map(|object| object.kind).collect();
        kinds.sort();
        kinds
    }
}
