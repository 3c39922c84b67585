//! A CUDA driver for tests. The driver's memory is inaccessible to the host, and a copy runs only when its stream is
//! synchronized.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::{Mutex, MutexGuard};

use super::driver::{Driver, Handle};
use crate::sys::unpoisoned;

const INVALID_VALUE: c_int = 1;
const INVALID_CONTEXT: c_int = 201;
const ILLEGAL_ADDRESS: c_int = 700;

static DRIVER: Driver = Driver {
    pointer_get_attributes,
    ctx_push_current,
    ctx_pop_current,
    device_get,
    device_primary_ctx_retain,
    mem_alloc,
    stream_create,
    stream_synchronize,
    memcpy_htod_async,
    memcpy_dtoh_async,
    memcpy_dtod_async,
    memcpy_peer_async,
    memset_d8_async,
};

thread_local! {
    static IS_LOADED: Cell<bool> = const { Cell::new(false) };
    static CONTEXTS: RefCell<Vec<Handle>> = const { RefCell::new(Vec::new()) };
    /// The function that must fail, by its name, and the error that it must return.
    static FAILS: Cell<Option<(&'static str, c_int)>> = const { Cell::new(None) };
    /// The calls of functions that copy, in order.
    static CALLS: RefCell<Vec<(&'static str, usize)>> = const { RefCell::new(Vec::new()) };
}

/// Returns the driver, if this thread has loaded it.
pub(super) fn of_thread() -> Option<&'static Driver> {
    IS_LOADED.get().then_some(&DRIVER)
}

/// The access of one thread to the fake driver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fake;

impl Fake {
    /// Simulates a loaded libcuda on this thread.
    pub(crate) fn load() -> Self {
        IS_LOADED.set(true);
        Self
    }

    /// Creates a context that is current on no thread.
    pub(crate) fn context(self) -> Handle {
        world().next()
    }

    /// Allocates `length` bytes in a context. The context 0 stands for none.
    pub(crate) fn allocate(self, context: Handle, length: usize) -> u64 {
        world().allocate(context, vec![0; length])
    }

    /// Sets the memory type of an address, and whether it is managed.
    pub(crate) fn is_kind(self, address: u64, kind: u64, is_managed: bool) {
        let mut world = world();
        let known = world.memory.get_mut(&address).unwrap();
        (known.kind, known.is_managed) = (kind, is_managed);
    }

    pub(crate) fn free(self, address: u64) {
        world().memory.remove(&address).unwrap();
    }

    /// Frees the allocation and creates another of the same size at its address.
    pub(crate) fn replace(self, address: u64) {
        let mut world = world();
        let before = world.memory.remove(&address).unwrap();
        let number = world.next() as u64;
        let bytes = vec![0; before.bytes.len()];
        world.memory.insert(address, Allocation { number, bytes, ..before });
    }

    /// Destroys a context with its memory and streams.
    pub(crate) fn destroy(self, context: Handle) {
        let mut world = world();
        world.memory.retain(|_, known| known.context != context);
        world.streams.retain(|_, stream| stream.context != context);
    }

    pub(crate) fn set(self, address: u64, bytes: &[u8]) {
        world().at(address, bytes.len()).unwrap().copy_from_slice(bytes);
    }

    pub(crate) fn get(self, address: u64, length: usize) -> Vec<u8> {
        world().at(address, length).unwrap().to_vec()
    }

    /// Makes a function fail on this thread from now on; `None` makes it succeed again.
    pub(crate) fn fails(self, failure: Option<(&'static str, c_int)>) {
        FAILS.set(failure);
    }

    /// Returns the stack of current contexts of the thread.
    pub(crate) fn current(self) -> Vec<Handle> {
        CONTEXTS.with_borrow(Clone::clone)
    }

    pub(crate) fn make_current(self, context: Handle) {
        CONTEXTS.with_borrow_mut(|contexts| contexts.push(context));
    }

    /// Returns the copies that this thread has made since the last call. Each consists of the name of the function and
    /// the length.
    pub(crate) fn calls(self) -> Vec<(&'static str, usize)> {
        CALLS.take()
    }
}

struct Allocation {
    context: Handle,
    number: u64,
    kind: u64,
    is_managed: bool,
    bytes: Vec<u8>,
}

struct Stream {
    context: Handle,
    pending: Vec<Copy>,
}

/// A copy that has not run yet, with its addresses on the host and on the GPU.
enum Copy {
    ToDevice(u64, usize, usize),
    ToHost(usize, u64, usize),
    Within(u64, u64, usize),
    Clear(u64, usize),
}

struct World {
    last: usize,
    memory: BTreeMap<u64, Allocation>,
    streams: BTreeMap<Handle, Stream>,
}

fn world() -> MutexGuard<'static, World> {
    static WORLD: Mutex<World> = Mutex::new(World { last: 0x1000, memory: BTreeMap::new(), streams: BTreeMap::new() });
    unpoisoned(WORLD.lock())
}

impl World {
    /// Returns an unused number.
    fn next(&mut self) -> usize {
        self.last += 1;
        self.last
    }

    fn allocate(&mut self, context: Handle, bytes: Vec<u8>) -> u64 {
        let number = self.next() as u64;
        let address = number << 40;
        self.memory.insert(address, Allocation { context, number, kind: 2, is_managed: false, bytes });
        address
    }

    fn find(&self, address: u64) -> Option<(u64, &Allocation)> {
        let (&start, known) = self.memory.range(..=address).next_back()?;
        (address - start < known.bytes.len() as u64).then_some((start, known))
    }

    fn at(&mut self, address: u64, length: usize) -> Result<&mut [u8], c_int> {
        let (&start, known) = self.memory.range_mut(..=address).next_back().ok_or(ILLEGAL_ADDRESS)?;
        let offset = usize::try_from(address - start).map_err(|_| ILLEGAL_ADDRESS)?;
        known.bytes.get_mut(offset..).and_then(|rest| rest.get_mut(..length)).ok_or(ILLEGAL_ADDRESS)
    }

    fn carry_out(&mut self, copy: &Copy) -> Result<(), c_int> {
        match *copy {
            Copy::ToDevice(to, from, length) => {
                let from = std::ptr::with_exposed_provenance::<u8>(from);
                let to = self.at(to, length)?;
                // SAFETY: the code under test guarantees that `from` is readable.
                unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), length) };
            }
            Copy::ToHost(to, from, length) => {
                let to = std::ptr::with_exposed_provenance_mut::<u8>(to);
                let from = self.at(from, length)?;
                // SAFETY: the code under test guarantees that `to` is writable.
                unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, length) };
            }
            Copy::Within(to, from, length) => {
                let bytes = self.at(from, length)?.to_vec();
                self.at(to, length)?.copy_from_slice(&bytes);
            }
            Copy::Clear(at, length) => self.at(at, length)?.fill(0),
        }
        Ok(())
    }
}

