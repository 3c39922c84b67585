//! Handles: numbers that C programs hold in place of pointers.
//!
//! A handle has the type of a pointer, but the library never follows it. It consists of the kind of its object, the
//! index of a slot in a table, and a serial number. Each of 2^32 new handles has another serial number. So a handle that
//! was closed, one of another kind, one of the parent of this process (fork), or an arbitrary pointer matches no slot,
//! and the call returns `-EBADF`.

use std::io;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::error::invalid;

/// The parts of a handle, from the lowest bit: the kind, which is not 0, then the index, then the serial number.
const KIND_BITS: u32 = 2;
const INDEX_BITS: u32 = usize::BITS / 2 - KIND_BITS;
const SERIAL_BITS: u32 = usize::BITS / 2;
/// Block number N has `FIRST << N` slots. Blocks are never freed.
const FIRST: usize = 64;
const BLOCKS: usize = (INDEX_BITS - FIRST.ilog2()) as usize;

/// The serial number of the next handle. A child process continues to count, so its handles differ from those of its
/// parent that it inherited.
static SERIAL: AtomicU32 = AtomicU32::new(0);

/// The objects of one kind. `H` is the type to which the handles seem to point.
#[derive(Debug)]
pub(crate) struct Table<H, T> {
    kind: usize,
    blocks: [OnceLock<Box<[Slot<T>]>>; BLOCKS],
    free: Mutex<Free>,
    seemingly: PhantomData<fn(H)>,
}

/// An object and the serial number of its handle.
type Slot<T> = Mutex<Option<(usize, T)>>;

/// The slots without an object: those that had one, and all from the number `unused`.
#[derive(Debug)]
struct Free {
    used: Vec<usize>,
    unused: usize,
}

impl<H, T> Table<H, T> {
    /// Creates an empty table. `kind` is from 1 to 3.
    pub(crate) const fn new(kind: usize) -> Self {
        let free = Mutex::new(Free { used: Vec::new(), unused: 0 });
        Self { kind, blocks: [const { OnceLock::new() }; BLOCKS], free, seemingly: PhantomData }
    }

    /// Stores an object, and returns its handle.
    ///
    /// # Errors
    ///
    /// `EMFILE` if the table is full.
    pub(crate) fn insert(&self, object: T) -> io::Result<*mut H> {
        let index = {
            let mut free = lock(&self.free);
            free.used.pop().unwrap_or_else(|| {
                free.unused += 1;
                free.unused - 1
            })
        };
        let (block, at) = place(index);
        let Some(block) = self.blocks.get(block) else { return Err(io::Error::from_raw_os_error(libc::EMFILE)) };
        let slots = block.get_or_init(|| (0..block_length(index)).map(|_| Mutex::new(None)).collect());
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed) as usize & ((1 << SERIAL_BITS) - 1);
        if let Some(slot) = slots.get(at) {
            *lock(slot) = Some((serial, object));
        }
        Ok(ptr::without_provenance_mut(serial << (usize::BITS - SERIAL_BITS) | index << KIND_BITS | self.kind))
    }

    /// Calls a function with an object. The function must not use the table.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the handle is null; `EBADF` if it is not valid.
    #[inline]
    pub(crate) fn with<R>(&self, handle: *const H, act: impl FnOnce(&T) -> R) -> io::Result<R> {
        self.slot(handle, |_, slot| slot.as_ref().map(|(_, object)| act(object)))
    }

    /// Removes an object. Its handle becomes invalid.
    ///
    /// # Errors
    ///
    /// See `with`.
    pub(crate) fn take(&self, handle: *const H) -> io::Result<T> {
        let (index, object) = self.slot(handle, |index, slot| slot.take().map(|(_, object)| (index, object)))?;
        lock(&self.free).used.push(index);
        Ok(object)
    }

    #[inline]
    fn slot<R>(
        &self,
        handle: *const H,
        act: impl FnOnce(usize, &mut Option<(usize, T)>) -> Option<R>,
    ) -> io::Result<R> {
        let bits = handle.addr();
        let (kind, index) = (bits & ((1 << KIND_BITS) - 1), bits >> KIND_BITS & ((1 << INDEX_BITS) - 1));
        let (block, at) = place(index);
        let slot = self.blocks.get(block).and_then(OnceLock::get).and_then(|slots| slots.get(at));
        if let Some(slot) = slot.filter(|_| kind == self.kind) {
            let mut slot = lock(slot);
            if slot.as_ref().is_some_and(|(serial, _)| *serial == bits >> (usize::BITS - SERIAL_BITS))
                && let Some(result) = act(index, &mut slot)
            {
                return Ok(result);
            }
        }
        Err(bad(handle.is_null()))
    }
}

