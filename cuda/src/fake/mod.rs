//! A CUDA driver for tests. The processor cannot access the driver's memory, and a copy on a stream runs only when the
//! stream is synchronized. The driver checks that a context is current when a function requires one.

#![expect(clippy::unwrap_used, reason = "only tests use this module")]

mod functions;
mod world;

use std::cell::{Cell, RefCell};
use std::ffi::c_uint;

use self::functions::{NEW, OLD};
use self::world::world;
use crate::Driver;

const INVALID_VALUE: c_uint = 1;
const OUT_OF_MEMORY: c_uint = 2;
const INVALID_CONTEXT: c_uint = 201;
const ILLEGAL_ADDRESS: c_uint = 700;
const NOT_SUPPORTED: c_uint = 801;

/// The GPUs, each with its name and PCI address. The device numbers start at 100, and a device and its primary context
/// have the same number.
const GPUS: [(&[u8], &[u8]); 2] = [(b"Fake A\0", b"0000:17:00.0\0"), (b"Fake B\0", b"0000:CA:00.0\0")];

thread_local! {
    static LOADED: Cell<Option<&'static Driver>> = const { Cell::new(None) };
    /// The function that is configured to fail, and its error.
    static FAILS: Cell<Option<(&'static str, c_uint)>> = const { Cell::new(None) };
    static COUNT: Cell<usize> = const { Cell::new(GPUS.len()) };
    static CURRENT: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    /// The functions that were called, and the lengths of asynchronous copies.
    static CALLS: RefCell<Vec<(&'static str, Option<usize>)>> = const { RefCell::new(Vec::new()) };
    /// The number of this thread's allocations of more than one byte.
    static LIVE: Cell<usize> = const { Cell::new(0) };
    /// The number of contexts that this thread retains.
    static RETAINED: Cell<usize> = const { Cell::new(0) };
}

/// Returns the driver if this thread has loaded it.
pub(crate) fn of_thread() -> Option<&'static Driver> {
    LOADED.get()
}

/// A handle that controls the fake driver of this thread. A context is a number that is not 0.
#[derive(Clone, Copy, Debug)]
pub struct Fake;

impl Fake {
    /// Makes libcuda available on this thread.
    pub fn load() -> Self {
        LOADED.set(Some(&NEW));
        Self
    }

    /// Makes a version of libcuda available on this thread that does not support DMA buffers.
    pub fn load_old() -> Self {
        LOADED.set(Some(&OLD));
        Self
    }

    /// Makes a function fail on this thread with this `CUresult`. `None` makes it succeed again.
    pub fn fails(self, failure: Option<(&'static str, c_uint)>) {
        FAILS.set(failure);
    }

    /// Sets the number of GPUs.
    pub fn count(self, count: usize) {
        COUNT.set(count);
    }

    /// Returns the functions that this thread has called since the last call of this method or of
    /// [`copies`](Self::copies).
    pub fn calls(self) -> Vec<&'static str> {
        CALLS.take().into_iter().map(|(name, _)| name).collect()
    }

    /// Returns the asynchronous copies among the calls, each with its length.
    pub fn copies(self) -> Vec<(&'static str, usize)> {
        CALLS.take().into_iter().filter_map(|(name, length)| Some((name, length?))).collect()
    }

    /// Returns the number of this thread's allocations, and the number of contexts that it retains. An allocation of
    /// one byte is not counted: softrnic has one in each context that it uses, until the context is destroyed.
    pub fn live(self) -> (usize, usize) {
        (LIVE.get(), RETAINED.get())
    }

    /// Creates a context that is current on no thread.
    pub fn context(self) -> usize {
        world().next()
    }

    /// Returns the stack of current contexts of the thread.
    pub fn current(self) -> Vec<usize> {
        CURRENT.with_borrow(Clone::clone)
    }

    /// Makes a context current on this thread.
    pub fn make_current(self, context: usize) {
        CURRENT.with_borrow_mut(|current| current.push(context));
    }

    /// Destroys a context with its memory and streams.
    pub fn destroy(self, context: usize) {
        world().destroy(context);
    }

    /// Allocates `length` zeroed bytes in a context. The context 0 stands for none.
    pub fn allocate(self, context: usize, length: usize) -> u64 {
        world().allocate(context, vec![0; length])
    }

    /// Sets the memory type of an allocation, and whether it is managed.
    pub fn is_kind(self, address: u64, kind: u32, is_managed: bool) {
        world().is_kind(address, kind, is_managed);
    }

    /// Frees an allocation.
    pub fn free(self, address: u64) {
        world().free(address).unwrap();
    }

    /// Frees an allocation and creates another of the same size at its address.
    pub fn replace(self, address: u64) {
        world().replace(address);
    }

    /// Overwrites GPU memory.
    pub fn set(self, address: u64, bytes: &[u8]) {
        world().at(address, bytes.len()).unwrap().copy_from_slice(bytes);
    }

    /// Reads GPU memory.
    pub fn get(self, address: u64, length: usize) -> Vec<u8> {
        world().at(address, length).unwrap().to_vec()
    }
}