fn code(result: Result<(), c_int>) -> c_int {
    result.err().unwrap_or(0)
}

fn begins(name: &'static str) -> Result<(), c_int> {
    FAILS.get().filter(|(fails, _)| *fails == name).map_or(Ok(()), |(_, code)| Err(code))
}

/// Adds a copy to a stream of the current context.
fn put(name: &'static str, stream: Handle, length: usize, copy: Copy) -> c_int {
    CALLS.with_borrow_mut(|calls| calls.push((name, length)));
    code(begins(name).and_then(|()| {
        let current = CONTEXTS.with_borrow(|contexts| contexts.last().copied());
        let mut world = world();
        let stream = world.streams.get_mut(&stream).expect("the real driver crashes on a destroyed stream");
        if current != Some(stream.context) {
            return Err(INVALID_CONTEXT);
        }
        stream.pending.push(copy);
        Ok(())
    }))
}

unsafe extern "C" fn pointer_get_attributes(
    count: c_uint,
    asked: *mut c_int,
    values: *mut *mut c_void,
    address: u64,
) -> c_int {
    code(begins("cuPointerGetAttributes").and_then(|()| {
        let world = world();
        let known = world.find(address);
        for index in 0..count as usize {
            // SAFETY: each list has `count` entries.
            let (asked, value) = unsafe { (*asked.add(index), *values.add(index)) };
            // SAFETY: the values have the types that the driver documents.
            unsafe {
                match asked {
                    1 => *value.cast() = known.map_or(0, |(_, known)| known.context),
                    2 => *value.cast() = known.map_or(0, |(_, known)| known.kind as c_uint),
                    7 => *value.cast() = known.map_or(0, |(_, known)| known.number),
                    8 => *value.cast() = c_uint::from(known.is_some_and(|(_, known)| known.is_managed)),
                    9 => *value.cast() = known.map_or(-2, |_| 3),
                    11 => *value.cast() = known.map_or(0, |(start, _)| start),
                    12 => *value.cast() = known.map_or(0, |(_, known)| known.bytes.len()),
                    _ => return Err(INVALID_VALUE),
                }
            }
        }
        Ok(())
    }))
}