/// Returns the block of a slot, and the slot's number in the block.
#[inline]
fn place(index: usize) -> (usize, usize) {
    let from_first = index + FIRST;
    let block = from_first.ilog2();
    ((block - FIRST.ilog2()) as usize, from_first - (1 << block))
}

/// Returns the number of slots of the block that contains a slot.
fn block_length(index: usize) -> usize {
    1 << (index + FIRST).ilog2()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cold]
fn bad(is_null: bool) -> io::Error {
    if is_null { invalid("the handle is null") } else { io::Error::from_raw_os_error(libc::EBADF) }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    type Numbers = Table<(), usize>;

    fn errno<T: std::fmt::Debug>(result: io::Result<T>) -> Option<i32> {
        result.unwrap_err().raw_os_error()
    }

    #[test]
    fn each_handle_finds_its_object_until_it_is_taken() {
        let table = Numbers::new(2);
        let handles: Vec<_> = (0..1_000).map(|number| table.insert(number).unwrap()).collect();
        assert_eq!(handles.iter().collect::<HashSet<_>>().len(), handles.len());
        for (number, handle) in handles.iter().enumerate() {
            assert_eq!(table.with(*handle, |found| *found).unwrap(), number);
        }
        for (number, handle) in handles.iter().enumerate() {
            assert_eq!(table.take(*handle).unwrap(), number);
            assert_eq!(errno(table.take(*handle)), Some(libc::EBADF));
        }
        // The slots are used again, and the old handles stay invalid.
        let again: Vec<_> = (0..1_000).map(|number| table.insert(number).unwrap()).collect();
        assert_eq!(lock(&table.free).unused, 1_000);
        assert!(handles.iter().all(|handle| errno(table.with(*handle, |_| ())) == Some(libc::EBADF)));
        assert!(again.iter().all(|handle| table.with(*handle, |_| ()).is_ok()));
    }

    #[test]
    fn handle_of_another_kind_or_no_handle_is_refused() {
        let (table, other) = (Numbers::new(1), Numbers::new(3));
        let handle = table.insert(7).unwrap();
        other.insert(7).unwrap();
        assert_eq!(errno(other.with(handle, |_| ())), Some(libc::EBADF));
        for bits in [1, 2, 3, 1 << KIND_BITS, usize::MAX, (&raw const table).addr()] {
            let arbitrary = ptr::without_provenance(bits ^ (handle.addr() << 8));
            assert_eq!(errno(table.with(arbitrary, |_| ())), Some(libc::EBADF), "{bits:#x}");
        }
        assert_eq!(table.with(ptr::null(), |_| ()).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn each_index_has_a_place_in_its_block() {
        let mut last = None;
        for index in 0..10_000 {
            let (block, at) = place(index);
            assert!(at < block_length(index));
            let expected = match last {
                Some((block, at)) if at + 1 < (FIRST << block) => (block, at + 1),
                Some((block, _)) => (block + 1, 0),
                None => (0, 0),
            };
            assert_eq!((block, at), expected);
            last = Some((block, at));
        }
        assert!(place((1 << INDEX_BITS) - FIRST - 1).0 < BLOCKS);
    }
}