unsafe extern "C" fn ctx_push_current(context: Handle) -> c_int {
    code(begins("cuCtxPushCurrent").map(|()| Fake.make_current(context)))
}

unsafe extern "C" fn ctx_pop_current(context: *mut Handle) -> c_int {
    let popped = CONTEXTS.with_borrow_mut(Vec::pop).expect("a context is current");
    // SAFETY: the caller's pointer is writable.
    unsafe { *context = popped };
    0
}

unsafe extern "C" fn device_get(device: *mut c_int, ordinal: c_int) -> c_int {
    // SAFETY: the caller's pointer is writable.
    unsafe { *device = ordinal + 100 };
    0
}

unsafe extern "C" fn device_primary_ctx_retain(context: *mut Handle, device: c_int) -> c_int {
    assert_eq!(device, 103);
    // SAFETY: the caller's pointer is writable.
    unsafe { *context = 103 };
    0
}

unsafe extern "C" fn mem_alloc(address: *mut u64, length: usize) -> c_int {
    code(begins("cuMemAlloc").map(|()| {
        let context = *Fake.current().last().expect("a context is current");
        // SAFETY: the caller's pointer is writable.
        unsafe { *address = world().allocate(context, vec![0; length]) };
    }))
}

unsafe extern "C" fn stream_create(stream: *mut Handle, flags: c_uint) -> c_int {
    assert_eq!(flags, 1, "the stream must not synchronize with others");
    code(begins("cuStreamCreate").map(|()| {
        let context = *Fake.current().last().expect("a context is current");
        let mut world = world();
        let number = world.next();
        world.streams.insert(number, Stream { context, pending: Vec::new() });
        // SAFETY: the caller's pointer is writable.
        unsafe { *stream = number };
    }))
}

unsafe extern "C" fn stream_synchronize(stream: Handle) -> c_int {
    let mut world = world();
    let stream = world.streams.get_mut(&stream).expect("the real driver crashes on a destroyed stream");
    let pending = std::mem::take(&mut stream.pending);
    let carried_out = pending.iter().try_for_each(|copy| world.carry_out(copy));
    code(carried_out.and_then(|()| begins("cuStreamSynchronize")))
}

unsafe extern "C" fn memcpy_htod_async(to: u64, from: *const c_void, length: usize, stream: Handle) -> c_int {
    put("cuMemcpyHtoDAsync", stream, length, Copy::ToDevice(to, from.expose_provenance(), length))
}

unsafe extern "C" fn memcpy_dtoh_async(to: *mut c_void, from: u64, length: usize, stream: Handle) -> c_int {
    put("cuMemcpyDtoHAsync", stream, length, Copy::ToHost(to.expose_provenance(), from, length))
}

unsafe extern "C" fn memcpy_dtod_async(to: u64, from: u64, length: usize, stream: Handle) -> c_int {
    put("cuMemcpyDtoDAsync", stream, length, Copy::Within(to, from, length))
}

unsafe extern "C" fn memcpy_peer_async(
    to: u64,
    to_context: Handle,
    from: u64,
    from_context: Handle,
    length: usize,
    stream: Handle,
) -> c_int {
    {
        let world = world();
        let is_of = |address, context| world.find(address).is_some_and(|(_, known)| known.context == context);
        assert!(is_of(to, to_context) && is_of(from, from_context), "memory of another context");
    }
    put("cuMemcpyPeerAsync", stream, length, Copy::Within(to, from, length))
}

unsafe extern "C" fn memset_d8_async(at: u64, value: u8, length: usize, stream: Handle) -> c_int {
    assert_eq!(value, 0);
    put("cuMemsetD8Async", stream, length, Copy::Clear(at, length))
}
